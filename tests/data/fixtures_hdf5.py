"""Small HDF5 recordings as Isaac Lab, LIBERO and ALOHA lay them out."""

import io
import json
from pathlib import Path

import h5py
import numpy as np
from PIL import Image

from tests.data.conftest import draw

WXYZ = (0.1, 0.2, 0.3, 0.4)  # w is 0.1
XYZW = (0.2, 0.3, 0.4, 0.1)
POSITION = (5.0, 6.0, 7.0)
INSTRUCTION = "put the bowl on the stove"


def write_isaac_lab(
    path: Path,
    lengths=(4, 3),
    quaternion=WXYZ,
    success=(True, True),
    file_attrs: dict | None = None,
    sim_args: dict | None = None,
) -> Path:
    """A recorder's file; `quaternion` is what every pose holds, in the file's order."""
    with h5py.File(path, "w") as file:
        file.attrs.update(file_attrs or {})
        data = file.create_group("data")
        env_args: dict = {"env_name": "Isaac-Stack-Cube-Franka-IK-Rel-v0", "type": 2}
        data.attrs["env_args"] = json.dumps(env_args | ({"sim_args": sim_args} if sim_args else {}))
        data.attrs["total"] = sum(lengths)
        for index, length in enumerate(lengths):
            demo = data.create_group(f"demo_{index}")
            demo.attrs["num_samples"] = length
            demo.attrs["seed"] = 7
            if success is not None:
                demo.attrs["success"] = success[index]
            pose = np.tile(np.array([*POSITION, *quaternion], np.float32), (length, 1))
            arrays = {
                "actions": np.full((length, 7), index, np.float32),
                "processed_actions": np.zeros((length, 9), np.float32),
                "initial_state/articulation/robot/root_pose": pose[:1],
                "states/articulation/robot/root_pose": pose,
                "states/articulation/robot/joint_position": np.zeros((length, 9), np.float32),
                "states/rigid_object/cube_1/root_pose": pose,
                "obs/eef_pos": pose[:, :3],
                "obs/eef_quat": pose[:, 3:],
                "obs/cube_orientations": np.tile(pose[:, 3:], (1, 3)),
                "obs/object": pose,
                "obs/table_cam": draw(index, length),
            }
            for key, values in arrays.items():
                demo.create_dataset(key, data=values, compression="gzip")
    return path


JOINTS = "states/articulation/robot/joint_position"


def drive(num_frames: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """States [T + 1, 2] and actions [T, 2] of joints that go where random actions send them."""
    actions = np.random.default_rng(seed).normal(size=(num_frames, 2)).astype(np.float32)
    moves = np.concatenate([np.full((1, 2), seed, np.float32), actions / 10])
    return np.cumsum(moves, axis=0, dtype=np.float32), actions


def record_isaac_lab(
    path: Path,
    demos: list[tuple[np.ndarray, np.ndarray]],
    states: str = "after",
    has_initial_state: bool = True,
) -> Path:
    """A file of Isaac Lab's recorder, which writes `obs` and `actions` before a step and `states`
    after it. Or one of a tool that writes `states` before it, too.

    Args:
        path: The file.
        demos: Of each the states [T + 1, D] and the actions [T, A].
        states: "before" or "after".
        has_initial_state: As the recorder's files have it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_name": "Isaac-Reach-Franka", "type": 2})
        data.attrs["total"] = sum(len(actions) for _, actions in demos)
        for index, (joints, actions) in enumerate(demos):
            demo = data.create_group(f"demo_{index}")
            demo.attrs["num_samples"] = len(actions)
            if has_initial_state:
                demo[JOINTS.replace("states", "initial_state")] = joints[:1]
            if len(actions):  # else a reset right after another one
                demo.attrs["success"] = True
                demo["actions"], demo["obs/joint_pos"] = actions, joints[:-1]
                demo[JOINTS] = joints[1:] if states == "after" else joints[:-1]
    return path


def write_libero(path: Path, lengths=(4, 3), convention: str | None = "opengl") -> Path:
    """A task's file; its images are drawn upright and stored upside down if opengl."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        problem = {"problem_name": "libero_goal", "language_instruction": INSTRUCTION}
        data.attrs["problem_info"] = json.dumps(problem)
        data.attrs["env_args"] = json.dumps({"type": 1, "env_kwargs": {"control_freq": 20}})
        data.attrs["num_demos"] = len(lengths)
        if convention is not None:
            data.attrs["macros_image_convention"] = convention
        for index, length in enumerate(lengths):
            demo = data.create_group(f"demo_{index}")
            demo.attrs["num_samples"] = length
            demo.attrs["model_file"] = "<mujoco/>"
            demo.attrs["init_state"] = np.zeros(5)
            images = draw(index, length)
            demo["obs/agentview_rgb"] = images[:, ::-1] if convention == "opengl" else images
            demo["obs/ee_states"] = np.arange(length * 6, dtype=float).reshape(length, 6)
            demo["obs/gripper_states"] = np.zeros((length, 2))
            demo["actions"] = np.full((length, 7), index / 10)
            demo["states"] = np.zeros((length, 5))
            demo["robot_states"] = np.zeros((length, 9))
            demo["rewards"] = np.eye(length, dtype=np.uint8)[-1]
            demo["dones"] = np.eye(length, dtype=np.uint8)[-1]
    return path


def jpeg(image: np.ndarray, quality: int = 80) -> bytes:
    """A JPEG file."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def jpegs(episode: int, num_frames: int) -> list[bytes]:
    """JPEG files of different lengths."""
    return [jpeg(image, 80 + frame) for frame, image in enumerate(draw(episode, num_frames))]


def pad(blobs: list[bytes], width: int | None = None) -> np.ndarray:
    """uint8 [T, L]: each blob followed by zeros."""
    padded = np.zeros((len(blobs), width or max(map(len, blobs)) + 3), np.uint8)
    for row, blob in zip(padded, blobs, strict=True):
        row[: len(blob)] = np.frombuffer(blob, np.uint8)
    return padded


def write_aloha(
    path: Path, index: int = 0, length: int = 4, compressed: bool = False, **attrs
) -> Path:
    """One episode with two cameras; `compress_len` is in the recorder's order, which the file
    does not keep.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.attrs["sim"] = False
        file.attrs["compress"] = compressed
        file.attrs.update(attrs)
        joints = np.arange(length * 14, dtype=np.float32).reshape(length, 14)
        file["action"] = joints + index
        for name in ("qpos", "qvel", "effort"):
            file[f"observations/{name}"] = joints
        if not compressed:
            for camera in ("cam_high", "cam_low"):
                file[f"observations/images/{camera}"] = draw(index, length)
            return path
        high, low = jpegs(index, length), jpegs(index + 1, length)
        file["observations/images/cam_high"] = pad(high)
        file["observations/images/cam_low"] = pad(low)
        file["compress_len"] = np.array([[len(b) for b in low], [len(b) for b in high]], np.float32)
    return path


def cut_short(path: Path) -> Path:
    """Drop the second half of a file."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return path
