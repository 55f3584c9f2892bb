"""Policies that see past frames: they learn what needs them, and act as they were trained."""

import dataclasses

import numpy as np
import pytest

from rrf.algorithms import AugmentationCfg, BehaviorCloningCfg
from rrf.algorithms.vla.behavior_cloning import augment
from rrf.client import RecedingHorizon, RobotHistory
from rrf.data.dataset.history import Past
from rrf.envs.vec_env import InitialState
from rrf.evaluation.candidate import Candidate
from rrf.evaluation.vla.configs import ProtocolCfg
from rrf.evaluation.vla.evaluate import evaluate
from rrf.evaluation.vla.execution_configs import RealTimeChunkingCfg, TemporalEnsembleCfg
from rrf.evaluation.vla.play import played_protocol
from rrf.lineage import Lineage
from rrf.networks.vlm.configs import ImageRuleCfg, TokenizerCfg
from rrf.networks.vlm.mock_configs import MockBackboneCfg
from rrf.policies import FlowMatchingHeadCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.runners import AdamWCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.deployed_vla import DeployedVLA
from rrf.runners.supervised.frames import split_of
from tests.runners.supervised.conftest import tiny_run_cfg
from tests.runners.supervised.recall import LENGTH, TASK, RecallVecEnv, write_recall

POLICY = VLMPolicyCfg(
    backbone=MockBackboneCfg(
        tokenizer=TokenizerCfg(words=TASK.split()),
        image=ImageRuleCfg(size=(8, 8)),
        patch_size=8,
        hidden_size=16,
    ),
    chunk_length=2,
    past_stride=2,
)
PROTOCOL = ProtocolCfg(
    name="recall", env="recall", tasks=["any"], seed=4242, episodes_per_task=6, cameras=["front"],
    image_size=8, max_episode_steps=LENGTH, num_slots=4,
)  # fmt: skip
PASTS = {"image": {"past_images": 1}, "state": {"past_states": 1}}


@pytest.fixture(scope="module", params=["image", pytest.param("state", marks=pytest.mark.slow)])
def shows(request):
    return request.param


@pytest.fixture(scope="module")
def recordings(tmp_path_factory, shows):
    return write_recall(tmp_path_factory.mktemp("recall") / shows, shows)


def run_cfg(dataset, **past):
    return tiny_run_cfg(
        dataset, policy=POLICY.replace(**past), algorithm=BehaviorCloningCfg(), max_steps=300,
        validation_interval=300, save_interval=300, batch_size=32, optimizer=AdamWCfg(lr=1e-2),
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(recordings, shows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    run_cfg(recordings, **PASTS[shows]).build(folder).run()
    return checkpoint.latest(folder)


def test_what_needs_the_past_is_learned_by_who_sees_it(recordings, trained, shows, tmp_path):
    policy = checkpoint.load_policy(trained)
    report = evaluate(policy, RecallVecEnv(4, shows), PROTOCOL)
    assert report.overall.successes == 6
    alone = evaluate(policy, RecallVecEnv(1, shows), PROTOCOL)
    assert alone.digest == report.digest
    run_cfg(recordings).build(tmp_path).run()
    blind = checkpoint.load_policy(checkpoint.latest(tmp_path))
    # half the episodes are right for who does the same in all of them
    assert evaluate(blind, RecallVecEnv(4, shows), PROTOCOL).overall.successes <= 3


@pytest.mark.parametrize("delay", [0, 1])
def test_the_past_goes_with_every_rule_of_execution(recordings, shows, tmp_path, delay):
    policy = POLICY.replace(**PASTS[shows], head=FlowMatchingHeadCfg(), chunk_length=3)
    cfg = run_cfg(recordings).replace(max_steps=2, save_interval=2, policy=policy)
    cfg.build(tmp_path).run()
    policy = checkpoint.load_policy(checkpoint.latest(tmp_path))
    protocol = PROTOCOL.replace(execution=RealTimeChunkingCfg(delay_steps=delay), greedy=False)
    reports = [evaluate(policy, RecallVecEnv(n, shows), protocol) for n in (1, 4)]
    assert reports[0].digest == reports[1].digest
    for one, other in zip(*(report.episodes for report in reports), strict=True):
        np.testing.assert_array_equal(one.actions, other.actions)


def test_a_mixture_shows_the_past_of_each_dataset(recordings, shows, tmp_path):
    other = write_recall(tmp_path / "other", shows, 8)
    past = {"past_images": 1, "past_states": 2, "past_stride": 1}
    cfg = run_cfg(recordings, **past)
    mixed = split_of(cfg.replace(mixture={str(other): 1.0})).training
    apart = [split_of(run_cfg(one, **past)).training for one in (recordings, other)]
    rows = np.array([mixed.num_frames - 1, 2])
    batch = mixed.batch(rows).observation
    parts = [apart[1].batch(np.array([apart[1].num_frames - 1])), apart[0].batch(np.array([2]))]
    for row, part in enumerate(parts):
        np.testing.assert_array_equal(batch.state[row], part.observation.state[0])
        for view in ("front", "front@1"):
            np.testing.assert_array_equal(batch.images[view][row], part.observation.images[view][0])
    assert batch.state.shape == (2, 6)


def test_a_robot_acts_as_the_evaluation_did(trained, shows):
    episodes = evaluate(checkpoint.load_policy(trained), RecallVecEnv(1, shows), PROTOCOL).episodes
    deployed, signature = DeployedVLA(trained), DeployedVLA.signature(trained)
    assert bool(signature.past)

    def ask(request):
        assert set(request) == {one.name for one in signature.inputs}
        return deployed.answer({name: np.array(v)[None] for name, v in request.items()}, {})[0]

    history = RobotHistory(dataclasses.asdict(signature.past))
    for episode in episodes[:2]:
        env, controller = RecallVecEnv(1, shows), RecedingHorizon(ask, execute=2)
        env.chunk_length, actions = 1, []
        history.reset()
        observation = env.reset([episode.initial_state], [0])
        for _ in range(LENGTH):
            request = history.seen(
                {
                    "observation.images.front": observation.images["front"][0],
                    "observation.state": observation.state[0],
                    "instruction": TASK,
                }
            )
            actions.append(controller.act(request))
            observation = env.step(actions[-1][None, None], [0]).observation
        np.testing.assert_allclose(actions, episode.actions, atol=1e-5)


def test_observations_that_do_not_show_the_past_are_refused(trained, shows):
    policy = checkpoint.load_policy(trained)
    observation = RecallVecEnv(1, shows).reset([InitialState("any", 1, 0)], [0])
    message = (
        "needs observation.images.front@1" if shows == "image" else r"\[1, 2\], but .*\[1, 4\]"
    )
    with pytest.raises(ValueError, match=message):
        policy.sample(observation)


def test_protocols_must_show_the_frames_that_the_policy_was_trained_on(trained, shows):
    policy, cfg = checkpoint.load_policy(trained), run_cfg("any", **PASTS[shows], past_stride=3)
    policy.past = dataclasses.replace(policy.past, stride=3)
    with pytest.raises(ValueError, match=r"execute_steps: it sees frames that are 3 steps apart"):
        evaluate(policy, RecallVecEnv(1, shows), PROTOCOL)
    filled = cfg.policy.replace(cameras=["front"], image_size=(8, 8))
    with pytest.raises(ValueError, match=r"sees frames that are 3 .* every 2 steps"):
        PROTOCOL.build().check_training(cfg.replace(policy=filled))
    # asked in every step, frames of any stride are there
    env = RecallVecEnv(1, shows)
    env.chunk_length = 1
    evaluate(policy, env, PROTOCOL.replace(execute_steps=1, execution=TemporalEnsembleCfg()))


def test_a_played_episode_executes_as_much_as_shows_the_frames(tmp_path):
    config = {"policy": POLICY.replace(chunk_length=4, past_states=1, cameras=["c"]).to_dict()}
    options = {**ProtocolCfg.play_options, "task": "any", "env": "recall"}
    candidate = Candidate(tmp_path, "mine", "vla", "ab12", config, Lineage())
    assert played_protocol(candidate, 1, options).execute_steps == 2


def test_all_frames_of_a_view_are_shifted_alike(recordings):
    cfg = run_cfg(recordings, past_images=2, past_states=1, past_stride=1)
    batch = split_of(cfg).training.batch(np.zeros(50, int))  # its past repeats its first frame
    moved = augment(
        batch, AugmentationCfg(shift_px=2, state_noise=0.1), np.ones(2), np.random.default_rng(0)
    ).observation
    assert moved.state.shape == (50, 4)
    for view in ("front@1", "front@2"):
        np.testing.assert_array_equal(moved.images[view], moved.images["front"])


def test_features_of_past_frames_are_not_cached(recordings, tmp_path):
    cfg = run_cfg(recordings, past_states=1)
    frozen = cfg.policy.replace(backbone=cfg.policy.backbone.replace(tuning="frozen"))
    cfg = cfg.replace(policy=frozen, caches_features=True, cache_dir=str(tmp_path))
    with pytest.raises(ValueError, match="it sees past frames"):
        cfg.build(tmp_path / "run").run()


def test_a_policy_without_a_past_sees_none():
    assert POLICY.replace(past_stride=1).past == Past()
