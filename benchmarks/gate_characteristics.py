"""`python -m benchmarks.gate_characteristics`: how often a gate passes good and bad policies.

Candidates with known success rates are drawn and judged by the real gate, look after look. The two
policies of a pair succeed independently of each other, which is the hardest case for a comparison:
real policies fail on the same initial states more often than by chance. The table goes into
docs/gates.md, between the marks `<!-- characteristics -->` and `<!-- /characteristics -->`.
"""

import argparse
import math
import re
from collections.abc import Sequence

import numpy as np

from benchmarks.record import ROOT
from rrf import atomic
from rrf.evaluation.gates.gate import GateCfg, Rival, load_gate, verdict
from rrf.evaluation.results import EpisodeResult, EvaluationReport

PAGE = ROOT / "docs/gates.md"
GATE = load_gate(ROOT / "configs/gates/metaworld-demo.yaml")
Rates = Sequence[float]  # success rate of each task


def report(solved: np.ndarray, digest: str, gate: GateCfg, look: int) -> EvaluationReport:
    """The first `look` episodes per task of `solved`, bool [task, episode]."""
    protocol = gate.protocol.replace(episodes_per_task=look)
    states = protocol.initial_states()
    tasks = list(dict.fromkeys(state.task for state in states))
    outcomes = {task: iter(solved[number].tolist()) for number, task in enumerate(tasks)}
    episodes = []
    for state in states:
        success = next(outcomes[state.task])
        episodes.append(EpisodeResult(state.task, state.seed, state.index, success, 10, 0.0))
    return EvaluationReport(protocol.to_dict(), protocol.hash, digest, episodes, {})


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
        theirs = Rival(report(champion, "champion", gate, look)) if champion is not None else None
        first = Rival(report(best, "best", gate, look)) if best is not None else None
        mine_seen = report(mine, "mine", gate, look)
        found = verdict(mine_seen, gate, theirs, first, round, attempt)
        if found.outcome != "hold":
            return found.passed
    return False


def share(gate: GateCfg, mine: Rates, champion: Rates | None, num: int, seed: int) -> float:
    """How often a candidate passes as a first attempt."""
    rng, passed = np.random.default_rng(seed), 0
    for _ in range(num):
        theirs = draw(champion, gate, rng) if champion else None
        passed += passes(draw(mine, gate, rng), gate, theirs)
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
    rows = [
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
    lines = ["| what is judged | passes |", "|---|---|"]
    for what, rate in rows:
        error = 2 * math.sqrt(rate * (1 - rate) / num)
        lines.append(f"| {what} | {100 * rate:.1f} % ± {100 * error:.1f} |")
    few = max(10, num // 20)
    for with_best, what in ((True, "as it is"), (False, "without the best champion so far")):
        lost = lost_in_steps(GATE, 0.92, 0.024, 8, few, 8, with_best)
        steps = f"eight candidates, each 2.4 points below the champion, {what}"
        lines.append(f"| {steps} | {100 * lost:.1f} points lost on average |")
    return "\n".join(lines)


def main() -> None:
    """Compute the table and write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num", type=int, default=400, help="candidates per row")
    num = parser.parse_args().num
    text = PAGE.read_text()
    marks = "<!-- characteristics -->\n{}\n<!-- /characteristics -->"
    filled = marks.format(f"\n{table(num)}\n")
    pattern = r"<!-- characteristics -->.*<!-- /characteristics -->"
    atomic.write_text(PAGE, re.sub(pattern, lambda _: filled, text, flags=re.S))


if __name__ == "__main__":
    main()
