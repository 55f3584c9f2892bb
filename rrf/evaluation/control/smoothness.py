"""Smoothness of actions: the mean weighted frequency Sm of arXiv:2012.06644, and differences.

    Sm = 2 / (n f_s) sum_i M_i f_i

with the amplitudes M_i and frequencies f_i of the n components of the actions' spectrum, and f_s
the sampling frequency. Smaller is smoother; a constant action gives 0. Sm grows with the scale of
the actions, so compare it only between policies of the same task.

Legend: T steps of one episode, A action width.
"""

import numpy as np


def smoothness(actions_ta: np.ndarray, step_dt: float) -> float:
    """Sm of one episode, the mean over the action's dimensions.

    M_i = 2 / T |Y_i| are the amplitudes of the sinusoids that add up to the actions, i = 1 to
    floor(T / 2). The constant part (frequency 0) is left out.

    Args:
        step_dt: Seconds between actions.

    Raises:
        ValueError: For fewer than two actions, which have no frequency.
    """
    actions_ta = np.asarray(actions_ta, dtype=np.float64)
    steps = len(actions_ta)
    if steps < 2 or actions_ta.ndim != 2:
        raise ValueError(
            f"actions have shape {list(actions_ta.shape)}, expected [T, A] with T of 2 or more"
        )
    amplitudes = 2 / steps * np.abs(np.fft.rfft(actions_ta, axis=0)[1:])
    frequencies_hz = np.fft.rfftfreq(steps, step_dt)[1:]
    sums = (amplitudes * frequencies_hz[:, None]).sum(0)
    return float((2 * step_dt / len(frequencies_hz) * sums).mean())


def mean_difference(actions_ta: np.ndarray, order: int = 1) -> float:
    """Mean |a_t+1 - a_t| of one episode, over steps and dimensions.

    With `order` 2, the mean absolute second difference. 0 if the episode is too short.
    """
    differences = np.abs(np.diff(np.asarray(actions_ta, dtype=np.float64), order, axis=0))
    return float(differences.mean()) if differences.size else 0.0
