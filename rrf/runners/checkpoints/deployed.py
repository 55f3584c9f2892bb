"""Deployed policies: numpy arrays in, greedy actions out, for every kind of policy.

Each kind of policy has one class and one line in `DEPLOYED`. `signature` describes inputs and
output of a policy in a checkpoint. This file does not import torch.
"""

import dataclasses
import typing
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rrf.data.dataset.history import NOTHING, Past
from rrf.lookup import Lookup
from rrf.runners.checkpoints.deployable import kind_of

if typing.TYPE_CHECKING:
    from rrf.runners.checkpoints.placement import Placement

DEPLOYED = Lookup(
    "deployed policy of kind",
    {
        "control": "rrf.runners.checkpoints.deployed_control:DeployedControl",
        "vla": "rrf.runners.checkpoints.deployed_vla:DeployedVLA",
    },
)
"""Kind of policy -> the class that runs it."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An input or output array."""

    dtype: str
    shape: tuple[int, ...]
    """-1 stands for the number of observations."""
    name: str | None = None
    """The key of an input. An output has no name."""


@dataclasses.dataclass(frozen=True)
class Signature:
    """The inputs and the output of a policy."""

    inputs: tuple[Tensor, ...]
    output: Tensor
    params: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    """Switches and their default values."""
    past: Past = NOTHING
    """What of the inputs came before (`rrf.data.dataset.history`)."""
    systems: Mapping[int, "Signature"] = dataclasses.field(default_factory=dict)
    """Those of System 2 and System 1 of a policy in two parts, which answers the inputs of each
    alone, too."""


class Deployed(typing.Protocol):
    """A policy in a checkpoint, ready to act."""

    def __init__(self, checkpoint: str | Path, device: "str | Placement" = "cpu"): ...

    @staticmethod
    def signature(checkpoint: str | Path) -> Signature:
        """The inputs and the output of the policy in a checkpoint.

        Raises:
            ValueError: If its config does not contain them.
        """
        ...

    @property
    def has_memory(self) -> bool:
        """Whether actions also depend on earlier observations of the same robots."""
        ...

    def answer(self, inputs: Mapping[str, np.ndarray], params: Mapping[str, bool]) -> np.ndarray:
        """Greedy actions for observations, both as described by the signature.

        Raises:
            ValueError: For an input that is missing or has a wrong shape.
        """
        ...

    def resume(
        self, inputs: Mapping[str, np.ndarray], running: np.ndarray, num_frozen: int
    ) -> np.ndarray:
        """Greedy chunks that continue those being executed (real-time chunking).

        Args:
            inputs: As in `answer`.
            running: float32 [B, K, A], what is left of the running chunks.
            num_frozen: Of these K steps, how many will be over when the new chunks arrive.

        Raises:
            NotImplementedError: If the policy cannot continue a chunk.
        """
        ...


def deployed_class(checkpoint: str | Path) -> type[Deployed]:
    """The class that runs the kind of policy in a checkpoint."""
    return DEPLOYED.get(kind_of(checkpoint))
