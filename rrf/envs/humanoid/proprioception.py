"""What a whole-body policy sees of a G1: AMO's 93 numbers of the robot, 15 of the command, and two
histories of the former.

The 93 numbers are, as in AMO's play_amo.py: the angular velocity of the pelvis (3, a quarter of
rad/s), its roll and pitch (2, rad), sine and cosine of the error of the heading (2), angles of the
23 joints beside their default (rad), their velocities (a twentieth of rad/s; ankles and two joints
of the waist are not observed, as 0), the last action (23; of the arms their target, in its scale),
the gait (2) and the pose around which it acts (15, rad). Nothing in it needs a sensor
that the robot lacks. A robot with other arms than a G1's 8 joints has as many as they need.

Legend: N robots, K of them chosen, Q widths of qpos, V of qvel.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import mujoco
import numpy as np

from rrf.envs.humanoid import body
from rrf.envs.humanoid.robots import G1, Robot

ACTION_SCALE = 0.25
"""rad per unit of an action."""
NUM_ACTIONS = len(body.DRIVEN)
HISTORY, LONG_HISTORY = 10, 25
"""Frames of the two histories, the present one included."""
COMMAND_NAMES = G1.command_names
VELOCITY, TORSO, HEIGHT = slice(-7, -4), slice(-4, -1), -1
"""Where vx, vy, vyaw, the torso's angles and the height are in the command, behind the arms."""
_UNSEEN = ("ankle_pitch", "ankle_roll", "waist_roll", "waist_pitch")  # AMO hides these velocities
_STRIDES_HZ = 1.3
_DOUBLE_STANCE = 0.25  # the phase of a foot in the middle of its stance
_NEAR = 0.05
_MAX_HEADING_ERROR = 0.5  # rad
_TIPPED_RAD = 0.15
_LIFT = 0.2  # rad; draws the foot up by some 5 cm
_SWAY = 0.1  # rad, of the legs
_LEG_M = 0.65  # from the hip to the sole
Rows = np.ndarray | slice
"""Which robots: int64 [K], or all."""


def euler(quat_n4: np.ndarray) -> np.ndarray:
    """Roll, pitch and yaw of quaternions (w, x, y, z), [N, 3], rad."""
    w, x, y, z = quat_n4.T
    roll = np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = np.arcsin(np.clip(2 * (w * y - z * x), -1, 1))
    yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return np.stack([roll, pitch, yaw], 1)


def wrapped(angle: np.ndarray | float) -> np.ndarray:
    """Angles in [-pi, pi)."""
    return np.remainder(angle + np.pi, 2 * np.pi) - np.pi


def heading_error(qpos_nq: np.ndarray, keep_n: np.ndarray) -> np.ndarray:
    """The heading of robots minus the one to keep, [N], rad, as far as a policy sees it."""
    error_n = wrapped(euler(qpos_nq[:, 3:7])[:, 2] - keep_n)
    return np.clip(error_n, -_MAX_HEADING_ERROR, _MAX_HEADING_ERROR)


class Gait:
    """The phases of both feet, [N, 2] in [0, 1): a foot is on the ground in the first half."""

    def __init__(self, num_robots: int):
        self.phase_n2 = np.full((num_robots, 2), _DOUBLE_STANCE)

    def reset(self, robots: np.ndarray) -> None:
        """Put both feet on the ground."""
        self.phase_n2[robots] = _DOUBLE_STANCE

    def advance(self, seconds: float, moves_k: np.ndarray, robots: Rows = slice(None)) -> None:
        """Go on. Who stops keeps stepping until a foot is in the middle of its stance.

        Args:
            seconds: Since the last call.
            moves_k: bool [K], who shall step.
            robots: Whose.
        """
        phase = (self.phase_n2[robots] + seconds * _STRIDES_HZ) % 1.0
        near = np.abs(phase - _DOUBLE_STANCE) < _NEAR
        phase[~moves_k & near.any(1)] = _DOUBLE_STANCE
        phase[moves_k & near.all(1)] = _DOUBLE_STANCE, _DOUBLE_STANCE + 0.5
        self.phase_n2[robots] = phase

    @property
    def sine_n2(self) -> np.ndarray:
        """At least 0 in a foot's stance, and below in its swing."""
        return np.sin(2 * np.pi * self.phase_n2)


def moves(
    command_n15: np.ndarray, heading_error_n: np.ndarray, qpos_nq: np.ndarray, robot: Robot = G1
) -> np.ndarray:
    """Who has to step, bool [N]: to go, to turn, because the heading is off, or because the pelvis
    tilts further than the command's pose does: who is pushed and may not step falls.

    The tilt, not its speed: the noise with which a policy explores shakes the pelvis at 0.9 rad/s,
    and tilts it by 0.05 rad.
    """
    tilt_n2 = euler(qpos_nq[:, 3:7])[:, :2]
    tilt_n2[:, 1] -= robot.standing.lean(command_n15[:, TORSO][:, 1])
    tips_n = np.hypot(*tilt_n2.T) > _TIPPED_RAD
    return are_asked_to_step(command_n15, heading_error_n) | tips_n


def are_asked_to_step(command_n15: np.ndarray, heading_error_n: np.ndarray) -> np.ndarray:
    """Who has to step for what is commanded, bool [N]: to go, to turn, or to turn back."""
    vx, vy, vyaw = command_n15[:, VELOCITY].T
    return (np.hypot(vx, vy) > 0.08) | (np.abs(vyaw) > 0.08) | (np.abs(heading_error_n) > 0.2)


def are_stepping(gait_sine_n2: np.ndarray) -> np.ndarray:
    """Whose gait is not at rest with both feet on the ground, bool [N]; see `Gait.sine_n2`."""
    return np.any(gait_sine_n2 < 0.999, axis=1)


def reference(
    command_n15: np.ndarray, gait: Gait, robots: Rows = slice(None), robot: Robot = G1
) -> np.ndarray:
    """The pose around which a policy acts, angles of the 15 driven joints, [N, 15], rad: standing
    as the command says, and stepping where the gait steps.

    In its swing a leg is drawn up and brought forward, sideways or round, in its stance it goes
    back by as much as the robot moves on, and the hips sway towards the foot that carries. Alone,
    the robot would fall over this; a policy that acts around it need not discover stepping.
    """
    pose = robot.standing.pose(command_n15[:, HEIGHT], command_n15[:, TORSO])
    phase_n2, sine_n2 = gait.phase_n2[robots], gait.sine_n2[robots]
    steps_n = are_stepping(sine_n2)
    ahead_n2 = np.cos(2 * np.pi * phase_n2) * steps_n[:, None]  # 1 where a foot comes down
    lift_n2 = np.maximum(-sine_n2, 0.0) * _LIFT
    sway_n = np.where(steps_n, (sine_n2[:, 0] - sine_n2[:, 1]) / 2, 0.0) * _SWAY
    stride_n3 = command_n15[:, VELOCITY] * (0.25 / _STRIDES_HZ)  # half of what a stance covers
    leg_m = _LEG_M * robot.scale
    for leg in (0, 1):
        at = 6 * leg
        forward_n = ahead_n2[:, leg] * stride_n3[:, 0] / leg_m
        sideways_n = ahead_n2[:, leg] * stride_n3[:, 1] / leg_m - sway_n
        pose[:, at] -= forward_n + lift_n2[:, leg]
        pose[:, at + 1] += sideways_n
        pose[:, at + 2] += ahead_n2[:, leg] * stride_n3[:, 2]
        pose[:, at + 3] += 2 * lift_n2[:, leg]
        pose[:, at + 4] += forward_n - lift_n2[:, leg]
        pose[:, at + 5] -= sideways_n
    return pose


class Proprioception:
    """Reads the 93 numbers from the state of a model that has the 23 joints."""

    def __init__(self, model: mujoco.MjModel, robot: Robot = G1):
        self.addresses = body.qpos_addresses(model, robot.observed)
        """Of the 23 joints in qpos."""
        self.dofs = body.qvel_addresses(model, robot.observed)
        """Of the 23 joints in qvel."""
        self._default = robot.default_pose(robot.observed)
        seen = [not any(part in name for part in _UNSEEN) for name in robot.observed]
        self._velocity_scale = 0.05 * np.array(seen)

    def joints(self, qpos_nq: np.ndarray) -> np.ndarray:
        """Angles of the 23 joints, [N, 23], rad."""
        return qpos_nq[:, self.addresses]

    def velocities(self, qvel_nv: np.ndarray) -> np.ndarray:
        """Their velocities, [N, 23], rad/s."""
        return qvel_nv[:, self.dofs]

    def seen_velocities(self, qvel_nv: np.ndarray) -> np.ndarray:
        """As a policy sees them, [N, 23]: scaled, and 0 where they are not observed."""
        return self.velocities(qvel_nv) * self._velocity_scale

    def __call__(
        self,
        qpos_nq: np.ndarray,
        qvel_nv: np.ndarray,
        heading_error_n: np.ndarray,
        action_n15: np.ndarray,
        arms_n8: np.ndarray,
        gait_sine_n2: np.ndarray,
        reference_n15: np.ndarray,
    ) -> np.ndarray:
        """The 93 numbers, float32 [N, 93].

        Args:
            qpos_nq: Positions, the pelvis' free joint first.
            qvel_nv: Velocities.
            heading_error_n: The heading minus the one to keep, rad.
            action_n15: The last action.
            arms_n8: Where shoulders and elbows shall go, rad.
            gait_sine_n2: See `Gait.sine_n2`.
            reference_n15: See `reference`.
        """
        arms = (arms_n8 - self._default[NUM_ACTIONS:]) / ACTION_SCALE
        return np.concatenate(
            [
                0.25 * qvel_nv[:, 3:6],
                euler(qpos_nq[:, 3:7])[:, :2],
                np.sin(heading_error_n)[:, None],
                np.cos(heading_error_n)[:, None],
                self.joints(qpos_nq) - self._default,
                self.seen_velocities(qvel_nv),
                action_n15,
                arms,
                gait_sine_n2,
                reference_n15,
            ],
            axis=1,
            dtype=np.float32,
        )


class History:
    """The last `LONG_HISTORY` frames of N robots, the newest last."""

    def __init__(self, num_robots: int, robot: Robot = G1):
        self._frames = np.zeros((num_robots, LONG_HISTORY, robot.num_proprio), np.float32)
        self._arms = robot.default_pose(robot.arms)

    def begin(self, robots: np.ndarray, frame_k93: np.ndarray) -> None:
        """Fill the past with the first frame."""
        self._frames[robots] = frame_k93[:, None]

    def push(self, frame_k93: np.ndarray, robots: Rows = slice(None)) -> None:
        """Append a frame."""
        self._frames[robots, :-1] = self._frames[robots, 1:]
        self._frames[robots, -1] = frame_k93

    @property
    def frames(self) -> np.ndarray:
        """float32 [N, 25, 93]."""
        return self._frames

    def groups(self, command_k15: np.ndarray, robots: Rows = slice(None)) -> dict[str, np.ndarray]:
        """What a policy is given: "actor" [K, 93 + 15], "history" [K, 10 * 93] and "long_history"
        [K, 25 * 93], float32.

        Args:
            command_k15: The numbers of `COMMAND_NAMES`; the arms' as angles.
            robots: Whose.
        """
        command, frames = command_k15.copy(), self._frames[robots]
        command[:, :-7] -= self._arms
        return {
            "actor": np.concatenate([frames[:, -1], command], 1, dtype=np.float32),
            "history": frames[:, -HISTORY:].reshape(len(frames), -1),
            "long_history": frames.reshape(len(frames), -1),
        }
