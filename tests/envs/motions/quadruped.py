"""A quadruped with the joints of Go1 and legs of any length, and a short clip of it."""

import mujoco
import numpy as np

from rrf.envs.motions.clip import Clip
from rrf.envs.motions.rig import Rig

FEET = ["FR", "FL", "RR", "RL"]
JOINTS = [f"{foot}_{part}_joint" for foot in FEET for part in ("hip", "thigh", "calf")]
_PLACES = {"FR": (0.2, -0.05), "FL": (0.2, 0.05), "RR": (-0.2, -0.05), "RL": (-0.2, 0.05)}
_POSE = [0.0, 0.9, -1.8] * 4


def _leg(foot: str, length: float, prefix: str) -> str:
    x, y = _PLACES[foot]
    side = np.sign(y) * 0.08
    at = f"{prefix}{foot}"
    return f"""
      <body name="{at}_hip" pos="{x} {y} 0">
        <joint name="{at}_hip_joint" axis="1 0 0" range="-1 1"/><geom size="0.02"/>
        <body pos="0 {side} 0">
          <joint name="{at}_thigh_joint" axis="0 1 0" range="-1 4"/><geom size="0.02"/>
          <body pos="0 0 {-length}">
            <joint name="{at}_calf_joint" axis="0 1 0" range="-2.8 -0.5"/><geom size="0.02"/>
            <site name="{at}" pos="0 0 {-length}"/>
          </body>
        </body>
      </body>"""


def rig(length: float = 0.213, prefix: str = "", feet=tuple(FEET)) -> Rig:
    """Its thighs and its calves are `length` long, m."""
    legs = "".join(_leg(foot, length, prefix) for foot in FEET)
    pose = " ".join(map(str, [0, 0, 0.3, 1, 0, 0, 0, *_POSE]))
    model = mujoco.MjModel.from_xml_string(f"""
    <mujoco><compiler angle="radian" autolimits="true"/><worldbody>
      <body name="{prefix}trunk" pos="0 0 0.3">
        <freejoint name="{prefix}base"/><geom type="box" size=".2 .05 .05"/>{legs}
      </body>
    </worldbody><keyframe><key qpos="{pose}"/></keyframe></mujoco>""")
    return Rig(model, feet, prefix)


def clip(num_frames=5, fps=50.0, **changes) -> Clip:
    """It stands."""
    given = {
        "fps": fps,
        "joint_names": list(JOINTS),
        "root_pos": np.tile([0.0, 0.0, 0.3], (num_frames, 1)),
        "root_quat": np.tile([1.0, 0.0, 0.0, 0.0], (num_frames, 1)),
        "joint_pos": np.tile(_POSE, (num_frames, 1)),
        "source": "these tests",
        "licence": "BSD-3-Clause",
    }
    return Clip(**(given | changes))
