"""Confidence intervals and tests for a success rate and for the difference between two policies.

Wilson score interval (Wilson 1927; Newcombe, Stat. Med. 17:857, 1998), exact McNemar test (McNemar
1947), adjusted Wald interval for a paired difference (Bonett & Price, Br. J. Math. Stat. Psychol.
65:479, 2012). All functions are pure functions of counts.
"""

import math
from statistics import NormalDist


def wilson(successes: int, episodes: int, confidence: float = 0.95) -> tuple[float, float]:
    """Two-sided Wilson score bounds of a success rate; (0, 1) without episodes.

    For a one-sided bound at level alpha pass `confidence = 1 - 2 * alpha`.

    Raises:
        ValueError: For negative counts or more successes than episodes.
    """
    if not 0 <= successes <= episodes:
        raise ValueError(f"{successes} successes in {episodes} episodes is impossible")
    if episodes == 0:
        return 0.0, 1.0
    z = z_value(confidence)
    rate = successes / episodes
    scale = 1 + z * z / episodes
    center = (rate + z * z / (2 * episodes)) / scale
    half = z * math.sqrt(rate * (1 - rate) / episodes + z * z / (4 * episodes * episodes)) / scale
    low = 0.0 if successes == 0 else max(0.0, center - half)
    high = 1.0 if successes == episodes else min(1.0, center + half)
    return low, high


def mcnemar_p(wins: int, losses: int) -> float:
    """Exact one-sided p-value of "the first policy wins no more often than it loses".

    The arguments count the pairs in which the two policies differ. The value is P(X >= wins) with
    X ~ Binomial(wins + losses, 1/2). Small values are evidence that the first policy is better.
    """
    pairs = wins + losses
    return sum(math.comb(pairs, k) for k in range(wins, pairs + 1)) / 2**pairs


def paired_difference(
    wins: int, losses: int, pairs: int, confidence: float = 0.95
) -> tuple[float, float, float]:
    """Difference in success rate of two policies on the same initial states, with bounds.

    Args:
        wins: Pairs in which only the first policy succeeded.
        losses: Pairs in which only the second policy succeeded.
        pairs: All pairs, including those in which both had the same outcome.
        confidence: Of the two-sided interval (Bonett-Price: one win and one loss are added).

    Returns:
        (difference, low, high).
    """
    if not 0 <= wins + losses <= pairs or min(wins, losses) < 0:
        raise ValueError(f"{wins} wins and {losses} losses in {pairs} pairs is impossible")
    win_rate, loss_rate = (wins + 1) / (pairs + 2), (losses + 1) / (pairs + 2)
    center = win_rate - loss_rate
    half = z_value(confidence) * math.sqrt((win_rate + loss_rate - center**2) / (pairs + 2))
    difference = (wins - losses) / pairs if pairs else 0.0
    return difference, max(-1.0, center - half), min(1.0, center + half)


def episodes_to_decide(
    rate: float, threshold: float, confidence: float = 0.95, limit: int = 100_000
) -> int:
    """Fewest episodes whose Wilson interval excludes `threshold` if `rate` stays the same.

    Args:
        rate: The success rate observed so far.
        threshold: The rate to distinguish it from.
        confidence: Of the two-sided interval.
        limit: The answer if `limit` episodes or more are needed, or if no number is enough.
    """
    distance = abs(rate - threshold)
    if distance == 0:
        return limit
    # The Wilson bounds solve |rate - p| = z sqrt(p (1 - p) / n) for p. Here p is given, and the
    # equation is solved for n.
    needed = z_value(confidence) ** 2 * threshold * (1 - threshold) / distance**2
    return min(limit, max(1, math.ceil(needed)))


def pairs_to_decide(
    wins: int,
    losses: int,
    pairs: int,
    threshold: float,
    confidence: float = 0.95,
    limit: int = 100_000,
) -> int:
    """Fewest pairs whose interval excludes `threshold` if the rates stay the same, at most `limit`.

    The arguments are those of `paired_difference`; `threshold` is a difference in success rate.
    """
    win_rate, loss_rate = (wins + 1) / (pairs + 2), (losses + 1) / (pairs + 2)
    difference = win_rate - loss_rate
    distance = abs(difference - threshold)
    if distance == 0:
        return limit
    variance = win_rate + loss_rate - difference**2
    return min(limit, math.ceil(z_value(confidence) ** 2 * variance / distance**2))


def z_value(confidence: float) -> float:
    """The normal quantile of a two-sided interval: 1.96 for 0.95."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} is not between 0 and 1")
    return NormalDist().inv_cdf((1 + confidence) / 2)
