"""A one-sided CUSUM of failed episodes, with a threshold whose false alarms are computed exactly.

After each night, the statistic is S = max(0, S + failures - allowance), and S >= threshold is an
alarm (E. S. Page, Biometrika 41:100, 1954). The allowance is that of the likelihood ratio between
two success rates, the one to keep and the one to detect (M. R. Reynolds Jr. & Z. G. Stoumbos, J.
Quality Technology 31:87, 1999, for single episodes; here the episodes of a night come at once).

The rate to keep is not the success at promotion, which a few dozen episodes tell only roughly, but
its exact lower bound (Clopper-Pearson). The rate to detect is `SHIFT` lower. S moves in eighths of
an episode and is therefore a finite Markov chain: the chance that it reaches a threshold within
some nights, and the mean number of nights until it does, are sums and not simulations. Bound and
threshold share the chance of a false alarm, so the chance that is asked for includes that the
promotion's evaluation was lucky. It does not include that the best of many candidates was chosen.

All this is about nights that are independent draws. A night that repeats an earlier one tells
nothing new and must not be given to the rule (`rrf.evaluation.nightly.series`).
"""

import dataclasses
import functools
import math

import numpy as np

from rrf.evaluation.intervals import clopper_pearson

SHIFT = 0.10
"""The fall of success below its lower bound that the rule is tuned to. Larger ones show sooner."""
NIGHTS = 365
"""The span over which the chance of a false alarm is limited."""
_BOUND_SHARE = 0.75  # of the chance of a false alarm; the threshold needs less of it
_EIGHTHS = 8
_NEVER = 1e6  # nights


@dataclasses.dataclass(frozen=True)
class Cusum:
    """The rule for one series of nights."""

    episodes: int
    """Episodes per night."""
    kept: float
    """The lowest success rate that counts as unchanged."""
    eighths: int
    """The allowance: failures per night that leave the statistic where it is, times 8."""
    limit: int
    """The threshold, times 8."""

    @property
    def allowance(self) -> float:
        """Failures per night that leave the statistic where it is."""
        return self.eighths / _EIGHTHS

    @property
    def threshold(self) -> float:
        """The statistic from which on there is an alarm, in failures."""
        return self.limit / _EIGHTHS

    def after(self, statistic: float, successes: int, episodes: int) -> float:
        """The statistic after another night.

        Raises:
            ValueError: If the night has another number of episodes than the rule was made for.
        """
        if episodes != self.episodes:
            raise ValueError(
                f"the rule is for {self.episodes} episodes per night, but this night has {episodes}"
            )
        return max(0.0, statistic + (episodes - successes) - self.allowance)

    @property
    def false_alarm(self) -> float:
        """The chance of an alarm within `NIGHTS` independent nights at the success rate `kept`."""
        return self.alarm_chance(self.kept)

    def alarm_chance(self, success: float, nights: int = NIGHTS) -> float:
        """The chance of an alarm within a number of independent nights at a success rate."""
        steps = self._transitions(success)
        state_chances = np.zeros(self.limit)
        state_chances[0] = 1
        for _ in range(nights):
            state_chances = state_chances @ steps
        return float(max(0.0, 1 - state_chances.sum()))

    def mean_nights(self, success: float) -> float:
        """The mean number of independent nights until the alarm at a success rate; inf above a
        million.
        """
        steps = self._transitions(success)
        try:
            nights = np.linalg.solve(np.eye(self.limit) - steps, np.ones(self.limit))[0]
        except np.linalg.LinAlgError:
            return math.inf
        return float(nights) if 1 <= nights <= _NEVER else math.inf

    def _transitions(self, success: float) -> np.ndarray:
        """The chance of each step between two statistics below the limit, float64 [limit, limit].
        What a row lacks to 1 is the chance of an alarm.
        """
        failures = _binomial(self.episodes, 1 - success)
        states, counts = np.arange(self.limit), np.arange(len(failures))
        after = np.maximum(0, states[:, None] + _EIGHTHS * counts - self.eighths)
        row, count = np.nonzero(after < self.limit)
        steps = np.zeros((self.limit, self.limit))
        np.add.at(steps, (row, after[row, count]), failures[count])
        return steps


@functools.lru_cache(maxsize=1024)
def cusum(successes: int, episodes: int, per_night: int, false_alarm: float) -> Cusum | None:
    """The rule for a policy that solved `successes` of `episodes` when it was promoted.

    Args:
        successes: Solved episodes at promotion.
        episodes: All episodes at promotion.
        per_night: Episodes per night.
        false_alarm: The largest chance of an alarm within `NIGHTS` independent nights without a
            fall, whatever the true success rate is.

    Returns:
        The rule; None if nothing was solved, because then there is nothing to lose.

    Raises:
        ValueError: For counts that are impossible, or a chance outside (0, 1).
    """
    if not 0 < false_alarm < 1 or per_night < 1:
        raise ValueError(
            f"a rule for {per_night} episodes and a false-alarm chance of {false_alarm} is "
            "impossible; both must be above 0, and the chance below 1"
        )
    bound_error = _BOUND_SHARE * false_alarm
    kept = clopper_pearson(successes, episodes, 1 - 2 * bound_error)[0]
    if kept == 0:
        return None
    detected = max(kept - SHIFT, kept / 2)
    worse = math.log(kept / detected)  # by one success, the log-likelihood ratio falls by this ...
    share = worse / (worse + math.log((1 - detected) / (1 - kept)))  # ... and rises by the rest
    eighths = round(_EIGHTHS * share * per_night)

    def rule(limit: int) -> Cusum:
        return Cusum(per_night, kept, eighths, limit)

    def is_enough(limit: int) -> bool:
        return rule(limit).false_alarm <= false_alarm - bound_error

    high = _EIGHTHS
    while not is_enough(high):
        high *= 2
    low = high // 2 if high > _EIGHTHS else 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return rule(high)


def _binomial(episodes: int, rate: float) -> np.ndarray:
    """The distribution of the number of failures, float64 [episodes + 1]."""
    from scipy.special import gammaln, xlog1py, xlogy

    k = np.arange(episodes + 1)
    ways = gammaln(episodes + 1) - gammaln(k + 1) - gammaln(episodes - k + 1)
    return np.exp(ways + xlogy(k, rate) + xlog1py(episodes - k, -rate))
