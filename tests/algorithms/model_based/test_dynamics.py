"""Learning dynamics from a dataset: windows, open loop against persistence, resuming, refusals."""

import signal

import pytest
import torch

from rrf.algorithms.model_based.dynamics import Recorded, open_loop_errors
from rrf.algorithms.model_based.dynamics_configs import (
    DynamicsCfg,
    MLPDynamicsCfg,
    TransformerDynamicsCfg,
)
from rrf.envs.control_env import Interface
from rrf.networks import plain_mlp
from rrf.runners.checkpoints.control import load_control_policy
from rrf.runners.control.dynamics_configs import DynamicsRunnerCfg
from rrf.runners.interruption import Interrupted, SignalWatch
from tests.algorithms.offline.corridor import record
from tests.envs.toy import CorridorCfg
from tests.runners.control.test_off_policy_runner import assert_same, everything

MODELS = {
    "mlp": MLPDynamicsCfg(network_cfg=plain_mlp([32], "SiLU")),
    "mlp of three": MLPDynamicsCfg(network_cfg=plain_mlp([32], "SiLU"), context=3),
    "transformer": TransformerDynamicsCfg(num_layers=1, width=16, num_heads=2, context=3),
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return record(tmp_path_factory.mktemp("dynamics") / "walks")


def run_cfg(dataset, model: str = "mlp", **changes) -> DynamicsRunnerCfg:
    defaults = {
        "env": CorridorCfg(num_envs=1),
        "dataset": str(dataset),
        "policy": MODELS[model],
        "algorithm": DynamicsCfg(
            learning_rate=5e-3, decay_updates=400, batch_size=32, window=MODELS[model].context + 1
        ),
        "updates_per_iteration": 100,
        "max_iterations": 4,
        "horizons": [1, 5],
        "save_interval": 2,
    }
    return DynamicsRunnerCfg(**(defaults | changes))


def recorded(lengths: list[int], terminates: list[bool]) -> Recorded:
    """Episodes that count up from 0 in steps of the action, 1."""
    states = torch.cat([torch.arange(float(length)) for length in lengths]).unsqueeze(1)
    ended = torch.cat([torch.arange(length) == length - 1 for length in lengths])
    terminated = torch.zeros_like(ended)
    terminated[ended] = torch.tensor(terminates)
    ones = torch.ones(len(states))
    return Recorded(states, ones.unsqueeze(1), ones, states + 1, terminated, ended)


def test_windows_lie_within_episodes_and_end_before_a_termination():
    data = recorded([4, 2, 3], [False, False, True])
    assert data.episode_numbers().tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 2]
    assert data.windows(3).tolist() == [[0, 1, 2], [1, 2, 3]]
    assert data.windows(2).tolist() == [[0, 1], [1, 2], [2, 3], [4, 5], [6, 7]]
    assert data.windows(5).tolist() == []


def test_whole_episodes_are_held_out():
    data = recorded([4, 2, 3, 5, 6], [False] * 5)
    training, held = data.split(0.4, torch.Generator().manual_seed(0))
    assert int(held.ended.sum()) == 2
    assert int(training.ended.sum()) == 3
    assert len(held.states) + len(training.states) == 20
    starts = torch.cat([torch.tensor([True]), held.ended[:-1]])
    assert (held.states[starts] == 0).all()
    with pytest.raises(ValueError, match="there is 1 episode, but one must be held out"):
        recorded([4], [False]).split(0.5, torch.Generator())


def counting_model(cfg):
    """A model that says: the state grows by 1.25 times the action; rewards are 1."""
    model = cfg.build(Interface({"policy": 1}, 1, task="counting"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    model.targets.mean.copy_(torch.tensor([1.0, 1.25]))
    model.pairs.std.copy_(torch.tensor([2.0, 1.0]))
    return model


@pytest.mark.parametrize("cfg", MODELS.values(), ids=MODELS)
def test_errors_in_open_loop_are_worked_by_hand(cfg):
    data = recorded([12, 9], [False, True])
    metrics = open_loop_errors(counting_model(cfg), data, [1, 4])
    # The prediction is 0.25 H too high, persistence H too low; a standard deviation is 2.
    assert metrics["open_loop/rmse_1"] == pytest.approx(0.125)
    assert metrics["open_loop/rmse_4"] == pytest.approx(0.5)
    assert metrics["open_loop/persistence_1"] == pytest.approx(0.5)
    assert metrics["open_loop/persistence_4"] == pytest.approx(2.0)
    assert metrics["open_loop/reward_rmse"] == pytest.approx(0.0)
    assert metrics["open_loop/termination_errors"] == pytest.approx(1 / 21)  # it never says yes


@pytest.mark.parametrize("name", ["mlp of three", "transformer"])
def test_a_prediction_depends_on_the_context_and_not_on_the_future(name):
    torch.manual_seed(0)
    model = MODELS[name].build(Interface({"policy": 1}, 1, task="counting"))
    pairs = torch.randn(1, 6, 2)

    def said_at_3(**changed):
        other = pairs.clone()
        for position in changed.values():
            other[0, position] += 1.0
        return model(other).targets[0, 3]

    expected = said_at_3()
    torch.testing.assert_close(said_at_3(future=4), expected)
    torch.testing.assert_close(said_at_3(now=5), expected)
    assert (said_at_3(now=3) - expected).abs().max() > 1e-3
    assert (said_at_3(before=1) - expected).abs().max() > 1e-5


@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_it_learns_the_corridor(tmp_path, dataset, name):
    metrics = run_cfg(dataset, name).build(tmp_path).run()["metrics"]
    for horizon in (1, 5):
        error, still = (metrics[f"open_loop/{one}_{horizon}"] for one in ("rmse", "persistence"))
        assert error < 0.2 * still
    assert metrics["open_loop/reward_rmse"] < 0.2


def test_terminations_have_no_next_state_to_learn(tmp_path, dataset):
    runner = run_cfg(dataset, max_iterations=1).build(tmp_path)
    learner = runner.algorithm
    learner.terminated[:] = True
    learner.targets[:, 1:] = 1e6
    learner.targets[:, 0] = runner.policy.targets.mean[0]
    loss = learner.make_updates(1)["loss/dynamics"]
    assert loss < 1  # of rewards alone
    learner.terminated[:] = False
    assert learner.make_updates(1)["loss/dynamics"] > 1e6


@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_a_stopped_run_continues_bit_for_bit(tmp_path, dataset, name):
    cfg = run_cfg(dataset, name, updates_per_iteration=60, max_iterations=3, save_interval=1)
    whole = cfg.build(tmp_path / "whole").run()
    signals, stopped = SignalWatch(), cfg.build(tmp_path / "stopped")
    update, calls = stopped.algorithm.make_updates, []

    def stop(count):
        calls.append(1)
        signals.received = signal.SIGTERM if len(calls) == 3 else None  # an iteration has two
        return update(count)

    stopped.algorithm.make_updates = stop
    with pytest.raises(Interrupted):
        stopped.run(signals=signals)
    assert stopped.algorithm.num_updates == 110
    resumed = cfg.build(tmp_path / "stopped").run()
    assert_same(everything(whole), everything(resumed))
    assert resumed["metrics"]["open_loop/rmse_5"] == whole["metrics"]["open_loop/rmse_5"]


def test_a_model_is_no_policy(tmp_path, dataset):
    result = run_cfg(dataset, max_iterations=1).build(tmp_path).run()
    with pytest.raises(ValueError, match="a model of the dynamics of Corridor, which cannot act"):
        load_control_policy(result["checkpoint"])


def test_a_horizon_beyond_the_episodes_is_refused(tmp_path, dataset):
    message = (
        r"25 steps in open loop need held-out episodes of 27 .* but the longest has \d+; lower"
    )
    with pytest.raises(ValueError, match=message):
        run_cfg(dataset, "transformer", horizons=[1, 25]).build(tmp_path)


def test_a_dataset_is_needed(tmp_path, dataset):
    with pytest.raises(ValueError, match="dataset is not given; name a published dataset"):
        run_cfg(dataset).replace(dataset="").build(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizons": [0, 5]}, r"horizons is \[0, 5\], allowed: numbers of 1 or more"),
        ({"holdout_fraction": 1.0}, "holdout_fraction 1.0, allowed: .* between 0 and 1"),
    ],
)
def test_impossible_runs_are_refused(dataset, changes, message):
    with pytest.raises(ValueError, match=message):
        run_cfg(dataset, **changes)
