"""The off-policy loop: repeatable, resumable, guarded."""

import signal

import pytest
import torch

from rrf.algorithms import SACCfg
from rrf.runners import GuardCfg, OffPolicyRunnerCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.control import load_control_policy
from rrf.runners.interruption import Interrupted, SignalWatch
from tests.algorithms.off_policy.toy import ALGORITHMS, pack, run_cfg
from tests.envs.toy import Corridor, CorridorCfg


def test_weights_that_become_nan_inside_an_iteration_take_the_run_back(tmp_path):
    cfg = run_cfg("sac", guard=GuardCfg(on_nan="rollback"), save_interval=1)
    runner = cfg.build(tmp_path)
    update, calls = runner.algorithm.update, []

    def spoil():
        calls.append(1)
        if len(calls) == 25:  # of 40 environment steps; an iteration has ten of them
            with torch.no_grad():
                for parameter in runner.policy.actor.parameters():
                    parameter.fill_(torch.nan)
        return update()

    runner.algorithm.update = spoil
    with pytest.warns(UserWarning, match="action of environment 0.* returned to global_step_2"):
        assert runner.run()["steps"] == 4


def everything(result: dict) -> dict[str, torch.Tensor]:
    """Deployed weights, and all that training needs."""
    path = result["checkpoint"]
    return checkpoint.read_weights(path) | checkpoint.load_trainer_state(path).tensors


def assert_same(first: dict, second: dict) -> None:
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_stopped_run_continues_bit_for_bit(tmp_path, name):
    cfg = run_cfg(name)
    whole = cfg.build(tmp_path / "whole").run()

    signals = SignalWatch()
    stopped = cfg.build(tmp_path / "stopped")

    def stop(progress):
        signals.received = signal.SIGTERM if progress.iteration == 3 else None

    with pytest.raises(Interrupted):
        stopped.run(on_progress=stop, signals=signals)
    assert stopped.iteration == 3
    resumed = cfg.build(tmp_path / "stopped").run()
    assert_same(everything(whole), everything(resumed))
    assert resumed["num_steps"] == 4 * 40


def stopped_amid_an_iteration(cfg, run_dir):
    """The runner of a run that a signal stopped in its third iteration, which has ten updates."""
    signals, stopped = SignalWatch(), cfg.build(run_dir)
    update, calls = stopped.algorithm.update, []

    def stop():
        calls.append(1)
        signals.received = signal.SIGTERM if len(calls) == 27 else None
        return update()

    stopped.algorithm.update = stop
    with pytest.raises(Interrupted, match=r"saved .*global_step_2"):
        stopped.run(signals=signals)
    assert len(calls) == 27
    return stopped


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_stopped_in_the_middle_of_an_iteration_continues_bit_for_bit(tmp_path, name):
    cfg = run_cfg(name)
    whole = cfg.build(tmp_path / "whole").run()
    stopped_amid_an_iteration(cfg, tmp_path / "stopped")
    resumed = cfg.build(tmp_path / "stopped").run()
    assert_same(everything(whole), everything(resumed))
    assert resumed["num_steps"] == 4 * 40


def test_a_part_of_an_iteration_is_timed_as_such(tmp_path):
    cfg, signals = run_cfg("sac", num_threads=None, max_iterations=1), SignalWatch()
    signals.received = signal.SIGTERM
    with pytest.raises(Interrupted):
        cfg.build(tmp_path).run(signals=signals)
    facts = checkpoint.load_trainer_state(tmp_path / "global_step_0").facts
    assert facts["wall_s"] > 0
    rest = cfg.build(tmp_path)
    rest.num_steps = 9 * 4  # of ten steps one is left
    rest.checkpoints.resume = lambda runner: True
    rest.run()
    assert rest.num_stepped == 4
    assert not any(rest.extras[0].threads._times.values())


def test_iterations_say_what_was_learned(tmp_path):
    result = run_cfg("sac").build(tmp_path).run()
    metrics = result["metrics"]
    assert metrics["train/num_updates"] == 30  # of 160 transitions the first 40 are random
    assert metrics["replay/transitions"] == 160
    # Two observations of 1 + 2 numbers, one action, reward and two flags; 400 of them.
    assert metrics["replay/gib"] == pytest.approx(400 * 10 * 4 / 2**30)
    for name in ("loss/critic", "loss/actor", "policy/alpha", "rollout/return"):
        assert name in metrics


def test_the_checkpoint_holds_a_policy_that_acts(tmp_path):
    runner = run_cfg("sac_trans").build(tmp_path)
    result = runner.run()
    policy, interface = load_control_policy(result["checkpoint"])
    assert interface.num_actions == 1
    observations = runner.observations
    assert torch.equal(policy.act(observations), runner.policy.deployable().act(observations))


def test_a_run_that_starts_from_weights_begins_with_slow_copies_of_them(tmp_path):
    first = run_cfg("dsact").build(tmp_path / "first").run()
    cfg = run_cfg("dsact", init_from=first["checkpoint"], seed=5)
    algorithm = cfg.build(tmp_path / "second").algorithm
    for slow, fast in algorithm.slow_copies():
        for one, two in zip(slow.parameters(), fast.parameters(), strict=True):
            torch.testing.assert_close(one, two.detach(), atol=1e-6, rtol=1e-6)


def test_a_replay_that_does_not_fit_is_refused_before_anything_runs(tmp_path):
    cfg = run_cfg("sac", replay_size=10_000_000, replay_memory_gib=0.25)
    with pytest.raises(ValueError, match=r"0.37 GiB.*replay_size to at most 6,710,886"):
        cfg.build(tmp_path)


def test_another_replay_size_is_another_run(tmp_path):
    run_cfg("sac").build(tmp_path).run()
    with pytest.raises(ValueError, match="replay_size: 400 -> 800"):
        run_cfg("sac", replay_size=800, max_iterations=6).build(tmp_path).run()


class Exploding(Corridor):
    """Returns one NaN, in its 35th step."""

    count = 0

    def step(self, actions):
        observations, rewards, dones, extras = super().step(actions)
        Exploding.count += 1
        if Exploding.count == 35:
            rewards = rewards.clone()
            rewards[2] = torch.nan
        return observations, rewards, dones, extras


def test_a_nan_takes_the_run_back_with_half_the_learning_rate(tmp_path):
    Exploding.count = 0
    cfg = run_cfg("sac", guard=GuardCfg(on_nan="rollback"))
    runner = cfg.build(tmp_path, env=Exploding(CorridorCfg(num_envs=4)))
    with pytest.warns(UserWarning, match="'rewards' of environment 2"):
        result = runner.run()
    assert result["steps"] == 4
    assert runner.num_rollbacks == 1
    rates = [o.param_groups[0]["lr"] for o in runner.algorithm.optimizers.values()]
    assert rates == [5e-4] * 3
    # 20 steps were kept; the last of them ends the episodes that were given up.
    kept = runner.algorithm.replay.gather(torch.arange(19 * 4, 20 * 4))
    assert kept.ended.tolist() == [1.0] * 4
    assert torch.isfinite(runner.algorithm.replay.rows[: 40 * 4]).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"replay_size": 0}, "replay_size is 0"),
        ({"num_steps_per_env": 0}, "num_steps_per_env is 0"),
    ],
)
def test_impossible_runs_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        OffPolicyRunnerCfg(**changes)


def test_it_learns_to_walk(tmp_path):
    rates = {"actor_lr": 3e-3, "critic_lr": 3e-3, "alpha_lr": 3e-3}
    algorithm = SACCfg(
        warmup_steps=200, batch_size=64, updates_per_step=0.4, init_alpha=0.1, **rates
    )
    cfg = run_cfg(
        "sac",
        algorithm=algorithm,
        policy=pack(),
        num_steps_per_env=100,
        max_iterations=5,
        replay_size=4000,
        statistics_window=20,
    )
    result = cfg.build(tmp_path).run()
    # Standing still earns about -15, walking straight there about -5.
    assert result["metrics"]["rollout/return"] > -8
