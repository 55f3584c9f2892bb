import signal

import pytest
import torch
from tensordict import TensorDict

from rrf.algorithms import AMPCfg
from rrf.envs.control_env import Interface
from rrf.evaluation.control.metrics import motion_distance
from rrf.networks.configs import plain_mlp
from rrf.policies import ActorCriticPackCfg, StateIndStdActorCfg, VNetworkCfg
from rrf.policies.control.actor_critic import ControlPolicy
from rrf.runners.checkpoints import checkpoint
from rrf.runners.control.amp_configs import AMPRunnerCfg
from rrf.runners.interruption import Interrupted, SignalWatch
from rrf.storage.ring import Ring
from rrf.storage.rollout import ControlStep
from tests.algorithms.imitation.walker import WalkerCfg
from tests.envs.toy import CorridorCfg

SMALL = plain_mlp([32], "Tanh")
PACK = ActorCriticPackCfg(
    actor_cfg=StateIndStdActorCfg(backbone_cfg=SMALL), critic_cfg=VNetworkCfg(backbone_cfg=SMALL)
)


def algorithm_of(**settings):
    """An algorithm for two environments whose frames are one number."""
    torch.manual_seed(0)
    cfg = AMPCfg(discriminator_cfg=SMALL, **settings)
    policy = PACK.build(Interface({"policy": 1, "amp": 1}, 1))
    return cfg.build(policy, 2, 2, torch.Generator().manual_seed(0))


def style_of(**settings):
    return algorithm_of(**settings).style


def observed(*rows):
    column = torch.tensor(rows).unsqueeze(-1)
    return TensorDict({"policy": column, "amp": column}, batch_size=[len(rows)])


def step(before, after, dones=(False, False), final=None):
    zeros = torch.zeros(2)
    done, late = torch.tensor(dones), torch.tensor([False, False])
    return ControlStep(before, zeros.unsqueeze(-1), zeros, done, late, after, final)


def clip(*numbers):
    return torch.tensor(numbers).unsqueeze(-1)


def test_reward_is_the_weighted_sum_of_task_and_style():
    style = style_of(task_weight=0.25, style_weight=2.0)
    style.follow([clip(0.0, 1.0, 0.0)])
    move = step(observed(0.0, 1.0), observed(1.0, 0.0))
    got = style.rewards(move, torch.tensor([8.0, -4.0]))
    with torch.no_grad():
        pairs = torch.tensor([[[0.0], [1.0]], [[1.0], [0.0]]])
        logits = style.discriminator(style.discriminator.normalized(pairs))
    expected = torch.tensor([2.0, -1.0]) + 2.0 * (1 - 0.25 * (logits - 1) ** 2)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)


def test_no_transition_leads_from_one_episode_into_the_next():
    style = style_of()
    style.follow([clip(0.0, 1.0)])
    ends = step(observed(0.1, 0.2), observed(0.3, 9.0), (False, True), observed(0.4))
    style.rewards(ends, torch.zeros(2))
    torch.testing.assert_close(style._seen[0].squeeze(-1), torch.tensor([[0.1, 0.3], [0.2, 0.4]]))


def test_no_transition_leads_from_one_clip_into_the_next():
    style = style_of()
    style.follow([clip(0.0, 1.0, 2.0), clip(5.0, 6.0)])
    assert style.reference.squeeze(-1).tolist() == [[0.0, 1.0], [1.0, 2.0], [5.0, 6.0]]
    mean = style.discriminator.normalizer.mean.item()
    assert mean == pytest.approx((0 + 1 + 1 + 2 + 5 + 6) / 6)


def test_replay_fills_up_and_then_takes_a_sample_of_each_rollout():
    style = style_of(style_replay_size=5, replay_samples=1, discriminator_batch_size=4)
    style.follow([clip(0.0, 1.0)])
    sizes = []
    for rollout in range(3):
        for _ in range(2):
            frame = observed(float(rollout), float(rollout))
            style.rewards(step(frame, frame), torch.zeros(2))
        style.learn()
        sizes.append((len(style.replay), style.replay.total))
    assert sizes == [(4, 4), (5, 5), (5, 6)]
    assert sorted(style.replay.rows[:, 0, 0].tolist()) == [0, 0, 0, 1, 2]


def test_ring_keeps_the_newest_rows():
    ring = Ring(3, (1,))
    for numbers in ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0, 7.0, 8.0, 9.0]):
        ring.write(torch.tensor(numbers).unsqueeze(-1))
        newest = sorted(ring.rows[: len(ring), 0].tolist())
        assert newest[-1] == numbers[-1]
    assert newest == [7.0, 8.0, 9.0]
    assert (ring.total, ring.room) == (9, 0)
    other = Ring(3, (1,))
    other.load_state(ring.state())
    assert torch.equal(other.rows, ring.rows)
    ring.write(torch.tensor([[10.0]]))
    other.write(torch.tensor([[10.0]]))
    assert torch.equal(other.rows, ring.rows)


def test_discriminator_learns_to_tell_both_apart():
    style = style_of(discriminator_learning_rate=1e-2, discriminator_updates=40)
    style.follow([clip(0.0, 1.0, 0.0, 1.0)])
    move = step(observed(0.5, 0.5), observed(0.5, 0.5))
    before = style.rewards(move, torch.zeros(2)).mean()
    style.learn()
    style.rewards(move, torch.zeros(2))
    metrics = style.learn()
    assert metrics["amp/accuracy_policy"] > 0.8
    assert metrics["amp/accuracy_reference"] > 0.8
    assert style.rewards(move, torch.zeros(2)).mean() < before / 2


def test_a_rollback_slows_the_discriminator_down_and_a_resumed_run_keeps_it():
    algorithm = algorithm_of(discriminator_learning_rate=1e-3)
    algorithm.style.follow([clip(0.0, 1.0)])
    algorithm.slow_down(0.5)
    again = algorithm_of(discriminator_learning_rate=1e-3)
    again.style.follow([clip(0.0, 1.0)])
    again.load_state(*algorithm.state())
    for style in (algorithm.style, again.style):
        assert style.optimizer.param_groups[0]["lr"] == 5e-4


def test_bad_input_is_named():
    style = style_of()
    with pytest.raises(ValueError, match=r"motion 1 has frames of 2 numbers.*'amp' has 1"):
        style.follow([clip(0.0, 1.0), torch.zeros(3, 2)])
    with pytest.raises(ValueError, match="no reference motions of 2 frames or more"):
        style.follow([clip(0.0)])
    with pytest.raises(ValueError, match=r"discriminator reads observation group 'apm'.*'amp'\?"):
        style_of(observation_group="apm")
    with pytest.raises(ValueError, match=r"style_weight is 0\.0, allowed: above 0"):
        AMPCfg(style_weight=0.0)
    with pytest.raises(ValueError, match=r"gradient_penalty is -1\.0"):
        AMPCfg(gradient_penalty=-1.0)


def run_cfg(**changes) -> AMPRunnerCfg:
    algorithm = AMPCfg(
        task_weight=0.0,
        style_weight=1.0,
        entropy_coef=0.0,
        learner_threads=1,
        discriminator_cfg=plain_mlp([32, 32], "ReLU"),
        discriminator_learning_rate=1e-3,
        discriminator_batch_size=128,
        style_replay_size=2000,
        replay_samples=200,
    )
    cfg = AMPRunnerCfg(
        env=WalkerCfg(), policy=PACK, algorithm=algorithm, num_steps_per_env=10, max_iterations=4
    )
    return cfg.replace(trackers=[]).replace(**changes)


def test_environment_without_reference_motions_is_refused(tmp_path):
    cfg = run_cfg(env=CorridorCfg())
    with pytest.raises(ValueError, match="observation group 'amp'"):
        cfg.build(tmp_path)
    cfg = run_cfg(env=CorridorCfg(), algorithm=AMPCfg(observation_group="policy"))
    with pytest.raises(ValueError, match="Corridor has no reference motions; use"):
        cfg.build(tmp_path)


def everything(result):
    path = result["checkpoint"]
    return checkpoint.read_weights(path) | checkpoint.load_trainer_state(path).tensors


def test_a_stopped_run_continues_bit_for_bit(tmp_path):
    whole = run_cfg().build(tmp_path / "whole").run()
    signals, stopped = SignalWatch(), run_cfg().build(tmp_path / "stopped")

    def stop(progress):
        signals.received = signal.SIGTERM if progress.iteration == 2 else None

    with pytest.raises(Interrupted):
        stopped.run(on_progress=stop, signals=signals)
    resumed = run_cfg().build(tmp_path / "stopped").run()
    ours, theirs = everything(whole), everything(resumed)
    assert ours.keys() == theirs.keys()
    assert any("replay/rows" in name for name in ours)
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name


def test_a_run_whose_clips_changed_is_not_resumed(tmp_path):
    run_cfg(max_iterations=1).build(tmp_path).run()
    env = WalkerCfg().build()
    env.cfg = WalkerCfg(period=10)
    with pytest.raises(ValueError, match="reference motions changed since"):
        run_cfg(max_iterations=1).build(tmp_path, env=env).run()


def greedy_motion(policy) -> torch.Tensor:
    """Positions [8, T] that the policy's mode goes through."""
    env = WalkerCfg(num_envs=8).build(seed=7)
    acting, seen = ControlPolicy(policy.actor), []
    for _ in range(env.cfg.length - 1):
        env.step(acting.act(env.get_observations(), greedy=True))
        seen.append(env.frames())
    return torch.cat(seen, 1)[:, 10:]


def distance(motion_nt) -> float:
    references = WalkerCfg().build().reference_frames()
    found = [motion_distance(one.unsqueeze(-1), references, 5) for one in motion_nt]
    return sum(found) / len(found)


@pytest.mark.parametrize("form", ["lsgan", pytest.param("bce", marks=pytest.mark.slow)])
def test_policy_learns_the_reference_motion(tmp_path, form):
    cfg = run_cfg(max_iterations=30)
    runner = cfg.replace(algorithm=cfg.algorithm.replace(form=form)).build(tmp_path)
    before = greedy_motion(runner.policy)
    runner.run()
    after = greedy_motion(runner.policy)
    assert distance(after) < distance(before) / 3
