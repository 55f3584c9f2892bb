"""Retargeting: the motion of one robot on another with the same number of feet.

The paths of the feet relative to the hips, and those of the base, are scaled by the ratio of the
leg lengths; time is not. A foot that stands still in the source therefore stands still in the
target. The lateral distance of a foot from its hip scales with the leg, too. Inverse kinematics
gives the joints; joints that move no foot keep their default positions.

Legend: T frames, F feet.
"""

import dataclasses

import numpy as np

from rrf.envs.motions.clip import Clip
from rrf.envs.motions.rig import Rig


def retargeted(
    clip: Clip, source: Rig, target: Rig, foot_radius_m: float = 0.0, *, level: bool = False
) -> Clip:
    """The motion of `clip`, which was made for `source`, on `target`.

    Args:
        source: Its feet are in the same order as those of `target`.
        foot_radius_m: Height of a foot's site above the ground while it stands. It is the same for
            both robots and not scaled.
        level: Keep the soles of the target level.

    Raises:
        ValueError: If the clip has other joints than `source`, if the robots have different numbers
            of feet, or if a foot cannot reach its place.
    """
    if len(source.feet) != len(target.feet):
        raise ValueError(
            f"the source has {len(source.feet)} feet and the target {len(target.feet)}; give the "
            "feet that correspond, in the same order"
        )
    clip = clip.with_joints(source.joint_names)
    scale = float(target.leg_lengths().mean() / source.leg_lengths().mean())
    ground = np.array([0.0, 0.0, foot_radius_m])
    base = (clip.root_pos - ground) * scale + ground
    legs = source.foot_positions(clip.joint_pos) - source.hips()
    return dataclasses.replace(
        clip,
        joint_names=target.joint_names,
        root_pos=base,
        joint_pos=target.joints_for(target.hips() + scale * legs, clip.name, level=level),
        source=f"{clip.source}; retargeted to legs of {scale:.3f} times the length",
    )
