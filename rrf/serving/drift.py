"""Whether robots see what a policy was trained on: an alarm that comes before success falls.

The statistics of the training (`norm_stats.json`) say between which values 98 % of its states lay,
for each dimension (q01, q99), and for each camera a distance that 98 % of its images keep
(`rrf.data.dataset.seen_images`): one more dimension. Of every announced episode, the share of its
observations outside of these is a number X from 0 to 1. If the robot's episodes are like those of
the training, its mean is at most 0.02, whatever happens within an episode. For each dimension and
each side bet, the product over episodes of 1 + b (X - 0.02), a mixture over several b in (0, 50),
is then a supermartingale of mean 1 (a test of a bounded mean by betting: Waudby-Smith & Ramdas,
J. R. Stat. Soc. B 86:1, 2024, arXiv:2010.09686). It reaches D / alpha with a probability of at most
alpha / D, so with D dimensions an alarm ever is false with a probability of at most alpha. Episodes
count in the order in which they end; each counts once, whether one policy saw it or its Systems 2
and 1, asked apart, saw a part of it each (`Sightings`).

A robot that fails differently but sees the same raises no alarm. Images of which the checkpoint has
no statistics are not looked at.

Legend: D dimensions, those of the state and then the cameras.
"""

from collections.abc import Mapping

import numpy as np

from rrf.data.dataset.seen_images import EXPECTED, SeenImages
from rrf.data.schema import IMAGE_PREFIX, STATE

ALPHA = 0.01
"""The probability that the alarm of a served version is ever false."""
_BETS = np.array([0.5, 1.0, 2.0, 5.0, 10.0, 20.0])  # below 1 / EXPECTED = 50


class Drift:
    """Follows what one version sees. At least one dimension must be known.

    Args:
        low: q01 of the training's states; empty if it is not known.
        high: q99.
        cameras: observation.images.NAME -> what the camera showed in the training.
        alpha: The probability of an alarm if nothing has changed.
    """

    def __init__(
        self,
        low: np.ndarray,
        high: np.ndarray,
        cameras: Mapping[str, SeenImages] | None = None,
        alpha: float = ALPHA,
    ):
        self._low, self._high, self._cameras = low, high, dict(cameras or {})
        self.names = [f"dimension {n} of {STATE}" for n in range(len(low))]
        """What each dimension is, in words."""
        self.names += [f"images of {n.removeprefix(IMAGE_PREFIX)}" for n in self._cameras]
        self.labels = [*map(str, range(len(low))), *self._cameras]
        """What each dimension is called in metrics."""
        self._limit = np.log(len(self.names) / alpha)
        self._log_bd = np.zeros((len(_BETS), len(self.names)))
        self.has_alarm = False

    @property
    def log_evidence(self) -> np.ndarray:
        """float [D], the logarithm of the evidence that a dimension has drifted."""
        highest = self._log_bd.max(axis=0)
        return highest + np.log(np.exp(self._log_bd - highest).mean(axis=0))

    def outside(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        """float [D], of an observation: 1 for a dimension outside of the training's, 0 for one that
        is not, NaN for one that the observation lacks, as System 2's has no state."""
        states = np.full(len(self._low), np.nan)
        if len(states) and STATE in inputs:
            state = inputs[STATE]
            states = (state < self._low) | (state > self._high)
        unlike = [
            camera.is_unlike(inputs[name]) if name in inputs else np.nan
            for name, camera in self._cameras.items()
        ]
        return np.concatenate([states, unlike]).astype(float)

    def add(self, share: np.ndarray) -> list[int]:
        """Note an episode; returns the dimensions that have drifted, at the first alarm only.

        Args:
            share: float [D], of its observations outside.
        """
        self._log_bd += np.log1p(_BETS[:, None] * (share - EXPECTED))
        drifted = np.flatnonzero(self.log_evidence >= self._limit)
        if self.has_alarm or not len(drifted):
            return []
        self.has_alarm = True
        return drifted.tolist()


class Sightings:
    """How much of what was seen in one episode lies outside of the training's, by dimension.

    Args:
        num_dimensions: D.
    """

    def __init__(self, num_dimensions: int):
        self._num_outside, self._num_seen = np.zeros((2, num_dimensions))

    def note(self, outside: np.ndarray) -> None:
        """Note an observation, as `Drift.outside` describes it."""
        self._num_outside += np.nan_to_num(outside)
        self._num_seen += ~np.isnan(outside)

    @property
    def share(self) -> np.ndarray:
        """float [D], of the observations of a dimension those outside. EXPECTED, which is evidence
        of nothing, for one that was never seen."""
        share = np.full_like(self._num_seen, EXPECTED)
        return np.divide(self._num_outside, self._num_seen, out=share, where=self._num_seen > 0)
