"""EPO's fitness, loaded by every process of a group; each leaves the total."""

import json
from pathlib import Path

from rrf.algorithms import EPOCfg, distributed
from rrf.runners import process_group
from tests.algorithms.on_policy import populations


def leave_total(folder: Path) -> None:
    policy = populations.population(width=1, learn_latents=False, num_members=5)
    learner = populations.learner(EPOCfg(), policy, num_envs=5)
    learner._sums += 6.0
    learner.load_state(*learner.state())
    total = distributed.total(learner._sums)
    (folder / f"{process_group.rank()}.json").write_text(json.dumps(total.tolist()))
