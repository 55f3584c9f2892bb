"""Motion clips as a task needs them: all frames of all clips behind each other, with where joints
and soles are and how fast the pelvis moves.

Legend: F frames of all clips, M clips, C joints that a policy sees, K robots.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import dataclasses
from collections.abc import Sequence

import mujoco
import numpy as np

from rrf.envs.humanoid import body
from rrf.envs.humanoid.command import SIDES
from rrf.envs.humanoid.proprioception import euler
from rrf.envs.humanoid.robots import Robot
from rrf.envs.motions.clip import Clip

_TOUCHES_M = 0.02
_LEAST_S = 1.5
_BIN_S = 0.5
_FORGETS = 0.995  # of what is known about falls, per round of episodes


@dataclasses.dataclass(frozen=True)
class Frames:
    """What is known of a frame; float64. The heading frame is upright, below the pelvis."""

    root_f7: np.ndarray  # place and orientation of the pelvis in the world
    tilt_f2: np.ndarray  # its roll and pitch
    yaw_f: np.ndarray
    velocity_f3: np.ndarray  # of the pelvis, in its heading frame, m/s
    spin_f3: np.ndarray  # of the pelvis, in its own frame, rad/s
    joints_fc: np.ndarray
    joint_velocities_fc: np.ndarray
    links_fc3: np.ndarray  # places of the links that the joints turn, beside the pelvis' place
    touches_f2: np.ndarray  # bool, which soles are on the ground


class MotionLibrary:
    """The clips of a robot, at the control rate.

    Attributes:
        frames: All frames, those of a clip behind each other.
        first: Where each clip begins, int64 [M + 1]; the last one is F.

    Raises:
        ValueError: For a clip of another robot, or with a jump.
    """

    def __init__(self, clips: Sequence[Clip], robot: Robot, model: mujoco.MjModel, fps: float):
        self._addresses = body.qpos_addresses(model, robot.observed)
        self._links = [model.body(model.joint(name).bodyid[0]).id for name in robot.observed]
        self._soles = [model.geom(f"{side}_sole{i}").id for side in SIDES for i in range(4)]
        self._model, self._robot = model, robot
        parts = [self._read(clip, fps) for clip in clips]
        self.frames = Frames(
            *(np.concatenate(values) for values in zip(*map(_values, parts), strict=True))
        )
        self.first = np.cumsum([0, *(len(part.yaw_f) for part in parts)])
        pairs = zip(self.first[:-1], self.first[1:], strict=True)
        self._starts = np.concatenate([np.arange(a, b - round(fps)) for a, b in pairs])
        self._bin_of_f = (np.arange(self.first[-1]) / (_BIN_S * fps)).astype(int)
        self.falls_b = np.zeros(self._bin_of_f[-1] + 1)
        """How often robots fell lately that began here."""

    def draw(self, rng: np.random.Generator, num: int) -> np.ndarray:
        """Frames to begin in, int64 [num]: half of them anywhere, half where robots fall. At least
        a second of the clip is left."""
        even = np.full(len(self._starts), 1 / len(self._starts))
        falls = self.falls_b[self._bin_of_f[self._starts]]
        share = falls / falls.sum() if falls.sum() > 0 else even
        return rng.choice(self._starts, num, p=(even + share) / 2)

    def fell(self, began_k: np.ndarray) -> None:
        """Robots fell that began in these frames."""
        self.falls_b *= _FORGETS
        np.add.at(self.falls_b, self._bin_of_f[began_k], 1.0)

    def ends(self, frame_n: np.ndarray) -> np.ndarray:
        """The last frames of the clips of these frames, int64 [N]."""
        return self.first[np.searchsorted(self.first, frame_n, side="right")] - 1

    def _read(self, clip: Clip, fps: float) -> Frames:
        clip.require_no_jumps()
        robot, model = self._robot, self._model
        clip = clip.with_joints((*robot.driven, *robot.commanded)).resampled(fps)
        clip = clip.with_only(robot.observed)
        if clip.seconds <= _LEAST_S:
            raise ValueError(
                f"{clip.name} lasts {clip.seconds:.2f} s; to be tracked it must be longer than "
                f"{_LEAST_S:g} s"
            )
        root = np.concatenate([clip.root_pos, clip.root_quat], 1)
        data, links, soles = mujoco.MjData(model), [], []
        for pose, joints in zip(root, clip.joint_pos, strict=True):
            data.qpos[:7], data.qpos[self._addresses] = pose, joints
            mujoco.mj_kinematics(model, data)
            links.append(data.xpos[self._links] - pose[:3])
            soles.append(data.geom_xpos[self._soles, 2].reshape(2, 4).min(1))
        soles = np.array(soles) - model.geom_size[self._soles[0], 0]
        root[:, 2] -= soles.min()  # other models have other soles
        angles = euler(root[:, 3:7])
        yaw = angles[:, 2]
        return Frames(
            root_f7=root,
            tilt_f2=angles[:, :2],
            yaw_f=yaw,
            velocity_f3=in_heading(clip.root_lin_vel(), yaw),
            spin_f3=clip.root_ang_vel(),
            joints_fc=clip.joint_pos,
            joint_velocities_fc=clip.joint_vel(),
            links_fc3=in_heading(np.array(links), yaw),
            touches_f2=soles - soles.min() < _TOUCHES_M,
        )


def _values(frames: Frames) -> list[np.ndarray]:
    return [getattr(frames, field.name) for field in dataclasses.fields(Frames)]


def in_heading(vectors: np.ndarray, yaw_n: np.ndarray) -> np.ndarray:
    """Vectors of the world, [N, ..., 3], in the frame that is turned by yaw."""
    yaw = yaw_n.reshape(-1, *[1] * (vectors.ndim - 2))
    c, s, (x, y, z) = np.cos(yaw), np.sin(yaw), np.moveaxis(vectors, -1, 0)
    return np.stack([c * x + s * y, c * y - s * x, z], -1)
