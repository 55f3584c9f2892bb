"""Gaits from foot trajectories: a base that follows commanded velocities, feet that step for it.

The base moves at a constant height. A foot stands still in the world during stance. Each foothold
is the place below the foot's rest position in the middle of its stance. In swing, the foot moves
to the next foothold along a smooth curve and is lifted by `lift_m`. Legs of one diagonal swing
together (a trot). While the robot stands, no foot is lifted. Inverse kinematics gives the joints.

    python -m rrf.envs.motions.gaits configs/motions     # writes the motions that rrf comes with

Legend: T frames, F feet, K steps of one foot.
"""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rrf.envs.motions.clip import Clip, quat_conjugate, quat_of_rotation_vector, rotate
from rrf.envs.motions.rig import Rig

_SAME_PLACE_M = 0.005
_FPS = 50.0  # of the motions that rrf comes with


@dataclasses.dataclass(frozen=True)
class Trot:
    """The numbers of a gait."""

    frequency_hz: float = 2.0  # steps of each foot per second
    duty: float = 0.5  # share of a period in which a foot stands
    lift_m: float = 0.09  # highest point of a swing
    height_m: float = 0.30  # of the base above the ground
    foot_radius_m: float = 0.023  # of a foot's centre above the ground when it stands


def velocities(targets: np.ndarray, hold_s: float, ramp_s: float, fps: float) -> np.ndarray:
    """Velocities over time [T, 3] (forward m/s, left m/s, turn left rad/s) that hold each of the
    targets [M, 3] for `hold_s` and change smoothly to the next within `ramp_s`.
    """
    segment = hold_s + ramp_s
    times = np.arange(round(len(targets) * segment * fps)) / fps
    current = np.minimum((times / segment).astype(int), len(targets) - 1)
    following = np.minimum(current + 1, len(targets) - 1)
    part = np.clip((times - current * segment - hold_s) / ramp_s, 0, 1)[:, None]
    return targets[current] + _smooth(part) * (targets[following] - targets[current])


def trot(rig: Rig, velocity_t3: np.ndarray, fps: float, gait: Trot) -> Clip:
    """A trot at these velocities.

    Args:
        rig: Its feet are in the order front, front, hind, hind; the first and the last swing
            together.
        velocity_t3: Forward and left velocity (m/s) and turn rate to the left (rad/s), in the frame
            of the base, [T, 3].

    Raises:
        ValueError: If a foot cannot reach its place.
    """
    times = np.arange(len(velocity_t3)) / fps
    base, yaw = _integrated(velocity_t3, fps)
    base[:, 2] = gait.height_m
    quat = quat_of_rotation_vector(np.stack([0 * yaw, 0 * yaw, yaw], 1))
    rest = rig.foot_positions(rig.default_joints[None])[0]
    rest[:, 2] = gait.foot_radius_m - gait.height_m
    offsets = [0.0, 0.5, 0.5, 0.0]
    feet = [
        _foot(times, base, quat, place, offset, gait)
        for place, offset in zip(rest, offsets, strict=True)
    ]
    feet_w = np.stack(feet, 1)
    feet_b = rotate(quat_conjugate(quat)[:, None], feet_w - base[:, None])
    return Clip(
        fps=fps,
        joint_names=rig.joint_names,
        root_pos=base,
        root_quat=quat,
        joint_pos=rig.joints_for(feet_b, "the trot"),
        source=f"RoboRenForce, rrf.envs.motions.gaits: {gait}",
        licence="BSD-3-Clause",
    )


def _foot(
    times: np.ndarray,
    base: np.ndarray,
    quat: np.ndarray,
    rest: np.ndarray,
    offset: float,
    gait: Trot,
) -> np.ndarray:
    """One foot's positions in the world, [T, 3]. A period begins with its stance."""
    period = 1 / gait.frequency_hz
    cycle = times / period + offset
    count = int(cycle[-1]) + 2
    middles = (np.arange(count + 1) - offset + gait.duty / 2) * period
    at = np.clip(np.searchsorted(times, middles), 0, len(times) - 1)
    footholds = base[at] + rotate(quat[at], np.broadcast_to(rest, (len(at), 3)))
    step = cycle.astype(int)
    swing = np.clip((cycle - step - gait.duty) / (1 - gait.duty), 0, 1)[:, None]
    before, after = footholds[step], footholds[step + 1]
    moves = np.linalg.norm(after - before, axis=1, keepdims=True) > _SAME_PLACE_M
    position = before + _smooth(swing) * (after - before)
    position[:, 2:] += gait.lift_m * moves * np.sin(np.pi * swing) ** 2
    return position


def _integrated(velocity_t3: np.ndarray, fps: float) -> tuple[np.ndarray, np.ndarray]:
    """Positions [T, 3] and headings [T] of a base that moves at velocities in its own frame."""
    yaw = np.concatenate([[0.0], np.cumsum(velocity_t3[:-1, 2])]) / fps
    cos, sin = np.cos(yaw), np.sin(yaw)
    forward, left = velocity_t3[:, 0], velocity_t3[:, 1]
    moves = np.stack([cos * forward - sin * left, sin * forward + cos * left, 0 * yaw], 1)
    return np.concatenate([np.zeros((1, 3)), np.cumsum(moves[:-1], 0)]) / fps, yaw


def _smooth(part: np.ndarray) -> np.ndarray:
    """From 0 to 1 with zero velocity at both ends."""
    return part * part * (3 - 2 * part)


def go1_rig(feet: Sequence[str]) -> Rig:
    """The joints of mjlab's model of Unitree's Go1, and its feet in this order."""
    from mjlab.asset_zoo.robots import get_go1_robot_cfg
    from mjlab.entity import Entity

    return Rig(Entity(get_go1_robot_cfg()).compile(), feet)


def go1_trot() -> Clip:
    """A trot of Unitree's Go1 at drawn velocities, in the ranges of the preset go1-flat-ppo.

    It never stands: a policy that stands still would be in style for no effort.
    """
    rig = go1_rig(["FR", "FL", "RR", "RL"])
    random = np.random.default_rng(0)
    targets = random.uniform([-1.0, -0.7, -0.7], [1.0, 0.7, 0.7], (24, 3))
    targets[::4, 1:] = 0.0  # it also walks straight
    return trot(rig, velocities(targets, 1.2, 0.4, _FPS), _FPS, Trot())


def g1_squat() -> Clip:
    """Unitree's G1 squats every two seconds, sways and swings its arms; its soles stay in place."""
    from mjlab.asset_zoo.robots import get_g1_robot_cfg
    from mjlab.entity import Entity

    rig = Rig(Entity(get_g1_robot_cfg()).compile(), ["left_foot", "right_foot"])
    phase = np.pi * np.arange(round(10.0 * _FPS) + 1) / _FPS
    base = np.zeros((len(phase), 3))
    base[:, 1] = 0.03 * np.sin(phase)
    base[:, 2] = rig.default[2] - 0.06 * (1 - np.cos(phase))
    feet = rig.foot_positions(rig.default_joints[None])
    feet_b = feet + (base[0] - base)[:, None]
    joints = rig.joints_for(feet_b, "the squat", level=True)
    for name, swing in (
        *(("left_shoulder_pitch_joint", -0.4), ("right_shoulder_pitch_joint", -0.4)),
        *(("left_elbow_joint", 0.3), ("right_elbow_joint", 0.3)),
    ):
        joints[:, rig.joint_names.index(name)] += swing * (1 - np.cos(phase)) / 2
    quat = np.tile([1.0, 0.0, 0.0, 0.0], (len(phase), 1))
    source = "RoboRenForce, rrf.envs.motions.gaits:g1_squat"
    return Clip(_FPS, rig.joint_names, base, quat, joints, source, "BSD-3-Clause")


MADE = {"go1-trot": go1_trot, "g1-squat": g1_squat}


if __name__ == "__main__":
    for name, make in MADE.items():
        make().write(Path(sys.argv[1]) / f"{name}.npz")
