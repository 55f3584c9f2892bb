"""The whole-body task: N robots on flat ground follow commands (AMO-like).

Legend: N robots, K of them chosen.
"""

import dataclasses
import typing
from collections.abc import Mapping

import numpy as np
import torch

from rrf.envs.control_env import Interface
from rrf.envs.humanoid.balancer import STEP_S
from rrf.envs.humanoid.humanoid_env import HumanoidEnv, Outcome, motor_facts, noise_scale
from rrf.envs.humanoid.proprioception import (
    ACTION_SCALE,
    HISTORY,
    LONG_HISTORY,
    NUM_ACTIONS,
    VELOCITY,
    Gait,
    History,
    are_asked_to_step,
    euler,
    moves,
    reference,
)
from rrf.envs.humanoid.robots import Robot
from rrf.envs.humanoid.whole_body_commands import COMMAND_ARRAYS, WALKS_FROM, Commands
from rrf.envs.humanoid.whole_body_configs import WholeBodyEnvCfg
from rrf.envs.humanoid.whole_body_rewards import Motion, terms
from rrf.envs.motions.clip import quat_conjugate, rotate

_PRIVILEGED = 18


class WholeBodyEnv(HumanoidEnv):
    """See `rrf.envs.control_env.ControlEnv`.

    Observations are the groups of `History.groups` that the config asks for and "critic": "actor"
    and 18 numbers that no robot measures.
    """

    limits: typing.ClassVar[dict[str, float]] = {"velocity": 0.3, "height": 0.05, "torso": 0.25}
    """Mean errors of a solved episode: m/s, m, rad; lengths of the vectors of errors. The velocity
    is that of each moment, in which a walking pelvis sways."""

    def __init__(
        self, cfg: WholeBodyEnvCfg, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(cfg, NUM_ACTIONS, seed, device)
        n, robot = self.num_envs, self.robot
        self._commands = Commands(n, self._rng, robot)
        self._gait, self._history = Gait(n), History(n, robot)
        self._pose_n15 = self._reference()  # around which the last action acted
        self._noise = noise_scale(robot)
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

    @property
    def command(self) -> torch.Tensor:
        """How the robots shall move now, float32 [N, 3]: forward m/s, left m/s, turn left rad/s."""
        return torch.from_numpy(self._commands.now_n15[:, VELOCITY].astype(np.float32))

    # What `rrf.evaluation.control.metrics.VelocityEnv` asks for.

    def set_command(self, command: torch.Tensor | None) -> None:
        """Hold the velocities [N, 3], upright and with still arms, also after resets; None draws
        all commands at random again."""
        self._commands.hold(None if command is None else command.cpu().numpy())

    def body_velocity(self) -> torch.Tensor:
        """Forward and left velocity (m/s) and left turn rate (rad/s), [N, 3], in the body frame."""
        qpos, qvel = self._physics.qpos, self._physics.qvel
        linear = rotate(quat_conjugate(qpos[:, 3:7]), qvel[:, :3])
        velocity = np.column_stack([linear[:, :2], qvel[:, 5]])
        return torch.from_numpy(velocity.astype(np.float32)).to(self.device)

    def power(self) -> torch.Tensor:
        """Mechanical power of legs, waist and arms at the end of the last step, W, [N]."""
        joints, velocities = self._observe.joints(self._physics.qpos), self._velocities()
        power = np.abs(self._torque(joints, velocities) * velocities).sum(1)
        return torch.from_numpy(power.astype(np.float32)).to(self.device)

    # What `HumanoidEnv` asks for.

    def _targets(self, action_na: np.ndarray) -> np.ndarray:
        self._pose_n15 = self._reference()
        driven = self._pose_n15 + ACTION_SCALE * action_na
        return np.concatenate([driven, self._commands.now_n15[:, :-7]], 1)

    def _judge(self, motion: Motion, action_na: np.ndarray) -> Outcome:
        rewarded = terms(
            motion,
            self._commands.now_n15,
            self._pose_n15,
            self._gait.sine_n2,
            action_na,
            self._action_na,
            self.robot.scale,
        )
        errors = np.stack([np.linalg.norm(e, axis=1) for e in self._errors(motion)], 1)
        asked = are_asked_to_step(self._commands.now_n15, motion.heading_error_n)
        sway = np.where(asked, 0.0, np.linalg.norm(motion.spin_n3[:, :2], axis=1))
        measured = {f"{name}_error": errors[:, i] for i, name in enumerate(self.limits)}
        return Outcome(rewarded, errors, measured | {"unasked_sway": sway})

    def _advance(self) -> None:
        """Commands, the heading to keep, gait, pushes."""
        self._commands.advance(STEP_S, self.level)
        # Who cannot follow is not asked to turn back all that he missed.
        yaw = euler(self._physics.qpos[:, 3:7])[:, 2]
        self._heading_n = yaw - self._heading_error() + STEP_S * self._commands.now_n15[:, -5]
        now, qpos = self._commands.now_n15, self._physics.qpos
        self._gait.advance(STEP_S, moves(now, self._heading_error(), qpos, self.robot))
        self._push_some()

    def _begin(self, ids: np.ndarray) -> None:
        """Standing as the command asks."""
        self._commands.reset(ids, self.level)
        given = self._commands.now_n15[ids]
        qpos = np.zeros((len(ids), self._physics.model.nq))
        yaw = self._rng.uniform(-np.pi, np.pi, len(ids))
        qpos[:, 2] = given[:, -1] + 0.01
        qpos[:, 3], qpos[:, 6] = np.cos(yaw / 2), np.sin(yaw / 2)
        self._put(ids, qpos, np.concatenate([self._reference()[ids], given[:, :-7]], 1))
        self._heading_n[ids] = yaw + self._rng.uniform(-0.3, 0.3, len(ids)) * self._disorder
        self._gait.reset(ids)
        self._settle(ids)
        self._history.begin(ids, self._frame()[ids])

    def _lowest_level(self) -> float:
        """Who has begun to walk goes on walking."""
        return WALKS_FROM if self.level >= WALKS_FROM else self.cfg.first_level

    def _own_arrays(self) -> dict[str, np.ndarray]:
        arrays = {f"commands.{name}": getattr(self._commands, name) for name in COMMAND_ARRAYS}
        return arrays | {"gait": self._gait.phase_n2, "frames": self._history.frames}

    def _load_own(self, arrays: Mapping[str, np.ndarray]) -> None:
        for name in COMMAND_ARRAYS:
            setattr(self._commands, name, arrays[f"commands.{name}"])
        self._gait.phase_n2 = arrays["gait"]
        self._history.frames[:] = arrays["frames"]

    # What is observed.

    def _frame(self) -> np.ndarray:
        qpos, qvel = self._physics.qpos, self._physics.qvel
        frame = self._observe(
            qpos, qvel, self._heading_error(), self._action_na, self._commands.now_n15[:, :-7],
            self._gait.sine_n2, self._reference(),
        )  # fmt: skip
        return self._noisy(frame, self._noise)

    def _observe_all(self) -> dict[str, np.ndarray]:
        self._history.push(self._frame())
        return self._compose()

    def _compose(self) -> dict[str, np.ndarray]:
        groups = self._history.groups(self._commands.now_n15)
        observed = {name: groups[name] for name in self._groups}
        unmeasured, errors = self._unmeasured(), np.zeros((self.num_envs, 4), np.float32)
        if self._motion is not None:
            errors = np.concatenate(self._errors(self._motion)[1:], 1, dtype=np.float32)
        privileged = [unmeasured[:, :6], errors, unmeasured[:, 6:]]
        observed["critic"] = np.concatenate([observed["actor"], *privileged], 1)
        return observed

    def _reference(self) -> np.ndarray:
        return reference(self._commands.now_n15, self._gait, robot=self.robot)

    def _errors(self, motion: Motion) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Measured minus commanded: velocity [N, 2], height [N, 1], torso [N, 3]."""
        now = self._commands.now_n15
        return (
            motion.velocity_n3[:, :2] - now[:, -7:-5],
            motion.height_n[:, None] - now[:, -1:],
            motion.torso_n3 - now[:, -4:-1],
        )


def robot_facts(robot: Robot) -> dict[str, typing.Any]:
    """What a controller must know beside the observations; see `Interface.robot`."""
    return motor_facts(robot, robot.driven) | {
        "command_names": list(robot.command_names),
        "command_signals": [dataclasses.asdict(robot.signal(name)) for name in robot.command_names],
        "observation_names": ["proprioception", "command"],
    }
