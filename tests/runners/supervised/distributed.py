"""What two processes that torchrun started are tried with in `test_parallel_training`."""

import sys
from pathlib import Path

from rrf.config import parse_overrides
from rrf.runners import process_group
from rrf.runners.interruption import Interrupted
from tests.runners.supervised.conftest import tiny_run_cfg
from tests.runners.supervised.parallel_cases import CASES, StopAtOnce


def main(root: Path, dataset: str) -> None:
    process_group.join("cpu")
    for name, changes in CASES.items():
        cfg = tiny_run_cfg(dataset).override(parse_overrides(changes))
        cfg.build(root / name).run()
    # SIGTERM reaches the second process only; both save and stop in the same step.
    signals = StopAtOnce(process_group.rank() == 1)
    cfg = tiny_run_cfg(dataset).override(parse_overrides(CASES["replicated"]))
    try:
        cfg.build(root / "stopped").run(signals=signals)
    except Interrupted as stop:
        (root / f"stopped-{process_group.rank()}").write_text(str(stop.code))
    process_group.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
