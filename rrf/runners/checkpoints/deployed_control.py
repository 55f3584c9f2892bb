"""A deployed state-based policy: numpy arrays in, greedy actions out, without an environment.

Legend: N robots, D width of an observation group, A width of an action.
"""

import typing
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from tensordict import TensorDict

from rrf.config import did_you_mean
from rrf.runners.checkpoints.control import load_control_policy
from rrf.runners.checkpoints.deployed import Signature, Tensor

if typing.TYPE_CHECKING:
    from rrf.runners.checkpoints.placement import Placement

_RESET = "reset"


class DeployedControl:
    """The policy in a checkpoint. A recurrent policy keeps a memory for each robot."""

    def __init__(self, checkpoint: str | Path, device: "str | Placement" = "cpu"):
        """
        Raises:
            ValueError: Like `rrf.runners.checkpoints.control.load_control_policy`.
        """
        if not isinstance(device, str):
            raise ValueError(
                "--device auto is for policies that one device cannot hold; name the device of a "
                "state-based policy: cpu, cuda"
            )
        self._policy, self.interface = load_control_policy(checkpoint, device)
        self._device = device
        self.has_memory = self._policy.actor.initial_memory(1) is not None
        self._num_robots: int | None = None  # number of robots in the memory

    @staticmethod
    def signature(checkpoint: str | Path) -> Signature:
        """See `Deployed.signature`.

        The inputs are the observation groups that the policy reads, by name, each float32 [N, D].
        The output is float32 [N, A]; discrete actions are indices, [N, 1]. The switch `reset` tells
        that new episodes begin; a policy without memory does not need it.
        """
        policy, interface = load_control_policy(checkpoint)
        dims = interface.observation_dims
        groups = tuple(Tensor("float32", (-1, dims[name]), name) for name in policy.actor.groups)
        actions = Tensor("float32", (-1, interface.num_actions))
        return Signature(groups, actions, {_RESET: False})

    def answer(self, inputs: Mapping[str, np.ndarray], params: Mapping[str, bool]) -> np.ndarray:
        """See `act`."""
        groups = {name: np.asarray(value) for name, value in inputs.items()}
        return self.act(groups, reset=bool(params.get(_RESET, False)))

    def resume(
        self, inputs: Mapping[str, np.ndarray], running: np.ndarray, num_frozen: int
    ) -> np.ndarray:
        """See `Deployed.resume`."""
        raise NotImplementedError("a state-based policy answers with single actions, not chunks")

    def act(self, groups: Mapping[str, np.ndarray], reset: bool = False) -> np.ndarray:
        """Actions float32 [N, A] for observation groups, each float32 [N, D].

        Args:
            reset: New episodes begin, so clear the memory first.

        Raises:
            ValueError: For a group that is missing, has a wrong width or is not finite, or if the
                number of robots differs from that in the memory. The memory does not change then.
        """
        rows = self._checked(groups)
        num_robots = len(next(iter(rows.values())))
        if reset:
            self._policy.reset()
        elif self.has_memory and self._num_robots not in (None, num_robots):
            raise ValueError(
                f"the policy has a memory of {self._num_robots} robots, but the input has "
                f"{num_robots}; begin new episodes with reset=true"
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
                    f"{rows[name][robot, dimension]}, which is not a finite number; the policy did "
                    "not act"
                )
        return rows
