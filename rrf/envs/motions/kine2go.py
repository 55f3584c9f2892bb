"""Motions of Kine2Go, as clips for Go1.

    python -m rrf.envs.motions.kine2go MOTION.npy ... --out FOLDER

Kine2Go (arXiv:2606.14433, Hugging Face dataset MIMUW-Robotics/kine2go) holds gaits of dogs, of a
horse and of the robot Solo8, all retargeted to Unitree's Go2. A `motion.npy` is float32 [T, 61], 60
frames per second:

    0-5     the base               6-17   joints, rad     18-35  velocities of both
    36-47   feet in the world, m   48-50  the base in the world, m
    51-54   its orientation (w, x, y, z)  55-60  its velocities

The dataset's description names the joints leg by leg, but files hold them kind by kind: all hips,
all thighs, all calves. Therefore the feet decide: the joints are read in the order that puts the
feet where the file has them.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import mujoco
import numpy as np

from rrf.envs.motions.clip import Clip, quat_conjugate, rotate
from rrf.envs.motions.gaits import go1_rig
from rrf.envs.motions.rig import Rig, retargeted

FPS = 60.0
LICENCES = {  # of the motions whose names begin like this, as the dataset's metadata says
    "solo8": "BSD-3-Clause",
    "vhdc": "CC-BY-SA-4.0",
    "ai4_dog": "CC-BY-NC-4.0",
}
_WIDTH = 61
_FEET = ["FL", "RL", "FR", "RR"]
_PARTS = ("hip", "thigh", "calf")
_ORDERS = {
    "kind by kind": [f"{leg}_{part}_joint" for part in _PARTS for leg in ("FL", "FR", "RL", "RR")],
    "leg by leg": [f"{leg}_{part}_joint" for leg in ("FR", "FL", "RR", "RL") for part in _PARTS],
}
_CLOSE_M = 0.005
_FOOT_RADIUS_M = 0.022

# Go2, from Unitree's description of it: where the legs begin, and the lengths of their parts, m.
_HIP_X, _HIP_Y, _HIP_WIDTH, _LEG = 0.1934, 0.0465, 0.0955, 0.213


def go2_rig() -> Rig:
    """The joints and feet of Unitree's Go2; the feet are in the order of Kine2Go."""
    legs = "".join(_leg(foot) for foot in _FEET)
    base = f'<body name="base"><freejoint/><geom size="0.1"/>{legs}</body>'
    xml = f"<mujoco><worldbody>{base}</worldbody></mujoco>"
    return Rig(mujoco.MjModel.from_xml_string(xml), _FEET)  # pyright: ignore[reportAttributeAccessIssue]


def _leg(foot: str) -> str:
    x, side = _HIP_X * (1 if foot[0] == "F" else -1), 1 if foot[1] == "L" else -1
    return f"""
      <body pos="{x} {side * _HIP_Y} 0">
        <joint name="{foot}_hip_joint" axis="1 0 0"/><geom size="0.02"/>
        <body pos="0 {side * _HIP_WIDTH} 0">
          <joint name="{foot}_thigh_joint" axis="0 1 0"/><geom size="0.02"/>
          <body pos="0 0 {-_LEG}">
            <joint name="{foot}_calf_joint" axis="0 1 0"/><geom size="0.02"/>
            <site name="{foot}" pos="0 0 {-_LEG}"/>
          </body>
        </body>
      </body>"""


def read(path: str | Path, licence: str | None = None) -> Clip:
    """One motion of Go2.

    Args:
        licence: Of the motion; by default that of the part of the dataset that it belongs to.

    Raises:
        ValueError: If the file is not such a motion, if its joints do not lead to its feet, or if
            nothing tells its licence.
    """
    name = name_of(Path(path))
    known = [LICENCES[part] for part in LICENCES if name.startswith(part)]
    if not (licence or known):
        raise ValueError(
            f"{path}: the licence of '{name}' is not known, because it begins with none of "
            f"{', '.join(LICENCES)}; give it with --licence"
        )
    try:
        data = np.load(path, allow_pickle=False).astype(np.float64)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a motion of Kine2Go (.npy): {error}") from None
    if data.ndim != 2 or data.shape[1] != _WIDTH:
        raise ValueError(
            f"{path} has the shape {list(data.shape)}, a motion of Kine2Go has [frames, {_WIDTH}]"
        )
    if not np.isfinite(data).all():
        frame, column = np.argwhere(~np.isfinite(data))[0]
        raise ValueError(f"{path} has {data[frame, column]} in frame {frame}, column {column}")
    rig, base, turn = go2_rig(), data[:, 48:51], data[:, 51:55]
    feet = data[:, 36:48].reshape(-1, len(_FEET), 3) - base[:, None]
    places = rotate(quat_conjugate(turn)[:, None], feet)
    misses = {}
    for order, names in _ORDERS.items():
        joints = data[:, [6 + names.index(joint) for joint in rig.joint_names]]
        misses[order] = np.linalg.norm(rig.foot_positions(joints) - places, axis=2).max(initial=0)
        if misses[order] <= _CLOSE_M:
            source = f"Kine2Go (MIMUW-Robotics/kine2go, arXiv:2606.14433), {name}"
            chosen = licence or known[0]
            return Clip(FPS, rig.joint_names, base, turn, joints, source, chosen, str(path))
    distances = ", ".join(f"{100 * miss:.1f} cm if read {order}" for order, miss in misses.items())
    raise ValueError(f"{path}: its joints do not lead to its feet ({distances}); is it of a Go2?")


def name_of(path: Path) -> str:
    """The name of a motion: that of the file, or of its folder if the file is `motion.npy`."""
    return path.resolve().parent.name if path.name == "motion.npy" else path.stem


def main(words: Sequence[str] | None = None) -> None:
    """Write the motions, retargeted to Go1, as clips into a folder."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("motions", nargs="+", type=Path, metavar="MOTION.npy")
    parser.add_argument("--out", required=True, type=Path, help="folder for the clips")
    parser.add_argument("--licence", help="of all of these motions, where their names do not tell")
    args = parser.parse_args(words)
    try:
        motions = [read(path, args.licence) for path in args.motions]
        source, target = go2_rig(), go1_rig(_FEET)
        for path, motion in zip(args.motions, motions, strict=True):
            clip = retargeted(motion, source, target, _FOOT_RADIUS_M)
            file = args.out / f"{name_of(path)}.npz"
            clip.write(file)
            sys.stdout.write(f"{file}: {clip.seconds:.1f} s, {clip.licence}\n")
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
