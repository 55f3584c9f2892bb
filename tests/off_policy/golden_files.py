"""Reading golden files, and putting weights of the original projects into our networks."""

import json
from pathlib import Path

import numpy as np
import torch

from rrf.policies.control.actor_q import ActorQ

GOLDEN = Path(__file__).parents[1] / "golden"


class Case:
    """One case of a golden file."""

    def __init__(self, file: str, name: str):
        self._file, self._name = np.load(GOLDEN / file, allow_pickle=False), name
        self.config = json.loads(str(self._file["config_json"]))[name]

    def __getitem__(self, key: str) -> torch.Tensor:
        return torch.from_numpy(self._file[f"{self._name}/{key}"])

    def keys(self, prefix: str) -> list[str]:
        """Keys that begin with `prefix`, in the order they were recorded."""
        begin = f"{self._name}/{prefix}"
        return sorted(
            k.removeprefix(f"{self._name}/") for k in self._file.files if k.startswith(begin)
        )


def linear_layers(case: Case, prefix: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Weights [out, in] and biases of the layers under `prefix`, in order."""
    weights = [k for k in case.keys(prefix) if k.endswith(".weight")]
    return [(case[k], case[k.removesuffix("weight") + "bias"]) for k in weights]


def fill_actor(policy: ActorQ, layers: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Put `layers` into the actor."""
    parameters = list(policy.actor.backbone.parameters())
    given = [tensor for layer in layers for tensor in layer]
    for parameter, tensor in zip(parameters, given, strict=True):
        parameter.data.copy_(tensor)


def fill_critic(critic, copies: list[list[tuple[torch.Tensor, torch.Tensor]]]) -> None:
    """Put the layers of each copy into batched critics."""
    for parameter, tensor in zip(critic.backbone.parameters(), batched(copies), strict=True):
        parameter.data.copy_(tensor)


def batched(copies: list[list[tuple[torch.Tensor, torch.Tensor]]]) -> list[torch.Tensor]:
    """Layers of several copies as ours: weights [K, in, out], biases [K, 1, out]."""
    tensors = []
    for layers in zip(*copies, strict=True):
        tensors.append(torch.stack([weight.T for weight, _ in layers]))
        tensors.append(torch.stack([bias.unsqueeze(0) for _, bias in layers]))
    return tensors
