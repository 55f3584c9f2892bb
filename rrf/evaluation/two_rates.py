"""Two success rates of independent samples: intervals of their difference, and an exact test.

Trials of two policies on different scenes are not pairs. Where they are, `rrf.evaluation.intervals`
has what is sharper. All functions are pure functions of counts.
"""

import math

from rrf.evaluation.intervals import wilson, z_value

_STEPS = 200  # of bisection


def newcombe(k1: int, n1: int, k2: int, n2: int, confidence: float = 0.95) -> tuple[float, float]:
    """Bounds of the first rate minus the second (Newcombe, Stat. Med. 17:873, 1998, method 10).

    Args:
        k1: Successes of the first.
        n1: Trials of the first, at least one.
        k2: Successes of the second.
        n2: Trials of the second.
        confidence: Of the two-sided interval.
    """
    p1, p2 = k1 / n1, k2 / n2
    (l1, u1), (l2, u2) = wilson(k1, n1, confidence), wilson(k2, n2, confidence)
    low = p1 - p2 - math.hypot(p1 - l1, u2 - p2)
    high = p1 - p2 + math.hypot(u1 - p1, p2 - l2)
    return max(-1.0, low), min(1.0, high)


def miettinen_nurminen(
    k1: int, n1: int, k2: int, n2: int, confidence: float = 0.95
) -> tuple[float, float]:
    """Bounds of the first rate minus the second by the score test (Stat. Med. 4:213, 1985). The
    arguments are those of `newcombe`.
    """
    z, observed = z_value(confidence), k1 / n1 - k2 / n2

    def end(sign: float) -> float:
        """The difference beyond which the score test rejects."""
        inside, outside = observed, -sign
        for _ in range(_STEPS):
            middle = (inside + outside) / 2
            if sign * _score(k1, n1, k2, n2, middle) < z:
                inside = middle
            else:
                outside = middle
        return inside

    return max(-1.0, end(1.0)), min(1.0, end(-1.0))


def boschloo_p(k1: int, n1: int, k2: int, n2: int) -> float:
    """Two-sided p-value of Boschloo's exact unconditional test of equal rates (Stat. Neerl. 24:1,
    1970): twice the smaller one-sided one. The arguments are those of `newcombe`.
    """
    from scipy.stats import boschloo_exact

    return float(boschloo_exact([[k1, k2], [n1 - k1, n2 - k2]]).pvalue)


def _score(k1: int, n1: int, k2: int, n2: int, difference: float) -> float:
    """The score statistic of a difference, with the correction N / (N - 1)."""
    p2 = _most_likely_second(k1, n1, k2, n2, difference)
    p1 = min(1.0, max(0.0, p2 + difference))
    total = n1 + n2
    variance = (p1 * (1 - p1) / n1 + p2 * (1 - p2) / n2) * total / (total - 1)
    ahead = k1 / n1 - k2 / n2 - difference
    if variance <= 1e-15:
        return 0.0 if abs(ahead) < 1e-12 else math.copysign(math.inf, ahead)
    return ahead / math.sqrt(variance)


def _most_likely_second(k1: int, n1: int, k2: int, n2: int, difference: float) -> float:
    """The most likely second rate if the first is larger by `difference`: bisection of the slope of
    the likelihood, which falls.
    """
    low, high = max(0.0, -difference), min(1.0, 1.0 - difference)
    if high <= low:
        return low

    def slope(p2: float) -> float:
        total = 0.0
        for k, n, p in ((k1, n1, p2 + difference), (k2, n2, p2)):
            total += k / p if k else 0.0
            total -= (n - k) / (1 - p) if n > k else 0.0
        return total

    for _ in range(_STEPS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        p1 = middle + difference
        if p1 <= 0 or middle <= 0:
            low = middle
        elif p1 >= 1 or middle >= 1:
            high = middle
        elif slope(middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
