"""The policy of the demo learns: recorded experts in, held-out initial states solved.

The whole path on a small scale: record two tasks, convert, train the demo's preset, evaluate closed
loop, beside policies that have learned nothing.
"""

import numpy as np
import pytest

from rrf import atomic
from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import load_dataset_cfg
from rrf.data.dataset.layout import NORM_STATS
from rrf.data.dataset.opening import open_dataset
from rrf.data.dataset.stats import norm_stats
from rrf.data.schema import ACTION
from rrf.envs.demonstrations.collect import CollectCfg, collect
from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.evaluation.vla.baselines import MeanActionPolicy, RandomPolicy
from rrf.evaluation.vla.configs import ProtocolCfg
from rrf.evaluation.vla.evaluate import evaluate
from rrf.presets import resolve
from rrf.runners.supervised.frames import open_split
from rrf.runners.supervised.runner import SupervisedRunner

TASKS = ["button-press-topdown-v3", "window-open-v3"]
PROTOCOL = ProtocolCfg(name="held-out", tasks=TASKS, seed=4242, episodes_per_task=10)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    root = tmp_path_factory.mktemp("learning")
    env = MetaWorldCfg(max_episode_steps=50)
    collect(CollectCfg(env=env, tasks=TASKS, episodes=12, out=str(root / "raw")))
    convert(load_dataset_cfg("metaworld-demo"), root / "raw", root / "data")
    atomic.write_json(root / "data" / NORM_STATS, norm_stats(root / "data"))
    return root / "data"


@pytest.fixture(scope="module")
def env():
    cfg = MetaWorldCfg(num_envs=PROTOCOL.num_slots, max_episode_steps=PROTOCOL.max_episode_steps)
    env = cfg.build()
    yield env
    env.close()


@pytest.mark.slow
def test_the_demo_policy_beats_random_and_mean_action_on_held_out_states(dataset, env, tmp_path):
    cfg = resolve("compact-vla-sft", {"max_steps": 400, "instructions": None, "trackers": []})
    split = open_split(dataset, cfg.policy.chunk_length, None, cfg.validation_fraction)
    runner = SupervisedRunner(cfg, split, tmp_path / "run")
    runner.run()
    trained = evaluate(runner.deployed, env, PROTOCOL).overall

    mean = np.array(open_dataset(dataset, chunk_length=2).norm_stats[ACTION]["mean"])
    nothing = [
        evaluate(policy, env, PROTOCOL).overall
        for policy in (RandomPolicy(2, 4), MeanActionPolicy(2, mean))
    ]
    # A wide margin: the 95 % Wilson bounds lie at least 30 points apart.
    assert trained.low >= max(rate.high for rate in nothing) + 0.3
