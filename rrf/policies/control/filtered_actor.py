"""A Gaussian policy whose mean action passes a low-pass filter (`rrf.networks.blocks`).

The filter is part of the policy: what it remembers is its memory, as that of a recurrent network,
and gradients pass through it. Noise is added behind the filter, so that the log-probability of an
action is exact.

Legend: T time, B batch or environments, O observation width, A action width, W window.
"""

import torch

from rrf.envs.control_env import Interface
from rrf.networks.blocks import FFTFilter
from rrf.policies.control.actor_critic import GaussianActor
from rrf.policies.control.filtered_actor_configs import FilteredActorCfg


class FilteredActor(GaussianActor):
    """Call `step` or `sequence`; its memory is [W - 1, B, A + 1]."""

    memory: FFTFilter  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, cfg: FilteredActorCfg, interface: Interface):
        super().__init__(cfg, interface)
        self.memory = cfg.filter_cfg.build(interface.num_actions)

    def step(
        self, x_bo: torch.Tensor, memory: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        assert memory is not None, "a filter needs its memory; see initial_memory"
        return self.memory.step(self(x_bo), memory)

    def sequence(
        self, x_tbo: torch.Tensor, memory: torch.Tensor | None, starts_tb: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        assert memory is not None
        return self.memory.sequence(self(x_tbo), memory, starts_tb)

    def initial_memory(self, num_envs: int) -> torch.Tensor:
        return self.memory.initial_memory(num_envs)
