"""Small recordings in the layouts of ManiSkill, RoboTwin, CALVIN, D4RL and Minari.

Every number says where it stands: a state is 100 * episode + frame (plus dimension / 10), an action
its negative, so that a shift by one frame or a mix-up of episodes shows.
"""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
from PIL import Image

from rrf.data.raw import RawEpisode, Source

COLOUR = (240, 40, 10)  # far from its mirror image (10, 40, 240)


def states(episode: int, num: int, dimensions: int = 2) -> np.ndarray:
    """float64 [num, dimensions]."""
    frames = 100.0 * episode + np.arange(num)[:, None]
    return frames + np.arange(dimensions) / 10


def actions(episode: int, num: int, dimensions: int = 2) -> np.ndarray:
    """float32 [num, dimensions]."""
    return -states(episode, num, dimensions).astype(np.float32)


def pictures(num: int, height: int = 8, width: int = 12) -> np.ndarray:
    """uint8 [num, height, width, 3]: one colour, the red channel counts frames down."""
    images = np.full((num, height, width, 3), COLOUR, np.uint8)
    images[..., 0] -= np.arange(num, dtype=np.uint8)[:, None, None]
    return images


def write_maniskill(
    directory: Path,
    lengths: Sequence[int] = (3, 5),
    name: str = "trajectory",
    control_mode: str = "pd_joint_pos",
) -> Path:
    """NAME.h5 and NAME.json as RecordEpisode writes them; observations have one more entry."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.h5"
    with h5py.File(path, "w") as file:
        for episode, length in enumerate(lengths):
            group = file.create_group(f"traj_{episode}", track_order=True)
            group["obs/agent/qpos"] = states(episode, length + 1)
            group.create_dataset(
                "obs/sensor_data/base_camera/rgb", data=pictures(length + 1), compression="gzip"
            )
            group["obs/sensor_data/base_camera/depth"] = np.zeros((length + 1, 8, 12, 1), np.int16)
            group["env_states/actors/cube"] = np.zeros((length + 1, 13), np.float32)
            group["actions"] = actions(episode, length)
            group["terminated"] = np.arange(length) == length - 1
            group["truncated"] = np.zeros(length, bool)
            group["success"] = np.arange(length) == length - 1
            group["rewards"] = np.arange(length, dtype=np.float32)
    meta = {
        "env_info": {
            "env_id": "PickCube-v1",
            "env_kwargs": {"control_mode": control_mode, "sim_config": {"control_freq": 20}},
            "max_episode_steps": 50,
        },
        "source_type": "motionplanning",
        "episodes": [
            {
                "episode_id": episode,
                "episode_seed": episode,
                "control_mode": control_mode,
                "elapsed_steps": length,
                "success": True,
            }
            for episode, length in enumerate(lengths)
        ],
    }
    path.with_suffix(".json").write_text(json.dumps(meta))
    return path


def jpegs(images: np.ndarray, standard: bool) -> list[bytes]:
    """JPEGs as RoboTwin stores them.

    Early files went through OpenCV as if RGB were BGR, so that red and blue are swapped for every
    other decoder; later ones are standard and say so in a comment.
    """
    blobs = []
    for image in images:
        buffer = io.BytesIO()
        if standard:
            Image.fromarray(image).save(buffer, "JPEG", quality=95, comment=b"XPL-RGB1")
        else:
            Image.fromarray(image[..., ::-1].copy()).save(buffer, "JPEG", quality=95)
        blobs.append(buffer.getvalue())
    return blobs


def write_robotwin_first(root: Path, lengths: Sequence[int] = (4, 3)) -> None:
    """data/episode0.hdf5 and instructions/episode0.json: the layout of RoboTwin 2.0."""
    (root / "data").mkdir(parents=True, exist_ok=True)
    (root / "instructions").mkdir(exist_ok=True)
    for episode, length in enumerate(lengths):
        with h5py.File(root / f"data/episode{episode}.hdf5", "w") as file:
            joints = file.create_group("joint_action")
            joints["left_arm"] = states(episode, length, 6)
            joints["left_gripper"] = states(episode, length, 1)[:, 0]
            joints["right_arm"] = states(episode, length, 6)
            joints["right_gripper"] = states(episode, length, 1)[:, 0]
            joints["vector"] = states(episode, length, 14)
            file["endpose/left_endpose"] = states(episode, length, 7)
            file["endpose/left_gripper"] = states(episode, length, 1)[:, 0]
            camera = file.create_group("observation/head_camera")
            blobs = jpegs(pictures(length), standard=False)
            camera.create_dataset("rgb", data=blobs, dtype=f"S{max(map(len, blobs)) + 7}")
            camera["intrinsic_cv"] = np.tile(np.eye(3), (length, 1, 1))
            file["pointcloud"] = np.zeros((length, 0))
        (root / f"instructions/episode{episode}.json").write_text(
            json.dumps({"seen": [f"lift cup {episode}", "other"], "unseen": [f"raise {episode}"]})
        )


def write_robotwin_second(root: Path, lengths: Sequence[int] = (4, 3)) -> None:
    """data/episode_0000000.hdf5: the layout of RoboTwin since data_format_version v1.0."""
    (root / "data").mkdir(parents=True, exist_ok=True)
    text = h5py.string_dtype(encoding="utf-8")
    for episode, length in enumerate(lengths):
        with h5py.File(root / f"data/episode_{episode:07d}.hdf5", "w") as file:
            file.attrs["source_format"] = "RoboTwin"
            file.create_dataset("data_format_version", data="v1.0", dtype=text)
            instructions = json.dumps([f"lift cup {episode}", "other"])
            file.create_dataset("instructions", data=instructions, dtype=text)
            file["additional_info/frequency"] = np.int32(15)
            for group, values in (("state", states), ("action", actions)):
                file[f"{group}/left_arm_joint_states"] = values(episode, length, 6)
                file[f"{group}/left_ee_joint_states"] = values(episode, length, 1)
            camera = file.create_group("vision/cam_head")
            blobs = jpegs(pictures(length), standard=True)
            camera.create_dataset("colors", data=blobs, dtype=f"S{max(map(len, blobs))}")
            camera["shape"] = np.array([8, 12, 3], np.int32)
            camera["intrinsic_matrix"] = np.eye(3)


def write_calvin(
    root: Path,
    ranges: Sequence[tuple[int, int]] = ((10, 13), (20, 24)),
    annotations: Sequence[tuple[int, int, str]] | None = ((10, 12, "lift the block"),),
) -> None:
    """A split: one .npz per step, ep_start_end_ids.npy, annotations.json."""
    root.mkdir(parents=True, exist_ok=True)
    for start, end in ranges:
        for step in range(start, end + 1):
            np.savez(
                root / f"episode_{step:07d}.npz",
                rgb_static=pictures(step + 1)[-1],
                rgb_gripper=pictures(1, 6, 6)[0],
                depth_static=np.zeros((8, 12), np.float32),
                actions=-np.full(7, float(step)),
                rel_actions=np.full(7, step / 100),
                robot_obs=np.full(15, float(step)),
                scene_obs=np.full(24, float(step)),
            )
    np.save(root / "ep_start_end_ids.npy", np.array(ranges).reshape(-1, 2))
    if annotations is not None:
        entries = [{"start": s, "end": e, "instruction": text} for s, e, text in annotations]
        (root / "annotations.json").write_text(json.dumps(entries))


def write_d4rl(
    path: Path,
    lengths: Sequence[int] = (3, 4),
    timeouts: bool = True,
    next_observations: bool = False,
) -> Path:
    """Flat arrays; the first episode ends in a terminal state, the others by timeout."""
    path.parent.mkdir(parents=True, exist_ok=True)
    total = sum(lengths)
    last = np.cumsum(lengths, dtype=int) - 1
    terminals = np.zeros(total, bool)
    terminals[last[:1]] = True
    timeout = np.zeros(total, bool)
    timeout[last[1:]] = True
    with h5py.File(path, "w") as file:
        numbered = list(enumerate(lengths))
        file["observations"] = np.concatenate([states(0, 0), *(states(e, n) for e, n in numbered)])
        file["actions"] = np.concatenate([actions(0, 0), *(actions(e, n) for e, n in numbered)])
        file["rewards"] = np.arange(total, dtype=np.float32)
        file["terminals"] = terminals
        if timeouts:
            file["timeouts"] = timeout
        if next_observations:
            led_to = [states(e, n + 1)[1:] for e, n in numbered]
            file["next_observations"] = np.concatenate(led_to)
        file["infos/qpos"] = np.zeros((total, 3))
        file["metadata/algorithm"] = np.bytes_(b"SAC")
        file["metadata/policy/weight"] = np.zeros((total, 2))
    return path


def write_minari(root: Path, lengths: Sequence[int] = (3, 5)) -> Path:
    """data/main_data.hdf5 and data/metadata.json; observations and infos have one more entry."""
    (root / "data").mkdir(parents=True, exist_ok=True)
    text = h5py.string_dtype(encoding="utf-8")
    with h5py.File(root / "data/main_data.hdf5", "w", track_order=True) as file:
        for episode, length in enumerate(lengths):
            group = file.create_group(f"episode_{episode}")
            group.attrs.update({"id": episode, "total_steps": length, "seed": 7})
            group["observations/observation"] = states(episode, length + 1)
            group["observations/camera"] = pictures(length + 1)
            goals = [f"goal {episode}"] * (length + 1)
            group["observations"].create_dataset("mission", data=goals, dtype=text)
            group["actions/_index_0"] = actions(episode, length)
            group["rewards"] = np.arange(length, dtype=np.float64)
            group["terminations"] = np.arange(length) == length - 1
            group["truncations"] = np.zeros(length, bool)
            group["infos/success"] = np.arange(length + 1) == length
    metadata = {
        "dataset_id": "toy/reach-v0",
        "data_format": "hdf5",
        "total_episodes": len(lengths),
        "total_steps": sum(lengths),
        "minari_version": "0.5.4",
    }
    (root / "data/metadata.json").write_text(json.dumps(metadata))
    return root / "data/main_data.hdf5"


def read_all(source: Source, keys) -> list[RawEpisode]:
    """All episodes of all recordings."""
    return [e for recording in source.recordings() for e in source.episodes(recording, keys)]


def edit(path, change):
    """Change an HDF5 file in place."""
    with h5py.File(path, "r+") as file:
        change(file)


def replace(group, key, values):
    """Put another array where one was."""
    del group[key]
    group[key] = values


def edit_json(path, change):
    """Change a JSON file in place."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def truncate(path):
    """Cut the second half of a file off."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
