"""The whole-body task: N robots on flat ground, stepped by MuJoCo's C library.

All that is computed of a step is a handful of array operations over all robots: there are no terms
that are called one by one. Robots that fall or whose time is up begin again within the step.

Legend: N robots, K of them chosen.
"""

import dataclasses
import functools
import typing
from collections.abc import Sequence

import numpy as np
import torch
from tensordict import TensorDict

from rrf.envs.control_env import EnvState, Interface, OfRslRl, check_actions
from rrf.envs.humanoid import body
from rrf.envs.humanoid.balancer import STEP_S
from rrf.envs.humanoid.proprioception import (
    ACTION_SCALE,
    HISTORY,
    LONG_HISTORY,
    NUM_ACTIONS,
    Gait,
    History,
    Proprioception,
    euler,
    heading_error,
    moves,
    reference,
    wrapped,
)
from rrf.envs.humanoid.robots import Robot, robot_of
from rrf.envs.humanoid.whole_body_commands import COMMAND_ARRAYS, WALKS_FROM, Commands
from rrf.envs.humanoid.whole_body_configs import WholeBodyEnvCfg
from rrf.envs.humanoid.whole_body_physics import WholeBodyPhysics, model_spec
from rrf.envs.humanoid.whole_body_rewards import Motion, terms

_TOUCH_N = 5.0
_PUSH_S = (4.0, 8.0)
_PUSH = np.array([0.6, 0.6, 0.2, 0.3, 0.3, 0.5])  # largest change of the pelvis' velocity
_NOISE = {"spin": 0.15, "tilt": 0.02, "joints": 0.01, "velocities": 0.6}  # uniform, +-
_GROWTH, _FALL = 0.25, 0.25
"""How much the level of difficulty grows when every robot has ended an episode on its feet, and
shrinks when every robot has fallen: it stays where half of them fall. With the noise with which a
policy explores, three times as many fall as without it."""
_ARRAYS = (
    *("_heading_n", "_action_n15", "_controls_nc", "_push_left_s", "_length_n", "_errors_n3"),
)
_RANDOM_FIELDS = (*("geom_friction", "body_mass", "actuator_gainprm", "actuator_biasprm"),)
_PRIVILEGED = 3 + 3 + 1 + 3 + 2 + 2 + 4


class WholeBodyEnv(OfRslRl):
    """See `rrf.envs.control_env.ControlEnv`.

    Observations are the groups of `History.groups` that the config asks for and "critic": "actor"
    and 18 numbers that no robot measures. An episode is solved while the robot is on its feet and
    the mean errors of the episode are small; `extras["success"]` says so.
    """

    limits: typing.ClassVar[dict[str, float]] = {"velocity": 0.3, "height": 0.05, "torso": 0.25}
    """Mean errors of a solved episode: m/s, m, rad; lengths of the vectors of errors. The velocity
    is that of each moment, in which a walking pelvis sways."""

    def __init__(
        self, cfg: WholeBodyEnvCfg, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        self.cfg = cfg
        self.num_envs = n = cfg.num_envs
        self.robot = robot = robot_of(cfg.robot)
        self.device = torch.device(device)
        self.num_actions = NUM_ACTIONS
        self.max_episode_length = round(cfg.episode_s / STEP_S)
        self.level = cfg.first_level
        self._rng = np.random.default_rng(seed)
        self._physics = WholeBodyPhysics(
            model_spec(cfg.physics == "fast", robot), cfg.num_envs, cfg.num_threads, robot
        )
        self._observe = Proprioception(self._physics.model, robot)
        motors = np.array([robot.motor(name) for name in robot.observed])
        self._stiffness, self._damping, self._torque_limit = motors.T
        self._commands = Commands(n, self._rng, robot)
        self._gait, self._history = Gait(n), History(n, robot)
        self._heading_n = np.zeros(n)  # the heading to keep
        self._action_n15 = np.zeros((n, NUM_ACTIONS))
        self._controls_nc = np.zeros((n, len(robot.observed)))
        self._push_left_s = np.zeros(n)
        self._length_n = np.zeros(n, np.int64)
        self._errors_n3 = np.zeros((n, 3))  # sums over the episode
        self._motion: Motion | None = None
        self._last_terms: dict[str, np.ndarray] = {}
        proprio, commanded = robot.num_proprio, len(robot.command_names)
        dims = {"actor": proprio + commanded}
        if cfg.histories != "none":
            dims["history"] = HISTORY * proprio
        if cfg.histories == "both":
            dims["long_history"] = LONG_HISTORY * proprio
        self._groups = tuple(dims)
        dims["critic"] = dims["actor"] + _PRIVILEGED
        self.interface = Interface(
            observation_dims=dims,
            num_actions=NUM_ACTIONS,
            step_dt=STEP_S,
            task=cfg.task,
            observation_terms={"actor": {"proprioception": proprio, "command": commanded}},
            robot=robot_facts(robot),
        )
        self.reset()

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
        before = self._qvel_n15()
        pose = self._reference()
        diverged = self._simulate(pose + ACTION_SCALE * action)
        self._length_n += 1
        motion = self._measure(before)
        self._last_terms = terms(
            motion,
            self._commands.now_n15,
            pose,
            self._gait.sine_n2,
            action,
            self._action_n15,
            self.robot.scale,
        )
        reward = np.maximum(sum(self._last_terms.values()), 0.0) * STEP_S
        self._action_n15 = action
        errors = np.stack([np.linalg.norm(e, axis=1) for e in self._errors(motion)], 1)
        self._errors_n3 += errors
        terminated = diverged | body.has_fallen(self._physics.qpos, self.robot.min_height)
        truncated = (self._length_n >= self.max_episode_length) & ~terminated
        dones = terminated | truncated
        success = ~terminated & self._is_good()
        log = self._log(errors, terminated, dones)
        self._advance()
        final = None
        observed = self._observe_all()
        if dones.any():
            ids = np.flatnonzero(dones)
            rows = {name: np.nan_to_num(group[ids]) for name, group in observed.items()}
            final = self._tensors(rows)
            self._grow(terminated[ids])
            self._begin(ids)
            for name, group in self._compose(self._history.frames).items():
                observed[name][ids] = group[ids]
        self._observations = self._tensors(observed)
        extras = {
            "time_outs": torch.from_numpy(truncated).to(self.device),
            "final_obs": final,
            "success": torch.from_numpy(success).to(self.device),
            "errors": {
                name: torch.from_numpy(errors[:, i].astype(np.float32))
                for i, name in enumerate(self.limits)
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
        joints = self.robot.observed
        return [
            body.shown_data(self.mj_model, joints, self._observe.joints(row)[0], row[0, :7])
            for row in (self._physics.qpos[[index]] for index in env_ids)
        ]

    def state(self) -> EnvState:
        """See `ControlEnv.state`."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {f"commands.{name}": getattr(self._commands, name) for name in COMMAND_ARRAYS}
        arrays |= {f"physics.{name}": value for name, value in self._physics.state().items()}
        arrays |= {"gait": self._gait.phase_n2, "frames": self._history.frames}
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
        prefix = "physics."
        self._physics.load_state(
            {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
        )
        for name in _ARRAYS:
            setattr(self, name, arrays[name])
        for name in COMMAND_ARRAYS:
            setattr(self._commands, name, arrays[f"commands.{name}"])
        self._gait.phase_n2 = arrays["gait"]
        self._history.frames[:] = arrays["frames"]
        self.level = state.facts["level"]
        self._rng.bit_generator.state = state.facts["rng"]
        prefix = "observations."
        self._observations = self._tensors(
            {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
        )

    def close(self) -> None:
        """Free the threads. Calling it twice is allowed."""
        self._physics.close()

    # A step.

    def _simulate(self, targets_n15: np.ndarray) -> np.ndarray:
        """Advance the physics by one action; bool [N], whose physics diverged."""
        controls = np.concatenate([targets_n15, self._commands.now_n15[:, :-7]], 1)
        old, self._controls_nc = self._controls_nc, controls
        return self._physics.step(old, controls)

    def _measure(self, velocity_before_n15: np.ndarray) -> Motion:
        qpos, qvel = self._physics.qpos, self._physics.qvel
        sensors = self._physics.sensors
        feet = sensors[:, :20].reshape(-1, 2, 10)  # place, velocity, x axis, touch
        yaw = euler(qpos[:, 3:7])[:, 2]
        places = feet[:, :, :3] - qpos[:, None, :3]
        torso = euler(sensors[:, 20:24])
        torso[:, 2] = wrapped(torso[:, 2] - yaw)
        joints, velocities = self._observe.joints(qpos), self._observe.velocities(qvel)
        torque = self._stiffness * (self._controls_nc - joints) - self._damping * velocities
        torque = np.clip(torque, -self._torque_limit, self._torque_limit)
        axis = feet[:, :, 6:9]
        self._motion = Motion(
            velocity_n3=np.concatenate([_turned(qvel[:, :2], -yaw), qvel[:, 2:3]], 1),
            spin_n3=qvel[:, 3:6],
            heading_error_n=wrapped(yaw - self._heading_n),
            height_n=qpos[:, 2],
            torso_n3=torso,
            feet_n23=np.stack(
                [
                    np.column_stack([_turned(places[:, i, :2], -yaw), places[:, i, 2]])
                    for i in (0, 1)
                ],
                axis=1,
            ),
            feet_height_n2=feet[:, :, 2],
            feet_speed_n2=np.hypot(feet[:, :, 3], feet[:, :, 4]),
            feet_yaw_n2=wrapped(np.arctan2(axis[:, :, 1], axis[:, :, 0]) - yaw[:, None]),
            touches_n2=feet[:, :, 9] > _TOUCH_N,
            joints_n15=joints[:, :NUM_ACTIONS],
            acceleration_n15=(velocities[:, :NUM_ACTIONS] - velocity_before_n15) / STEP_S,
            torque_n15=torque[:, :NUM_ACTIONS],
        )
        return self._motion

    def _advance(self) -> None:
        """What changes between two actions: commands, the heading to keep, gait, pushes."""
        self._commands.advance(STEP_S, self.level)
        # Who cannot follow is not asked to turn back all that he missed.
        yaw = euler(self._physics.qpos[:, 3:7])[:, 2]
        self._heading_n = yaw - self._heading_error() + STEP_S * self._commands.now_n15[:, -5]
        now, qpos = self._commands.now_n15, self._physics.qpos
        self._gait.advance(STEP_S, moves(now, self._heading_error(), qpos, self.robot))
        if not self.cfg.randomises:
            return
        self._push_left_s -= STEP_S
        if len(due := np.flatnonzero(self._push_left_s <= 0)):
            push = self._rng.uniform(-_PUSH, _PUSH, (len(due), 6))
            self._physics.qvel[due, :6] += self.level * push
            self._push_left_s[due] = self._rng.uniform(*_PUSH_S, len(due))

    def _begin(self, ids: np.ndarray) -> None:
        """Start new episodes: standing as the command asks, with a little disorder."""
        rng, num = self._rng, len(ids)
        self._commands.reset(ids, self.level)
        given = self._commands.now_n15[ids]
        qpos = np.zeros((num, self._physics.model.nq))
        yaw = rng.uniform(-np.pi, np.pi, num)
        qpos[:, 2] = given[:, -1] + 0.01
        qpos[:, 3], qpos[:, 6] = np.cos(yaw / 2), np.sin(yaw / 2)
        joints = np.concatenate([self._reference()[ids], given[:, :-7]], 1)
        qpos[:, self._observe.addresses] = joints + rng.uniform(-0.05, 0.05, joints.shape)
        self._physics.begin(ids, qpos)
        speed = rng.uniform(-0.2, 0.2, (num, 6)) * self._disorder
        self._physics.qvel[ids, :6] = speed
        self._heading_n[ids] = yaw + rng.uniform(-0.3, 0.3, num) * self._disorder
        self._gait.reset(ids)
        self._action_n15[ids] = 0.0
        self._controls_nc[ids] = joints
        self._length_n[ids] = 0
        self._errors_n3[ids] = 0.0
        self._push_left_s[ids] = rng.uniform(*_PUSH_S, num)
        if self.cfg.randomises:
            self._physics.randomise(ids, self.level, rng)
        self._history.begin(ids, self._frame()[ids])

    # What is observed.

    def _frame(self) -> np.ndarray:
        qpos, qvel = self._physics.qpos, self._physics.qvel
        frame = self._observe(
            qpos, qvel, self._heading_error(), self._action_n15, self._commands.now_n15[:, :-7],
            self._gait.sine_n2, self._reference(),
        )  # fmt: skip
        if self.cfg.randomises:
            scale = self.level * _noise_scale(self.robot)
            frame += scale * self._rng.uniform(-1, 1, frame.shape).astype(np.float32)
        return frame

    def _observe_all(self) -> dict[str, np.ndarray]:
        self._history.push(self._frame())
        return self._compose(self._history.frames)

    def _compose(self, frames: np.ndarray) -> dict[str, np.ndarray]:
        groups = self._history.groups(self._commands.now_n15)
        observed = {name: groups[name] for name in self._groups}
        motion = self._motion
        if motion is None:
            privileged = np.zeros((self.num_envs, _PRIVILEGED), np.float32)
        else:
            _, height_error, torso_error = self._errors(motion)
            privileged = np.concatenate(
                [
                    motion.velocity_n3, motion.spin_n3, height_error, torso_error,
                    motion.touches_n2, motion.feet_height_n2,
                    motion.feet_n23[:, :, :2].reshape(-1, 4),
                ],
                axis=1, dtype=np.float32,
            )  # fmt: skip
        observed["critic"] = np.concatenate([observed["actor"], privileged], 1)
        return observed

    def _tensors(self, groups: dict[str, np.ndarray]) -> TensorDict:
        size = len(next(iter(groups.values())))
        tensors: dict[str, typing.Any] = {
            name: torch.from_numpy(group.copy()).to(self.device) for name, group in groups.items()
        }
        return TensorDict(tensors, batch_size=[size])

    # What the above is made of.

    @property
    def _disorder(self) -> float:
        return self.level * self.cfg.randomises

    def _reference(self) -> np.ndarray:
        return reference(self._commands.now_n15, self._gait, robot=self.robot)

    def _heading_error(self) -> np.ndarray:
        return heading_error(self._physics.qpos, self._heading_n)

    def _qvel_n15(self) -> np.ndarray:
        return self._observe.velocities(self._physics.qvel)[:, :NUM_ACTIONS].copy()

    def _errors(self, motion: Motion) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Measured minus commanded: velocity [N, 2], height [N, 1], torso [N, 3]."""
        now = self._commands.now_n15
        return (
            motion.velocity_n3[:, :2] - now[:, -7:-5],
            motion.height_n[:, None] - now[:, -1:],
            motion.torso_n3 - now[:, -4:-1],
        )

    def _is_good(self) -> np.ndarray:
        mean = self._errors_n3 / np.maximum(self._length_n, 1)[:, None]
        return np.all(mean < np.array(list(self.limits.values())), axis=1)

    def _grow(self, fell_k: np.ndarray) -> None:
        """Make the task harder for each episode that ended on its feet, and easier for a fall. Who
        has begun to walk goes on walking."""
        change = np.where(fell_k, -_FALL, _GROWTH).sum() / self.num_envs
        lowest = WALKS_FROM if self.level >= WALKS_FROM else self.cfg.first_level
        self.level = float(np.clip(self.level + change, lowest, 1.0))

    def _log(self, errors: np.ndarray, terminated: np.ndarray, dones: np.ndarray) -> dict:
        log = {f"reward/{name}": float(v.mean()) for name, v in self._last_terms.items()}
        log |= {f"error/{n}": float(errors[:, i].mean()) for i, n in enumerate(self.limits)}
        log["curriculum/level"] = self.level
        if dones.any():
            log["episode/fell"] = float(terminated[dones].mean())
        return log


def _turned(xy_n2: np.ndarray, angle_n: np.ndarray) -> np.ndarray:
    """Vectors turned to the left by angles."""
    c, s = np.cos(angle_n), np.sin(angle_n)
    return np.stack([c * xy_n2[:, 0] - s * xy_n2[:, 1], s * xy_n2[:, 0] + c * xy_n2[:, 1]], 1)


def _noise_scale(robot: Robot) -> np.ndarray:
    scale = np.zeros(robot.num_proprio, np.float32)
    num = len(robot.observed)
    scale[:3] = 0.25 * _NOISE["spin"]
    scale[3:5] = _NOISE["tilt"]
    scale[7 : 7 + num] = _NOISE["joints"]
    scale[7 + num : 7 + 2 * num] = 0.05 * _NOISE["velocities"]
    return scale


def robot_facts(robot: Robot) -> dict[str, typing.Any]:
    """What a controller must know beside the observations; see `Interface.robot`."""
    motors = [robot.motor(name) for name in robot.driven]
    own = {"model_digest": robot.digest} if robot.digest else {}
    return own | {
        "joint_names": list(robot.driven),
        "joint_stiffness": [stiffness for stiffness, _, _ in motors],
        "joint_damping": [damping for _, damping, _ in motors],
        "default_joint_pos": robot.default_pose(robot.driven).tolist(),
        "command_names": list(robot.command_names),
        "command_signals": [dataclasses.asdict(robot.signal(name)) for name in robot.command_names],
        "observation_names": ["proprioception", "command"],
        "action_scale": [ACTION_SCALE] * NUM_ACTIONS,
    }
