"""MBPO and PPO with imagined rollouts: they learn, resume bit for bit, and refuse clearly."""

import signal

import pytest
import torch

from rrf.runners import GuardCfg
from rrf.runners.checkpoints.control import load_control_policy
from rrf.runners.interruption import Interrupted, SignalWatch
from tests.algorithms.model_based.toy import MBPO, MODEL, MODEL_PPO, mbpo_run, model_ppo_run
from tests.runners.control.test_off_policy_runner import (
    assert_same,
    everything,
    stopped_amid_an_iteration,
)
from tests.runners.control.test_offline_runner import mean_return


def test_mbpo_reaches_the_end_of_the_corridor_in_a_few_hundred_steps(tmp_path):
    algorithm = MBPO.replace(updates_per_step=2.0, branches_per_training=400)
    result = mbpo_run(algorithm=algorithm, max_iterations=6).build(tmp_path).run()
    assert result["num_steps"] == 240
    # Standing still returns -15, the best there is about -5.
    assert mean_return(result["checkpoint"]) > -9


def test_ppo_learns_from_what_its_model_imagines(tmp_path):
    # A learner that only sees imagined samples: those of the rollout get no weight.
    cfg = model_ppo_run(max_iterations=20, algorithm=MODEL_PPO.replace(warmup_iterations=0))
    runner = cfg.build(tmp_path)
    algorithm = runner.algorithm
    joined = type(algorithm).augmented

    def only_imagined(samples):
        everything = joined(algorithm, samples)
        count = len(samples)
        everything.advantages[:count] = everything.advantages[count:].mean()
        everything.returns[:count] = everything.values[:count]
        return everything

    algorithm.augmented = only_imagined
    before = mean_return_of(runner.policy)
    assert mean_return(runner.run()["checkpoint"]) > before + 3


def mean_return_of(policy) -> float:
    from tests.envs.toy import Corridor, CorridorCfg

    env, total = Corridor(CorridorCfg(num_envs=64), seed=1), 0.0
    acting, observations = policy.deployable(), env.get_observations()
    for _ in range(env.max_episode_length):
        observations, rewards, _, _ = env.step(acting.act(observations))
        total += rewards.mean().item()
    return total


@pytest.mark.parametrize("run", [mbpo_run, model_ppo_run])
def test_a_stopped_run_continues_bit_for_bit(tmp_path, run):
    cfg = run()
    whole = cfg.build(tmp_path / "whole").run()
    signals, stopped = SignalWatch(), cfg.build(tmp_path / "stopped")

    def stop(progress):
        signals.received = signal.SIGTERM if progress.iteration == 3 else None

    with pytest.raises(Interrupted):
        stopped.run(on_progress=stop, signals=signals)
    assert stopped.iteration == 3
    state = everything(whole)
    assert any(name.startswith("model/ensemble/") for name in state)
    assert_same(state, everything(cfg.build(tmp_path / "stopped").run()))


def test_a_run_stopped_in_the_middle_of_an_iteration_continues_bit_for_bit(tmp_path):
    cfg = mbpo_run()
    whole = cfg.build(tmp_path / "whole").run()
    stopped_amid_an_iteration(cfg, tmp_path / "stopped")
    assert_same(everything(whole), everything(cfg.build(tmp_path / "stopped").run()))


@pytest.mark.parametrize("run", [mbpo_run, model_ppo_run])
def test_a_checkpoint_acts(tmp_path, run):
    result = run(max_iterations=1).build(tmp_path).run()
    policy, interface = load_control_policy(result["checkpoint"])
    env = run().env.build(seed=0, device="cpu")
    actions = policy.act(env.get_observations())
    assert actions.shape == (4, 1)
    assert interface.task == "Corridor"


def test_a_model_is_trained_when_it_is_due_and_branches_grow(tmp_path):
    runner = mbpo_run(max_iterations=3).build(tmp_path)
    algorithm, seen = runner.algorithm, []
    fit, extend = algorithm.model.fit, algorithm.imagined.extend

    def noted(steps):
        seen.append([len(steps.rows), 0])
        return fit(steps)

    def counted(rows):
        seen[-1][1] += 1
        extend(rows)

    algorithm.model.fit, algorithm.imagined.extend = noted, counted
    runner.run()
    # Warm-up ends at 40 transitions; lengths are 1 + 2 min(n / 100, 1), rounded down.
    assert seen == [[40, 1], [80, 2], [120, 3]]
    assert algorithm.num_updates == 80 * 0.5
    assert algorithm.imagined.capacity == 50 * 3 * 4


def test_batches_mix_observed_and_imagined_transitions(tmp_path):
    runner = mbpo_run(max_iterations=2).build(tmp_path)
    runner.run()
    algorithm = runner.algorithm
    algorithm.replay.rows.fill_(1.0)
    algorithm.imagined.rows.fill_(2.0)
    algorithm.imagined.rows[:, 3] = 0.0  # terminated
    (batch,) = algorithm.sampled(1)
    assert batch.steps.rewards.tolist() == [1.0] * 8 + [2.0] * 24
    assert batch.discounts.tolist() == pytest.approx([0.0] * 8 + [0.9] * 24)


def test_the_state_in_which_an_episode_ended_is_kept_for_the_model(tmp_path):
    runner = mbpo_run(max_iterations=1, algorithm=MBPO.replace(warmup_steps=400)).build(tmp_path)
    runner.algorithm.random_actions = lambda: torch.full((4, 1), -1.0)
    runner.run()
    replay = runner.algorithm.replay
    steps = replay.gather(torch.arange(len(replay)))
    assert steps.terminated.sum() >= 4
    change = steps.next_actor_obs - steps.actor_obs
    torch.testing.assert_close(change, torch.full_like(change, -0.2))


def test_a_diverging_model_stops_the_run_and_leaves_a_dump(tmp_path):
    model = MODEL.replace(max_deviation=0.01)
    runner = mbpo_run(algorithm=MBPO.replace(model_cfg=model)).build(tmp_path)
    with pytest.raises(ValueError, match=r"model of Corridor has diverged: it predicts .*shorten"):
        runner.run()
    assert (tmp_path / "not_finite_1" / "last_step.safetensors").is_file()


@pytest.mark.parametrize(("run", "algorithm"), [(mbpo_run, MBPO), (model_ppo_run, MODEL_PPO)])
def test_weights_of_a_model_that_become_infinite_take_the_run_back(tmp_path, run, algorithm):
    cfg = run(guard=GuardCfg(on_nan="rollback"), save_interval=1)
    runner = cfg.build(tmp_path)
    model, calls = runner.algorithm.model, []
    fit = model.fit

    def spoil(steps):
        calls.append(1)
        if len(calls) == 2:
            with torch.no_grad():
                next(model.ensemble.parameters()).fill_(torch.inf)
        return fit(steps)

    model.fit = spoil
    with pytest.warns(UserWarning, match="held-out error of member 0 .* returned to global_step"):
        assert runner.run()["steps"] == 4
    assert model.optimizer.param_groups[0]["lr"] == algorithm.model_cfg.learning_rate / 2


@pytest.mark.parametrize("run", [mbpo_run, model_ppo_run])
def test_critics_that_see_more_than_the_model_predicts_are_refused(tmp_path, run):
    policy = run().policy
    more = policy.replace(critic_cfg=policy.critic_cfg.replace(observation_groups=None))
    with pytest.raises(ValueError, match=r"model predicts what the actor reads, \['policy'\], but"):
        run(policy=more).build(tmp_path)


def test_a_rule_that_does_not_exist_is_refused(tmp_path):
    algorithm = MBPO.replace(model_cfg=MODEL.replace(termination="known"))
    with pytest.raises(ValueError, match=r"no rule for Corridor; use learned\. There are rules"):
        mbpo_run(algorithm=algorithm).build(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_steps": 3}, "n_steps is 3, but branches are single transitions"),
        ({"branch_schedule": (100, 100, 1, 1)}, r"branch_schedule is \[100, 100, 1, 1\], allowed"),
        ({"real_fraction": 1.5}, "real_fraction is 1.5, allowed: 0 to 1"),
        ({"warmup_steps": 0}, "warmup_steps is 0, allowed: 2 or more, because the model needs"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        MBPO.replace(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_elites": 4}, "num_elites is 4, allowed: 1 to num_members, which is 3"),
        ({"weight_decays": [1e-5]}, "weight_decays is .*, allowed: 2 numbers of 0 or more"),
        ({"holdout_fraction": 1.0}, "holdout_fraction is 1.0, allowed: between 0 and 1"),
    ],
)
def test_impossible_models_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        MODEL.replace(**changes)
