"""Rules of execution in an evaluation: numbers worked by hand, and the controllers of robots."""

import threading

import numpy as np
import pytest
import torch

from rrf.client.controllers import RealTimeChunking, RecedingHorizon, TemporalEnsemble
from rrf.data.schema import ACTION, STATE
from rrf.envs.vec_env import InitialState
from rrf.evaluation.candidate import Candidate
from rrf.evaluation.vla.baselines import RandomPolicy
from rrf.evaluation.vla.configs import ProtocolCfg
from rrf.evaluation.vla.evaluate import evaluate
from rrf.evaluation.vla.execution_configs import (
    ExecutionCfg,
    RealTimeChunkingCfg,
    RecedingHorizonCfg,
    TemporalEnsembleCfg,
)
from rrf.evaluation.vla.play import played_protocol, replay
from rrf.lineage import Lineage
from rrf.networks.vlm.configs import TokenizerCfg
from rrf.networks.vlm.mock_configs import MockBackboneCfg
from rrf.policies.policy import Sample
from rrf.policies.vla.configs import FlowMatchingHeadCfg, RegressionHeadCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from tests.evaluation.vla.point_mass import GoTowards, PointMassVecEnv

PROTOCOL = ProtocolCfg(
    name="point-mass",
    env="point",
    tasks=["reach", "far"],
    seed=4242,
    episodes_per_task=3,
    max_episode_steps=12,
)
ENSEMBLE = PROTOCOL.replace(execution=TemporalEnsembleCfg(rate=0.5), execute_steps=1)
REAL_TIME = PROTOCOL.replace(execution=RealTimeChunkingCfg(delay_steps=1))
RULES = {"horizon": PROTOCOL, "ensemble": ENSEMBLE, "real time": REAL_TIME}


class Steering:
    """Chunks that depend on where the point is, and on the running chunk."""

    chunk_length, action_dim = 4, 2

    def __init__(self):
        self.asked = []

    def sample(self, observation, generator=None, greedy=False) -> Sample:
        away_b2 = observation.state[:, 2:] - observation.state[:, :2]
        turns_h1 = np.array([0.1, 0.2, 0.3, 0.4], np.float32)[:, None]
        return Sample(away_b2[:, None] * turns_h1, None, {})

    def resume(self, observation, running, num_frozen, generator=None, greedy=False):
        self.asked.append((running[0], num_frozen))
        chunks = -self.sample(observation).actions
        chunks[:, :num_frozen] = running[:, :num_frozen]
        chunks[:, num_frozen : running.shape[1]] += 0.5 * running[:, num_frozen:]
        return chunks


class Script(Steering):
    """Says the same in every first chunk and in every later one."""

    def sample(self, observation, generator=None, greedy=False) -> Sample:
        chunk = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
        return Sample(np.tile(chunk[:, None], (len(observation), 1, 2)), None, {})

    def resume(self, observation, running, num_frozen, generator=None, greedy=False):
        super().resume(observation, running, num_frozen)
        chunks = self.sample(observation).actions + 0.5
        chunks[:, :num_frozen] = running[:, :num_frozen]
        return chunks


def env_of(protocol, num_envs=1):
    return PointMassVecEnv(num_envs, chunk_length=protocol.execute_steps)


def test_a_new_chunk_begins_with_the_delay_of_the_running_one():
    policy, protocol = Script(), REAL_TIME.replace(tasks=["far"], episodes_per_task=1)
    actions = evaluate(policy, env_of(protocol), protocol).episodes[0].actions
    assert actions is not None
    # the first chunk .1 .2 | .3 .4; it continues as .3 (frozen) .7 .8 .9, and so on
    expected = [0.1, 0.2, 0.3, 0.7, 0.8, 0.7, 0.8, 0.7, 0.8, 0.7, 0.8, 0.7]
    assert actions[:, 0].tolist() == pytest.approx(expected)
    rests = [(rest[:, 0].round(6).tolist(), frozen) for rest, frozen in policy.asked[:2]]
    assert rests == [(pytest.approx([0.3, 0.4]), 1), (pytest.approx([0.8, 0.9]), 1)]


def test_an_ensemble_executes_the_mean_of_all_chunks_about_a_step():
    protocol = ENSEMBLE.replace(
        tasks=["far"], episodes_per_task=1, execution=TemporalEnsembleCfg(rate=np.log(2))
    )
    actions = evaluate(Script(), env_of(protocol), protocol).episodes[0].actions
    assert actions is not None
    # weights 1, 1/2, 1/4, 1/8, the oldest first: .1; (.2 + .1/2) / 1.5; ...
    later = (0.4 + 0.3 / 2 + 0.2 / 4 + 0.1 / 8) / 1.875
    expected = [0.1, 0.25 / 1.5, (0.3 + 0.2 / 2 + 0.1 / 4) / 1.75, *[later] * 9]
    assert actions[:, 0].tolist() == pytest.approx(expected)


class Answers:
    """A policy that a robot asks; its later answers come when they are released."""

    def __init__(self, policy):
        self.policy, self.released = policy, threading.Semaphore(0)

    def infer(self, observation):
        return self.policy.sample(observation).actions[0]

    def resume(self, observation, running, num_frozen):
        if len(running) == 0:
            return self.infer(observation)
        assert self.released.acquire(timeout=5)
        return self.policy.resume(observation, running[None], num_frozen)[0]


def driven(state, controller, before_step=lambda: None):
    """The actions of an episode of a robot that executes one at a time."""
    env, actions, is_over = PointMassVecEnv(1, chunk_length=1), [], False
    observation = env.reset([state])
    while not is_over:
        before_step()
        actions.append(controller.act(observation))
        step = env.step(actions[-1][None, None])
        observation, is_over = step.observation, step.terminated[0] or step.truncated[0]
    return np.stack(actions)


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_an_episode_is_the_one_that_real_time_chunking_drives_on_a_robot(delay):
    protocol = REAL_TIME.replace(execution=RealTimeChunkingCfg(delay_steps=delay))
    report = evaluate(Steering(), env_of(protocol, 2), protocol)
    for episode in report.episodes[::2]:
        answers = Answers(Steering())
        with RealTimeChunking(answers.resume, execute=2, first_delay=delay) as controller:

            def answer_in_time(controller=controller, answers=answers):
                if controller._pending and controller._since_request == delay:
                    answers.released.release()
                    controller._pending.result(timeout=5)

            if delay == 0:  # an answer without delay is there in the step that asks
                ask = controller._ask

                def ask_and_take(observation, ask=ask, controller=controller, answers=answers):
                    answers.released.release()
                    ask(observation)
                    controller._take(controller._pending)

                controller._ask = ask_and_take
            actions = driven(episode.initial_state, controller, answer_in_time)
            answers.released.release(2)
        np.testing.assert_array_equal(actions, episode.actions)


def test_an_episode_is_the_one_that_other_controllers_drive_on_a_robot():
    makes = {
        "horizon": lambda ask: RecedingHorizon(ask, execute=2),
        "ensemble": lambda ask: TemporalEnsemble(ask, rate=0.5),
    }
    for name, make in makes.items():
        report = evaluate(Steering(), env_of(RULES[name], 2), RULES[name])
        for episode in report.episodes[::2]:
            actions = driven(episode.initial_state, make(Answers(Steering()).infer))
            np.testing.assert_array_equal(actions, episode.actions)


def stats(dims):
    low, high = [-1.0] * dims, [1.0] * dims
    return {"mean": [0.0] * dims, "std": high, "min": low, "max": high}


def vlm(head):
    torch.manual_seed(0)
    backbone = MockBackboneCfg(
        tokenizer=TokenizerCfg(words=["reach", "far"]), hidden_size=16, patch_size=8
    )
    cfg = VLMPolicyCfg(
        cameras=["top"], image_size=(8, 8), state_dim=4, action_dim=2, chunk_length=4,
        backbone=backbone, head=head,
    )  # fmt: skip
    policy = cfg.build({STATE: stats(4), ACTION: stats(2)}).eval()
    with torch.no_grad():
        for parameter in policy.head.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return policy


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("greedy", [True, False])
def test_results_do_not_depend_on_which_episodes_run_side_by_side(rule, greedy):
    policy = vlm(FlowMatchingHeadCfg())
    # the batch is smaller than the number of slots, and episodes end at different times
    protocol = RULES[rule].replace(greedy=greedy, inference_batch=3)
    alone = evaluate(policy, env_of(protocol, 1), protocol)
    for num_envs in (2, 5):
        together = evaluate(policy, env_of(protocol, num_envs), protocol)
        assert together.digest == alone.digest
        for mine, theirs in zip(together.episodes, alone.episodes, strict=True):
            np.testing.assert_array_equal(mine.actions, theirs.actions)
    other = protocol.replace(execution=RecedingHorizonCfg())
    horizon = evaluate(policy, env_of(other, 2), other)
    same = np.array_equal(horizon.episodes[-1].actions, alone.episodes[-1].actions)
    assert same == (rule == "horizon")


def test_baselines_are_evaluated_by_every_rule():
    for protocol in RULES.values():
        report = evaluate(RandomPolicy(4, 2), env_of(protocol, 3), protocol)
        assert len(report.episodes) == 6


def test_episodes_are_filmed_as_they_were_executed():
    for protocol in RULES.values():
        episodes = evaluate(Steering(), env_of(protocol, 3), protocol).episodes
        frames = replay(PointMassVecEnv(2, chunk_length=1), episodes, "top")
        assert [len(one) for one in frames] == [episode.steps + 1 for episode in episodes]


def test_an_episode_is_played_by_the_rule_of_a_protocol(tmp_path):
    file = tmp_path / "protocol.yaml"
    file.write_text(REAL_TIME.to_yaml())
    config = {"policy": {"chunk_length": 4, "image_size": [8, 8], "cameras": ["top"]}}
    candidate = Candidate(tmp_path, "mine", "vla", "ab12", config, Lineage())
    options = {**ProtocolCfg.play_options, "protocol": file, "index": 7}
    played = played_protocol(candidate, 777, options)
    assert (played.execution, played.execute_steps) == (REAL_TIME.execution, 2)
    assert played.initial_states() == [InitialState("reach", 777, 7)]
    assert played.max_episode_steps == 12
    plain = played_protocol(
        candidate, 777, {**options, "protocol": None, "task": "far", "env": "point"}
    )
    assert (plain.execution, plain.execute_steps) == (RecedingHorizonCfg(), 4)
    with pytest.raises(ValueError, match=r"name its task, .* or a protocol with --protocol"):
        played_protocol(candidate, 777, {**options, "protocol": None})


def test_rules_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="'point-mass': a temporal ensemble asks in every step"):
        PROTOCOL.replace(execution=TemporalEnsembleCfg())
    with pytest.raises(ValueError, match=r"names no rule; allowed types: .*:RecedingHorizonCfg"):
        ProtocolCfg.from_dict({**PROTOCOL.to_dict(), "execution": {}})
    with pytest.raises(ValueError, match=r"asked for every 2 steps .* takes 3 .* raise execute_st"):
        PROTOCOL.replace(execution=RealTimeChunkingCfg(delay_steps=3))
    long = REAL_TIME.replace(execution=RealTimeChunkingCfg(delay_steps=2), execute_steps=3)
    with pytest.raises(ValueError, match=r"predicts 4 .* executes 3 and waits for 2 more"):
        evaluate(Steering(), env_of(long), long)
    with pytest.raises(ValueError, match="by real-time chunking, but GoTowards cannot continue"):
        evaluate(GoTowards(), env_of(REAL_TIME), REAL_TIME)
    with pytest.raises(ValueError, match=r"but RegressionHead cannot .* head that denoises"):
        evaluate(vlm(RegressionHeadCfg()), env_of(REAL_TIME), REAL_TIME)
    with pytest.raises(ValueError, match=r"rate is -1\.0, allowed: 0 or more"):
        TemporalEnsembleCfg(rate=-1.0)
    with pytest.raises(ValueError, match="delay_steps is -1, allowed: 0 or more"):
        RealTimeChunkingCfg(delay_steps=-1)


def test_a_rule_is_a_part_of_the_hash():
    assert PROTOCOL.replace(execution=RecedingHorizonCfg()).hash == PROTOCOL.hash
    one_step = PROTOCOL.replace(execute_steps=1)
    others: list[ExecutionCfg] = [
        TemporalEnsembleCfg(), TemporalEnsembleCfg(rate=0.1), RealTimeChunkingCfg(),
        RealTimeChunkingCfg(delay_steps=0),
    ]  # fmt: skip
    hashes = {one_step.replace(execution=rule).hash for rule in others}
    assert len(hashes | {one_step.hash}) == 5
    read = ProtocolCfg.from_dict(ENSEMBLE.to_dict())
    assert read == ENSEMBLE
