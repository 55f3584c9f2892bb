"""Policies in use: arrays in, greedy actions out, whatever kind of policy answers.

Each kind is one class, a line in `DEPLOYED`. What it takes and gives is known without loading it:
`signature`. This file imports no torch.
"""

import dataclasses
import typing
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rrf.registry import Registry
from rrf.runners.checkpoints.deployable import kind_of

DEPLOYED = Registry(
    "deployed policy of kind",
    {
        "control": "rrf.runners.checkpoints.deployed_control:DeployedControl",
        "vla": "rrf.runners.checkpoints.deployed_vla:DeployedVLA",
    },
)
"""Kind of policy -> the class that answers for it."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An array that goes in or comes out."""

    dtype: str
    shape: tuple[int, ...]
    """-1 for how many observations there are."""
    name: str | None = None
    """Its key in the input; outputs have none."""


@dataclasses.dataclass(frozen=True)
class Signature:
    """What a policy takes and gives."""

    inputs: tuple[Tensor, ...]
    output: Tensor
    params: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    """Switches, and how they are set if nothing is said."""


class Deployed(typing.Protocol):
    """A policy in a checkpoint, ready to act."""

    def __init__(self, checkpoint: str | Path, device: str = "cpu"): ...

    @staticmethod
    def signature(checkpoint: str | Path) -> Signature:
        """What the policy in a checkpoint takes and gives.

        Raises:
            ValueError: If its config does not say.
        """
        ...

    def answer(self, inputs: Mapping[str, np.ndarray], params: Mapping[str, bool]) -> np.ndarray:
        """Greedy actions for observations, as the signature describes both.

        Raises:
            ValueError: For an input that is missing or of another shape.
        """
        ...


def deployed_class(checkpoint: str | Path) -> type[Deployed]:
    """The class that answers for the kind of policy in a checkpoint."""
    return DEPLOYED.get(kind_of(checkpoint))
