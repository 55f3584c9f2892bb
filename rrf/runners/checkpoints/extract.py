"""The policy of one robot, out of a checkpoint that was trained on several.

The copy acts as this robot: with its cameras, dimensions and statistics. Its weights are the same.
Its config names the datasets of this robot alone.
"""

import json
from pathlib import Path

from rrf import atomic
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.deployable import copy_deployable, load_lineage
from rrf.runners.configs import RunnerCfg
from rrf.runners.supervised.configs import SupervisedRunnerCfg


def extract(path: Path, embodiment: str, out: Path) -> Path:
    """Write the deployable checkpoint of robot `embodiment` into the directory `out`, atomically.

    Raises:
        ValueError: If the checkpoint was not trained on several robots, or not on this one; or if
            a file is missing, changed or unlisted.
    """
    cfg = RunnerCfg.from_dict(checkpoint.load_config(path))
    if not isinstance(cfg, SupervisedRunnerCfg) or not isinstance(cfg.policy, VLMPolicyCfg):
        raise ValueError(f"{path} was not trained on several robots")
    policy = cfg.policy
    if not policy.is_shared:
        raise ValueError(
            f"{path} is the policy of one robot already"
            + (f": {policy.embodiment}" if policy.embodiment else "")
        )
    of_robot = cfg.replace(policy=policy.of_robot(embodiment), **_data_of(cfg, embodiment))
    stats = checkpoint.load_norm_stats(path)[embodiment]
    with atomic.directory(out) as root:
        parent = copy_deployable(path, root)
        (root / checkpoint.CONFIG).write_text(of_robot.to_yaml(), encoding="utf-8")
        text = json.dumps(stats, indent=2, allow_nan=False) + "\n"
        (root / checkpoint.NORM_STATS).write_text(text, encoding="utf-8")
        manifest = atomic.read_manifest(root)
        facts = {key: value for key, value in manifest.items() if key != "files"}
        lineage = load_lineage(path).replace(parent_checkpoint=parent)
        atomic.write_manifest(root, **{**facts, "lineage": lineage.to_dict()})
    return out


def _data_of(cfg: SupervisedRunnerCfg, embodiment: str) -> dict:
    weights = {name: w for name, w in cfg.datasets.items() if cfg.robots.get(name) == embodiment}
    if not weights:  # a robot of the policy that this one was trained from
        return {"robots": {}, "mixture": {}}
    first, *others = weights
    mixture = {name: weights[name] / weights[first] for name in others}
    return {"dataset": first, "mixture": mixture, "robots": {}}
