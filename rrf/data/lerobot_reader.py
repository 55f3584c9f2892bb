"""Training reader for LeRobot v3.0: observations as uint8 and float32, their history, and the
action chunk that follows.

All vectors are read into numpy once; images come from `image_store`. A dataset may be on this
machine or below s3://bucket/prefix. Of a remote dataset only the needed parts are fetched. Images
stay uint8, so that training code can move them to the device before it makes floats of them.

Legend: N frames of the selection, B batch, K steps in an action chunk, P past frames, D state
dimension, A action dimension.
"""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rrf.config import did_you_mean
from rrf.data import lerobot_layout as layout
from rrf.data.feature_keys import feature_keys
from rrf.data.files import RemotePath, open_dataset_root
from rrf.data.history import with_history
from rrf.data.image_store import CACHE_BYTES, ImageStore, Selection
from rrf.data.language import PERSISTENT, Language, check_style, from_columns
from rrf.data.map_files import read_map
from rrf.data.sampling import WeightedSampler
from rrf.data.schema import (
    ACTION,
    REWARD,
    SCALARS,
    STATE,
    Batch,
    Episode,
    History,
    Observation,
    PixelMap,
)
from rrf.data.stats import read_norm_stats

_TASK = "task_index"


class LeRobotReader:
    """Frames and action chunks of a dataset, or of some of its episodes.

    Args:
        root: The dataset's directory, or s3://bucket/prefix.
        chunk_length: Actions per chunk, K.
        instructions: Only episodes with these instructions; all by default.
        episodes: Only these episodes (numbers in the dataset); all by default. Frames are numbered
            in the order of the dataset.
        cache_bytes: Decoded images are kept in memory if the selection needs at most this much.
        cache_dir: Folder for the memory-mapped files of a larger selection; none by default.
        cameras: Only these cameras; all by default.
        state_history: Past states in a batch, P.
        image_history: Past images of each camera in a batch, P.
        history_stride: Steps from one past frame to the next.
        maps: Images that are not RGB (depth, masks) to read into memory; none by default.
        instruction_style: A frame's instruction is what the language annotations say in this style
            (subtask, plan, memory, motion, task_aug), and the task where they say nothing. By
            default it is the task.
        keys: Our key -> the dataset's key, where they differ: {"action": "actions",
            "observation.images.front": "image"}.

    Raises:
        ValueError: If the dataset is missing (with the commands that bring it), empty or damaged;
            for an unknown instruction, episode, camera, map, style or key; if nothing is selected;
            or if memory cannot hold the maps.
    """

    def __init__(
        self,
        root: str | Path | RemotePath,
        chunk_length: int,
        instructions: Sequence[str] | None = None,
        episodes: Sequence[int] | None = None,
        cache_bytes: int = CACHE_BYTES,
        cache_dir: str | Path | None = None,
        cameras: Sequence[str] | None = None,
        state_history: int = 0,
        image_history: int = 0,
        history_stride: int = 1,
        maps: Sequence[str] = (),
        keys: dict[str, str] | None = None,
        instruction_style: str | None = None,
    ):
        if chunk_length < 1:
            raise ValueError(f"chunk_length is {chunk_length}, must be at least 1")
        if min(state_history, image_history) < 0:
            raise ValueError(
                f"state_history is {state_history} and image_history is {image_history}; neither "
                "may be negative"
            )
        self.root, self.chunk_length = open_dataset_root(root), chunk_length
        if history_stride < 1:
            raise ValueError(f"history_stride is {history_stride}, must be at least 1")
        self.state_history, self.image_history = state_history, image_history
        self.history_stride = history_stride
        info = layout.read_info(root)
        features = feature_keys(info, keys, cameras)
        wanted = _wanted(info, maps)
        self.schema = dataclasses.replace(
            features.schema, maps=tuple(wanted.values()), has_language=layout.has_language(info)
        )
        self._style = instruction_style
        if instruction_style is not None:
            check_style(instruction_style, PERSISTENT in info["features"], str(self.root))
        self._tasks = layout.read_tasks(root)
        self._table = layout.read_episodes(root)
        own = {key: features.own[key] for key in (STATE, ACTION)} | {_TASK: _TASK}
        own |= {key: features.own[key] for key in SCALARS if key in features.own}
        columns = layout.read_columns(root, list(own.values()))
        self._check_counts(len(columns[_TASK]), info["total_frames"])
        selection = self._select(self._choose(instructions, episodes))
        self._selection = selection
        self._columns = {key: columns[name][selection.rows_n] for key, name in own.items()}
        self._check_columns()
        chosen = self._table.iloc[selection.episodes].to_dict("records")
        self._maps = {
            one.name: read_map(self.root, info, chosen, key, one) for key, one in wanted.items()
        }
        self._texts, self._text_n = self._tasks, self._columns[_TASK]
        if instruction_style is not None:
            self._texts, self._text_n = self._read_style(instruction_style)
        lengths = np.diff(selection.bounds)
        # first and last frame of each frame's episode
        self._first_n = np.repeat(selection.bounds[:-1], lengths)
        self._last_n = np.repeat(selection.bounds[1:] - 1, lengths)
        self._images = ImageStore(
            self.root, info, self._table, features.cameras, selection, cache_bytes,
            Path(cache_dir) if cache_dir is not None else None,
        )  # fmt: skip

    @property
    def num_frames(self) -> int:
        """Frames in the selection, N."""
        return len(self._selection)

    @property
    def num_episodes(self) -> int:
        """Episodes in the selection."""
        return len(self._selection.episodes)

    @property
    def episodes(self) -> list[int]:
        """The numbers of the episodes in the selection, ascending."""
        return [int(number) for number in self._selection.episodes]

    @property
    def bounds(self) -> np.ndarray:
        """The first frame of each episode in the selection, and `num_frames`, int64 [E + 1]."""
        return self._selection.bounds

    @property
    def readers(self) -> "list[LeRobotReader]":
        """Itself: see `rrf.data.mixture.Mixture.readers`."""
        return [self]

    @property
    def instructions(self) -> list[str]:
        """The instructions that occur in the selection, in the order of their task_index; those of
        annotations in the order of their first frames.
        """
        return [self._texts[index] for index in np.unique(self._text_n)]

    @property
    def norm_stats(self) -> dict[str, dict[str, list]]:
        """Statistics of the whole published dataset, not of the selection.

        Raises ValueError if the dataset was never published.
        """
        return read_norm_stats(self.root)

    @property
    def weights(self) -> np.ndarray:
        """How often each frame is drawn relative to the others, float64 [N].

        A merged dataset stores these weights for its parts. In any other dataset all weights are 1.
        """
        if layout.WEIGHT_COLUMN not in self._table:
            return np.ones(self.num_frames)
        weight_e = self._table[layout.WEIGHT_COLUMN].to_numpy(np.float64)
        return np.repeat(weight_e[self._selection.episodes], np.diff(self._selection.bounds))

    def vectors(self, key: str) -> np.ndarray:
        """The states or actions of all frames of the selection, float32 [N, D] or [N, A]."""
        return self._columns[key]

    def draw(self, batch_size: int, seed: int, step: int) -> np.ndarray:
        """The frames of training batch `step`, int64 [batch_size].

        They are drawn by `weights`, and depend only on seed and step.
        """
        return self._sampler.indices(batch_size, seed, step)

    def batch(self, indices: np.ndarray) -> Batch:
        """The frames `indices`, int64 [B] in 0..num_frames-1, each with the action chunk that
        starts there. With a history, the observation has it as `rrf.data.history` says.

        Raises:
            ValueError: For an index out of range, or an image that cannot be decoded (the message
                names episode and frame).
        """
        indices = self._checked(indices)
        state, action, is_pad = self.chunks(indices)
        images, past_images, is_image_pad = self._images_and_past(indices)
        history = None
        if self.state_history or self.image_history:
            past, is_state_pad = self._past(indices, self.state_history)
            history = History(past_images, is_image_pad, self._columns[STATE][past], is_state_pad)
        observation = Observation(
            images=images,
            state=state,
            instruction=self.instructions_of(indices),
            maps={name: values[indices] for name, values in self._maps.items()},
        )
        if history is not None:
            observation = with_history(observation, history)
        return Batch(observation, action, is_pad, history)

    def instructions_of(self, indices: np.ndarray) -> list[str]:
        """The instruction of each frame."""
        return [self._texts[text] for text in self._text_n[self._checked(indices)]]

    @property
    def identity(self) -> tuple[str, str]:
        """Digests of what the selection is (the dataset's place, episodes, and the style of its
        instructions), and of its content, judged by sizes and times of files, or by etags.
        """
        what, content = self._images.identity
        return f"{what}-{self._style}" if self._style else what, content

    def chunks(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """State [B, D], action chunk [B, K, A] and padding [B, K] of frames, without images; as in
        `batch`.
        """
        indices = self._checked(indices)
        steps_bk = indices[:, None] + np.arange(self.chunk_length)
        last_b1 = self._last_n[indices][:, None]
        action = self._columns[ACTION][np.minimum(steps_bk, last_b1)]
        return self._columns[STATE][indices], action, steps_bk > last_b1

    def previous_actions(self, indices: np.ndarray) -> np.ndarray:
        """The action of the frame before each frame, [B, A]; NaN where an episode begins."""
        indices = self._checked(indices)
        before = self._columns[ACTION][np.maximum(indices - 1, 0)].copy()
        before[indices == self._first_n[indices]] = np.nan
        return before

    def actions_of(self, number: int) -> np.ndarray:
        """All actions of the `number`-th episode of the selection, [T, A]."""
        bounds = self._selection.bounds
        return self._columns[ACTION][bounds[number] : bounds[number + 1]]

    def _checked(self, indices: np.ndarray) -> np.ndarray:
        indices = np.asarray(indices, np.int64)
        if len(indices) == 0 or indices.min() < 0 or indices.max() >= self.num_frames:
            raise ValueError(
                f"indices must lie in 0..{self.num_frames - 1} and not be empty: {indices}"
            )
        return indices

    def episode(self, number: int) -> Episode:
        """The `number`-th episode of the selection. Raises ValueError if there is none."""
        if not 0 <= number < self.num_episodes:
            raise ValueError(f"episode {number} is not in 0..{self.num_episodes - 1}")
        part = slice(self._selection.bounds[number], self._selection.bounds[number + 1])
        frames = np.arange(part.start, part.stop)
        reward, success, terminated = (
            self._columns[key][part] if key in self._columns else None for key in SCALARS
        )
        return Episode(
            images={camera: self._images.read(camera, frames) for camera in self.schema.cameras},
            state=self._columns[STATE][part],
            action=self._columns[ACTION][part],
            instruction=self._tasks[self._columns[_TASK][part.start]],
            source=f"{self.root}:episode_{self._selection.episodes[number]}",
            reward=reward,
            success=success,
            terminated=terminated,
            maps={name: values[part] for name, values in self._maps.items()},
            language=self._languages[number] if self.schema.has_language else None,
        )

    @functools.cached_property
    def _languages(self) -> list[Language]:
        """The annotations of each episode of the selection."""
        rows = self._table.iloc[self._selection.episodes]
        bounds = zip(rows["dataset_from_index"], rows["dataset_to_index"], strict=True)
        read = layout.read_language(self.root, list(bounds))
        return [
            from_columns(columns, f"{self.root}: episode {number}")
            for number, columns in zip(self.episodes, read, strict=True)
        ]

    def _read_style(self, style: str) -> tuple[list[str], np.ndarray]:
        """All instructions, and which of them each frame has, from annotations of one style."""
        times_n = layout.read_columns(self.root, ["timestamp"])["timestamp"].reshape(-1)
        texts, bounds = [], self._selection.bounds.tolist()
        for number, language in enumerate(self._languages):
            rows = self._selection.rows_n[bounds[number] : bounds[number + 1]]
            where = f"{self.root}: episode {self.episodes[number]}"
            texts += language.texts(style, times_n[rows], int(rows[0]), where)
        tasks = [self._tasks[task] for task in self._columns[_TASK]]
        texts = [text or task for text, task in zip(texts, tasks, strict=True)]
        order = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        return list(order), np.array([order[text] for text in texts])

    @functools.cached_property
    def _sampler(self) -> WeightedSampler:
        return WeightedSampler(self.weights)

    def _past(self, indices: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The `count` frames before each index, int64 [B, P], and a mask of those that do not
        exist.

        A frame that would lie before the episode is replaced by the first frame of the episode.
        """
        steps_bp = indices[:, None] + np.arange(-count, 0) * self.history_stride
        first_b1 = self._first_n[indices][:, None]
        return np.maximum(steps_bp, first_b1), steps_bp < first_b1

    def _images_and_past(
        self, indices: np.ndarray
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]:
        """Images of the frames, images of the frames before them, and the padding mask of the
        latter.
        """
        past, is_pad = self._past(indices, self.image_history)
        frames = np.concatenate([past, indices[:, None]], axis=1)
        images, past_images = {}, {}
        for camera in self.schema.cameras:
            shown = self._images.read(camera, frames.ravel())
            shown = shown.reshape(*frames.shape, *shown.shape[1:])
            images[camera], past_images[camera] = shown[:, -1], shown[:, :-1]
        return images, past_images, is_pad

    def _check_counts(self, rows: int, declared: int) -> None:
        if rows == 0 or len(self._table) == 0:
            raise ValueError(f"the dataset at {self.root} is empty; run: dvc repro")
        in_table = self._table["dataset_to_index"].to_numpy().max()
        if rows != declared or rows != in_table:
            raise ValueError(
                f"the dataset at {self.root} is incomplete: {rows} frames on disk, {declared} in "
                f"{layout.INFO}, {in_table} in the episode table; run: dvc repro --pull"
            )

    def _check_columns(self) -> None:
        """Convert the columns to their dtype and shape."""
        for key, dtype in ((STATE, np.float32), (ACTION, np.float32), (REWARD, np.float32)):
            if key in self._columns and self._columns[key].dtype.kind not in "fiub":
                raise ValueError(
                    f"{key} of {self.root} holds {self._columns[key].dtype}, not numbers; convert "
                    "the dataset first (source: {format: lerobot}), then read the result"
                )
            if key in self._columns:
                self._columns[key] = self._columns[key].astype(dtype, copy=False)
        for key in (STATE, ACTION):
            self._columns[key] = self._columns[key].reshape(self.num_frames, -1)
        for key in SCALARS.keys() & self._columns.keys():
            self._columns[key] = self._columns[key].reshape(self.num_frames)
        last = self._columns[_TASK].max()
        if last >= len(self._tasks) or self._columns[_TASK].min() < 0:
            raise ValueError(
                f"{self.root}: task_index goes up to {last}, {layout.TASKS} has {len(self._tasks)}"
            )

    def _select(self, chosen: np.ndarray) -> Selection:
        starts = self._table["dataset_from_index"].to_numpy()[chosen]
        stops = self._table["dataset_to_index"].to_numpy()[chosen]
        rows_n = np.concatenate([np.arange(a, b) for a, b in zip(starts, stops, strict=True)])
        return Selection(chosen, np.concatenate([[0], np.cumsum(stops - starts)]), rows_n)

    def _choose(
        self, instructions: Sequence[str] | None, episodes: Sequence[int] | None
    ) -> np.ndarray:
        chosen = np.ones(len(self._table), bool)
        if episodes is not None:
            wrong = [number for number in episodes if not 0 <= number < len(chosen)]
            if wrong:
                raise ValueError(
                    f"episode {wrong[0]} is not in 0..{len(chosen) - 1} of {self.root}"
                )
            chosen &= np.isin(np.arange(len(chosen)), list(episodes))
        if instructions is not None:
            for instruction in instructions:
                if instruction not in self._tasks:
                    hint = did_you_mean(instruction, self._tasks)
                    raise ValueError(f"no instruction '{instruction}' in {self.root}{hint}")
            wanted = set(instructions)
            chosen &= np.array([bool(wanted.intersection(tasks)) for tasks in self._table["tasks"]])
        if not chosen.any():
            raise ValueError(f"no episode of {self.root} is selected")
        return np.flatnonzero(chosen)


def _wanted(info: dict, names: Sequence[str]) -> dict[str, PixelMap]:
    """The maps of these names, by their features."""
    known = {one.name: (key, one) for key, one in layout.maps_of(info).items()}
    for name in names:
        if name not in known:
            raise ValueError(f"no map '{name}'{did_you_mean(name, known)}")
    return dict(known[name] for name in names)
