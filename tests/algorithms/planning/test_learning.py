"""TD-MPC2 and TD-MPC learn a tiny task; in `make test-all` they learn the pendulum."""

import pytest

from rrf.policies import WorldModelPackCfg
from rrf.presets import resolve
from tests.algorithms.off_policy.test_learning import PENDULUM, TEST_SEED, greedy_return, learn
from tests.algorithms.planning.toy import ALGORITHMS
from tests.envs.toy import CorridorCfg


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_end_of_a_corridor_is_reached(name):
    algorithm, model = ALGORITHMS[name]
    cfg = algorithm.replace(warmup_steps=200, pretraining_updates=60, updates_per_step=0.15)
    pack = WorldModelPackCfg(actor_cfg=model)
    # Standing still returns -16.2, the best there is -5.85.
    assert learn(CorridorCfg(num_envs=4), cfg, pack, 600, target=0) >= -9.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pendulum-tdmpc2", "pendulum-tdmpc"])
def test_the_pendulum_swings_up_within_10000_steps(tmp_path, name):
    runner = resolve(name, ["save_interval=10", "trackers=[]"]).build(tmp_path)
    runner.run()
    assert greedy_return(PENDULUM, runner.policy, TEST_SEED) >= -200
