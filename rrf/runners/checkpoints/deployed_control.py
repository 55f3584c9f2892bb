"""A state-based policy in use: numpy arrays in, greedy actions out, no environment needed.

Legend: N robots, D width of an observation group, A width of an action.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from tensordict import TensorDict

from rrf.config import did_you_mean
from rrf.runners.checkpoints.control import load_control_policy
from rrf.runners.checkpoints.deployed import Signature, Tensor

_RESET = "reset"


class DeployedControl:
    """The policy in a checkpoint. Where it is recurrent it remembers what each robot saw before."""

    def __init__(self, checkpoint: str | Path, device: str = "cpu"):
        """
        Raises:
            ValueError: As `rrf.runners.checkpoints.control.load_control_policy`.
        """
        self._policy, self.interface = load_control_policy(checkpoint, device)
        self._device = device
        self._is_recurrent = self._policy.actor.initial_memory(1) is not None
        self._num_robots: int | None = None  # that the memory is of

    @staticmethod
    def signature(checkpoint: str | Path) -> Signature:
        """Each observation group that the policy reads, float32 [N, D], by its name; float32
        [N, A], and where actions are chosen from a list their numbers, [N, 1]. The switch `reset`
        says that new episodes begin; a policy without memory does not need it."""
        policy, interface = load_control_policy(checkpoint)
        dims = interface.observation_dims
        groups = tuple(Tensor("float32", (-1, dims[name]), name) for name in policy.actor.groups)
        actions = Tensor("float32", (-1, interface.num_actions))
        return Signature(groups, actions, {_RESET: False})

    def answer(self, inputs: Mapping[str, np.ndarray], params: Mapping[str, bool]) -> np.ndarray:
        """See `act`."""
        groups = {name: np.asarray(value) for name, value in inputs.items()}
        return self.act(groups, reset=bool(params.get(_RESET, False)))

    def act(self, groups: Mapping[str, np.ndarray], reset: bool = False) -> np.ndarray:
        """Actions float32 [N, A] for observation groups, each float32 [N, D].

        Args:
            reset: New episodes begin: forget what was seen before.

        Raises:
            ValueError: For a group that is missing, of another width or not finite, or another
                number of robots than remembered. What is remembered stays.
        """
        rows = self._checked(groups)
        num_robots = len(next(iter(rows.values())))
        if reset:
            self._policy.reset()
        elif self._is_recurrent and self._num_robots not in (None, num_robots):
            raise ValueError(
                f"the policy remembers {self._num_robots} robots, these are {num_robots}; begin "
                "anew with reset=true"
            )
        self._num_robots = num_robots
        tensors = {name: torch.from_numpy(value).to(self._device) for name, value in rows.items()}
        actions = self._policy.act(TensorDict(tensors, [num_robots]))
        return actions.float().cpu().numpy()

    def _checked(self, groups: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        rows = {}
        for name in self._policy.actor.groups:
            if name not in groups:
                raise ValueError(
                    f"the observation group '{name}' is missing{did_you_mean(name, groups)}"
                )
            rows[name] = np.ascontiguousarray(groups[name], np.float32)
            shape, width = rows[name].shape, self.interface.observation_dims[name]
            if len(shape) != 2 or shape[1] != width:
                raise ValueError(
                    f"observation group '{name}' has shape {list(shape)}, expected [N, {width}]"
                )
            if not np.isfinite(rows[name]).all():
                robot, dimension = np.argwhere(~np.isfinite(rows[name]))[0]
                raise ValueError(
                    f"observation group '{name}' of robot {robot}, dimension {dimension}, is "
                    f"{rows[name][robot, dimension]}; the policy was not asked"
                )
        return rows
