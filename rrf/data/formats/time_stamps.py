"""The rate that the time stamps of a recording tell, and what is wrong with them.

Legend: T frames of an episode.
"""

import dataclasses
import math

import numpy as np

FPS_TOLERANCE = 0.01  # by which two claims about frames per second may differ
_JITTER = 0.05  # time stamps taken from a clock may be off by this much; more is another rate
_GAP = 1.5  # a step this many times the usual one is a gap, if there are few
_LONG_GAP = 2.5  # is one in any case
_FEW = 0.02  # of all steps; more are how the recorder works
_UNITS = {1e3: "milliseconds", 1e6: "microseconds", 1e9: "nanoseconds"}  # instead of seconds


@dataclasses.dataclass(frozen=True)
class TimeStamps:
    """What the time stamps of an episode tell."""

    fps: float | None  # another rate than the declared one, None if they do not contradict it
    problems: tuple[str, ...]  # each in a few words
    breaks: tuple[str, ...] = ()  # those of them where time does not go on evenly


def read_time_stamps(times_t: np.ndarray, fps: float) -> TimeStamps:
    """Compare time stamps with the declared rate. It does not matter where they begin.

    The rate is that of all steps together, without gaps: a camera of 30 frames/s that a loop of 50
    Hz polls has steps of 0.02 and 0.04 s. One within 1 % of a whole number is taken for that
    number.

    Args:
        times_t: Seconds, [T] or [T, 1].
        fps: The declared frames per second.
    """
    if times_t.dtype.kind not in "iuf":
        return TimeStamps(None, ("timestamp holds no numbers",))
    times_t = times_t.ravel().astype(np.float64)
    steps = np.diff(times_t)
    if len(steps) == 0:
        return TimeStamps(None, ())
    backwards = np.flatnonzero(~(steps > 0))
    if len(backwards):
        at = int(backwards[0]) + 1
        problem = f"timestamp at frame {at} is {times_t[at]:g} s, after {times_t[at - 1]:g} s"
        return TimeStamps(None, (problem,), (problem,))
    problems, breaks, is_gap = [], (), gaps(steps)
    usual = float(steps[~is_gap].mean())
    measured = _whole(1 / usual)
    unit = next((name for scale, name in _UNITS.items() if _is_near(measured * scale, fps)), None)
    is_other = unit is None and not _is_near(measured, fps)
    if unit is not None:
        problems.append(f"timestamp is in {unit}, not in seconds")
    elif not is_other and abs(measured - fps) > FPS_TOLERANCE * fps:
        problems.append(f"timestamp grows at {measured:.4g} frames/s, {fps:g} are declared")
    if is_gap.any():
        at = int(np.where(is_gap, steps, 0).argmax()) + 1
        breaks = (
            f"timestamp at frame {at} is {steps.max():.4g} s after the one before, "
            f"{usual:.4g} s are usual",
        )
    return TimeStamps(measured if is_other else None, (*problems, *breaks), breaks)


def gaps(steps: np.ndarray) -> np.ndarray:
    """Which of the steps from one time stamp to the next are gaps."""
    usual = float(np.median(steps))
    is_long = steps > _GAP * usual
    return is_long if is_long.sum() <= max(1, _FEW * len(steps)) else steps > _LONG_GAP * usual


def _is_near(measured: float, fps: float) -> bool:
    return math.isclose(measured, fps, rel_tol=_JITTER)


def _whole(fps: float) -> float:
    return float(round(fps)) if math.isclose(fps, round(fps), rel_tol=FPS_TOLERANCE) else fps
