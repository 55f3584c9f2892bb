"""A motion clip: how a robot's base and joints move over time, with its source and its licence.

A clip is an `.npz` file without pickled objects:

    fps          frames per second, a number
    joint_names  text [J]
    root_pos     [T, 3], position of the base in the world, m
    root_quat    [T, 4], orientation of the base in the world (w, x, y, z)
    joint_pos    [T, J], rad
    source       text: who recorded or made the motion, and how
    licence      text: its licence, e.g. "BSD-3-Clause"

Velocities are not stored. They are the central differences of positions, and of orientations the
rotation vector between two frames.

Legend: T frames, J joints.
"""

import dataclasses
import io
import typing
import zipfile
from pathlib import Path

import numpy as np

from rrf import atomic, workspace

FRAME_PARTS = ("joint_pos", "joint_vel", "height", "lin_vel", "ang_vel", "gravity", "feet")
"""What can be seen of a frame of a motion; `rrf.envs.motions.rig.frames` defines each part."""
_ARRAYS = {"root_pos": 3, "root_quat": 4, "joint_pos": None}  # name -> width
_FIELDS = ("fps", "joint_names", *_ARRAYS, "source", "licence")
_MIN_FRAMES = 3
_MAX_FPS = 1000.0
_UNIT = 0.05  # how far the length of a quaternion may be from 1
_FASTEST = {"joint_pos": 50.0, "root_quat": 25.0, "root_pos": 12.0}
"""What no robot moves faster than, between two frames: rad/s, rad/s, m/s."""


@dataclasses.dataclass(frozen=True)
class Clip:
    """One recording; see the module. It checks itself."""

    fps: float
    joint_names: list[str]
    root_pos: np.ndarray
    root_quat: np.ndarray
    joint_pos: np.ndarray
    source: str
    licence: str
    name: str = "the clip"

    def __post_init__(self):
        for field in ("source", "licence"):
            if not getattr(self, field).strip():
                raise ValueError(f"{self.name} does not say its {field}; write it into the file")
        if not 0 < self.fps <= _MAX_FPS:
            raise ValueError(f"{self.name} has fps={self.fps}, allowed: above 0 to {_MAX_FPS:g}")
        frames = len(self.root_pos)
        for field, width in (_ARRAYS | {"joint_pos": len(self.joint_names)}).items():
            values = getattr(self, field)
            if values.shape != (frames, width):
                raise ValueError(
                    f"{self.name} has {field} of shape {list(values.shape)}, expected "
                    f"{[frames, width]}: {frames} frames, {len(self.joint_names)} joint names"
                )
            wrong = np.argwhere(~np.isfinite(values))
            if len(wrong):
                frame, column = wrong[0]
                raise ValueError(
                    f"{self.name} has {values[frame, column]} in {field}, frame {frame}, column "
                    f"{column}; every number must be finite"
                )
        if frames < _MIN_FRAMES:
            raise ValueError(
                f"{self.name} has {frames} frames, allowed: {_MIN_FRAMES} or more (for velocities)"
            )
        if (np.abs(np.linalg.norm(self.root_quat, axis=1) - 1) > _UNIT).any():
            raise ValueError(f"{self.name} has root_quat whose lengths are not 1 (w, x, y, z)")

    @property
    def seconds(self) -> float:
        """From the first to the last frame."""
        return (len(self.root_pos) - 1) / self.fps

    def write(self, path: Path) -> None:
        """Write the file that `read` reads."""
        content = io.BytesIO()
        np.savez_compressed(
            content,
            fps=np.float64(self.fps),
            joint_names=np.array(self.joint_names),
            root_pos=self.root_pos.astype(np.float32),
            root_quat=self.root_quat.astype(np.float32),
            joint_pos=self.joint_pos.astype(np.float32),
            source=np.array(self.source),
            licence=np.array(self.licence),
        )
        atomic.write_bytes(path, content.getvalue())

    def resampled(self, fps: float) -> "Clip":
        """The same motion at another frame rate.

        Positions are interpolated linearly, orientations by slerp. The last frame is at most one
        new frame earlier than before.

        Raises:
            ValueError: If the clip is too short to have 3 frames at this rate.
        """
        if fps == self.fps:
            return self
        times = np.arange(int(self.seconds * fps + 1e-6) + 1) * (self.fps / fps)  # in old frames
        if len(times) < _MIN_FRAMES:
            raise ValueError(
                f"{self.name} lasts {self.seconds:.3f} s, which gives {len(times)} frames at "
                f"{fps:g} Hz, allowed: {_MIN_FRAMES} or more; use a longer clip"
            )
        before = np.minimum(times.astype(int), len(self.root_pos) - 2)
        part = (times - before)[:, None]
        turns = rotation_vectors(self.root_quat)[before] * part
        return dataclasses.replace(
            self,
            fps=fps,
            root_pos=_interpolated(self.root_pos, before, part),
            root_quat=quat_mul(self.root_quat[before], quat_of_rotation_vector(turns)),
            joint_pos=_interpolated(self.joint_pos, before, part),
        )

    def with_joints(self, joint_names: typing.Sequence[str]) -> "Clip":
        """The clip with its joints in this order.

        Raises:
            ValueError: If the clip is of a robot with other joints; the message names them.
        """
        missing = [name for name in joint_names if name not in self.joint_names]
        foreign = [name for name in self.joint_names if name not in joint_names]
        if missing or foreign:
            kind = f"this robot has a joint '{(missing or foreign)[0]}' that the clip lacks"
            if not missing:
                kind = f"the clip has a joint '{foreign[0]}' that this robot lacks"
            raise ValueError(
                f"{self.name} is of another robot: {kind} ({len(missing)} joints are missing, "
                f"{len(foreign)} are foreign); retarget it first (rrf.envs.motions.rig)"
            )
        return self.with_only(joint_names)

    def with_only(self, joint_names: typing.Sequence[str]) -> "Clip":
        """The clip with these of its joints, in this order."""
        order = [self.joint_names.index(name) for name in joint_names]
        return dataclasses.replace(
            self, joint_names=list(joint_names), joint_pos=self.joint_pos[:, order]
        )

    def require_no_jumps(self) -> None:
        """Refuse a motion that no robot can follow.

        Raises:
            ValueError: If a joint, or the base, is elsewhere within a frame; the message says which
                and when.
        """
        moves = {
            "joint_pos": np.abs(np.diff(self.joint_pos, axis=0)),
            "root_quat": np.linalg.norm(rotation_vectors(self.root_quat), axis=1)[:, None],
            "root_pos": np.linalg.norm(np.diff(self.root_pos, axis=0), axis=1)[:, None],
        }
        for field, move in moves.items():
            frame, column = np.unravel_index(move.argmax(), move.shape)
            if move[frame, column] * self.fps <= _FASTEST[field]:
                continue
            what = f"joint '{self.joint_names[column]}'" if field == "joint_pos" else "the base"
            unit = "m" if field == "root_pos" else "rad"
            raise ValueError(
                f"{self.name} jumps: {what} moves {move[frame, column]:.2f} {unit} from frame "
                f"{frame} to {frame + 1} ({frame / self.fps:.2f} s), which is "
                f"{move[frame, column] * self.fps:.0f} {unit}/s, allowed: up to "
                f"{_FASTEST[field]:g} ({field}); cut the clip there, or smooth it"
            )

    def joint_vel(self) -> np.ndarray:
        """[T, J], rad/s."""
        return np.gradient(self.joint_pos, axis=0) * self.fps

    def root_lin_vel(self) -> np.ndarray:
        """Linear velocity of the base in the world frame, [T, 3], m/s."""
        return np.gradient(self.root_pos, axis=0) * self.fps

    def root_ang_vel(self) -> np.ndarray:
        """Angular velocity of the base in its own frame, [T, 3], rad/s."""
        return angular_velocities(self.root_quat, self.fps)


def read(path: str | Path) -> Clip:
    """Read one clip.

    Raises:
        ValueError: If there is no such file, if it is not a clip, or if the clip is wrong; the
            message names the file.
    """
    path = Path(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [name for name in _FIELDS if name not in file]
            data = {name: file[name] for name in _FIELDS if name in file}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a motion clip (.npz): {error}") from None
    if missing:
        raise ValueError(
            f"{path} is not a motion clip: it has no '{missing[0]}'; a clip has "
            f"{', '.join(_FIELDS)}"
        )
    return Clip(
        fps=float(data["fps"]),
        joint_names=[str(name) for name in data["joint_names"]],
        source=str(data["source"]),
        licence=str(data["licence"]),
        name=str(path),
        **{name: np.asarray(data[name], np.float64) for name in _ARRAYS},
    )


def read_all(places: typing.Sequence[str]) -> list[Clip]:
    """The clips in some files and folders.

    A path like configs/motions/NAME.npz names a clip of the workspace, or one that rrf ships.

    Raises:
        ValueError: If a place does not exist or holds no clip, and as `read`.
    """
    clips = []
    for place in places:
        path = workspace.find(place)
        files = sorted(path.glob("*.npz")) if path.is_dir() else [path]
        if not files:
            raise ValueError(f"the folder {path} holds no motion clips (*.npz)")
        clips += [read(file) for file in files]
    if not clips:
        raise ValueError("no motion clips are given; name files or folders: env.clips=[PATH]")
    return clips


def quat_mul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The Hamilton product of quaternions [..., 4] (w, x, y, z)."""
    aw, av, bw, bv = a[..., :1], a[..., 1:], b[..., :1], b[..., 1:]
    w = aw * bw - (av * bv).sum(-1, keepdims=True)
    return np.concatenate([w, aw * bv + bw * av + np.cross(av, bv)], -1)


def quat_conjugate(q: np.ndarray) -> np.ndarray:
    """The inverse of unit quaternions [..., 4]."""
    return q * np.array([1.0, -1.0, -1.0, -1.0])


def rotate(q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Vectors [..., 3] rotated by unit quaternions [..., 4]."""
    t = 2 * np.cross(q[..., 1:], v)
    return v + q[..., :1] * t + np.cross(q[..., 1:], t)


def quat_of_rotation_vector(v: np.ndarray) -> np.ndarray:
    """Quaternions [..., 4] of rotation vectors [..., 3] in rad."""
    angle = np.linalg.norm(v, axis=-1, keepdims=True)
    return np.concatenate([np.cos(angle / 2), v / 2 * np.sinc(angle / (2 * np.pi))], -1)


def rotation_vectors(quat_t4: np.ndarray) -> np.ndarray:
    """The rotations from each frame to the next, [T - 1, 3], in the frame of the first, rad."""
    turn = quat_mul(quat_conjugate(quat_t4[:-1]), quat_t4[1:])
    turn = np.where(turn[:, :1] < 0, -turn, turn)  # the shorter way round
    length = np.linalg.norm(turn[:, 1:], axis=1, keepdims=True)
    angle = 2 * np.arctan2(length, turn[:, :1])
    return turn[:, 1:] * np.where(length > 1e-9, angle / np.maximum(length, 1e-9), 2.0)


def angular_velocities(quat_t4: np.ndarray, fps: float) -> np.ndarray:
    """Central differences of orientations, [T, 3], in their own frames, rad/s."""
    turns = rotation_vectors(quat_t4)
    before, after = np.vstack([turns[:1], turns]), np.vstack([turns, turns[-1:]])
    return (before + after) / 2 * fps


def _interpolated(values: np.ndarray, before: np.ndarray, part: np.ndarray) -> np.ndarray:
    return values[before] * (1 - part) + values[before + 1] * part
