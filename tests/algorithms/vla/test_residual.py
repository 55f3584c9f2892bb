"""A residual on a frozen policy: what it changes, what a chunk teaches, and that it learns."""

import numpy as np
import pytest
import torch

from rrf.algorithms.off_policy.learner import Batch
from rrf.algorithms.off_policy.sac import Noise
from rrf.algorithms.vla.residual_sac import ResidualSAC, chunk_rows
from rrf.algorithms.vla.rewards import Rewards
from rrf.policies import DiscreteTokenHeadCfg, FlowMatchingHeadCfg, GaussianHeadCfg
from rrf.policies.vla.configs import PolicyCfg, RegressionHeadCfg
from rrf.policies.vla.residual_configs import ResidualVLACfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.interruption import Interrupted
from rrf.runners.vla_rl.job_sources import JobList
from rrf.runners.vla_rl.preflight import check_residual
from rrf.storage.trajectories import Job, PlayedEpisode
from tests.runners.vla_rl.residual import build, make_residual, residual_cfg, runner_cfg
from tests.runners.vla_rl.test_job_sources import states
from tests.runners.vla_rl.test_vla_rl_runner import StopAt, imitate_timidly, same
from tests.runners.vla_rl.toy import STATS, ToyBackend, make_policy, observe, policy_cfg

HEADS = [
    RegressionHeadCfg(),
    GaussianHeadCfg(),
    DiscreteTokenHeadCfg(num_bins=16),
    FlowMatchingHeadCfg(hidden_features=[16]),
]
SEEN = observe(list(np.random.default_rng(0).uniform(-1, 1, (5, 2)).astype(np.float32)))


def disturbed(policy):
    """The policy with an actor that corrects."""
    with torch.no_grad():
        for weights in policy.actor.parameters():
            weights += 0.3 * torch.randn(
                weights.shape, generator=torch.Generator().manual_seed(len(weights))
            )
    return policy


@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)
def test_a_new_residual_acts_like_its_base_bit_for_bit(head):
    policy = make_residual(residual_cfg(head))
    expected = policy.base.sample(SEEN, greedy=True).actions
    np.testing.assert_array_equal(policy.sample(SEEN, greedy=True).actions, expected)
    trained = disturbed(policy).sample(SEEN, greedy=True).actions
    assert np.abs(trained - expected).max() > 0.01


def test_corrections_are_bounded_and_random_only_in_the_actor():
    policy = disturbed(make_residual(residual_cfg()))
    generators = [torch.Generator().manual_seed(seed) for seed in range(5)]
    sample = policy.sample(SEEN, generators)
    added = sample.actions - policy.base.sample(SEEN, greedy=True).actions
    chosen = sample.replay["residual"].view(5, 2, 2).numpy()
    np.testing.assert_allclose(added, 0.8 * chosen, atol=1e-6)
    assert np.abs(chosen).max() < 1
    again = policy.sample(SEEN, [torch.Generator().manual_seed(seed) for seed in range(5)])
    np.testing.assert_array_equal(again.actions, sample.actions)
    policy.set_noise_factor(1e-6)
    calm = policy.sample(SEEN, generators).actions
    np.testing.assert_allclose(calm, policy.sample(SEEN, greedy=True).actions, atol=1e-5)


def test_the_base_plays_a_share_of_the_episodes_alone():
    policy = disturbed(make_residual(residual_cfg(base_share=0.3)))
    expected = policy.base.sample(SEEN, greedy=True).actions
    num_alone = 0
    for first in range(0, 500, 5):
        generators = [torch.Generator().manual_seed(seed) for seed in range(first, first + 5)]
        sample = policy.sample(SEEN, generators)
        is_alone = (sample.replay["residual"] == 0).all(1)
        np.testing.assert_array_equal(sample.actions[is_alone], expected[is_alone])
        again = policy.sample(SEEN, generators)  # the next chunk of the same episodes
        assert torch.equal((again.replay["residual"] == 0).all(1), is_alone)
        num_alone += int(is_alone.sum())
    assert abs(num_alone / 500 - 0.3) < 0.07  # of a fair draw 3.4 standard deviations
    assert (policy.sample(SEEN, greedy=True).actions != expected).any(2).all()


def test_what_the_actor_reads_is_features_state_and_chunk():
    policy = make_residual(residual_cfg())
    seen, chosen = policy.see(SEEN)
    with torch.no_grad():
        assert torch.equal(seen[:, :32], policy.base(SEEN))
    # The statistics of the toy: a state of 0.5 is one standard deviation.
    np.testing.assert_allclose(seen[:, 32:34].numpy(), SEEN.state / 0.5, rtol=1e-6)
    np.testing.assert_array_equal(seen[:, 34:].numpy(), chosen.actions.reshape(5, 4))


def episode(steps, success: bool, with_final: bool = True) -> PlayedEpisode:
    """An episode whose states are 0, 1, 2 ... and 9 at the end."""
    count, job = len(steps), Job(0, 0, next(iter(states())))
    return PlayedEpisode(
        job=job,
        observation=None,
        replay={
            "seen": torch.arange(count).float()[:, None],
            "residual": torch.full((count, 4), 0.5),
        },
        log_prob=torch.zeros(count, 0),
        value=torch.full((count, 1), torch.nan),
        reward=np.full(count, 7.0, np.float32),  # of the simulator; not used
        steps=np.array(steps),
        success=success,
        truncated=not success,
        final_value=float("nan"),
        policy_version=0,
        reset_digest="",
        final_replay=None if success or not with_final else {"seen": torch.tensor([9.0])},
    )


def rows_of_interest(played, n_steps):
    return [
        (
            row["observations"].item(),
            row["rewards"].item(),
            row["next_observations"].item(),
            row["discounts"].item(),
            row["terminated"].item(),
        )
        for row in chunk_rows(played, Rewards("success").of(played, 10), n_steps, gamma=0.5)
    ]


def test_a_chunk_is_discounted_by_its_actions():
    # Chunks of 2, 2 and 1 actions; success at the only action of the last one.
    assert rows_of_interest(episode([2, 2, 1], success=True), n_steps=1) == [
        (0.0, 0.0, 1.0, 0.25, False),
        (1.0, 0.0, 2.0, 0.25, False),
        (2.0, 1.0, 2.0, 0.0, True),
    ]


def test_several_chunks_sum_up_to_the_end_of_the_episode():
    # From chunk 0, three chunks are all five actions: the success is four actions later.
    assert rows_of_interest(episode([2, 2, 1], success=True), n_steps=3) == [
        (0.0, 0.0625, 2.0, 0.0, True),
        (1.0, 0.25, 2.0, 0.0, True),
        (2.0, 1.0, 2.0, 0.0, True),
    ]
    assert rows_of_interest(episode([2, 2, 2], success=True), n_steps=2)[0] == (
        *(0.0, 0.0, 2.0, 0.0625, False),
    )


def test_a_time_limit_is_bootstrapped_from_the_last_observation():
    assert rows_of_interest(episode([2, 1], success=False), n_steps=1) == [
        (0.0, 0.0, 1.0, 0.25, False),
        (1.0, 0.0, 9.0, 0.5, False),
    ]
    with pytest.raises(AssertionError, match="the end of a truncated episode was not seen"):
        rows_of_interest(episode([2, 1], success=False, with_final=False), n_steps=1)


def test_the_critics_learn_the_target_of_a_chunk():
    cfg = runner_cfg().algorithm.replace(gamma=0.5, n_steps=1)
    policy = make_residual(residual_cfg())
    sac = ResidualSAC(cfg, policy, torch.Generator().manual_seed(0))
    with torch.no_grad():  # the critics say 0 everywhere, their slow copies 3 and 2
        for critic, says in ((sac.policy.critic, [0.0, 0.0]), (sac.target_critic, [3.0, 2.0])):
            for weights in critic.parameters():
                weights.zero_()
            critic.backbone.layers[-1].bias[:] = torch.tensor(says).view(2, 1, 1)
    played, width = episode([2, 1], success=False), policy.interface.observation_dims["actor"]
    played.replay["seen"] = torch.ones(2, width)
    played.final_replay = {"seen": torch.ones(width)}
    sac.remember([played])
    steps = sac.replay.gather(torch.tensor([0, 1]))
    loss, _ = sac.critic_objective(
        Batch(steps, steps.discounts),
        next_actions=torch.zeros(2, 4),
        next_log_prob=torch.ones(2),
        alpha=torch.tensor(0.1),
        noise=Noise(*[torch.zeros(0)] * 3),
    )
    # 0.25 (2 - 0.1) = 0.475 after two actions, 0.5 (2 - 0.1) = 0.95 after one; two critics, each
    # half the mean square: (0.225625 + 0.9025) / 2.
    assert loss.item() == pytest.approx(0.5640625, rel=1e-6)


def trained_base():
    base = make_policy(policy_cfg())
    imitate_timidly(base, 0.33)
    return base


@pytest.mark.slow
def test_a_residual_goes_past_what_its_base_imitated(tmp_path):
    cfg = runner_cfg(max_rounds=6, validation_interval=6, save_interval=6, validation_episodes=20)
    base = trained_base()
    runner = build(cfg, tmp_path / "run", base)
    result = runner.run()
    before, after = runner.validations[0]["success"], runner.validations[-1]["success"]
    assert before <= 0.5
    assert after > 0.9
    policy = checkpoint.load_policy(result["checkpoint"])
    assert isinstance(policy.cfg, ResidualVLACfg)
    for name, weights in base.state_dict().items():
        assert torch.equal(policy.state_dict()[f"base.{name}"], weights), name
    expected = runner.backend.rollout.policy.sample(SEEN, greedy=True).actions
    np.testing.assert_array_equal(policy.sample(SEEN, greedy=True).actions, expected)


def test_a_run_that_was_stopped_anywhere_goes_on_with_the_same_bits(tmp_path):
    cfg = runner_cfg(noise_schedule={"kind": "cosine", "final_factor": 0.5})
    whole = build(cfg, tmp_path / "whole")
    whole.run()
    stops = 0
    for attempt in range(200):
        runner = build(cfg, tmp_path / "stopped")
        try:
            runner.run(signals=StopAt(1 + attempt % 5))
            break
        except Interrupted:
            stops += 1
    assert stops >= 3
    assert runner.metrics["actor/updates"] > 20  # the actor learned, too
    assert len(runner.actor.algorithm.replay) == 300  # the ring was full
    assert same(runner.actor.deployed_weights(), whole.actor.deployed_weights())
    mine, theirs = runner.actor.state(), whole.actor.state()
    assert same(mine[0], theirs[0])
    assert mine[1] == theirs[1]


def test_first_only_the_critics_learn(tmp_path):
    cfg = runner_cfg(max_rounds=2)
    cfg = cfg.replace(algorithm=cfg.algorithm.replace(critic_warmup_updates=10_000))
    runner = build(cfg, tmp_path / "run")
    before = {name: values.clone() for name, values in runner.actor.weights().items()}
    critic = runner.actor.algorithm.policy.critic
    target = runner.actor.algorithm.target_critic
    first = {name: values.clone() for name, values in critic.state_dict().items()}
    runner.run()
    assert same(before, runner.actor.weights())
    assert runner.actor.algorithm.temperature.log_alpha.exp().item() == pytest.approx(0.01)
    assert not same(first, critic.state_dict())
    assert not same(first, target.state_dict())


def test_what_a_correction_costs_keeps_the_actor_at_its_base(tmp_path):
    def largest_correction(cost):
        cfg = runner_cfg(max_rounds=2, validation_interval=2, validation_episodes=1)
        cfg = cfg.replace(algorithm=cfg.algorithm.replace(correction_cost=cost))
        runner = build(cfg, tmp_path / str(cost))
        runner.run()
        policy = runner.actor.policy
        chunk = policy.base.sample(SEEN, greedy=True).actions
        return np.abs(policy.sample(SEEN, greedy=True).actions - chunk).max()

    assert largest_correction(100.0) < 0.3 * largest_correction(0.0)
    sac = ResidualSAC(
        runner_cfg().algorithm.replace(correction_cost=3.0),
        make_residual(residual_cfg()),
        torch.Generator(),
    )
    corrections = torch.tensor([[0.5, -0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    assert sac.action_cost(corrections) == pytest.approx(3 * (0.5 + 1.0) / 2)


def played_by(policy):
    source = JobList([state for state, _ in zip(states(), range(4), strict=False)])
    ToyBackend(policy, sees_end=True).play(source, (0,))
    return source.episodes


def test_the_check_before_the_first_update_passes_the_same_policy():
    policy = make_residual(residual_cfg())
    found = check_residual(policy, make_residual(residual_cfg()), played_by(policy))
    assert found["preflight/max_feature_error"] < 1e-5


def test_the_check_names_a_base_that_differs():
    player, trained = make_residual(residual_cfg()), make_residual(residual_cfg())
    with torch.no_grad():
        trained.base.head.output.bias += 0.1
    with pytest.raises(ValueError, match=r"not what the policy .* the weights head.output.bias"):
        check_residual(player, trained, played_by(player))


def test_the_check_refuses_a_residual_that_does_not_begin_with_its_base():
    player = make_residual(residual_cfg())
    with pytest.raises(ValueError, match="the greedy correction is not zero"):
        check_residual(player, disturbed(make_residual(residual_cfg())), played_by(player))


def test_a_number_that_is_not_finite_is_refused_with_its_episode():
    sac = ResidualSAC(
        runner_cfg().algorithm, make_residual(residual_cfg()), torch.Generator().manual_seed(0)
    )
    played = episode([2, 2], success=True)
    played.replay["seen"][1] = torch.nan
    with pytest.raises(ValueError, match=r"seen of an episode of drawer-open-v3 \(seed .*finite"):
        sac.remember([played])
    assert len(sac.replay) == 0


def test_a_diverged_update_is_not_saved(tmp_path):
    runner = build(runner_cfg(), tmp_path / "run")
    with torch.no_grad():
        runner.actor.algorithm.policy.critic.backbone.layers[-1].bias[:] = torch.nan
    with pytest.raises(ValueError, match=r"loss/critic is nan in round 0.*Lower algorithm.critic"):
        runner.run()
    assert list(checkpoint.steps(tmp_path / "run")) == [0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale": 0.0}, "scale is 0.0, allowed: above 0"),
        ({"base_share": 1.5}, "base_share is 1.5, allowed: 0 to 1"),
        ({"initial_std": 5.0}, r"initial_std is 5.0, allowed: 0.0067 to 2.7"),
        ({"actor": {"obs_normalization": True}}, "actor has an encoder, obs_normalization"),
    ],
)
def test_values_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ResidualVLACfg(**changes)


def test_a_residual_without_a_base_or_on_a_residual_is_refused():
    with pytest.raises(ValueError, match="base is not known"):
        ResidualVLACfg().build(STATS)
    with pytest.raises(ValueError, match="has a residual already"):
        residual_cfg().over(residual_cfg())


def test_a_base_that_does_not_tell_its_features_is_refused():
    class Blind(torch.nn.Module):
        pass

    cfg = ResidualVLACfg().over(PolicyCfg())
    with pytest.raises(ValueError, match=r"a PolicyCfg does not tell its features.*CompactVLACfg"):
        cfg.build(STATS, Blind())
