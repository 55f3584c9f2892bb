"""Draws frames of several datasets together, each dataset with a weight, without merging them.

The datasets must agree in what a policy sees and does: cameras, image size, fps, and names and
units of state and action. If they do not, `rrf data convert` of a dataset with `merge:` aligns
them.

Legend: N frames of all datasets, B batch, G datasets.
"""

import dataclasses
import functools
import typing
from collections.abc import Callable, Sequence

import numpy as np

from rrf.data.dataset.sampling import SelectiveSampler
from rrf.data.dataset.stats import NORM_KEYS, describe, plain
from rrf.data.schema import ACTION, STATE, Batch, History, Observation, Schema, Vector

if typing.TYPE_CHECKING:
    from rrf.data.dataset.reader import LeRobotReader


class Reader(typing.Protocol):
    """What can be mixed: a `rrf.data.dataset.reader.LeRobotReader`, or frames made of several."""

    root: typing.Any
    chunk_length: int
    state_history: int
    image_history: int
    history_stride: int

    @property
    def schema(self) -> Schema: ...

    @property
    def num_frames(self) -> int: ...

    @property
    def num_episodes(self) -> int: ...

    @property
    def instructions(self) -> list[str]: ...

    @property
    def weights(self) -> np.ndarray: ...

    @property
    def identity(self) -> tuple[str, str]: ...

    def vectors(self, key: str) -> np.ndarray: ...

    def batch(self, indices: np.ndarray) -> Batch: ...

    def chunks(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...

    def instructions_of(self, indices: np.ndarray) -> list[str]: ...

    def steps_since_start(self, indices: np.ndarray) -> np.ndarray: ...


class Mixture:
    """Frames of several readers, numbered one reader after the other.

    Args:
        readers: The readers, all with the same chunk length and history.
        weights: How often a frame of each reader is drawn, relative to a frame of weight 1; all 1
            by default. This is not the share of the dataset, which is proportional to its weight
            times its number of frames. Weights within a merged dataset are multiplied by this
            weight.

    Raises:
        ValueError: If datasets do not fit together, naming the first two and the reason; or if a
            weight is not positive.
    """

    def __init__(self, readers: Sequence[Reader], weights: Sequence[float] | None = None):
        self._readers = list(readers)
        if not self._readers:
            raise ValueError("a mixture needs at least one dataset")
        self._weights = [1.0] * len(self._readers) if weights is None else list(weights)
        if len(self._weights) != len(self._readers):
            raise ValueError(f"{len(self._readers)} datasets, but {len(self._weights)} weights")
        for reader, weight in zip(self._readers, self._weights, strict=True):
            if not 0 < weight < np.inf:
                raise ValueError(f"the weight of {reader.root} is {weight}, must be positive")
        for reader in self._readers[1:]:
            _check_same(self._readers[0], reader)
        sizes = [reader.num_frames for reader in self._readers]
        self._starts = np.concatenate([[0], np.cumsum(sizes)])

    @property
    def readers(self) -> "list[LeRobotReader]":
        """The readers whose frames it holds, in order; not of a mixture of several robots."""
        return typing.cast("list[LeRobotReader]", self._readers)

    @property
    def num_frames(self) -> int:
        """Frames of all datasets, N."""
        return int(self._starts[-1])

    @property
    def num_episodes(self) -> int:
        """Episodes of all datasets."""
        return sum(reader.num_episodes for reader in self._readers)

    @property
    def instructions(self) -> list[str]:
        """The instructions of all datasets, each once, in the order of the datasets."""
        return list(dict.fromkeys(text for reader in self._readers for text in reader.instructions))

    @property
    def schema(self) -> Schema:
        """What every frame holds. Limits are the widest ones, and None if one dataset has none."""
        schemas = [reader.schema for reader in self._readers]
        return dataclasses.replace(
            schemas[0],
            state=_widest([schema.state for schema in schemas]),
            action=_widest([schema.action for schema in schemas]),
            has_reward=all(schema.has_reward for schema in schemas),
            has_success=all(schema.has_success for schema in schemas),
            has_terminated=all(schema.has_terminated for schema in schemas),
        )

    @property
    def norm_stats(self) -> dict[str, dict[str, list]]:
        """Statistics of all frames, each counted once."""
        return self._norm_stats

    @functools.cached_property
    def _norm_stats(self) -> dict[str, dict[str, list]]:
        results = {}
        for key in (STATE, ACTION):
            rows = np.concatenate([reader.vectors(key) for reader in self._readers])
            stats = plain(describe(rows))
            results[key] = {name: stats[name] for name in NORM_KEYS}
        return results

    @property
    def weights(self) -> np.ndarray:
        """How often each frame is drawn relative to the others, float64 [N]."""
        pairs = zip(self._readers, self._weights, strict=True)
        return np.concatenate([reader.weights * weight for reader, weight in pairs])

    def draw(self, batch_size: int, seed: int, step: int) -> np.ndarray:
        """The frames of training batch `step`, int64 [batch_size].

        They are drawn by `weights`, and depend only on seed and step.
        """
        return self._sampler.indices(batch_size, seed, step)

    def batch(self, indices: np.ndarray) -> Batch:
        """The frames `indices`, int64 [B] in 0..num_frames-1, as `LeRobotReader.batch` returns
        them.

        Raises:
            ValueError: For an index out of range, or an image that cannot be decoded.
        """
        parts, back_b = self._parts(indices)
        batches = [reader.batch(rows) for reader, rows in parts]
        return batches[0] if len(batches) == 1 else _joined(batches, back_b)

    def chunks(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See `LeRobotReader.chunks`."""
        parts, back_b = self._parts(indices)
        state, action, is_pad = (
            np.concatenate(values)[back_b]
            for values in zip(*(reader.chunks(rows) for reader, rows in parts), strict=True)
        )
        return state, action, is_pad

    def instructions_of(self, indices: np.ndarray) -> list[str]:
        """The instruction of each frame."""
        parts, back_b = self._parts(indices)
        texts = [text for reader, rows in parts for text in reader.instructions_of(rows)]
        return [texts[row] for row in back_b]

    def steps_since_start(self, indices: np.ndarray) -> np.ndarray:
        """See `LeRobotReader.steps_since_start`."""
        parts, back_b = self._parts(indices)
        return np.concatenate([reader.steps_since_start(rows) for reader, rows in parts])[back_b]

    @property
    def identity(self) -> tuple[str, str]:
        """See `LeRobotReader.identity`."""
        what, content = zip(*(reader.identity for reader in self._readers), strict=True)
        return "-".join(what), "-".join(content)

    def _parts(self, indices: np.ndarray) -> tuple[list[tuple[Reader, np.ndarray]], np.ndarray]:
        """The readers of some frames with their own numbers; frame b of `indices` is row back_b[b]
        of the concatenated parts.
        """
        indices = np.asarray(indices, np.int64)
        if len(indices) == 0 or indices.min() < 0 or indices.max() >= self.num_frames:
            raise ValueError(
                f"indices must lie in 0..{self.num_frames - 1} and not be empty: {indices}"
            )
        reader_b = np.searchsorted(self._starts, indices, side="right") - 1
        used = np.unique(reader_b).tolist()
        parts = [(self._readers[g], indices[reader_b == g] - self._starts[g]) for g in used]
        return parts, np.argsort(np.argsort(reader_b, kind="stable"), kind="stable")

    @functools.cached_property
    def _sampler(self) -> SelectiveSampler:
        return SelectiveSampler(self.weights)


def _joined(parts: list[Batch], back_b: np.ndarray) -> Batch:
    """The parts as one batch, in the order asked for."""

    def joined(of: Callable[[Batch], np.ndarray]) -> np.ndarray:
        return np.concatenate([of(part) for part in parts])[back_b]

    cameras = parts[0].observation.images
    texts = [text for part in parts for text in part.observation.instruction]
    robots = [robot for part in parts for robot in part.observation.robots or []]
    return Batch(
        observation=Observation(
            images={name: joined(lambda p, n=name: p.observation.images[n]) for name in cameras},
            state=joined(lambda part: part.observation.state),
            instruction=[texts[row] for row in back_b],
            robots=[robots[row] for row in back_b] if robots else None,
            maps={
                name: joined(lambda p, n=name: p.observation.maps[n])
                for name in parts[0].observation.maps
            },
        ),
        action=joined(lambda part: part.action),
        is_pad=joined(lambda part: part.is_pad),
        history=_joined_history([part.history for part in parts], back_b),
    )


def _joined_history(parts: Sequence[History | None], back_b: np.ndarray) -> History | None:
    histories = [part for part in parts if part is not None]
    if not histories:
        return None

    def joined(of: Callable[[History], np.ndarray]) -> np.ndarray:
        return np.concatenate([of(part) for part in histories])[back_b]

    return History(
        images={name: joined(lambda part, n=name: part.images[n]) for name in histories[0].images},
        is_image_pad=joined(lambda part: part.is_image_pad),
        state=joined(lambda part: part.state),
        is_state_pad=joined(lambda part: part.is_state_pad),
    )


def _check_same(first: Reader, other: Reader) -> None:
    of_first, of_other = _shared(first), _shared(other)
    for what, value in of_first.items():
        if of_other[what] != value:
            raise ValueError(
                f"{what} of {first.root} is {value}, but of {other.root} it is {of_other[what]}; "
                "align them in a merged dataset (merge: in configs/datasets/NAME.yaml), or convert "
                "one again"
            )


def _shared(reader: Reader) -> dict:
    """What the readers of a mixture must have in common."""
    schema = reader.schema
    return {
        "chunk_length": reader.chunk_length,
        "state_history": reader.state_history,
        "image_history": reader.image_history,
        "history_stride": reader.history_stride,
        "fps": schema.fps,
        "image_size": schema.image_size,
        "cameras": sorted(schema.cameras),
        "maps": sorted(schema.maps, key=lambda map_spec: map_spec.name),
        "state": (schema.state.names, schema.state.unit),
        "action": (schema.action.names, schema.action.unit),
    }


def _widest(vectors: Sequence[Vector]) -> Vector:
    lows = [vector.low for vector in vectors if vector.low is not None]
    highs = [vector.high for vector in vectors if vector.high is not None]
    low = tuple(np.min(lows, axis=0).tolist()) if len(lows) == len(vectors) else None
    high = tuple(np.max(highs, axis=0).tolist()) if len(highs) == len(vectors) else None
    return dataclasses.replace(vectors[0], low=low, high=high)
