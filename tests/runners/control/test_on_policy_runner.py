"""The on-policy loop: repeatable, resumable, guarded."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import rrf
from benchmarks.rl_curves import greedy_returns
from rrf import atomic
from rrf.algorithms import PPOCfg
from rrf.networks import plain_mlp
from rrf.policies import (
    ActorCriticPackCfg,
    LipsNetActorCfg,
    MemoryCfg,
    StateIndStdActorCfg,
    VNetworkCfg,
)
from rrf.presets import resolve
from rrf.runners import GuardCfg, OnPolicyRunnerCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.control import load_control_policy
from rrf.runners.control.guard import DivergenceAlarm
from rrf.runners.control.resume import tell_progress
from rrf.runners.control.speed import ThreadTuner
from tests.envs.toy import Corridor, CorridorCfg, Poisoned

SMALL = plain_mlp([16], "ELU")


def run_cfg(memory: MemoryCfg | None = None, **settings) -> OnPolicyRunnerCfg:
    policy = ActorCriticPackCfg(
        actor_cfg=StateIndStdActorCfg(backbone_cfg=SMALL, memory=memory, init_std=0.5),
        critic_cfg=VNetworkCfg(backbone_cfg=SMALL, memory=memory),
    )
    defaults = {
        "env": CorridorCfg(num_envs=16),
        "policy": policy,
        "algorithm": PPOCfg(entropy_coef=0.0, normalize_rewards=True),
        "num_steps_per_env": 12,
        "max_iterations": 6,
        "save_interval": 3,
    }
    return OnPolicyRunnerCfg(**(defaults | settings))


def weights(result: dict) -> dict[str, torch.Tensor]:
    return checkpoint.read_weights(result["checkpoint"])


def assert_same(first: dict, second: dict) -> None:
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


def test_learns_to_walk(tmp_path):
    cfg = run_cfg(max_iterations=40)
    result = cfg.build(tmp_path).run()
    # Standing still earns about -15, walking straight there about -5.
    assert result["metrics"]["rollout/return"] > -8
    assert result["num_steps"] == 40 * 16 * 12


def test_learns_to_hold_the_pole_for_a_while(tmp_path):
    runner = resolve("cartpole-ppo", {"trackers": [], "max_iterations": 40}).build(tmp_path)
    runner.run()
    assert np.mean(greedy_returns(runner)) >= 100  # by chance 22


@pytest.mark.slow
def test_balances_the_pole(tmp_path):
    runner = resolve("cartpole-ppo", {"trackers": []}).build(tmp_path)
    runner.run()
    assert np.mean(greedy_returns(runner)) >= 475


@pytest.mark.parametrize("threads", [1, 2])
def test_same_seed_gives_equal_weights_whatever_the_threads(tmp_path, threads):
    cfg = run_cfg(algorithm=PPOCfg(learner_threads=threads))
    other = run_cfg(algorithm=PPOCfg(learner_threads=2))
    assert_same(
        weights(cfg.build(tmp_path / "a").run()), weights(other.build(tmp_path / "b").run())
    )


def test_other_seed_gives_other_weights(tmp_path):
    first = weights(run_cfg().build(tmp_path / "a").run())
    second = weights(run_cfg(seed=1).build(tmp_path / "b").run())
    assert not torch.equal(
        first["actor.backbone.layers.0.weight"], second["actor.backbone.layers.0.weight"]
    )


@pytest.mark.parametrize("memory", [None, MemoryCfg(hidden_size=8)])
def test_resuming_continues_with_the_same_bits(tmp_path, memory):
    cfg = run_cfg(memory)
    whole = cfg.build(tmp_path / "whole").run()

    class Stop:
        received = None

    signals = Stop()
    runner = cfg.build(tmp_path / "parts")
    with pytest.raises(SystemExit) as stopped:
        runner.run(
            on_progress=lambda p: setattr(signals, "received", 15 if p.iteration == 2 else None),
            signals=signals,
        )
    assert stopped.value.code == 143
    assert checkpoint.latest(tmp_path / "parts").name == "global_step_2"
    parts = cfg.build(tmp_path / "parts").run()
    assert_same(weights(whole), weights(parts))
    state = checkpoint.load_trainer_state(whole["checkpoint"]).tensors
    assert_same(state, checkpoint.load_trainer_state(parts["checkpoint"]).tensors)


def test_a_checkpoint_that_lacks_the_state_of_an_extra_is_named(tmp_path):
    cfg = run_cfg(max_iterations=1)
    path = Path(cfg.build(tmp_path).run()["checkpoint"])
    file = path / "trainer_state/state.json"
    facts = json.loads(file.read_text())
    del facts["alarm"]
    file.write_text(json.dumps(facts))
    atomic.write_manifest(path, **json.loads((path / "manifest.json").read_text()))
    with pytest.raises(ValueError, match=r"global_step_1 has no state 'alarm' for Guard, so"):
        cfg.build(tmp_path).run()


def test_checkpoint_acts_and_knows_its_environment(tmp_path):
    result = run_cfg().build(tmp_path).run()
    policy, interface = load_control_policy(result["checkpoint"])
    assert (interface.task, interface.num_actions) == ("Corridor", 1)
    assert interface.observation_dims == {"policy": 1, "critic": 2}
    env = CorridorCfg(num_envs=3).build()
    assert policy.act(env.get_observations()).shape == (3, 1)


def test_resume_with_another_config_shows_the_difference(tmp_path):
    run_cfg().build(tmp_path).run()
    changed = run_cfg(algorithm=PPOCfg(entropy_coef=0.0, normalize_rewards=True, gamma=0.5))
    with pytest.raises(ValueError, match=r"algorithm\.gamma: 0\.99 -> 0\.5"):
        changed.build(tmp_path).run()


def test_checkpoint_of_another_architecture_names_key_and_shapes(tmp_path):
    run_cfg().build(tmp_path).run()
    wide = ActorCriticPackCfg(actor_cfg=StateIndStdActorCfg(backbone_cfg=plain_mlp([5], "ELU")))
    with pytest.raises(ValueError, match=r"actor\.backbone\.layers\.0\.weight is \[16, 1\]"):
        run_cfg(policy=wide).build(tmp_path).run()


def test_nan_stops_the_run_names_the_environment_and_dumps_the_step(tmp_path):
    cfg = run_cfg()
    with pytest.raises(ValueError, match=r"Corridor returned nan in 'rewards' of environment 3"):
        cfg.build(tmp_path, env=Poisoned(cfg.env, 12 * 4 + 5)).run()
    dump = tmp_path / "not_finite_5"
    assert json.loads((dump / "facts.json").read_text())["iteration"] == 5
    assert (dump / "last_step.safetensors").is_file()
    assert checkpoint.latest(tmp_path).name == "global_step_3"


def test_nan_can_take_the_run_back_to_its_last_checkpoint(tmp_path):
    cfg = run_cfg(guard=GuardCfg(on_nan="rollback"), algorithm=PPOCfg(schedule="fixed"))
    with pytest.warns(UserWarning, match="returned to global_step_3 with half the learning rate"):
        result = cfg.build(tmp_path, env=Poisoned(cfg.env, 12 * 4 + 5)).run()
    assert result["steps"] == 6
    assert result["metrics"]["train/learning_rate"] == pytest.approx(5e-4)


def test_a_run_that_nan_ended_goes_on_with_the_rollback_its_message_speaks_of(tmp_path):
    cfg = run_cfg()
    with pytest.raises(ValueError, match=r"add guard\.on_nan=rollback to the same command"):
        cfg.build(tmp_path, env=Poisoned(cfg.env, 12 * 4 + 5)).run()
    runner = cfg.replace(guard=GuardCfg(on_nan="rollback")).build(tmp_path)
    assert runner.run()["steps"] == 6


def test_every_rollback_halves_the_learning_rate_once(tmp_path):
    cfg = run_cfg(
        max_iterations=9, guard=GuardCfg(on_nan="rollback"), algorithm=PPOCfg(schedule="fixed")
    )
    first = 12 * 4 + 5  # in iteration 5; from 3 on again, into iteration 8, which goes back to 6
    with pytest.warns(UserWarning, match="returned to global_step_6"):
        result = cfg.build(tmp_path, env=Poisoned(cfg.env, first, first + 12 * 4 + 5)).run()
    assert result["metrics"]["train/learning_rate"] == pytest.approx(2.5e-4)


def test_weights_that_become_nan_between_steps_take_the_run_back_as_well(tmp_path):
    cfg = run_cfg(guard=GuardCfg(on_nan="rollback"))
    env = Corridor(cfg.env)
    runner = cfg.build(tmp_path, env=env)
    step, calls = env.step, []

    def spoil(actions):
        calls.append(actions)
        if len(calls) == 12 * 4 + 5:
            torch.nn.utils.vector_to_parameters(
                torch.full((sum(p.numel() for p in runner.policy.parameters()),), torch.nan),
                runner.policy.parameters(),
            )
        return step(actions)

    env.step = spoil
    with pytest.warns(UserWarning, match=r"action of environment 0.* returned to global_step_3"):
        assert runner.run()["steps"] == 6
    assert (tmp_path / "not_finite_5").is_dir()


class Forgetful(Corridor):
    """Cannot tell its state; its curriculum goes by the number of steps."""

    def state(self):
        return None

    def set_progress(self, num_steps, seed):
        self.progress = (num_steps, seed)


def test_episodes_after_a_resume_begin_anywhere_and_later_in_the_curriculum(tmp_path):
    cfg = run_cfg()
    shutil.rmtree(cfg.build(tmp_path, env=Forgetful(cfg.env)).run()["checkpoint"])
    again = Forgetful(cfg.env)
    shown = []
    runner = cfg.build(tmp_path, env=again)
    step = again.step

    def watched(actions):
        shown.append(again.episode_length_buf.clone())
        return step(actions)

    again.step = watched
    with pytest.warns(UserWarning, match="new episodes have begun"):
        runner.run()
    assert again.progress[0] == 3 * 12
    tell_progress(runner)
    seeds = {again.progress[1]}
    runner.num_steps += 1  # a stop within an iteration
    tell_progress(runner)
    seeds.add(again.progress[1])
    runner.num_rollbacks += 1
    tell_progress(runner)
    assert len({*seeds, again.progress[1]}) == 3
    assert len(shown[0].unique()) > 4


def test_a_number_of_the_environments_that_is_not_finite_is_left_out(tmp_path):
    class Odd(Corridor):
        def step(self, actions):
            *result, extras = super().step(actions)
            log = {"error": torch.tensor(float("nan")), "speed": torch.tensor(2.0)}
            return *result, extras | {"log": log}

    cfg = run_cfg(max_iterations=1)
    metrics = cfg.build(tmp_path, env=Odd(cfg.env)).run()["metrics"]
    assert metrics["env/speed"] == 2.0
    assert "env/error" not in metrics


@pytest.mark.parametrize(
    ("memory", "alone", "count", "message"),
    [
        (None, False, 193, "193, allowed: up to 192 for the 192 samples of a rollout"),
        (None, True, 97, "up to 96 for the 192 samples"),
        (MemoryCfg(), False, 17, "up to 16 for the 16 environments, .* from whole sequences"),
        (MemoryCfg(), True, 17, "up to 16 for the 16 environments, .* from whole sequences"),
    ],
)
def test_more_mini_batches_than_samples_are_refused(tmp_path, memory, alone, count, message):
    algorithm = PPOCfg(num_mini_batches=count, normalize_advantage_per_mini_batch=alone)
    with pytest.raises(ValueError, match=message):
        run_cfg(memory, algorithm=algorithm).build(tmp_path)


@pytest.mark.parametrize(
    "actor",
    [
        StateIndStdActorCfg(backbone_cfg=plain_mlp([4], "Dropout")),
        LipsNetActorCfg(lipschitz_network_cfg=plain_mlp([4], "Dropout")),
    ],
)
def test_dropout_is_refused(tmp_path, actor):
    policy = ActorCriticPackCfg(actor_cfg=actor)
    with pytest.raises(ValueError, match="'Dropout' is random"):
        run_cfg(policy=policy).build(tmp_path)


def test_wrong_shape_from_the_environment_is_named(tmp_path):
    class Wrong(Corridor):
        def step(self, actions):
            observations, rewards, dones, extras = super().step(actions)
            return observations, rewards.unsqueeze(-1), dones, extras

    cfg = run_cfg()
    with pytest.raises(ValueError, match=r"Corridor returned rewards of shape \[16, 1\]"):
        cfg.build(tmp_path, env=Wrong(cfg.env)).run()


def test_divergence_alarm_sounds_once_per_fall():
    alarm = DivergenceAlarm(GuardCfg(divergence_drop=0.5, divergence_iterations=3))
    heard = [alarm.observe(value) for value in (0.0, 10.0, 4.0, 4.0, 4.0, 4.0, 9.0)]
    assert [warning is not None for warning in heard] == [False] * 4 + [True, False, False]
    assert "its best, 10" in heard[4]


def test_thread_tuner_keeps_the_faster_number():
    before = torch.get_num_threads()
    try:
        tuner = ThreadTuner(None)
        for _ in range(6):
            tuner.begin()
            tuner.end(1.0 if torch.get_num_threads() == 2 else 2.0)
        assert tuner.chosen == 2
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_documented_config_runs_as_printed(tmp_path):
    from rrf import algorithms, components, configclass, networks, runners

    @configclass
    class MyLocoPPOCfg(runners.OnPolicyRunnerCfg):
        seed = 42
        num_steps_per_env = 24
        max_iterations = 10000
        experiment_name = "my_experiment"
        policy = components.ActorCriticPackCfg(
            actor_cfg=components.StateIndStdActorCfg(
                backbone_cfg=networks.MLPCfg(
                    hidden_features=[512, 256, 128], activations=[[("ELU", {})]] * 3 + [[]]
                ),
                use_log_std=False,
            ),
            critic_cfg=components.VNetworkCfg(
                backbone_cfg=networks.MLPCfg(
                    hidden_features=[512, 256, 128], activations=[[("ELU", {})]] * 3 + [[]]
                )
            ),
        )
        algorithm = algorithms.PPOCfg(
            clip_param=0.2,
            entropy_coef=0.01,
            num_learning_epochs=5,
            num_mini_batches=4,
            learning_rate=1.0e-3,
            schedule="adaptive",
            gamma=0.99,
            lam=0.95,
        )

    cfg = MyLocoPPOCfg().replace(env=CorridorCfg(num_envs=4), max_iterations=2)
    assert cfg.build(tmp_path).run()["num_steps"] == 2 * 4 * 24
    assert rrf.__version__
