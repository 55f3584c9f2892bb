"""Golden cases of off-policy algorithms, and weights of the original projects in our networks."""

import torch

from rrf.policies.control.off_policy_actors import ActorQ
from tests.golden_files import golden


class Case:
    """One case of a golden file."""

    def __init__(self, file: str, name: str):
        self.config, self._arrays = golden(file, name)

    def __getitem__(self, key: str) -> torch.Tensor:
        return self._arrays[key]

    def keys(self, prefix: str) -> list[str]:
        """Keys that begin with `prefix`, in the order they were recorded."""
        return sorted(key for key in self._arrays if key.startswith(prefix))


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
