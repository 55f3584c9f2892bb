"""Episodes of several tasks in a row: instructions, horizons, and how they are evaluated."""

import numpy as np
import pytest

from rrf.cli.evaluation import summary
from rrf.data.dataset.history import Past
from rrf.envs.vec_env import InitialState
from rrf.evaluation.gates.decision import decide
from rrf.evaluation.gates.gate import GateCfg
from rrf.evaluation.protocols.limits import MeanLimitCfg
from rrf.evaluation.reports.report import write_report
from rrf.evaluation.vla.configs import CHAIN_LENGTH, ChainProtocolCfg
from rrf.evaluation.vla.evaluate import evaluate
from rrf.policies.policy import Sample
from tests.envs.foreign.configs import ErrandsCfg

CFG = ErrandsCfg(num_envs=2, chunk_length=4, max_episode_steps=6)


def starts(count):
    return [InitialState("chain", 1, index) for index in range(count)]


def chunks(*speeds):
    """Chunks of four actions that move the dots this fast."""
    actions = np.zeros((len(speeds), 4, 4), np.float32)
    actions[:, :, 0] = np.array(speeds)[:, None]
    return actions


@pytest.fixture
def env(home):
    env = CFG.build()
    yield env
    env.close()


def test_a_task_that_is_done_ends_the_chunk_and_begins_the_next(env):
    begun = env.reset(starts(2))
    assert begun.instruction == ["do the first"] * 2
    step = env.step(chunks(1.0, 0.0))
    assert step.steps.tolist() == [2, 4]  # 0.1 is not past 0.1, 0.2 is
    assert step.reward.tolist() == [1.0, 0.0]
    assert step.observation.instruction == ["do the second", "do the first"]
    assert not (step.terminated | step.truncated).any()


def test_each_task_has_its_own_horizon(env):
    env.reset(starts(2))
    env.step(chunks(1.0), [0])  # two of the six steps
    assert env.step(chunks(0.0), [0]).steps.tolist() == [4]
    step = env.step(chunks(0.0), [0])
    assert step.steps.tolist() == [2]
    assert step.truncated.tolist() == [True]
    assert step.observation.instruction == ["do the second"]


def test_a_chunk_whose_last_step_is_the_last_of_the_task_begins_the_next_with_a_picture(env):
    env.reset(starts(1), [0])
    env.step(chunks(0.0), [0])
    step = env.step(chunks(1.0), [0])  # two steps are left, and the second one does it
    assert step.steps.tolist() == [2]
    assert not step.truncated[0]
    assert step.observation.images["corner2"].any()


def test_all_tasks_done_is_a_success(env):
    env.reset(starts(1), [0])
    rewards = [env.step(chunks(1.0), [0]) for _ in range(3)]
    assert [step.reward.tolist() for step in rewards] == [[1.0]] * 3
    assert [step.success.tolist() for step in rewards] == [[False], [False], [True]]


class Runner:
    """Drives until the third task, and notes what it sees of the step before."""

    chunk_length, action_dim, state_dim = 4, 4, 8
    past = Past(states=1, stride=4)

    def __init__(self):
        self.seen = []

    def sample(self, observation, generator=None, greedy=False):
        is_the_same = bool((observation.state[0, :4] == observation.state[0, 4:]).all())
        self.seen.append((observation.instruction[0], is_the_same))
        speeds = [0.0 if "third" in text else 1.0 for text in observation.instruction]
        return Sample(actions=chunks(*speeds), log_prob=None, replay={})


def test_a_chain_is_measured_by_how_many_tasks_are_done_in_a_row(env, tmp_path):
    protocol = ChainProtocolCfg(
        name="errands",
        env="calvin",  # for the number of its chains; the episodes are played in `env`
        tasks=["chain"],
        seed=1,
        episodes_per_task=3,
        max_episode_steps=6,
        execute_steps=4,
        inference_batch=1,
    )
    policy = Runner()
    evaluation = evaluate(policy, env, protocol, label="runner")
    assert [episode.success for episode in evaluation.episodes] == [False] * 3
    assert evaluation.mean_metrics() == {
        CHAIN_LENGTH: 2.0,
        "at_least_1": 1.0,
        "at_least_2": 1.0,
        **dict.fromkeys(["at_least_3", "at_least_4", "at_least_5"], 0.0),
    }
    mean, low, high = evaluation.bounds_of(CHAIN_LENGTH, 5)
    assert low < mean == 2.0 < high
    # Of the task before, the policy remembers nothing: it begins anew with every instruction.
    first_of_each = {text: same for text, same in reversed(policy.seen)}
    assert first_of_each == dict.fromkeys(["do the first", "do the second", "do the third"], True)
    assert "mean chain_length 2.000" in summary(evaluation)
    for least, outcome in ((2.0, "pass"), (2.5, "fail")):
        limits = {CHAIN_LENGTH: MeanLimitCfg(min=least)}
        gate = GateCfg(
            name="g", protocol=protocol, overall_lower_bound=0.0, limits=limits, looks=[3]
        )
        checks = {check.name: check for check in decide(evaluation, gate).checks}
        assert checks[CHAIN_LENGTH].outcome == outcome
    evaluation.save(tmp_path / "evaluation.json")
    page = write_report(tmp_path).read_text()
    assert "mean chain length of 5" in page
    assert f"{mean:.2f} [{low:.2f}, {high:.2f}]" in page
