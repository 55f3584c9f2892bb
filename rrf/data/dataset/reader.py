"""Training reader for LeRobot v3.0: observations as uint8 and float32, their history, and the
action chunk that follows.

All vectors are read into numpy once; images and maps are given, so that nothing here knows how they
are stored or kept. A dataset may be on this machine or below s3://bucket/prefix. Of a remote
dataset only the needed parts are fetched. Images stay uint8, so that training code can move them to
the device before it makes floats of them.

Legend: N frames of the selection, B batch, K steps in an action chunk, P past frames, D state
dimension, A action dimension.
"""

import dataclasses
import functools
import typing
from collections.abc import Mapping

import numpy as np

from rrf.data.dataset import layout, parquet
from rrf.data.dataset.corrections import BY_OPERATOR, SOLVED, CorrectionsCfg
from rrf.data.dataset.history import with_history
from rrf.data.dataset.layout import read_norm_stats
from rrf.data.dataset.sampling import SelectiveSampler
from rrf.data.dataset.selection import Chosen
from rrf.data.language import PERSISTENT, Language, check_style, from_columns
from rrf.data.remedies import again
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

_TASK = "task_index"


class Images(typing.Protocol):
    """The images of the chosen cameras and frames; see `rrf.data.dataset.image_store`."""

    def read(self, camera: str, frames_b: np.ndarray) -> np.ndarray:
        """uint8 [B, H, W, 3] of frames numbered within the selection."""
        ...

    @property
    def identity(self) -> tuple[str, str]:
        """Digests of the dataset's place with the selection, and of its files' content."""
        ...


class LeRobotReader:
    """Frames and action chunks of a dataset, or of some of its episodes, numbered in the order of
    the dataset. `rrf.data.dataset.opening.open_dataset` makes one.

    Args:
        chosen: What is read.
        chunk_length: Actions per chunk, K.
        images: The images of it.
        maps: What is read of images that are not RGB (depth, masks) -> [N, H, W].
        state_history: Past states in a batch, P.
        image_history: Past images of each camera in a batch, P.
        history_stride: Steps from one past frame to the next.
        instruction_style: A frame's instruction is what the language annotations say in this style
            (subtask, plan, memory, motion, task_aug), and the task where they say nothing. By
            default it is the task.
        corrections: What frames of logged episodes count; by default as much as all others.

    Raises:
        ValueError: If the dataset is incomplete or damaged, or if it is not annotated in that
            style.
    """

    def __init__(
        self,
        chosen: Chosen,
        chunk_length: int,
        images: Images,
        maps: Mapping[PixelMap, np.ndarray],
        state_history: int = 0,
        image_history: int = 0,
        history_stride: int = 1,
        instruction_style: str | None = None,
        corrections: CorrectionsCfg | None = None,
    ):
        if chunk_length < 1:
            raise ValueError(f"chunk_length is {chunk_length}, must be at least 1")
        if min(state_history, image_history) < 0:
            raise ValueError(
                f"state_history is {state_history} and image_history is {image_history}; neither "
                "may be negative"
            )
        if history_stride < 1:
            raise ValueError(f"history_stride is {history_stride}, must be at least 1")
        self.root, self.chunk_length = chosen.root, chunk_length
        self.state_history, self.image_history = state_history, image_history
        self.history_stride = history_stride
        self._images, self._maps = (
            images,
            {map_spec.name: values for map_spec, values in maps.items()},
        )
        self._tasks, self._table, self._selection = chosen.tasks, chosen.table, chosen.frames
        features, selection = chosen.features, chosen.frames
        self.schema = dataclasses.replace(
            features.schema, maps=tuple(maps), has_language=layout.has_language(chosen.info)
        )
        stored_keys = {key: features.stored[key] for key in (STATE, ACTION)} | {_TASK: _TASK}
        stored_keys |= {key: features.stored[key] for key in SCALARS if key in features.stored}
        columns = parquet.read_columns(self.root, list(stored_keys.values()))
        self._check_counts(len(columns[_TASK]), chosen.info["total_frames"])
        self._columns = {key: columns[name][selection.rows_n] for key, name in stored_keys.items()}
        self._check_columns()
        self._corrected_n = self._corrected(corrections, chosen.info["features"])
        self._style = instruction_style
        self._texts, self._text_n = self._tasks, self._columns[_TASK]
        if instruction_style is not None:
            check_style(instruction_style, PERSISTENT in chosen.info["features"], str(self.root))
            self._texts, self._text_n = self._read_style(instruction_style)
        lengths = np.diff(selection.bounds)
        self._first_n = np.repeat(selection.bounds[:-1], lengths)  # of each frame's episode
        self._last_n = np.repeat(selection.bounds[1:] - 1, lengths)

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
        """Itself: see `rrf.data.dataset.mixture.Mixture.readers`."""
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

        A merged dataset stores these weights for its parts, and `corrections` weigh the frames of
        logged episodes. In any other dataset all weights are 1.
        """
        if self._corrected_n is not None:
            return self._corrected_n
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
        starts there. With a history, the observation has it as `rrf.data.dataset.history` says.

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
        frames_bk = np.minimum(steps_bk, last_b1)
        is_pad_bk = steps_bk > last_b1
        if self._corrected_n is not None:
            is_pad_bk |= np.logical_or.accumulate(self._corrected_n[frames_bk] == 0, axis=1)
        return self._columns[STATE][indices], self._columns[ACTION][frames_bk], is_pad_bk

    def steps_since_start(self, indices: np.ndarray) -> np.ndarray:
        """How many frames of its episode come before each frame, int64 [B]."""
        indices = self._checked(indices)
        return indices - self._first_n[indices]

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
        read = parquet.read_language(self.root, list(bounds))
        return [
            from_columns(columns, f"{self.root}: episode {number}")
            for number, columns in zip(self.episodes, read, strict=True)
        ]

    def _read_style(self, style: str) -> tuple[list[str], np.ndarray]:
        """All instructions, and which of them each frame has."""
        times_n = parquet.read_columns(self.root, ["timestamp"])["timestamp"].reshape(-1)
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
    def _sampler(self) -> SelectiveSampler:
        return SelectiveSampler(self.weights)

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
        """Images of the frames, images of those before them, and the latter's padding mask."""
        past, is_pad = self._past(indices, self.image_history)
        frames = np.concatenate([past, indices[:, None]], axis=1)
        images, past_images = {}, {}
        for camera in self.schema.cameras:
            shown = self._images.read(camera, frames.ravel())
            shown = shown.reshape(*frames.shape, *shown.shape[1:])
            images[camera], past_images[camera] = shown[:, -1], shown[:, :-1]
        return images, past_images, is_pad

    def _corrected(
        self, cfg: CorrectionsCfg | None, features: Mapping[str, dict]
    ) -> np.ndarray | None:
        """The weights of the frames of logged episodes, float64 [N]; None for demonstrations."""
        if cfg is None or BY_OPERATOR not in features or SOLVED not in features:
            return None
        columns = parquet.read_columns(self.root, [BY_OPERATOR, SOLVED])
        by_operator_n, solved_n = (
            columns[key][self._selection.rows_n] for key in (BY_OPERATOR, SOLVED)
        )
        weights_n = cfg.weights(by_operator_n, solved_n, self._selection.bounds)
        if not weights_n.any():
            raise ValueError(
                f"{self.root} has no frame that {cfg!r} lets be imitated: record corrections, or "
                "leave the dataset out"
            )
        return weights_n

    def _check_counts(self, rows: int, declared: int) -> None:
        if rows == 0:
            raise ValueError(f"the dataset at {self.root} is empty; {again(self.root)}")
        in_table = self._table["dataset_to_index"].to_numpy().max()
        if rows != declared or rows != in_table:
            raise ValueError(
                f"the dataset at {self.root} is incomplete: {rows} frames on disk, {declared} in "
                f"{layout.INFO}, {in_table} in the episode table; {again(self.root)}"
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
