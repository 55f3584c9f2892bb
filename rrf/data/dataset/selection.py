"""What is read of a dataset: features, and frames of episodes.

Features go by our own names, or by the names that a reader is given: datasets of others may call
the state "state", the action "actions", or a camera "image".

Legend: N frames of the selection.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from rrf.config import did_you_mean
from rrf.data.dataset import layout, parquet
from rrf.data.dataset.layout import is_depth
from rrf.data.files import RemotePath, open_dataset_root
from rrf.data.remedies import again
from rrf.data.schema import ACTION, IMAGE_PREFIX, SCALARS, STATE, Schema

_VECTORS = (STATE, ACTION, *SCALARS)


@dataclasses.dataclass(frozen=True)
class Selection:
    """Some episodes of a dataset. Their frames are numbered 0..N-1 in the order of the dataset."""

    episodes: np.ndarray  # int64, number of each selected episode in the dataset
    bounds: np.ndarray  # int64 [len(episodes) + 1], first frame of each selected episode, then N
    rows_n: np.ndarray  # int64 [N], each frame's row in the dataset

    def __len__(self) -> int:
        return len(self.rows_n)

    def episode_of(self, frame: int) -> int:
        """Position within `episodes` of the episode that `frame` belongs to."""
        return int(np.searchsorted(self.bounds, frame, side="right")) - 1


@dataclasses.dataclass(frozen=True)
class Cameras:
    """Where the images of a dataset are, and how large they are."""

    keys: Mapping[str, str]  # camera -> its feature in the dataset
    image_size: tuple[int, int]  # the same for all cameras
    fps: float


@dataclasses.dataclass(frozen=True)
class FeatureKeys:
    """The features of a dataset that are read."""

    schema: Schema
    stored: Mapping[str, str]  # our key -> the dataset's
    cameras: Cameras


@dataclasses.dataclass(frozen=True)
class Chosen:
    """Features and frames of one dataset."""

    root: Path | RemotePath
    info: dict  # its info.json
    tasks: list[str]  # in the order of their task_index
    table: pd.DataFrame  # all its episodes
    features: FeatureKeys
    frames: Selection

    @property
    def rows(self) -> list[dict]:
        """The rows of the episode table of the episodes that are read."""
        return self.table.iloc[self.frames.episodes].to_dict("records")


def choose(
    root: str | Path | RemotePath,
    instructions: Sequence[str] | None = None,
    episodes: Sequence[int] | None = None,
    cameras: Sequence[str] | None = None,
    keys: Mapping[str, str] | None = None,
) -> Chosen:
    """Some episodes of a dataset, and some of its features.

    Args:
        root: The dataset's directory, or s3://bucket/prefix.
        instructions: Only episodes with these instructions; all by default.
        episodes: Only these episodes (numbers in the dataset); all by default.
        cameras: Only these cameras; all by default.
        keys: See `feature_keys`.

    Raises:
        ValueError: As `feature_keys` does; if the dataset is missing, empty or damaged; for an
            unknown instruction or episode; or if nothing is left.
    """
    info = layout.read_info(root)
    features = feature_keys(info, keys, cameras)
    tasks, table = parquet.read_tasks(root), parquet.read_episodes(root)
    if not len(table):
        raise ValueError(f"the dataset at {root} is empty; {again(root)}")
    chosen = np.ones(len(table), bool)
    if episodes is not None:
        wrong = [number for number in episodes if not 0 <= number < len(chosen)]
        if wrong:
            raise ValueError(f"episode {wrong[0]} is not in 0..{len(chosen) - 1} of {root}")
        chosen &= np.isin(np.arange(len(chosen)), list(episodes))
    if instructions is not None:
        for instruction in instructions:
            if instruction not in tasks:
                hint = did_you_mean(instruction, tasks)
                raise ValueError(
                    f"no instruction '{instruction}' in {root}; instructions=null takes all{hint}"
                )
        wanted = set(instructions)
        chosen &= np.array([bool(wanted.intersection(texts)) for texts in table["tasks"]])
    if not chosen.any():
        raise ValueError(f"no episode of {root} is selected")
    frames = _frames_of(table, np.flatnonzero(chosen))
    return Chosen(open_dataset_root(root), info, tasks, table, features, frames)


def _frames_of(table: pd.DataFrame, episodes: np.ndarray) -> Selection:
    starts = table["dataset_from_index"].to_numpy()[episodes]
    stops = table["dataset_to_index"].to_numpy()[episodes]
    rows_n = np.concatenate([np.arange(a, b) for a, b in zip(starts, stops, strict=True)])
    return Selection(episodes, np.concatenate([[0], np.cumsum(stops - starts)]), rows_n)


def feature_keys(
    info: dict, keys: Mapping[str, str] | None = None, cameras: Sequence[str] | None = None
) -> FeatureKeys:
    """Find the features in an info.json.

    Args:
        info: The info.json.
        keys: Our key -> the dataset's key, where they differ: {"action": "actions",
            "observation.images.front": "image"}.
        cameras: Only these cameras; all by default.

    Raises:
        ValueError: For a key or camera that does not exist (with the closest one that does), if
            state or action is missing, or if cameras differ in size.
    """
    features, stored_keys = info["features"], dict(keys or {})
    for our_key, stored in stored_keys.items():
        if our_key not in _VECTORS and not our_key.startswith(IMAGE_PREFIX):
            hint = did_you_mean(our_key, (*_VECTORS, f"{IMAGE_PREFIX}NAME"))
            raise ValueError(f"keys: '{our_key}' is not one of our keys{hint}")
        if stored not in features:
            hint = did_you_mean(stored, features)
            raise ValueError(f"keys: {our_key}: the dataset has no feature '{stored}'{hint}")
        if our_key not in _VECTORS:
            _check_rgb(our_key.removeprefix(IMAGE_PREFIX), stored, features[stored])
    taken = set(stored_keys.values())
    for key in features:
        if (
            key not in stored_keys
            and key not in taken
            and (key in _VECTORS or _is_image(features, key))
        ):
            stored_keys[key] = key
    known = [key.removeprefix(IMAGE_PREFIX) for key in stored_keys if key.startswith(IMAGE_PREFIX)]
    for camera in cameras or ():
        key = f"{IMAGE_PREFIX}{camera}"
        if key not in stored_keys and key in features:
            _check_rgb(camera, key, features[key])
        if camera not in known:
            raise ValueError(f"no camera '{camera}'{did_you_mean(camera, known)}")
    if cameras is not None:
        dropped = {f"{IMAGE_PREFIX}{camera}" for camera in known if camera not in cameras}
        stored_keys = {
            our_key: stored for our_key, stored in stored_keys.items() if our_key not in dropped
        }
    for key in (STATE, ACTION):
        if key not in stored_keys:
            raise ValueError(
                f"the dataset has no feature '{key}'; it has: {', '.join(features)}. If one of "
                f"these is meant, write: keys={{'{key}': ...}}"
            )
    schema = layout.schema_of(
        info | {"features": {o: features[stored] for o, stored in _in_order(stored_keys, features)}}
    )
    places = {camera: stored_keys[f"{IMAGE_PREFIX}{camera}"] for camera in schema.cameras}
    return FeatureKeys(schema, stored_keys, Cameras(places, schema.image_size, schema.fps))


def _is_image(features: dict, key: str) -> bool:
    is_image = key.startswith(IMAGE_PREFIX) and features[key]["dtype"] in ("image", "video")
    return is_image and not is_depth(features[key])


def _check_rgb(camera: str, key: str, feature: Mapping) -> None:
    if is_depth(feature):
        raise ValueError(
            f"camera '{camera}' is {key}, a depth map, which no policy sees; leave it out of the "
            f"cameras (open_dataset(maps=['{key.removeprefix(IMAGE_PREFIX)}']) gives its depth)"
        )


def _in_order(stored_keys: Mapping[str, str], features: dict) -> list[tuple[str, str]]:
    """Pairs in the order of the dataset's features."""
    order = list(features)
    return sorted(stored_keys.items(), key=lambda pair: order.index(pair[1]))
