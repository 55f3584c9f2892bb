"""System 0 at work: turns the 36 numbers of the command into targets of all joints but the hands',
at 50 Hz.

`PolicyBalancer` runs a trained whole-body policy on the states of any model that has the robot's 23
joints. The numbers are approached at the speeds that it was trained with
(`whole_body_commands.RATES`) and kept in their ranges, so that the upper levels may send steps.

Legend: N robots, K of them chosen, Q widths of qpos, V of qvel.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import typing
from collections.abc import Callable, Mapping
from pathlib import Path

import mujoco
import numpy as np

from rrf.config import locate
from rrf.envs.humanoid import body, command
from rrf.envs.humanoid.proprioception import (
    ACTION_SCALE,
    COMMAND_NAMES,
    NUM_ACTIONS,
    NUM_COMMAND,
    NUM_PROPRIO,
    Gait,
    History,
    Proprioception,
    euler,
    heading_error,
    moves,
    reference,
)
from rrf.envs.humanoid.whole_body_commands import ARM_RATE, RATES, limits

if typing.TYPE_CHECKING:
    from rrf.envs.control_env import Interface

STEP_S = 0.02
"""Seconds between two calls of `Balancer.targets`."""
_LOADER = "rrf.runners.checkpoints.control:load_control_policy"
_TAKEN = command.indices([*COMMAND_NAMES])
_TARGET_YAW = command.NAMES.index("target_yaw")


class Balancer(typing.Protocol):
    """What keeps N robots on their feet while they do what the command says."""

    def reset(self, robots: np.ndarray, qpos_kq: np.ndarray, qvel_kv: np.ndarray) -> None:
        """New episodes begin in these states; `target_yaw` counts from their heading."""
        ...

    def targets(
        self, robots: np.ndarray, qpos_kq: np.ndarray, qvel_kv: np.ndarray, command_k36: np.ndarray
    ) -> np.ndarray:
        """Angles that the 29 joints of `body.JOINTS` shall go to, float64 [K, 29], rad.

        Args:
            robots: Whose, int64 [K].
            qpos_kq: Their positions now.
            qvel_kv: Their velocities now.
            command_k36: What the upper levels want, the numbers of `command.COMMAND`.
        """
        ...


class PolicyBalancer:
    """A `Balancer` by a trained policy.

    Args:
        act: The policy: observation groups -> actions [K, 15].
        groups: The groups that it reads.
        model: A model with the robot's joints, whose states it will be given.
        num_robots: N.
    """

    def __init__(
        self,
        act: Callable[[Mapping[str, np.ndarray]], np.ndarray],
        groups: typing.Collection[str],
        model: mujoco.MjModel,
        num_robots: int = 1,
    ):
        self._act, self._groups = act, tuple(groups)
        self._observe = Proprioception(model)
        self._gait, self._history = Gait(num_robots), History(num_robots)
        self._action_n15 = np.zeros((num_robots, NUM_ACTIONS))
        self._command_n15 = np.zeros((num_robots, NUM_COMMAND))
        self._arms_n14 = np.zeros((num_robots, len(command.ARM_JOINTS)))
        self._arm_addresses = body.qpos_addresses(model, command.ARM_JOINTS)
        self._start_n = np.zeros(num_robots)  # the heading in which an episode began
        self._is_new_n = np.ones(num_robots, bool)
        self._low, self._high = limits()

    def reset(self, robots: np.ndarray, qpos_kq: np.ndarray, qvel_kv: np.ndarray) -> None:
        """See `Balancer.reset`."""
        self._gait.reset(robots)
        self._action_n15[robots] = 0.0
        self._start_n[robots] = euler(qpos_kq[:, 3:7])[:, 2]
        self._is_new_n[robots] = True
        self._arms_n14[robots] = qpos_kq[:, self._arm_addresses]
        now = np.zeros((len(robots), NUM_COMMAND))
        now[:, :8] = self._observe.joints(qpos_kq)[:, NUM_ACTIONS:]
        now[:, 14] = qpos_kq[:, 2]
        self._command_n15[robots] = np.clip(now, self._low, self._high)

    def targets(
        self, robots: np.ndarray, qpos_kq: np.ndarray, qvel_kv: np.ndarray, command_k36: np.ndarray
    ) -> np.ndarray:
        """See `Balancer.targets`."""
        wanted = np.clip(command_k36[:, _TAKEN], self._low, self._high)
        now = self._command_n15[robots]
        now += np.clip(wanted - now, -RATES * STEP_S, RATES * STEP_S)
        self._command_n15[robots] = now
        arms = self._arms_n14[robots]
        arms += np.clip(command_k36[:, command.ARMS] - arms, -ARM_RATE * STEP_S, ARM_RATE * STEP_S)
        self._arms_n14[robots] = arms
        keep = self._start_n[robots] + command_k36[:, _TARGET_YAW]
        error = heading_error(qpos_kq, keep)
        self._gait.advance(STEP_S, moves(now, error), robots)
        pose = reference(now, self._gait, robots)
        frame = self._observe(
            qpos_kq, qvel_kv, error, self._action_n15[robots], now[:, :8],
            self._gait.sine_n2[robots], pose,
        )  # fmt: skip
        new = self._is_new_n[robots]
        self._history.begin(robots[new], frame[new])
        self._history.push(frame, robots)
        self._is_new_n[robots] = False
        seen = self._history.groups(now, robots)
        action = self._act({name: seen[name] for name in self._groups})
        self._action_n15[robots] = np.clip(action, -20, 20)
        return np.concatenate([pose + ACTION_SCALE * self._action_n15[robots], arms], 1)


def load_balancer(
    checkpoint: str | Path, model: mujoco.MjModel, num_robots: int = 1
) -> PolicyBalancer:
    """The whole-body policy of a checkpoint, at work.

    Raises:
        ValueError: If the checkpoint cannot be read, or is of another interface; the message says
            what differs.
    """
    import torch
    from tensordict import TensorDict

    policy, interface = locate(_LOADER)(checkpoint)
    try:
        check_interface(interface)
    except ValueError as error:
        raise ValueError(f"{checkpoint} is no System 0: {error}") from error

    def act(groups: Mapping[str, np.ndarray]) -> np.ndarray:
        tensors: dict[str, typing.Any] = {n: torch.from_numpy(g) for n, g in groups.items()}
        return policy.act(TensorDict(tensors, [len(next(iter(groups.values())))])).numpy()

    return PolicyBalancer(act, policy.actor.groups, model, num_robots)


def check_interface(interface: "Interface") -> None:
    """Check that a policy takes what the levels above send and gives what the joints need.

    Raises:
        ValueError: If not; the message says what differs.
    """
    names = tuple(interface.robot.get("command_names", ()))
    if names != COMMAND_NAMES:
        wrong = sorted(set(names) ^ set(COMMAND_NAMES))
        what = f"'{wrong[0]}'" if wrong else "the order"
        raise ValueError(
            f"the policy of '{interface.task}' does not take the command of the whole body: {what} "
            f"differs; it takes {', '.join(names) or 'none'}, expected {', '.join(COMMAND_NAMES)}"
        )
    joints = tuple(interface.robot.get("joint_names", ()))
    if joints != body.DRIVEN or interface.num_actions != NUM_ACTIONS:
        raise ValueError(
            f"the policy of '{interface.task}' drives {', '.join(joints) or 'unknown joints'}, "
            f"expected {', '.join(body.DRIVEN)}"
        )
    if abs(interface.step_dt - STEP_S) > 1e-9:
        raise ValueError(
            f"the policy of '{interface.task}' acts every {interface.step_dt} s, expected {STEP_S}"
        )
    width = interface.observation_dims.get("actor")
    if width != NUM_PROPRIO + NUM_COMMAND:
        raise ValueError(
            f"the policy of '{interface.task}' sees {width} numbers, expected "
            f"{NUM_PROPRIO + NUM_COMMAND}"
        )


def standing_command(num_robots: int) -> np.ndarray:
    """The command to stand still with the arms in their default pose and open hands, [N, 36]."""
    rest = np.zeros((num_robots, len(command.COMMAND)))
    rest[:, command.ARMS] = body.default_pose(command.ARM_JOINTS)
    rest[:, command.NAMES.index("height")] = body.TALL
    return rest
