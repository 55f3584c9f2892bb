"""An actor that does not read some columns of the observations, for instance a height scan.

Legend: N environments, O width of what is read.
"""

import dataclasses

import torch
from tensordict import TensorDict

from rrf.envs.control_env import Interface
from rrf.policies.control.actor_critic import GaussianActor
from rrf.policies.control.state_network import ACTOR_GROUPS, groups_of
from rrf.policies.control.student_configs import BlindActorCfg


class BlindActor(GaussianActor):
    """A Gaussian actor of the visible columns. What stands in the hidden ones is never used."""

    def __init__(self, cfg: BlindActorCfg, interface: Interface):
        dims = interface.observation_dims
        groups = groups_of(cfg.observation_groups, ACTOR_GROUPS, dims, "actor")
        columns = {name: visible_columns(cfg.hidden, name, dims[name]) for name in groups}
        for name in cfg.hidden:
            if name not in groups:
                raise ValueError(
                    f"hidden names the observation group '{name}', but the actor reads "
                    f"{', '.join(groups)}; name one of these"
                )
        seen = {name: len(visible) for name, visible in columns.items()}
        super().__init__(cfg, dataclasses.replace(interface, observation_dims=seen))
        for name, visible in columns.items():
            self.register_buffer(f"columns_{name}", torch.tensor(visible), persistent=False)

    def read(self, observations: TensorDict) -> torch.Tensor:
        """The visible columns of the groups, joined: float32 [N, O], not yet normalised."""
        parts = [
            observations[name].index_select(-1, self.get_buffer(f"columns_{name}"))
            for name in self.groups
        ]
        return torch.cat(parts, -1)


def visible_columns(hidden: dict[str, list[int]], group: str, width: int) -> list[int]:
    """The columns of an observation group that `hidden` leaves.

    Raises:
        ValueError: If a hidden column does not exist, or if none is left.
    """
    excluded = hidden.get(group, [])
    for column in excluded:
        if not 0 <= column < width:
            raise ValueError(
                f"hidden names column {column} of the observation group '{group}', allowed: 0 to "
                f"{width - 1}"
            )
    if not (left := [column for column in range(width) if column not in excluded]):
        raise ValueError(f"hidden leaves none of the {width} columns of group '{group}'")
    return left
