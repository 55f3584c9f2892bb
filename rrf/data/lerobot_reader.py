"""Training reader for LeRobot v3.0: observations as uint8 and float32, with the action chunk that
follows each.

All vectors are read into numpy once; images come from `image_store`.

Legend: N frames of the selection, B batch, K steps in an action chunk, D state dimension, A action
dimension.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rrf.config import did_you_mean
from rrf.data import lerobot_layout as layout
from rrf.data.image_store import CACHE_BYTES, ImageStore, Selection
from rrf.data.schema import ACTION, REWARD, STATE, SUCCESS, Batch, Episode, Observation
from rrf.data.stats import read_norm_stats


class LeRobotReader:
    """Frames and action chunks of a dataset, or of some of its episodes.

    Args:
        root: The dataset's directory.
        chunk_length: Actions per chunk, K.
        instructions: Only episodes with these instructions, all by default.
        episodes: Only these episodes (numbers in the dataset), all by default. Frames are numbered
            in dataset order.
        cache_bytes: Decoded images are kept in memory while the selection needs at most this much.
        cache_dir: Where a selection larger than that is kept decoded, memory-mapped; nowhere by
            default.

    Raises:
        ValueError: If the dataset is missing (with the commands that bring it), empty or damaged,
            for an unknown instruction or episode, or if nothing is selected.
    """

    def __init__(
        self,
        root: str | Path,
        chunk_length: int,
        instructions: Sequence[str] | None = None,
        episodes: Sequence[int] | None = None,
        cache_bytes: int = CACHE_BYTES,
        cache_dir: str | Path | None = None,
    ):
        if chunk_length < 1:
            raise ValueError(f"chunk_length is {chunk_length}, must be at least 1")
        self.root, self.chunk_length = Path(root), chunk_length
        info = layout.read_info(root)
        self.schema = layout.schema_of(info)
        self._tasks = layout.read_tasks(root)
        self._table = layout.read_episodes(root)
        keys = [STATE, ACTION, "task_index"]
        keys += [REWARD] * self.schema.has_reward + [SUCCESS] * self.schema.has_success
        columns = layout.read_columns(root, keys)
        self._check_counts(len(columns["task_index"]), info["total_frames"])
        selection = self._select(self._choose(instructions, episodes))
        self._selection = selection
        self._columns = {key: values[selection.rows_n] for key, values in columns.items()}
        for key in (STATE, ACTION):
            self._columns[key] = self._columns[key].reshape(len(selection), -1)
        lengths = np.diff(selection.bounds)
        self._last_n = np.repeat(
            selection.bounds[1:] - 1, lengths
        )  # last frame of each frame's episode
        cache_path = Path(cache_dir) if cache_dir is not None else None
        self._images = ImageStore(self.root, info, self._table, selection, cache_bytes, cache_path)

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
    def instructions(self) -> list[str]:
        """The instructions that occur in the selection, in the order of their task_index."""
        return [self._tasks[index] for index in np.unique(self._columns["task_index"])]

    @property
    def norm_stats(self) -> dict[str, dict[str, list]]:
        """Statistics of the whole published dataset, not of the selection.

        Raises ValueError if never published.
        """
        return read_norm_stats(self.root)

    def batch(self, indices: np.ndarray) -> Batch:
        """Frames `indices`, int64 [B] in 0..num_frames-1, with the chunk of actions that starts at
        each.

        Raises:
            ValueError: For an index out of range, or an image that cannot be decoded (naming
                episode and frame).
        """
        indices = np.asarray(indices, np.int64)
        if len(indices) == 0 or indices.min() < 0 or indices.max() >= self.num_frames:
            raise ValueError(
                f"indices must lie in 0..{self.num_frames - 1} and not be empty: {indices}"
            )
        steps_bk = indices[:, None] + np.arange(self.chunk_length)
        last_b1 = self._last_n[indices][:, None]
        return Batch(
            observation=Observation(
                images={
                    camera: self._images.read(camera, indices) for camera in self.schema.cameras
                },
                state=self._columns[STATE][indices],
                instruction=[self._tasks[task] for task in self._columns["task_index"][indices]],
            ),
            action=self._columns[ACTION][np.minimum(steps_bk, last_b1)],
            is_pad=steps_bk > last_b1,
        )

    def episode(self, number: int) -> Episode:
        """The `number`-th episode of the selection. Raises ValueError if there is none."""
        if not 0 <= number < self.num_episodes:
            raise ValueError(f"episode {number} is not in 0..{self.num_episodes - 1}")
        part = slice(self._selection.bounds[number], self._selection.bounds[number + 1])
        frames = np.arange(part.start, part.stop)
        return Episode(
            images={camera: self._images.read(camera, frames) for camera in self.schema.cameras},
            state=self._columns[STATE][part],
            action=self._columns[ACTION][part],
            instruction=self._tasks[self._columns["task_index"][part.start]],
            source=f"{self.root}:episode_{self._selection.episodes[number]}",
            reward=self._columns[REWARD][part] if self.schema.has_reward else None,
            success=self._columns[SUCCESS][part] if self.schema.has_success else None,
        )

    def _check_counts(self, rows: int, declared: int) -> None:
        if rows == 0 or len(self._table) == 0:
            raise ValueError(f"the dataset at {self.root} is empty; run: dvc repro")
        in_table = self._table["dataset_to_index"].to_numpy().max()
        if rows != declared or rows != in_table:
            raise ValueError(
                f"the dataset at {self.root} is incomplete: {rows} frames on disk, {declared} in "
                f"{layout.INFO}, {in_table} in the episode table; run: dvc pull && dvc repro"
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
