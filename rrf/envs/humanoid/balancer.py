"""System 0 at work: turns the 36 numbers of the command into targets of all joints but the hands',
at 50 Hz.

`PolicyBalancer` runs a trained whole-body policy on the states of any model that has the robot's
joints. The numbers of the command are approached at the speeds that it was trained with
(`whole_body_commands.RATES`) and kept in their ranges, so that the upper levels may send steps.
The 36 numbers are a G1's; another robot has those of its `Robot.signals`.

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
from rrf.envs.configs import ControlEnvCfg
from rrf.envs.humanoid import body
from rrf.envs.humanoid.proprioception import (
    ACTION_SCALE,
    NUM_ACTIONS,
    Gait,
    History,
    Proprioception,
    euler,
    heading_error,
    moves,
    reference,
)
from rrf.envs.humanoid.robots import G1, Robot, robot_of
from rrf.envs.humanoid.whole_body_commands import ARM_RATE, limits, rates
from rrf.envs.humanoid.whole_body_configs import WholeBodyEnvCfg

if typing.TYPE_CHECKING:
    from rrf.envs.control_env import Interface

STEP_S = 0.02
"""Seconds between two calls of `Balancer.targets`."""
_LOADER = "rrf.runners.checkpoints.control:load_control_policy"
_CONFIG = "rrf.runners.checkpoints.checkpoint:load_config"


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
        robot: Whose policy it is.
    """

    def __init__(
        self,
        act: Callable[[Mapping[str, np.ndarray]], np.ndarray],
        groups: typing.Collection[str],
        model: mujoco.MjModel,
        num_robots: int = 1,
        robot: Robot = G1,
    ):
        self._act, self._groups, self._robot = act, tuple(groups), robot
        self._observe = Proprioception(model, robot)
        self._gait, self._history = Gait(num_robots), History(num_robots, robot)
        self._action_n15 = np.zeros((num_robots, NUM_ACTIONS))
        self._command_n15 = np.zeros((num_robots, len(robot.command_names)))
        self._arms_n14 = np.zeros((num_robots, len(robot.commanded)))
        self._arm_addresses = body.qpos_addresses(model, robot.commanded)
        names = [signal.name for signal in robot.signals]
        self._taken = [names.index(name) for name in robot.command_names]
        self._arms = [names.index(name) for name in robot.commanded]
        self._target_yaw = names.index("target_yaw")
        self._start_n = np.zeros(num_robots)  # the heading in which an episode began
        self._is_new_n = np.ones(num_robots, bool)
        self._low, self._high = limits(robot)
        self._rates = rates(robot)

    def reset(self, robots: np.ndarray, qpos_kq: np.ndarray, qvel_kv: np.ndarray) -> None:
        """See `Balancer.reset`."""
        self._gait.reset(robots)
        self._action_n15[robots] = 0.0
        self._start_n[robots] = euler(qpos_kq[:, 3:7])[:, 2]
        self._is_new_n[robots] = True
        self._arms_n14[robots] = qpos_kq[:, self._arm_addresses]
        now = np.zeros((len(robots), self._command_n15.shape[1]))
        now[:, :-7] = self._observe.joints(qpos_kq)[:, NUM_ACTIONS:]
        now[:, -1] = qpos_kq[:, 2]
        self._command_n15[robots] = np.clip(now, self._low, self._high)

    def targets(
        self, robots: np.ndarray, qpos_kq: np.ndarray, qvel_kv: np.ndarray, command_k36: np.ndarray
    ) -> np.ndarray:
        """See `Balancer.targets`."""
        wanted = np.clip(command_k36[:, self._taken], self._low, self._high)
        now = self._command_n15[robots]
        now += np.clip(wanted - now, -self._rates * STEP_S, self._rates * STEP_S)
        self._command_n15[robots] = now
        arms = self._arms_n14[robots]
        arms += np.clip(command_k36[:, self._arms] - arms, -ARM_RATE * STEP_S, ARM_RATE * STEP_S)
        self._arms_n14[robots] = arms
        keep = self._start_n[robots] + command_k36[:, self._target_yaw]
        error = heading_error(qpos_kq, keep)
        self._gait.advance(STEP_S, moves(now, error, qpos_kq, self._robot), robots)
        pose = reference(now, self._gait, robots, self._robot)
        frame = self._observe(
            qpos_kq, qvel_kv, error, self._action_n15[robots], now[:, :-7],
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
    checkpoint: str | Path, model: mujoco.MjModel, num_robots: int = 1, robot: Robot = G1
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
        check_interface(interface, robot)
    except ValueError as error:
        raise ValueError(f"{checkpoint} is no System 0: {error}") from error

    def act(groups: Mapping[str, np.ndarray]) -> np.ndarray:
        tensors: dict[str, typing.Any] = {n: torch.from_numpy(g) for n, g in groups.items()}
        return policy.act(TensorDict(tensors, [len(next(iter(groups.values())))])).numpy()

    return PolicyBalancer(act, policy.actor.groups, model, num_robots, robot)


def load_robot(checkpoint: str | Path) -> Robot:
    """The robot that the whole-body policy of a checkpoint was trained on.

    Raises:
        ValueError: If the checkpoint is of another task, or its model is not there any more.
    """
    env = locate(_CONFIG)(checkpoint).get("env", {})
    cfg = ControlEnvCfg.from_dict(env)
    if not isinstance(cfg, WholeBodyEnvCfg):
        raise ValueError(
            f"{checkpoint} is no System 0: it was trained in {type(cfg).__name__}, expected "
            f"{WholeBodyEnvCfg.__name__}"
        )
    return robot_of(cfg.robot)


def check_interface(interface: "Interface", robot: Robot = G1) -> None:
    """Check that a policy takes what the levels above send and gives what the joints need.

    Raises:
        ValueError: If not; the message says what differs.
    """
    names = tuple(interface.robot.get("command_names", ()))
    if names != robot.command_names:
        wrong = sorted(set(names) ^ set(robot.command_names))
        what = f"'{wrong[0]}'" if wrong else "the order"
        raise ValueError(
            f"the policy of '{interface.task}' does not take the command of the whole body: {what} "
            f"differs; it takes {', '.join(names) or 'none'}, "
            f"expected {', '.join(robot.command_names)}"
        )
    joints = tuple(interface.robot.get("joint_names", ()))
    if joints != robot.driven or interface.num_actions != NUM_ACTIONS:
        raise ValueError(
            f"the policy of '{interface.task}' drives {', '.join(joints) or 'unknown joints'}, "
            f"expected {', '.join(robot.driven)}"
        )
    if (digest := interface.robot.get("model_digest", "")) != robot.digest:
        raise ValueError(
            f"the policy of '{interface.task}' was trained on another model of the robot "
            f"({digest or 'the G1'}), not on that of {robot.name} ({robot.digest or 'the G1'})"
        )
    if abs(interface.step_dt - STEP_S) > 1e-9:
        raise ValueError(
            f"the policy of '{interface.task}' acts every {interface.step_dt} s, expected {STEP_S}"
        )
    expected = robot.num_proprio + len(robot.command_names)
    width = interface.observation_dims.get("actor")
    if width != expected:
        raise ValueError(
            f"the policy of '{interface.task}' sees {width} numbers, expected {expected}"
        )


def standing_command(num_robots: int, robot: Robot = G1) -> np.ndarray:
    """The command to stand still with the arms in their default pose and open hands, [N, 36]."""
    angles = dict(zip(robot.commanded, robot.default_pose(robot.commanded), strict=True))
    values = angles | {"height": robot.tall}
    return np.tile([values.get(signal.name, 0.0) for signal in robot.signals], (num_robots, 1))
