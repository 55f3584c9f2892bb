"""What studies on a robot decide, after how many trials: `python -m benchmarks.trials [ID ...]`.

Two arms with known success rates are tried in blocks, one trial of each in one condition, as
`rrf trial` plays them, and the comparison of the gate is asked after every block
(`rrf.evaluation.gates.anytime.log_e_pairs`). At most 60 blocks; ten points may be lost; level 5 %.
"""

import math
import statistics

import numpy as np

from benchmarks import harness
from benchmarks.harness import Bench
from rrf.evaluation.gates.anytime import log_e_pairs
from rrf.evaluation.intervals import clopper_pearson

KINDS = {"better": (0.85, 0.5), "good": (0.9, 0.7), "equal": (0.8, 0.8), "worse": (0.7, 0.8)}
"""Kind of candidate -> its success rate, and the champion's."""
BLOCKS, MARGIN, LEVEL = 60, 0.1, 0.05
NUM, SEED = 1_000, 0


def study(kind: str, number: int) -> tuple[str, int]:
    """What is decided, and after how many blocks."""
    rng = np.random.default_rng([SEED, number, list(KINDS).index(kind)])
    solved = (rng.random((BLOCKS, 2)) < KINDS[kind]).astype(int)
    limit = -math.log(LEVEL)
    for blocks in range(1, BLOCKS + 1):
        good, bad = log_e_pairs(solved[:blocks], 1, MARGIN)
        if bad >= limit:
            return "fail", blocks
        if good >= limit:
            return "pass", blocks
    return "undecided", BLOCKS


def passes(bench: Bench, kind: str) -> dict:
    """How many studies a kind of candidate passes."""
    num = bench.size(NUM, 5)
    found = [study(kind, number) for number in range(num)]
    verdicts = [verdict for verdict, _ in found]
    low, high = clopper_pearson(verdicts.count("pass"), num)
    row = bench.number(
        f"trials_{kind}", verdicts.count("pass"), f"of {num} studies pass", seeds=(SEED,)
    )
    return row | {
        "low": round(low, 4),
        "high": round(high, 4),
        "fail": verdicts.count("fail"),
        "blocks": round(statistics.mean(blocks for _, blocks in found), 1),
        "rates": KINDS[kind],
    }


IDS = {f"trials_{kind}": lambda bench, kind=kind: passes(bench, kind) for kind in KINDS}

if __name__ == "__main__":
    harness.main("trials", __doc__, IDS)
