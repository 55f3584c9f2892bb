"""The metrics of an episode of state-based control.

    tracking_error_xy   mean over time of ||v_xy - c_xy||_2, body frame, m/s
    tracking_error_yaw  mean over time of |w_z - c_z|, rad/s
    power               mean over time of sum_j |tau_j qdot_j|, the mechanical power, W
    cost_of_transport   power / (m g |v_xy|), only for commands that ask the robot to move
    smoothness          Sm of the actions, see `rrf.evaluation.action_metrics.smoothness`
    action_change       mean |a[t + 1] - a[t]|
    motion_distance     distance to the nearest reference motion, for environments that have some
                        (`motion_distance`), rad
    goal_distance       distance of the object from its goal after the last step, for environments
                        with a goal; after the step before it where the environment ended the
                        episode, m
    fall                1 if the episode ended before its time limit, else 0
    return, length      sum of rewards, steps
    success_once        1 if the task said at any time that it is solved, else 0
    success_at_end      1 if it said so in the last step, else 0
    completed           parts of the task that were done, for tasks that count them
    velocity_error, height_error, torso_error, unasked_sway, mpjpe
                        means over time of what the task measures, for tasks that draw themselves
                        what the robot is to do, m/s, m, rad, rad/s, mm

Tracking errors and motion distance leave out the settling time. A metric is missing if the episode
is too short for it.

Legend: N environments, A width of an action, T steps or frames, J joints, W frames of a piece, P
pieces, R pieces of references.
"""

import math
import typing
from collections.abc import Sequence

import torch

from rrf.envs.control_env import MotionEnv
from rrf.evaluation.action_metrics import of_actions

if typing.TYPE_CHECKING:
    from rrf.evaluation.control.configs import ControlProtocolCfg

_GRAVITY = 9.81  # m/s^2
_STANDING = 0.1  # m/s; for slower commands no cost of transport is computed
_WINDOW_S = 0.2  # of a piece of a motion


@typing.runtime_checkable
class VelocityEnv(typing.Protocol):
    """A `ControlEnv` of a robot that follows commanded velocities."""

    def set_command(self, command: torch.Tensor) -> None:
        """Use command [N, 3] (forward m/s, left m/s, turn left rad/s) from now on, also after
        resets."""
        ...

    def body_velocity(self) -> torch.Tensor:
        """The velocities of the robots, [N, 3] in the same units, in the body frame."""
        ...

    def power(self) -> torch.Tensor:
        """Mechanical power during the last step, W, [N]."""
        ...


@typing.runtime_checkable
class GoalEnv(typing.Protocol):
    """A `ControlEnv` in which an object is to be brought to a goal, at least in some tasks."""

    def goal_distance(self) -> torch.Tensor | None:
        """Distances of the objects from their goals now, m, [N]; None for a task without goals."""
        ...


class EpisodeMeter:
    """Measures one episode in each of N environments."""

    def __init__(self, env, protocol: "ControlProtocolCfg", command: torch.Tensor | None):
        """
        Args:
            command: [N, 3], or None for tasks without commands.
        """
        num_envs = env.num_envs
        self._env, self._command = env, command
        self._step_dt: float = env.interface.step_dt
        self._settling = round(protocol.settling_s / self._step_dt)
        self._is_continuous = env.interface.num_choices is None
        self._has_power = command is not None and hasattr(env, "power")
        self.is_running = torch.ones(num_envs, dtype=torch.bool)
        self.is_fallen = torch.zeros(num_envs, dtype=torch.bool)
        self.steps = torch.zeros(num_envs, dtype=torch.int64)
        self.returns = torch.zeros(num_envs, dtype=torch.float64)
        self._sums = {
            name: torch.zeros(num_envs, dtype=torch.float64) for name in ("xy", "yaw", "speed", "w")
        }
        self._counts = {name: torch.zeros(num_envs, dtype=torch.int64) for name in self._sums}
        self._told: dict[str, torch.Tensor] = {}  # what the task says of success, each [N]
        self._own: set[str] = set()  # what the task measures itself
        self._actions: list[torch.Tensor] = []
        self._motion_env = env if isinstance(env, MotionEnv) else None
        self._poses: list[torch.Tensor] = []
        self._goal_distance = env.goal_distance() if isinstance(env, GoalEnv) else None

    def observe(
        self,
        actions: torch.Tensor,
        rewards: torch.Tensor,
        dones: torch.Tensor,
        time_outs: torch.Tensor,
        success: torch.Tensor | None = None,
        completed: torch.Tensor | None = None,
        measured: dict[str, torch.Tensor] | None = None,
    ) -> list[int]:
        """Record a step of all environments. Returns the environments whose episode it ended.

        Args:
            success, completed, measured: See `rrf.envs.control_env.ControlEnv`; None where the task
                says nothing.
        """
        if success is not None:
            solved = success.double().cpu()
            self._tell("success_at_end", solved)
            self._tell("success_once", solved.maximum(self._told.get("success_once", solved)))
        if completed is not None:
            self._tell("completed", completed.double().cpu())
        dones, time_outs = dones.bool().cpu(), time_outs.bool().cpu()
        self._actions.append(actions.detach().float().cpu())
        if self._motion_env is not None:
            poses = self._motion_env.frames()[:, : self._motion_env.pose_width]
            self._poses.append(poses.cpu().clone())
        self.steps += self.is_running
        self.returns += torch.where(self.is_running, rewards.double().cpu(), 0.0)
        going_on = self.is_running & ~dones
        if self._goal_distance is not None:
            # After an end the environment already shows the first state of the next episode.
            now = self._env.goal_distance()
            self._goal_distance = torch.where(going_on, now, self._goal_distance)
        if self._command is not None:
            self._measure(going_on)
        for name, values in (measured or {}).items():
            self._own.add(name)
            self._add(name, values.double().cpu(), going_on & (self.steps > self._settling))
        ended = self.is_running & dones
        self.is_fallen |= ended & ~time_outs
        self.is_running &= ~dones
        return ended.nonzero().flatten().tolist()

    def stop(self) -> list[int]:
        """End all running episodes at the horizon. Returns the environments that were running."""
        stopped = self.is_running.nonzero().flatten().tolist()
        self.is_running[:] = False
        return stopped

    def actions(self, env: int) -> torch.Tensor:
        """The actions of an episode, float32 [T, A]."""
        return torch.stack([rows[env] for rows in self._actions[: int(self.steps[env])]])

    def metrics(self, env: int) -> dict[str, float]:
        """The metrics of the episode in environment `env`, by name."""
        values = {"return": float(self.returns[env]), "length": float(self.steps[env])}
        values |= {name: float(told[env]) for name, told in self._told.items()}
        told = {name: self._mean(name, env) for name in self._own}
        values |= {name: mean for name, mean in told.items() if mean is not None}
        if self._command is not None or told:
            values["fall"] = float(self.is_fallen[env])
        if self._command is not None:
            values |= self._velocity_metrics(env)
        if self._is_continuous:
            values |= of_actions(self.actions(env).numpy(), self._step_dt)
        if self._goal_distance is not None:
            values["goal_distance"] = float(self._goal_distance[env])
        if self._motion_env is not None:
            values |= self._motion_metrics(env, self._motion_env)
        return {name: round(value, 6) for name, value in values.items()}

    def _tell(self, name: str, values_n: torch.Tensor) -> None:
        """Note what the task says of its running episodes."""
        self._told[name] = torch.where(self.is_running, values_n, self._told.get(name, values_n))

    def _motion_metrics(self, env: int, motion_env: MotionEnv) -> dict[str, float]:
        # The last pose already belongs to the next episode, unless the horizon ended this one.
        poses = [rows[env] for rows in self._poses[self._settling : int(self.steps[env]) - 1]]
        width = motion_env.pose_width
        references = [frames[:, :width].cpu() for frames in motion_env.reference_frames()]
        window = max(1, round(_WINDOW_S / self._step_dt))
        distance = motion_distance(torch.stack(poses), references, window) if poses else None
        return {} if distance is None else {"motion_distance": distance}

    def _measure(self, where: torch.Tensor) -> None:
        assert self._command is not None
        velocity = self._env.body_velocity().double().cpu()
        error = velocity - self._command.double()
        settled = where & (self.steps > self._settling)
        self._add("xy", error[:, :2].norm(dim=1), settled)
        self._add("yaw", error[:, 2].abs(), settled)
        self._add("speed", velocity[:, :2].norm(dim=1), where)
        if self._has_power:
            self._add("w", self._env.power().double().cpu(), where)

    def _add(self, name: str, values: torch.Tensor, where: torch.Tensor) -> None:
        if name not in self._sums:
            self._sums[name] = torch.zeros_like(values)
            self._counts[name] = torch.zeros_like(self.steps)
        self._sums[name] += torch.where(where, values, 0.0)
        self._counts[name] += where

    def _mean(self, name: str, env: int) -> float | None:
        count = int(self._counts[name][env])
        return float(self._sums[name][env]) / count if count else None

    def _velocity_metrics(self, env: int) -> dict[str, float]:
        assert self._command is not None
        values = {
            "tracking_error_xy": self._mean("xy", env),
            "tracking_error_yaw": self._mean("yaw", env),
            "power": self._mean("w", env),
        }
        mass, speed = robot_mass(self._env), self._mean("speed", env)
        asked = math.hypot(*self._command[env, :2].tolist())
        if values["power"] is not None and mass and speed and asked >= _STANDING:
            values["cost_of_transport"] = values["power"] / (mass * _GRAVITY * speed)
        return {name: value for name, value in values.items() if value is not None}


def robot_mass(env) -> float | None:
    """Mass in kg of all movable bodies in the environment's MuJoCo model; None without a model."""
    model = getattr(env, "mj_model", None)
    if model is None:
        return None
    return float(model.body_mass[model.body_weldid != 0].sum())


def motion_distance(
    poses_tj: torch.Tensor, references: Sequence[torch.Tensor], window: int
) -> float | None:
    """How far a motion is from references, in rad; None if it is shorter than a piece.

    A motion is cut into pieces of `window` frames. The distance of a piece is the root mean square
    difference of the joint positions, over all joints and frames, from the most similar piece of
    any reference that begins at any frame. The distance of the motion is the mean over its pieces.
    A piece holds an order of postures, so a wrong rhythm counts as well as a wrong posture; the
    phase of a gait does not.

    Args:
        references: Each [T, J], in the same rate.
        window: Frames of a piece.

    Raises:
        ValueError: If no reference is as long as a piece.
    """
    if len(poses_tj) < window:
        return None
    pieces = [r.unfold(0, window, 1).flatten(1) for r in references if len(r) >= window]
    if not pieces:
        raise ValueError(f"no reference motion has {window} frames")
    own_pieces_pj = poses_tj.unfold(0, window, window).flatten(1)  # [P, J W]
    nearest = torch.cdist(own_pieces_pj, torch.cat(pieces)).min(1).values
    return float((nearest / own_pieces_pj.shape[1] ** 0.5).mean())
