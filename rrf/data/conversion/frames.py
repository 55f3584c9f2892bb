"""Which rows of a recording become which frames of the dataset.

`Thinning` keeps one of k rows: images and state are those of the first (seen before the action); of
the action, increments are summed and absolute dimensions taken from the last; rewards are summed;
flags are those of any. `Resampling` goes by time, see `ResampleCfg`.

Legend: R recorded rows of one raw key, T frames of the episode, D dimensions.
"""

import typing
from collections.abc import Callable, Collection, Sequence

import numpy as np

from rrf.data.conversion.resample_cfg import SECONDS, ResampleCfg
from rrf.data.conversion.vectors import pick_actions, sums

Rows = slice | np.ndarray
_ROUNDING = 1e-6  # of a frame


class Frames(typing.Protocol):
    """The frames of one episode."""

    def num_rows(self, key: str) -> int:
        """R: how many rows a raw key must have."""
        ...

    def rows(self, key: str, name: str) -> Rows:
        """The rows of a raw key that are frames, one for each; `name` is the state or an image."""
        ...

    def states(
        self, key: str, name: str, values_rd: np.ndarray, names: Sequence[str]
    ) -> np.ndarray:
        """The values of a raw key at the frames, [T, D]."""
        ...

    def actions(
        self, key: str, values_rd: np.ndarray, names: Sequence[str], summed: Collection[str]
    ) -> np.ndarray:
        """What is done from each frame to the next, [T, D]; `summed` are increments."""
        ...

    def totals(self, key: str, values_r: np.ndarray) -> np.ndarray:
        """The sum over the rows of each frame, [T]."""
        ...


class Thinning:
    """One of `step` rows.

    Args:
        length: R, the same for all keys.
        step: Rows per frame.
        after_action: What is taken from the row before, see `DatasetCfg.after_action`.
    """

    def __init__(self, length: int, step: int, after_action: Sequence[str]):
        self.length, self.step, self.after_action = length, step, after_action

    def num_rows(self, key: str) -> int:
        return self.length

    def rows(self, key: str, name: str) -> slice:
        if not self.after_action:
            return slice(None, None, self.step)
        first, stop = (0, -1) if name in self.after_action else (1, None)
        return slice(first, stop, self.step)

    def states(
        self, key: str, name: str, values_rd: np.ndarray, names: Sequence[str]
    ) -> np.ndarray:
        return values_rd[self.rows(key, name)]

    def actions(
        self, key: str, values_rd: np.ndarray, names: Sequence[str], summed: Collection[str]
    ) -> np.ndarray:
        columns = [index for index, name in enumerate(names) if name in summed]
        return pick_actions(values_rd[self._done], columns, self.step)

    def totals(self, key: str, values_r: np.ndarray) -> np.ndarray:
        return sums(values_r[self._done], self.step)

    @property
    def _done(self) -> slice:
        return slice(1, None) if self.after_action else slice(None)


class Resampling:
    """Frames at a rate of their own.

    Args:
        cfg: How.
        fps: Their rate.
        keys: The raw keys that become frames.
        stamps: Gives the time stamps under a raw key, [R].
        even_s: Without `cfg.times`: the time of every row whose key has no time stamps, s.
        where: The episode, for messages.

    Raises:
        ValueError: For time stamps that go back, and naming the row and the time of a gap that is
            too long; or if nothing was recorded at the same time.
    """

    def __init__(
        self,
        cfg: ResampleCfg,
        fps: float,
        keys: Collection[str],
        stamps: Callable[[str], np.ndarray],
        even_s: np.ndarray,
        where: str,
    ):
        self._cfg, self._where = cfg, where
        self._clock = {key: cfg.times_of.get(key, cfg.times) for key in keys}
        self._main = cfg.times
        self._times: dict[str | None, np.ndarray] = {}
        for clock in {*self._clock.values(), self._main}:
            if clock is None:
                self._times[clock] = even_s
            else:
                self._times[clock] = stamps(clock).astype(np.float64) * SECONDS[cfg.unit]
            self._check(self._times[clock], clock)
        used = [self._times[clock] for clock in set(self._clock.values())]
        start_s, stop_s = max(t[0] for t in used), min(t[-1] for t in used)
        num_frames = int(np.floor((stop_s - start_s) * fps + _ROUNDING)) + 1
        if num_frames < 1:
            raise ValueError(
                f"{where}: what it consists of was not recorded at the same time: one ends at "
                f"{stop_s:g} s, another begins at {start_s:g} s"
            )
        self._frame_s, self._fps = start_s + np.arange(num_frames) / fps, fps

    def num_rows(self, key: str) -> int:
        return len(self._times_of(key))

    def rows(self, key: str, name: str) -> np.ndarray:
        times_s = self._times_of(key)
        after = np.searchsorted(times_s, self._frame_s).clip(1, max(len(times_s) - 1, 1))
        before = after - 1
        after = np.minimum(after, len(times_s) - 1)
        is_before = self._frame_s - times_s[before] <= times_s[after] - self._frame_s
        return np.where(is_before, before, after)

    def states(
        self, key: str, name: str, values_rd: np.ndarray, names: Sequence[str]
    ) -> np.ndarray:
        times_s, nearest = self._times_of(key), self.rows(key, name)
        columns = [
            values_rd[nearest, index]
            if dimension in self._cfg.nearest
            else np.interp(self._frame_s, times_s, values_rd[:, index])
            for index, dimension in enumerate(names)
        ]
        return np.stack(columns, axis=1)

    def actions(
        self, key: str, values_rd: np.ndarray, names: Sequence[str], summed: Collection[str]
    ) -> np.ndarray:
        picked = self.states(key, "action", values_rd, names)
        times_s = self._times_of(key)
        usual_s = float(np.median(np.diff(times_s))) if len(times_s) > 1 else 1 / self._fps
        bounds_s = np.append(times_s, times_s[-1] + usual_s)
        for index, dimension in enumerate(names):
            if dimension in summed:  # each increment is spread evenly over its row's time
                moved = np.concatenate([[0.0], np.cumsum(values_rd[:, index])])
                ends = np.interp(self._frame_s + 1 / self._fps, bounds_s, moved)
                picked[:, index] = ends - np.interp(self._frame_s, bounds_s, moved)
        return picked

    def totals(self, key: str, values_r: np.ndarray) -> np.ndarray:
        last = len(self._frame_s) - 1
        frame = np.floor((self._times_of(key) - self._frame_s[0]) * self._fps + _ROUNDING)
        totals = np.zeros(last + 1, values_r.dtype)
        np.add.at(totals, frame.clip(0, last).astype(int), values_r)
        return totals

    def _times_of(self, key: str) -> np.ndarray:
        return self._times[self._clock.get(key, self._main)]

    def _check(self, times_s: np.ndarray, clock: str | None) -> None:
        name = clock or "time"
        steps_s = np.diff(times_s)
        if len(steps_s) and not (steps_s > 0).all():
            row = int((steps_s <= 0).argmax()) + 1
            raise ValueError(
                f"{self._where}: {name} of row {row} is {times_s[row]:g} s, after "
                f"{times_s[row - 1]:g} s; time must go on"
            )
        if len(steps_s) and steps_s.max() > self._cfg.max_gap_s:
            row = int(steps_s.argmax()) + 1
            raise ValueError(
                f"{self._where}: {name} of row {row} is {steps_s[row - 1]:.4g} s after the row "
                f"before, resample.max_gap_s is {self._cfg.max_gap_s:g} s; nothing is known of the "
                "time between"
            )
