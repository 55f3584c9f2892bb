"""What is wrong with the time stamps of a recording.

Legend: T frames of an episode.
"""

import numpy as np

FPS_TOLERANCE = 0.01  # by which measured and declared frames per second may differ
_GAP = 1.5  # a step this many times the usual one is a gap


def time_problems(times_t: np.ndarray, fps: float) -> list[str]:
    """Each problem in a few words. It does not matter where the time stamps begin.

    Args:
        times_t: Seconds, [T] or [T, 1].
        fps: The declared frames per second.
    """
    if times_t.dtype.kind not in "iuf":
        return ["timestamp holds no numbers"]
    times_t = times_t.ravel().astype(np.float64)
    steps = np.diff(times_t)
    if len(steps) == 0:
        return []
    backwards = np.flatnonzero(~(steps > 0))
    if len(backwards):
        at = int(backwards[0]) + 1
        return [f"timestamp at frame {at} is {times_t[at]:g} s, after {times_t[at - 1]:g} s"]
    problems, usual = [], float(np.median(steps))
    if abs(1 / usual - fps) > FPS_TOLERANCE * fps:
        problems.append(f"timestamp grows at {1 / usual:.4g} frames/s, {fps:g} are declared")
    if steps.max() > _GAP * usual:
        at = int(steps.argmax()) + 1
        problems.append(
            f"timestamp at frame {at} is {steps.max():.4g} s after the one before, "
            f"{usual:.4g} s are usual"
        )
    return problems
