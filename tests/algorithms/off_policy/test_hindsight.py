"""SAC with hindsight: it learns what SAC alone does not, it resumes exactly, and it says what it
cannot do."""

import pytest
import torch

from rrf.algorithms import DSACCfg, MBPOCfg, SACCfg, SACSeqCfg
from rrf.algorithms.off_policy.configs import HindsightCfg
from rrf.networks import plain_mlp
from rrf.policies import ActorQPackCfg, QNetworkCfg, SACActorCfg
from rrf.runners import OffPolicyRunnerCfg
from tests.algorithms.off_policy.toy import run_cfg
from tests.envs.reach import ReachCfg

SMALL = plain_mlp([32, 32], "ReLU")
POLICY = ActorQPackCfg(
    actor_cfg=SACActorCfg(backbone_cfg=SMALL), critic_cfg=QNetworkCfg(backbone_cfg=SMALL)
)
HINDSIGHT = SACCfg(
    gamma=0.9,
    batch_size=64,
    warmup_steps=200,
    updates_per_step=0.5,
    init_alpha=0.1,
    actor_lr=3e-3,
    critic_lr=3e-3,
    alpha_lr=3e-3,
    hindsight=HindsightCfg(),
)


def cfg_of(algorithm: SACCfg = HINDSIGHT, **changes) -> OffPolicyRunnerCfg:
    defaults = {
        "env": ReachCfg(),
        "policy": POLICY,
        "algorithm": algorithm,
        "num_steps_per_env": 100,
        "max_iterations": 5,
        "save_interval": 5,
        "replay_size": 4000,
    }
    return OffPolicyRunnerCfg(**(defaults | changes))


def reached(runner) -> float:
    """The share of 100 episodes at whose end the greedy policy is at the goal."""
    env = ReachCfg(num_envs=100).build(seed=7)
    acting, observations = runner.policy.deployable(), env.get_observations()
    for _ in range(env.max_episode_length - 1):
        observations, *_ = env.step(acting.act(observations))
    *_, extras = env.step(acting.act(observations))
    return extras["success"].float().mean().item()


def test_a_goal_is_reached_with_hindsight_and_not_without(tmp_path):
    with_it = cfg_of().build(tmp_path / "with")
    without = cfg_of(HINDSIGHT.replace(hindsight=None)).build(tmp_path / "without")
    for runner in (with_it, without):
        runner.run()
    assert reached(with_it) >= 0.9
    assert reached(without) <= 0.5


def test_it_learns_in_the_compiled_code_of_sac(tmp_path):
    runner = cfg_of().build(tmp_path)
    assert runner.algorithm.compiled is not None


@pytest.mark.parametrize("compiled", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_resumed_run_goes_on_exactly(tmp_path, compiled):
    def run(name: str, max_iterations: int):
        runner = cfg_of(max_iterations=max_iterations, save_interval=1, num_steps_per_env=70)
        runner = runner.build(tmp_path / name)
        if not compiled:
            runner.algorithm.compiled = None
        runner.run()
        return runner

    whole = run("whole", 3)
    run("parts", 2)
    resumed = run("parts", 3)
    for name, value in whole.policy.state_dict().items():
        assert torch.equal(value, resumed.policy.state_dict()[name]), name
    assert whole.algorithm.num_updates == resumed.algorithm.num_updates > 0


def test_nothing_is_learned_before_an_episode_has_ended(tmp_path):
    algorithm = HINDSIGHT.replace(warmup_steps=8)
    runner = cfg_of(algorithm, num_steps_per_env=19, max_iterations=1).build(tmp_path)
    runner.run()
    assert runner.algorithm.num_updates == 0
    assert runner.algorithm.is_warming_up


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: HINDSIGHT.replace(n_steps=3), "n_steps is 3, but hindsight exchanges the goals"),
        (lambda: SACSeqCfg(hindsight=HindsightCfg()), "SACSeq cannot exchange the goals of what"),
        (lambda: MBPOCfg(hindsight=HindsightCfg()), "MBPO cannot exchange the goals of what it"),
        (lambda: HindsightCfg(num_goals=0), "num_goals is 0"),
        (lambda: HindsightCfg(random_share=1.0), r"random_share is 1\.0, allowed: between 0 and 1"),
    ],
)
def test_settings_that_hindsight_does_not_allow_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        change()


def test_runs_that_hindsight_does_not_allow_are_refused(tmp_path):
    of_a_corridor = run_cfg("sac").replace(algorithm=HINDSIGHT)
    with pytest.raises(ValueError, match="Corridor says nothing of its goals; set algorithm"):
        of_a_corridor.build(tmp_path)
    with pytest.raises(ValueError, match="up to 20 steps, but replay_size keeps only 20 of each"):
        cfg_of(replay_size=80).build(tmp_path)


def test_a_share_of_actions_stays_random_after_the_warm_up(tmp_path):
    for share, expected in ((0.3, 0.3), (None, 0.0)):
        algorithm = HINDSIGHT.replace(hindsight=HindsightCfg(random_share=share))
        runner = cfg_of(algorithm, max_iterations=1).build(tmp_path / str(share))
        runner.run()
        last = list(runner.policy.actor.parameters())[-1]
        with torch.no_grad():  # from now on the policy's own actions are 1
            for parameter in runner.policy.actor.parameters():
                parameter.zero_()
            last.copy_(torch.tensor([10.0, 10.0, -5.0, -5.0]))
        seen = runner.env.get_observations()
        actions = torch.cat([runner.algorithm.act(seen) for _ in range(250)])
        is_random = (actions < 0.999).all(1)  # of 1,000; the standard deviation is 0.0145
        assert is_random.float().mean().item() == pytest.approx(expected, abs=0.05)
        assert actions[is_random].abs().max().item() < 1 if share else not is_random.any()


def test_what_moves_for_the_first_time_is_clipped_to_the_limit():
    policy = ActorQPackCfg(actor_cfg=SACActorCfg(obs_normalization=True, obs_clip=5.0))
    actor = policy.build(ReachCfg().build().interface).actor
    still = torch.zeros(100, 4)
    still[:, 0] = torch.arange(100.0)
    actor.normalizer.update(still)
    # mean 49.5 and 0, standard deviation 28.87 and 0, to which 0.01 is added
    x = torch.tensor([[78.38, 0.0, 0.04, -3.0]])
    assert actor.normalized(x)[0].tolist() == pytest.approx([1.0, 0.0, 4.0, -5.0], abs=1e-3)
    with pytest.raises(ValueError, match=r"obs_clip is 5\.0, but only normalised observations"):
        SACActorCfg(obs_clip=5.0)
    assert "obs_clip" not in SACActorCfg().to_dict()


def test_variants_of_sac_have_hindsight_and_old_configs_mean_what_they_meant():
    assert DSACCfg(hindsight=HindsightCfg()).hindsight == HindsightCfg()
    assert "hindsight" not in SACCfg().to_dict()
    assert "random_share" not in HindsightCfg().to_dict()
    assert SACCfg.from_dict(SACCfg().to_dict()) == SACCfg()
    assert SACCfg.from_dict(HINDSIGHT.to_dict()) == HINDSIGHT
