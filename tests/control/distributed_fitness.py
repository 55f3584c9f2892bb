"""EPO's fitness, loaded by every process of a group; torchrun starts it, each leaves the total."""

import json
import sys
from pathlib import Path

from rrf.algorithms import EPOCfg, distributed
from rrf.runners.control import process_group
from tests.control import populations


def main(folder: Path) -> None:
    process_group.join("cpu")
    policy = populations.population(width=1, learn_latents=False, num_members=5)
    learner = populations.learner(EPOCfg(), policy, num_envs=5)
    learner._sums += 6.0
    learner.load_state(*learner.state())
    total = distributed.total(learner._sums)
    (folder / f"{process_group.rank()}.json").write_text(json.dumps(total.tolist()))
    process_group.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
