"""Co-training: the loss that is added, which frames it is on, and that it teaches."""

import numpy as np
import pytest
import torch

from rrf.algorithms import BehaviorCloningCfg
from rrf.data.schema import Batch, Observation
from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.lineage import Lineage
from rrf.orchestra.imitation import demonstrations_of
from rrf.policies import FlowMatchingHeadCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.vla_rl.configs import CoTrainingCfg, VLARLRunnerCfg
from tests.runners.supervised.conftest import INSTRUCTIONS, write_synthetic
from tests.runners.vla_rl.conftest import build, runner_cfg
from tests.runners.vla_rl.toy import STATS, make_policy, policy_cfg

PLAIN = BehaviorCloningCfg(augmentation=None)


class Demonstrations:
    """Frames that show the opposite of what the toy task rewards: away from the goal."""

    num_frames = 40

    def batch(self, indices):
        goals = np.stack([np.random.default_rng(i).uniform(-0.8, 0.8, 2) for i in indices])
        goals = goals.astype(np.float32)
        images = np.zeros((len(indices), 8, 8, 3), np.uint8)
        action = np.repeat(-goals[:, None], 2, axis=1)
        is_pad = np.zeros((len(indices), 2), bool)
        return Batch(Observation({"front": images}, goals, ["go"] * len(indices)), action, is_pad)


def imitation(policy, **changes):
    return CoTrainingCfg(algorithm=PLAIN, batch_size=16, **changes).build(
        Demonstrations(), policy, STATS
    )


def test_the_loss_is_the_supervised_one_times_its_weight():
    policy = make_policy(policy_cfg())
    key = (0, 3, 1)
    indices = np.random.default_rng(key).integers(40, size=16)
    expected, _ = policy.loss(Demonstrations().batch(indices))
    loss = imitation(policy, weight=0.25).loss(*key)
    torch.testing.assert_close(loss, 0.25 * expected)
    assert loss.item() > 0


def test_a_key_decides_frames_and_noise():
    policy = make_policy(policy_cfg(FlowMatchingHeadCfg()))
    loss = imitation(policy).loss
    before = torch.random.get_rng_state()
    assert loss(0, 1, 2).item() == loss(0, 1, 2).item()
    assert len({loss(*key).item() for key in [(0, 1, 2), (1, 1, 2), (0, 2, 2), (0, 1, 3)]}) == 4
    assert torch.equal(torch.random.get_rng_state(), before)


def test_an_update_heeds_both_losses(tmp_path):
    demonstrations, losses = Demonstrations().batch(np.arange(40)), {}
    for weight in (0.0, 100.0):
        runner = build(runner_cfg(), tmp_path / str(weight))
        policy = runner.actor.policy
        losses["before"] = policy.loss(demonstrations)[0].item()
        if weight:
            runner.actor._imitation = imitation(policy, weight=weight)
        runner.run()
        assert ("actor/imitation_loss" in runner.metrics) == bool(weight)
        losses[weight] = policy.loss(demonstrations)[0].item()
    assert losses[100.0] < losses["before"] < losses[0.0]


def save(run_dir, cfg):
    policy = make_policy(cfg.policy)
    state = checkpoint.TrainerState({}, {})
    return checkpoint.save(run_dir, 1, cfg, policy.state_dict(), STATS, state, Lineage())


def test_demonstrations_are_those_the_parent_was_fine_tuned_on(tmp_path):
    root = write_synthetic(tmp_path / "data", 12)
    cfg = SupervisedRunnerCfg(
        policy=policy_cfg(),
        dataset=str(root),
        instructions=[INSTRUCTIONS[1]],
        episodes_per_instruction=2,
        validation_fraction=0.0,
    )
    frames = demonstrations_of(save(tmp_path / "sft", cfg))
    assert frames.num_frames == 24
    batch = frames.batch(np.arange(24))
    assert set(batch.observation.instruction) == {INSTRUCTIONS[1]}


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        (
            VLARLRunnerCfg(policy=policy_cfg(), env=MetaWorldCfg()),
            r"was not fine-tuned on demonstrations.*co_training",
        ),
        (
            SupervisedRunnerCfg(policy=policy_cfg(), dataset="gone"),
            r"no dataset at .*datasets/gone; there is no configs/",
        ),
    ],
    ids=["reinforced", "no data"],
)
def test_without_demonstrations_it_says_what_to_do(tmp_path, cfg, message):
    with pytest.raises(ValueError, match=message):
        demonstrations_of(save(tmp_path, cfg))


def test_a_weight_of_nothing_is_refused():
    with pytest.raises(ValueError, match=r"weight is 0.*co_training=null"):
        CoTrainingCfg(weight=0)
