"""What two processes that torchrun started are tried with, one after the other, each in a folder of
its own: starting them takes longer than all of it."""

import sys
from pathlib import Path

from rrf.cli import quick_imports

quick_imports.begin()

from rrf.runners import process_group  # noqa: E402
from tests.runners.control import (  # noqa: E402
    distributed_fitness,
    distributed_learning,
    distributed_rollback,
)


def main(root: Path) -> None:
    process_group.join("cpu")
    for name, leave in {
        "learning": distributed_learning.leave_weights,
        "fitness": distributed_fitness.leave_total,
        "reward": distributed_rollback.leave_facts,
        "value": distributed_rollback.leave_facts,
    }.items():
        folder = root / name
        folder.mkdir(exist_ok=True)
        leave(folder)
    process_group.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
