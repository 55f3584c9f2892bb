"""What the tasks have in common in which N robots learn on flat ground, stepped by MuJoCo's C
library: physics that is drawn at random, pushes, a level of difficulty that grows, episodes.

All that is computed of a step is a handful of array operations over all robots: there are no terms
that are called one by one. Robots that fall or whose time is up begin again within the step.

Legend: N robots, K of them chosen, A actions, C driven joints, E errors.
"""

import abc
import dataclasses
import functools
import typing
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from tensordict import TensorDict

from rrf.envs.control_env import EnvState, Interface, OfRslRl, check_actions
from rrf.envs.humanoid import body
from rrf.envs.humanoid.balancer import STEP_S
from rrf.envs.humanoid.proprioception import (
    ACTION_SCALE,
    Proprioception,
    euler,
    heading_error,
    wrapped,
)
from rrf.envs.humanoid.robots import Robot, robot_of
from rrf.envs.humanoid.whole_body_configs import HumanoidTaskCfg
from rrf.envs.humanoid.whole_body_physics import WholeBodyPhysics, model_spec
from rrf.envs.humanoid.whole_body_rewards import Motion

_TOUCH_N = 5.0
_NOISE = {"spin": 0.15, "tilt": 0.02, "joints": 0.01, "velocities": 0.6}  # uniform, +-
_PUSH_S = (4.0, 8.0)
_PUSH = np.array([0.6, 0.6, 0.2, 0.3, 0.3, 0.5])  # largest change of the pelvis' velocity
_GROWTH, _FALL = 0.25, 0.25
"""How much the level of difficulty grows when every robot has ended an episode on its feet, and
shrinks when every robot has fallen: it stays where half of them fall. With the noise with which a
policy explores, three times as many fall as without it."""
_ARRAYS = ("_heading_n", "_action_na", "_controls_nc", "_push_left_s", "_length_n", "_errors_ne")


@dataclasses.dataclass
class Outcome:
    """What a step was worth."""

    terms: Mapping[str, np.ndarray]  # of the reward, per second, each [N]
    errors_ne: np.ndarray  # as many as `HumanoidEnv.limits`
    measured: Mapping[str, np.ndarray]  # see `rrf.envs.control_env.ControlEnv`
    lost_n: np.ndarray | bool = False  # whose episode ends like a fall
    over_n: np.ndarray | bool = False  # whose time is up


class HumanoidEnv(OfRslRl, abc.ABC):
    """See `rrf.envs.control_env.ControlEnv`.

    An episode is solved while the robot is on its feet and the mean errors of the episode are
    small; `extras["success"]` says so. A subclass has the methods of the last section, sets
    `interface`, and calls `reset` at the end of its constructor.

    Args:
        cfg: The task.
        num_actions: A; the first A of the robot's driven joints.
        seed: Of all that is drawn.
        device: Of what is observed.
        has_links: See `model_spec`.
    """

    limits: typing.ClassVar[dict[str, float]]
    """Mean errors of a solved episode."""

    def __init__(
        self,
        cfg: HumanoidTaskCfg,
        num_actions: int,
        seed: int = 0,
        device: torch.device | str = "cpu",
        *,
        has_links: bool = False,
    ) -> None:
        self.cfg: typing.Any = cfg
        self.num_envs = n = cfg.num_envs
        self.robot = robot = robot_of(cfg.robot)
        self.device = torch.device(device)
        self.num_actions = num_actions
        self.max_episode_length = round(cfg.episode_s / STEP_S)
        self.level = cfg.first_level
        self._rng = np.random.default_rng(seed)
        spec = model_spec(cfg.physics == "fast", robot, has_links=has_links)
        self._physics = WholeBodyPhysics(spec, n, cfg.num_threads, robot)
        self._observe = Proprioception(self._physics.model, robot)
        motors = np.array([robot.motor(name) for name in robot.observed])
        self._stiffness, self._damping, self._torque_limit = motors.T
        self._heading_n = np.zeros(n)  # the heading to keep
        self._action_na = np.zeros((n, num_actions))
        self._controls_nc = np.zeros((n, len(robot.observed)))
        self._push_left_s = np.zeros(n)
        self._length_n = np.zeros(n, np.int64)
        self._errors_ne = np.zeros((n, len(self.limits)))  # sums over the episode
        self._motion: Motion | None = None
        self._last_terms: Mapping[str, np.ndarray] = {}
        self._observations: TensorDict
        self.interface: Interface

    # What `ControlEnv` asks for.

    @property
    def episode_length_buf(self) -> torch.Tensor:
        """Steps since the episodes began, int64 [N]; may be set."""
        return torch.from_numpy(self._length_n.copy()).to(self.device)

    @episode_length_buf.setter
    def episode_length_buf(self, value: torch.Tensor) -> None:
        self._length_n[:] = value.cpu().numpy()

    def get_observations(self) -> TensorDict:
        """The current observations."""
        return self._observations

    def reset(self) -> tuple[TensorDict, dict]:
        """Start a new episode in every environment."""
        self._begin(np.arange(self.num_envs))
        self._observations = self._tensors(self._observe_all())
        return self._observations, {"log": {}}

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        """See `ControlEnv.step`."""
        check_actions(actions, self.num_envs, self.num_actions)
        action = np.clip(actions.detach().cpu().numpy().astype(np.float64), -20, 20)
        before = self._velocities().copy()
        old, self._controls_nc = self._controls_nc, self._targets(action)
        diverged = self._physics.step(old, self._controls_nc)
        self._length_n += 1
        self._motion = self._measure(before)
        outcome = self._judge(self._motion, action)
        self._last_terms = outcome.terms
        reward = np.maximum(sum(outcome.terms.values()), 0.0) * STEP_S
        self._action_na = action
        self._errors_ne += outcome.errors_ne
        fallen = body.has_fallen(self._physics.qpos, self.robot.min_height)
        terminated = diverged | fallen | outcome.lost_n
        is_over = (self._length_n >= self.max_episode_length) | outcome.over_n
        truncated = is_over & ~terminated
        dones = terminated | truncated
        success = ~terminated & self._is_good()
        log = self._log(outcome.errors_ne, terminated, dones)
        self._advance()
        final = None
        observed = self._observe_all()
        if dones.any():
            ids = np.flatnonzero(dones)
            rows = {name: np.nan_to_num(group[ids]) for name, group in observed.items()}
            final = self._tensors(rows)
            self._end(ids, terminated[ids])
            self._begin(ids)
            for name, group in self._compose().items():
                observed[name][ids] = group[ids]
        self._observations = self._tensors(observed)
        extras = {
            "time_outs": torch.from_numpy(truncated).to(self.device),
            "final_obs": final,
            "success": torch.from_numpy(success).to(self.device),
            "measured": {
                name: torch.from_numpy(values.astype(np.float32))
                for name, values in outcome.measured.items()
            },
            "log": log,
        }
        rewards = torch.from_numpy(reward.astype(np.float32)).to(self.device)
        return self._observations, rewards, torch.from_numpy(dones).to(self.device), extras

    @functools.cached_property
    def mj_spec(self) -> typing.Any:
        """The robot with its meshes on a chequered ground, for pictures."""
        return self.robot.shown_spec()

    @functools.cached_property
    def mj_model(self) -> typing.Any:
        """`mj_spec`, compiled."""
        return self.mj_spec.compile()

    def mj_datas(self, env_ids: Sequence[int]) -> list[typing.Any]:
        """MuJoCo states of `mj_model` of some environments."""
        joints, physics = self.robot.observed, self._physics
        return [
            body.shown_data(
                self.mj_model, joints, self._observe.joints(qpos[None])[0], qpos[:7], qvel[:6]
            )
            for qpos, qvel in ((physics.qpos[index], physics.qvel[index]) for index in env_ids)
        ]

    def state(self) -> EnvState:
        """See `ControlEnv.state`."""
        arrays = {name: getattr(self, name) for name in _ARRAYS} | self._own_arrays()
        arrays |= {f"physics.{name}": value for name, value in self._physics.state().items()}
        tensors = {name: torch.from_numpy(value.copy()) for name, value in arrays.items()}
        observed: list[tuple[str, typing.Any]] = list(self._observations.items())
        tensors |= {f"observations.{name}": group.clone() for name, group in observed}
        facts = {"task": self.cfg.task, "level": self.level, "rng": self._rng.bit_generator.state}
        return EnvState(tensors, facts)

    def load_state(self, state: EnvState) -> None:
        """See `ControlEnv.load_state`.

        Raises:
            ValueError: For a state of another task or number of environments.
        """
        if state.facts.get("task") != self.cfg.task:
            raise ValueError(f"the state is of the task '{state.facts.get('task')}'")
        arrays = {name: value.cpu().numpy().copy() for name, value in state.tensors.items()}
        self._physics.load_state(_below("physics.", arrays))
        for name in _ARRAYS:
            setattr(self, name, arrays[name])
        self._load_own(arrays)
        self.level = state.facts["level"]
        self._rng.bit_generator.state = state.facts["rng"]
        self._observations = self._tensors(_below("observations.", arrays))

    def close(self) -> None:
        """Free the threads. Calling it twice is allowed."""
        self._physics.close()

    # A step.

    def _measure(self, velocity_before_nc: np.ndarray) -> Motion:
        qpos, qvel = self._physics.qpos, self._physics.qvel
        feet = self._physics.feet
        yaw = euler(qpos[:, 3:7])[:, 2]
        places = feet[:, :, :3] - qpos[:, None, :3]
        torso = euler(self._physics.torso)
        torso[:, 2] = wrapped(torso[:, 2] - yaw)
        joints, velocities = self._observe.joints(qpos), self._observe.velocities(qvel)
        torque = self._torque(joints, velocities)
        axis = feet[:, :, 6:9]
        return Motion(
            velocity_n3=np.concatenate([turned(qvel[:, :2], -yaw), qvel[:, 2:3]], 1),
            spin_n3=qvel[:, 3:6],
            heading_error_n=wrapped(yaw - self._heading_n),
            height_n=qpos[:, 2],
            torso_n3=torso,
            feet_n23=np.stack(
                [
                    np.column_stack([turned(places[:, i, :2], -yaw), places[:, i, 2]])
                    for i in (0, 1)
                ],
                axis=1,
            ),
            feet_height_n2=feet[:, :, 2],
            feet_speed_n2=np.hypot(feet[:, :, 3], feet[:, :, 4]),
            feet_yaw_n2=wrapped(np.arctan2(axis[:, :, 1], axis[:, :, 0]) - yaw[:, None]),
            touches_n2=feet[:, :, 9] > _TOUCH_N,
            joints_na=joints[:, : self.num_actions],
            acceleration_na=(velocities - velocity_before_nc)[:, : self.num_actions] / STEP_S,
            torque_na=torque[:, : self.num_actions],
        )

    def _torque(self, joints_nc: np.ndarray, velocities_nc: np.ndarray) -> np.ndarray:
        """What the motors do at these angles and velocities, Nm, [N, C]."""
        torque = self._stiffness * (self._controls_nc - joints_nc) - self._damping * velocities_nc
        return np.clip(torque, -self._torque_limit, self._torque_limit)

    def _push_some(self) -> None:
        if not (self.cfg.randomises and self.cfg.pushes):
            return
        self._push_left_s -= STEP_S
        if len(due := np.flatnonzero(self._push_left_s <= 0)):
            push = self._rng.uniform(-_PUSH, _PUSH, (len(due), 6))
            self._physics.qvel[due, :6] += self.level * push
            self._push_left_s[due] = self._rng.uniform(*_PUSH_S, len(due))

    def _put(self, ids: np.ndarray, qpos_kq: np.ndarray, joints_kc: np.ndarray) -> None:
        """Begin episodes in these positions, the motors where the joints shall be; with a little
        disorder."""
        rng = self._rng
        qpos_kq[:, self._observe.addresses] = joints_kc + rng.uniform(-0.05, 0.05, joints_kc.shape)
        self._physics.begin(ids, qpos_kq)
        self._physics.qvel[ids, :6] = rng.uniform(-0.2, 0.2, (len(ids), 6)) * self._disorder
        self._action_na[ids] = 0.0
        self._controls_nc[ids] = joints_kc
        self._length_n[ids] = 0
        self._errors_ne[ids] = 0.0

    def _settle(self, ids: np.ndarray) -> None:
        """Draw what else differs between episodes that begin."""
        self._push_left_s[ids] = self._rng.uniform(*_PUSH_S, len(ids))
        if self.cfg.randomises:
            self._physics.randomise(ids, self.level, self._rng)

    def _noisy(self, values: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """With as much noise as the level has."""
        if self.cfg.randomises:
            drawn = self._rng.uniform(-1, 1, values.shape).astype(np.float32)
            values += self.level * scale * drawn
        return values

    def _unmeasured(self) -> np.ndarray:
        """14 numbers of the last step that no robot measures, [N, 14]: how fast the pelvis moves
        and turns, touches, heights and places of the soles."""
        motion = self._motion
        if motion is None:
            return np.zeros((self.num_envs, 14), np.float32)
        parts = (motion.velocity_n3, motion.spin_n3, motion.touches_n2, motion.feet_height_n2)
        places = motion.feet_n23[:, :, :2].reshape(-1, 4)
        return np.concatenate([*parts, places], 1, dtype=np.float32)

    # What the above is made of.

    @property
    def _disorder(self) -> float:
        return self.level * self.cfg.randomises

    def _heading_error(self) -> np.ndarray:
        return heading_error(self._physics.qpos, self._heading_n)

    def _velocities(self) -> np.ndarray:
        return self._observe.velocities(self._physics.qvel)

    def _tensors(self, groups: Mapping[str, np.ndarray]) -> TensorDict:
        size = len(next(iter(groups.values())))
        tensors: dict[str, typing.Any] = {
            name: torch.from_numpy(group.copy()).to(self.device) for name, group in groups.items()
        }
        return TensorDict(tensors, batch_size=[size])

    def _is_good(self) -> np.ndarray:
        mean = self._errors_ne / np.maximum(self._length_n, 1)[:, None]
        return np.all(mean < np.array(list(self.limits.values())), axis=1)

    def _end(self, ids: np.ndarray, fell_k: np.ndarray) -> None:
        """Make the task harder for each episode that ended on its feet, and easier for a fall."""
        change = np.where(fell_k, -_FALL, _GROWTH).sum() / self.num_envs
        self.level = float(np.clip(self.level + change, self._lowest_level(), 1.0))

    def _lowest_level(self) -> float:
        return self.cfg.first_level

    def _log(self, errors: np.ndarray, terminated: np.ndarray, dones: np.ndarray) -> dict:
        log = {f"reward/{name}": float(v.mean()) for name, v in self._last_terms.items()}
        log |= {f"error/{n}": float(errors[:, i].mean()) for i, n in enumerate(self.limits)}
        log["curriculum/level"] = self.level
        if dones.any():
            log["episode/fell"] = float(terminated[dones].mean())
        return log

    # What a task says.

    @abc.abstractmethod
    def _targets(self, action_na: np.ndarray) -> np.ndarray:
        """Where the joints `Robot.observed` shall go, [N, C], rad."""

    @abc.abstractmethod
    def _judge(self, motion: Motion, action_na: np.ndarray) -> Outcome:
        """What the last step was worth."""

    @abc.abstractmethod
    def _advance(self) -> None:
        """What changes between two actions."""

    @abc.abstractmethod
    def _begin(self, ids: np.ndarray) -> None:
        """Start new episodes."""

    @abc.abstractmethod
    def _observe_all(self) -> dict[str, np.ndarray]:
        """Look, and give what `_compose` does."""

    @abc.abstractmethod
    def _compose(self) -> dict[str, np.ndarray]:
        """The groups of observations, as they were seen last, each [N, ...], float32."""

    @abc.abstractmethod
    def _own_arrays(self) -> dict[str, np.ndarray]:
        """What `load_own` needs, beside what is here."""

    @abc.abstractmethod
    def _load_own(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Continue from what `_own_arrays` gave."""


def motor_facts(robot: Robot, joints: Sequence[str]) -> dict[str, typing.Any]:
    """What a controller must know of the joints that a policy drives; see `Interface.robot`."""
    motors = [robot.motor(name) for name in joints]
    own = {"model_digest": robot.digest} if robot.digest else {}
    return own | {
        "joint_names": list(joints),
        "joint_stiffness": [stiffness for stiffness, _, _ in motors],
        "joint_damping": [damping for _, damping, _ in motors],
        "default_joint_pos": robot.default_pose(tuple(joints)).tolist(),
        "action_scale": [ACTION_SCALE] * len(joints),
    }


def noise_scale(robot: Robot) -> np.ndarray:
    """How much noise the first numbers of `Proprioception` have, up to the joints' velocities; the
    others have none."""
    num = len(robot.observed)
    scale = np.zeros(robot.num_proprio, np.float32)
    scale[:3] = 0.25 * _NOISE["spin"]
    scale[3:5] = _NOISE["tilt"]
    scale[7 : 7 + num] = _NOISE["joints"]
    scale[7 + num : 7 + 2 * num] = 0.05 * _NOISE["velocities"]
    return scale


def turned(xy_n2: np.ndarray, angle_n: np.ndarray) -> np.ndarray:
    """Vectors turned to the left by angles."""
    c, s = np.cos(angle_n), np.sin(angle_n)
    return np.stack([c * xy_n2[:, 0] - s * xy_n2[:, 1], s * xy_n2[:, 0] + c * xy_n2[:, 1]], 1)


def _below(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
