"""`python -m benchmarks.gate_characteristics`: how often a gate passes good and bad policies.

Candidates with known success rates are drawn and judged by the real gate, look after look. The two
policies of a pair succeed independently of each other, which is the hardest case for a comparison:
real policies fail on the same initial states more often than by chance. Two more tables need no
chance: what each attempt needs, and after how many attempts a gate passes nobody any more. The
tables go into docs/gates.md, each between two marks such as `<!-- attempts -->` and
`<!-- /attempts -->`.
"""

import bisect
import math
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks import markdown
from benchmarks.harness import parser_of
from benchmarks.record import ROOT
from rrf import atomic
from rrf.evaluation.gates.decision import Rival, decide, share_of
from rrf.evaluation.gates.gate import GateCfg, load_gate
from rrf.evaluation.intervals import clopper_pearson, noninferiority_p
from rrf.evaluation.results import EpisodeResult, Evaluation

PAGE = ROOT / "docs/gates.md"
GATES = ROOT / "configs/gates"
GATE = load_gate(GATES / "metaworld-demo.yaml")
ATTEMPTS = (1, 2, 3, 5, 10)
MOST = 50  # attempts that `last_passing` looks at
Rates = Sequence[float]  # success rate of each task


def report(solved: np.ndarray, digest: str, gate: GateCfg, look: int) -> Evaluation:
    """The first `look` episodes per task of `solved`, bool [task, episode]."""
    protocol = gate.protocol.replace(episodes_per_task=look)
    states = protocol.initial_states()
    tasks = list(dict.fromkeys(state.task for state in states))
    outcomes = {task: iter(solved[number].tolist()) for number, task in enumerate(tasks)}
    episodes = []
    for state in states:
        success = next(outcomes[state.task])
        episodes.append(EpisodeResult(state.task, state.seed, state.index, success, 10, 0.0))
    return Evaluation(protocol.to_dict(), protocol.hash, digest, episodes, {})


def draw(rates: Rates, gate: GateCfg, rng: np.random.Generator) -> np.ndarray:
    """Outcomes of a policy on all initial states of the last look, bool [task, episode]."""
    return rng.random((len(rates), gate.looks[-1])) < np.array(rates)[:, None]


def passes(
    mine: np.ndarray,
    gate: GateCfg,
    champion: np.ndarray | None = None,
    best: np.ndarray | None = None,
    attempt: int = 1,
) -> bool:
    """Whether the gate passes a candidate at any of its looks."""
    for round, look in enumerate(gate.looks):
        rival = Rival(report(champion, "champion", gate, look)) if champion is not None else None
        first = Rival(report(best, "best", gate, look)) if best is not None else None
        mine_seen = report(mine, "mine", gate, look)
        verdict = decide(mine_seen, gate, rival, first, round, attempt)
        if verdict.outcome != "hold":
            return verdict.passed
    return False


def share(gate: GateCfg, mine: Rates, champion: Rates | None, num: int, seed: int) -> float:
    """How often a candidate passes as a first attempt."""
    rng, passed = np.random.default_rng(seed), 0
    for _ in range(num):
        rival = draw(champion, gate, rng) if champion else None
        passed += passes(draw(mine, gate, rng), gate, rival)
    return passed / num


def any_of(gate: GateCfg, mine: Rates, attempts: int, num: int, seed: int) -> float:
    """How often at least one of several candidates passes that all should fail."""
    rng = np.random.default_rng(seed)
    lines = (
        any(passes(draw(mine, gate, rng), gate, attempt=k) for k in range(1, attempts + 1))
        for _ in range(num)
    )
    return sum(lines) / num


def lost_in_steps(
    gate: GateCfg, start: float, step: float, steps: int, num: int, seed: int, with_best: bool
) -> float:
    """Mean loss of success after candidates that are each a bit worse than the champion."""
    rng, tasks, losses = np.random.default_rng(seed), 6, []
    for _ in range(num):
        rate, attempt = start, 1
        best = champion = draw([start] * tasks, gate, rng)
        for _ in range(steps):
            mine = draw([rate - step] * tasks, gate, rng)
            other = best if with_best and best is not champion else None
            if passes(mine, gate, champion, other, attempt):
                champion, rate, attempt = mine, rate - step, 1
                best = max(best, mine, key=lambda solved: solved.mean())
            else:
                attempt += 1
        losses.append(start - rate)
    return float(np.mean(losses))


def table(num: int) -> str:
    """The table as markdown."""
    good, worst = [0.92] * 6, [0.92] * 5 + [0.60]
    shares = [
        ("no champion, true success at the threshold (50 %)", share(GATE, [0.5] * 6, None, num, 1)),
        ("no champion, true success 65 %", share(GATE, [0.65] * 6, None, num, 2)),
        ("champion 63 %, candidate 92 %", share(GATE, good, [0.63] * 6, num, 3)),
        ("champion 92 %, candidate 92 %", share(GATE, good, good, num, 4)),
        ("champion 92 %, candidate 82 % (the margin)", share(GATE, [0.82] * 6, good, num, 5)),
        ("champion 92 %, candidate 92 % but 60 % on one task", share(GATE, worst, good, num, 6)),
        (
            "30 candidates in a row at the threshold: any passes",
            any_of(GATE, [0.5] * 6, 30, num, 7),
        ),
    ]
    rows = []
    for what, rate in shares:
        error = 2 * math.sqrt(rate * (1 - rate) / num)
        rows.append((what, f"{100 * rate:.1f} % ± {100 * error:.1f}"))
    for with_best, what in ((True, "as it is"), (False, "without the best champion so far")):
        lost = lost_in_steps(GATE, 0.92, 0.024, 8, num, 8, with_best)
        steps = f"eight candidates, each 2.4 points below the champion, {what}"
        rows.append((steps, f"{100 * lost:.1f} points lost on average"))
    return markdown.table(("what is judged", "passes"), rows)


def fewest_solved(episodes: int, threshold: float, level: float) -> int | None:
    """The fewest solved episodes whose exact lower bound reaches a threshold; None if none does."""
    return _first(lambda k: clopper_pearson(k, episodes, 1 - 2 * level)[0] >= threshold, episodes)


def most_lost(pairs: int, margin: float, level: float) -> int | None:
    """The most pairs that may be lost, if none is won, to exclude a loss of `margin`; None if even
    no lost pair excludes it.
    """
    too_many = _first(lambda k: noninferiority_p(0, k, pairs, margin) > level, pairs)
    return pairs if too_many is None else too_many - 1 if too_many else None


def _first(holds: Callable[[int], bool], last: int) -> int | None:
    """The first number from 0 to `last` from which on something holds."""
    first = bisect.bisect_left(range(last + 1), True, key=holds)
    return first if first <= last else None


def attempts(gate: GateCfg) -> str:
    """What attempt 1, 2, ... needs at each look, as markdown."""
    looks = [look * _num_tasks(gate) for look in gate.looks]
    rows, columns = [], ["attempt", "share of the error", "level at each look"]
    columns += [f"solved of {_each(looks)}", f"lost of {_each(looks)}"]
    columns.append(f"lost of {_each(gate.looks)} on one task")
    for attempt in ATTEMPTS:
        level = gate.alpha * share_of(attempt) / len(gate.looks)
        solved = _each([fewest_solved(n, gate.overall_lower_bound, level) for n in looks])
        lost = _each([most_lost(n, gate.champion_margin, level) for n in looks])
        of_task = _each([most_lost(n, gate.task_margin, level) for n in gate.looks])
        share = f"{100 * share_of(attempt):.1f} %"
        rows.append((attempt, share, f"{level:.5f}", solved, lost, of_task))
    return markdown.table(columns, rows)


def _each(numbers: Sequence[int | None]) -> str:
    return " / ".join("–" if number is None else str(number) for number in numbers)


def last_passing(gate: GateCfg, champion: bool) -> int:
    """The last attempt, up to `MOST`, at which a candidate passes that solves every episode.

    If there is a champion, it solves every episode too: nothing can be won from it.
    """
    gate = gate.replace(limits={})
    solved = np.ones((_num_tasks(gate), gate.looks[-1]), bool)
    rival = solved if champion else None
    failing = _first(lambda k: not passes(solved, gate, rival, attempt=k + 1), MOST - 1)
    return MOST if failing is None else failing


def last_attempts() -> str:
    """What the first attempt needs of each gate, and how many attempts it can be passed in, as
    markdown.
    """
    rows, columns = [], ["gate", "episodes, all tasks", "solved of them, first attempt"]
    columns += ["attempts without a champion", "against a champion that solves all"]
    for file in sorted(GATES.glob("*.yaml")):
        gate = load_gate(file)
        looks = [look * _num_tasks(gate) for look in gate.looks]
        level = gate.alpha * share_of(1) / len(looks)
        solved = [fewest_solved(n, gate.overall_lower_bound, level) for n in looks]
        attempts = [last_passing(gate, champion) for champion in (False, True)]
        cells = (f"{MOST} and more" if k == MOST else k for k in attempts)
        rows.append((f"`{gate.name}`", _each(looks), _each(solved), *cells))
    return markdown.table(columns, rows)


def _num_tasks(gate: GateCfg) -> int:
    return len({state.task for state in gate.protocol.initial_states()})


def exact_tables() -> dict[str, str]:
    """The tables that need no chance, by their marks."""
    return {"attempts": attempts(GATE), "last attempts": last_attempts()}


def main() -> None:
    """Compute the tables and write them into the page."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--num", type=int, default=400, help="candidates per row; 0 leaves that table as it is"
    )
    num = parser.parse_args().num
    atomic.write_text(PAGE, markdown.filled(PAGE, exact_tables()))
    if num:
        atomic.write_text(PAGE, markdown.filled(PAGE, {"characteristics": table(num)}))


if __name__ == "__main__":
    main()
