"""Finds by trial and error how a demonstration must be bent to solve other initial states.

Black-box search for the parameters of a movement, as PoWER (Kober and Peters, 2009) and PI2
(Theodorou et al., 2010) do it: the demonstrated path of the hand is the movement, and two shifts of
it are its parameters. The path begins where it began, takes the first shift until the gripper's
command changes for the first time, and the second one until the end. The only thing that is ever
asked is whether the task was solved; where objects and goals are is not read.

    half of the tries:  first ~ N(0, u²), last = first or 0, plus N(0, v²), with u ~ U(0.01, 0.12) m
                        and v ~ U(0, 0.12) m
    the other half:     s_i + w (s_j - s_i) + N(0, 0.015²) with w ~ U(-0.7, 1.7), where s_i and s_j
                        solved other initial states of the task

The second half is the mutation of differential evolution (Storn and Price, 1997). Heights vary less
than places on a table do; the first half moves them by 0.3 times as much.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from rrf.envs.demonstrations.path import Bend

_SPREAD_M = (0.01, 0.12)
_ACROSS = np.array([1.0, 1.0, 0.3])  # x, y, z
_BETWEEN, _BESIDE_M = (-0.7, 1.7), 0.015


def search(
    play: Callable[[Mapping[int, Bend]], Iterable[int]],
    numbers: Iterable[int],
    trials: int,
    seed: tuple[int, ...],
) -> Iterator[dict[int, Bend]]:
    """Look for a bend that solves each of these attempts.

    Every attempt that is not solved is tried once in each sweep, so that what a sweep tries depends
    on the seed and on the sweeps before alone.

    Args:
        play: Plays attempts with these bends; gives those that succeeded, in any order.
        numbers: The attempts, each with an initial state of its own.
        trials: How often one is tried at most. The first try does not bend anything.
        seed: Of all that is drawn.

    Yields:
        What has been found so far, after every sweep.
    """
    waiting, found = list(numbers), {}
    for sweep in range(trials):
        if not waiting:
            break
        known = list(found.values())
        bends = {
            number: _drawn(np.random.default_rng([*seed, number, sweep]), known, sweep)
            for number in waiting
        }
        solved = sorted(play(bends))
        found |= {number: bends[number] for number in solved}
        waiting = [number for number in waiting if number not in found]
        yield found


def _drawn(rng: np.random.Generator, known: list[Bend], sweep: int) -> Bend:
    if sweep == 0:
        return Bend(np.zeros(3), np.zeros(3))
    if known and rng.random() < 0.5:
        one, other = (known[rng.integers(len(known))] for _ in range(2))
        weight = rng.uniform(*_BETWEEN)
        pairs = zip(one, other, strict=True)
        return Bend(*(a + weight * (b - a) + rng.normal(0, _BESIDE_M, 3) for a, b in pairs))
    first = rng.normal(0, 1, 3) * _ACROSS * rng.uniform(*_SPREAD_M)
    aside = rng.normal(0, 1, 3) * _ACROSS * rng.uniform(0, _SPREAD_M[1])
    return Bend(first, first * rng.integers(2) + aside)
