"""What the cameras of a training show, so that a server notices pictures of another kind.

A picture is described by the mean colours of its nine parts (3 x 3), 27 numbers, and compared with
the training's by its Mahalanobis distance: how far the numbers lie from their mean, in terms of how
they vary together. 98 % of the frames of held-out episodes (ten folds of whole episodes) keep a
certain distance. An episode like those of the training has at most 2 % of its frames beyond it, as
a state has outside of its 1 % and 99 % quantiles. `limit` is twice that distance, because a policy
goes where no demonstration was. Means of parts hardly depend on compression, focus and resolution,
which differ between recordings and a robot.

docs/how-to/release-a-policy.md has what this detects; `benchmarks/image_drift.py` measured it,
beside fewer and more parts.

Legend: E episodes, N frames, K the 27 numbers.
"""

import dataclasses
import typing
from collections.abc import Sequence

import numpy as np

from rrf.data.schema import IMAGE_PREFIX

if typing.TYPE_CHECKING:
    from rrf.data.dataset.reader import LeRobotReader

_SIDE = 3
NUM_COLORS = 3 * _SIDE**2
EXPECTED = 0.02
"""Of the frames of an episode like those of the training, beyond the limit; of states, outside of
[q01, q99]."""
MIN_EPISODES = 10
"""With fewer, nobody knows how much episodes differ."""
_MOST_EPISODES, _FRAMES_OF_EACH = 100, 10
_FOLDS = 10
_FEW_PIXELS = 64  # of a side that are looked at, so that a large picture costs no more
_LEAST_STD = 1.0  # of 255 levels: a change below this is none
_RIDGE = 1e-3
_MARGIN = 2.0


def colors(image: np.ndarray) -> np.ndarray:
    """The mean colour of each part of an image, float64 [K] in 0 to 255.

    Args:
        image: uint8 [H, W, 3], of at least 3 x 3 pixels.
    """
    rows, columns = (max(1, size // _FEW_PIXELS) for size in image.shape[:2])
    small = image[::rows, ::columns].astype(np.float32)
    parts = [
        part.mean(axis=(0, 1))
        for strip in np.array_split(small, _SIDE)
        for part in np.array_split(strip, _SIDE, axis=1)
    ]
    return np.concatenate(parts).astype(np.float64)


@dataclasses.dataclass(frozen=True)
class SeenImages:
    """What one camera shows in a training."""

    mean: np.ndarray
    """float64 [K]."""
    whitening: np.ndarray
    """float64 [K, K], turns a difference from the mean into uncorrelated numbers of variance 1."""
    limit: float

    def is_unlike(self, image: np.ndarray) -> bool:
        """Whether an image, uint8 [H, W, 3], is of another kind than 98 % of the training's."""
        return bool(self.distance(colors(image)[None])[0] > self.limit)

    def distance(self, colors_nk: np.ndarray) -> np.ndarray:
        """Mahalanobis distances, float64 [N]."""
        return np.linalg.norm((colors_nk - self.mean) @ self.whitening.T, axis=1)

    def to_dict(self) -> dict[str, list]:
        """Plain data for `norm_stats.json`."""
        values = {"mean": self.mean, "whitening": self.whitening, "limit": np.array([self.limit])}
        return {name: value.tolist() for name, value in values.items()}

    @classmethod
    def from_dict(cls, data: typing.Any) -> "SeenImages | None":
        """The inverse of `to_dict`; None for anything else, e.g. of a checkpoint without it."""
        try:
            mean, whitening, limit = (
                np.array(data[name], np.float64) for name in ("mean", "whitening", "limit")
            )
        except (KeyError, TypeError, ValueError):
            return None
        shapes = (mean.shape, whitening.shape, limit.shape)
        is_known = shapes == ((NUM_COLORS,), (NUM_COLORS, NUM_COLORS), (1,))
        if not is_known or not all(np.isfinite(v).all() for v in (mean, whitening, limit)):
            return None
        return cls(mean, whitening, float(limit[0]))


def fitted(episodes: Sequence[np.ndarray]) -> SeenImages:
    """From the colours of some frames of each episode, E arrays of float64 [N, K]."""
    held_out = []
    for fold in range(_FOLDS):
        others = [e for number, e in enumerate(episodes) if number % _FOLDS != fold]
        seen = _of(np.concatenate(others))
        held_out += [seen.distance(episode) for episode in episodes[fold::_FOLDS]]
    limit = _MARGIN * float(np.quantile(np.concatenate(held_out), 1 - EXPECTED))
    return dataclasses.replace(_of(np.concatenate(episodes)), limit=limit)


def _of(colors_nk: np.ndarray) -> SeenImages:
    mean, std = colors_nk.mean(axis=0), np.maximum(colors_nk.std(axis=0), _LEAST_STD)
    scaled = (colors_nk - mean) / std
    covariance = scaled.T @ scaled / len(scaled) + _RIDGE * np.eye(len(mean))
    whitening = np.linalg.inv(np.linalg.cholesky(covariance)) / std
    return SeenImages(mean, whitening, 0.0)


def statistics(readers: "Sequence[LeRobotReader]") -> dict[str, dict[str, list]]:
    """observation.images.NAME -> what the camera shows, for `norm_stats.json`.

    At most 100 episodes and 10 frames of each are looked at, evenly spaced. Empty for fewer than
    ten episodes.
    """
    places = [
        (reader, int(first), int(stop))
        for reader in readers
        for first, stop in zip(reader.bounds[:-1], reader.bounds[1:], strict=True)
        if stop > first
    ]
    if len(places) < MIN_EPISODES:
        return {}
    chosen = np.unique(np.linspace(0, len(places) - 1, _MOST_EPISODES).astype(int))
    seen: dict[str, list[np.ndarray]] = {}
    for reader, first, stop in (places[number] for number in chosen):
        frames = np.unique(np.linspace(first, stop - 1, _FRAMES_OF_EACH).astype(np.int64))
        for camera, images in reader.batch(frames).observation.images.items():
            seen.setdefault(camera, []).append(np.stack([colors(image) for image in images]))
    return {
        f"{IMAGE_PREFIX}{camera}": fitted(episodes).to_dict()
        for camera, episodes in seen.items()
        if len(episodes) >= MIN_EPISODES
    }
