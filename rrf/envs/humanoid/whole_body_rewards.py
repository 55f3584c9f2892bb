"""What a whole-body policy is rewarded for: the terms of a step, each [N], per second.

The terms are those of humanoid locomotion in general (mjlab, AMO), with weights of ours that fit a
training on two cores.

Legend: N robots.
"""

import dataclasses

import numpy as np

from rrf.envs.humanoid.proprioception import (
    HEIGHT,
    TORSO,
    VELOCITY,
    are_asked_to_step,
    are_stepping,
)

WEIGHTS = {
    "velocity": 4.0,
    "heading": 1.0,
    "turning": 0.5,
    "height": 1.0,
    "torso": 1.0,
    "contacts": 3.0,
    "alive": 0.5,
    "unasked_steps": -2.0,
    "swing": -150.0,
    "slip": -0.3,
    "stance_width": -10.0,
    "feet_heading": -0.5,
    "bounce": -0.5,
    "sway": -0.05,
    "pose": -0.3,
    "action_rate": -0.01,
    "action": -0.005,
    "acceleration": -2e-7,
    "torque": -2e-5,
}
"""Term -> reward per second and unit of the term."""
_SWING_HEIGHT = 0.08  # m, of a foot in the middle of its swing
_WIDTH = (0.17, 0.32)  # m, between the feet


@dataclasses.dataclass
class Motion:
    """What happened in a step; float64."""

    velocity_n3: np.ndarray  # of the pelvis, in its heading frame, m/s
    spin_n3: np.ndarray  # angular velocity of the pelvis, rad/s
    heading_error_n: np.ndarray  # rad
    height_n: np.ndarray  # m
    torso_n3: np.ndarray  # roll, pitch, yaw of the torso in the heading frame, rad
    feet_n23: np.ndarray  # places of the soles in the heading frame, from the pelvis, m
    feet_height_n2: np.ndarray  # above the ground, m
    feet_speed_n2: np.ndarray  # along the ground, m/s
    feet_yaw_n2: np.ndarray  # in the heading frame, rad
    touches_n2: np.ndarray  # bool, which feet are on the ground
    joints_na: np.ndarray  # angles of the driven joints, rad
    acceleration_na: np.ndarray  # rad/s^2
    torque_na: np.ndarray  # Nm


def terms(
    motion: Motion,
    command_n15: np.ndarray,
    reference_n15: np.ndarray,
    gait_sine_n2: np.ndarray,
    action_n15: np.ndarray,
    last_action_n15: np.ndarray,
    scale: float = 1.0,
) -> dict[str, np.ndarray]:
    """The weighted terms, name -> [N], per second. `scale`: see `Robot.scale`."""
    m, velocity = motion, command_n15[:, VELOCITY]
    stance = gait_sine_n2 >= 0
    torso_error = np.square(m.torso_n3 - command_n15[:, TORSO]).sum(1)
    lift = np.where(stance, 0.0, -gait_sine_n2) * (scale * _SWING_HEIGHT)
    width = m.feet_n23[:, 0, 1] - m.feet_n23[:, 1, 1]
    too_narrow, too_wide = scale * _WIDTH[0] - width, width - scale * _WIDTH[1]
    off_n15 = np.square(m.joints_na - reference_n15)
    values = {
        "velocity": near(np.square(m.velocity_n3[:, :2] - velocity[:, :2]).sum(1), 0.3, 0.05),
        "heading": near(np.square(m.heading_error_n), 0.4, 0.05),
        "turning": np.exp(-np.square(m.spin_n3[:, 2] - velocity[:, 2]) / 0.25),
        "height": np.exp(-np.square((m.height_n - command_n15[:, HEIGHT]) / scale) / 0.003),
        "torso": np.exp(-torso_error / 0.05),
        "contacts": (stance == m.touches_n2).mean(1),
        "alive": np.ones(len(width)),
        # Who rocks until it may step is safe from pushes, and of no use to hands.
        "unasked_steps": are_stepping(gait_sine_n2)
        & ~are_asked_to_step(command_n15, m.heading_error_n),
        "swing": (np.square(m.feet_height_n2 - lift) * ~stance).sum(1),
        "slip": (np.square(m.feet_speed_n2) * m.touches_n2).sum(1),
        "stance_width": np.square(np.maximum(np.maximum(too_narrow, too_wide), 0)),
        "feet_heading": np.square(m.feet_yaw_n2).sum(1),
        "bounce": np.square(m.velocity_n3[:, 2]),
        "sway": np.square(m.spin_n3[:, :2]).sum(1),
        "pose": off_n15[:, :12].sum(1),
        "action_rate": np.square(action_n15 - last_action_n15).sum(1),
        "action": np.square(action_n15).sum(1),
        "acceleration": np.square(m.acceleration_na).sum(1),
        "torque": np.square(m.torque_na).sum(1),
    }
    return {name: WEIGHTS[name] * value for name, value in values.items()}


def near(squared_error_n: np.ndarray, wide: float, narrow: float) -> np.ndarray:
    """1 without an error. The wide bell draws robots near that are far off: with the narrow one
    alone, they march on the spot. Widths are squares, too.
    """
    return (np.exp(-squared_error_n / wide) + np.exp(-squared_error_n / narrow)) / 2
