"""Belief Flow and GRU-D: a step by hand, sequences, and what their predictions are worth."""

import math

import pytest
import torch
from torch import nn

from rrf.envs.control_env import Interface
from rrf.networks import plain_mlp
from rrf.policies import ActorQPackCfg, BeliefFlowCfg, GRUDCfg, QNetworkCfg, SACActorCfg
from tests.policies.control.oscillators import oscillators

FLOW = BeliefFlowCfg(num_fast=1, num_slow=1, hidden_size=8)
GRU_D = GRUDCfg(num_fast=1, num_slow=1, hidden_size=8)
ENCODERS = pytest.mark.parametrize("cfg", [FLOW, GRU_D], ids=["flow", "gru_d"])


def observed(slow: float, is_seen: float, age: float = 0.0, fast: float = 0.5) -> torch.Tensor:
    """One observation with the action 0."""
    return torch.tensor([[fast, slow, 0.0, is_seen, age]])


def built(cfg, **changes):
    torch.manual_seed(0)
    return cfg.replace(**changes).build(5)


@torch.no_grad()
def reads_only(cell: nn.GRUCell, column: int) -> None:
    """Make a cell of width 1 compute (tanh(its input's `column`) + h) / 2."""
    for parameter in cell.parameters():
        parameter.zero_()
    cell.weight_ih[2, column] = 1.0


def hand_worked_flow(dt: float = 1.0):
    encoder = built(FLOW, hidden_size=1, dt=dt)
    reads_only(encoder.flow, 0)
    reads_only(encoder.correction, 0)
    return encoder


def stepped(encoder, x: torch.Tensor, belief: float) -> float:
    features, memory = encoder.step(x, torch.full((1, 1, 1), belief))
    assert torch.equal(memory[0], features)
    return features.item()


def test_a_step_of_belief_flow_by_hand():
    # The flow ends at (tanh 0.5 + 0.2) / 2 = 0.331059.
    encoder = hand_worked_flow()
    assert stepped(encoder, observed(-1.0, 0), 0.2) == pytest.approx(0.331059, abs=1e-6)
    # The correction is (tanh -1 + 0.331059) / 2.
    assert stepped(encoder, observed(-1.0, 1), 0.2) == pytest.approx(-0.215268, abs=1e-6)
    # Half an Euler step: 0.2 + 0.5 (0.331059 - 0.2).
    assert stepped(hand_worked_flow(0.5), observed(-1.0, 0), 0.2) == pytest.approx(
        0.265529, abs=1e-6
    )


def test_belief_flow_is_not_corrected_where_nothing_arrives():
    encoder, memory = built(FLOW), torch.randn(1, 2, 8)
    x = torch.cat([observed(1.0, 0), observed(1.0, 1)])
    other = torch.cat([observed(-2.0, 0), observed(-2.0, 1)])
    (one, two), (again, moved) = (encoder.step(each, memory)[0] for each in (x, other))
    assert torch.equal(one, again)
    assert (two - moved).abs().min() > 1e-4


def hand_worked_gru_d():
    encoder = built(GRU_D, hidden_size=1)
    reads_only(encoder.rnn, 2)  # fast, action, slow, is seen
    with torch.no_grad():
        for rate, weight in ((encoder.value_rate, 2.0), (encoder.belief_rate, 1.0)):
            rate.weight.fill_(weight)
            rate.bias.zero_()
    return encoder


def test_a_step_of_gru_d_by_hand():
    encoder = hand_worked_gru_d()
    # The value decays to 3 exp(-1) = 1.103638, the belief to 0.2 exp(-0.5) = 0.121306.
    unseen = stepped(encoder, observed(3.0, 0, age=0.5), 0.2)
    assert unseen == pytest.approx((0.801802 + 0.121306) / 2, abs=1e-5)
    # A value that is seen does not decay: tanh 3 = 0.995055.
    seen = stepped(encoder, observed(3.0, 1, age=0.5), 0.2)
    assert seen == pytest.approx((0.995055 + 0.121306) / 2, abs=1e-5)


def test_gru_d_decays_to_the_mean():
    # After a very long time neither the last value nor the belief is left; the mean is 0.
    assert stepped(hand_worked_gru_d(), observed(3.0, 0, age=100.0), 0.2) == pytest.approx(0.0)


def test_negative_rates_do_not_let_gru_d_grow():
    encoder = hand_worked_gru_d()
    with torch.no_grad():
        encoder.value_rate.weight.fill_(-2.0)
        encoder.belief_rate.weight.fill_(-1.0)
    found = stepped(encoder, observed(3.0, 0, age=0.5), 0.2)
    assert found == pytest.approx((0.995055 + 0.2) / 2, abs=1e-6)


@ENCODERS
def test_a_sequence_gives_the_beliefs_of_single_steps(cfg):
    encoder = built(cfg)
    x = oscillators(12, 3, torch.Generator().manual_seed(0))
    starts = torch.zeros(12, 3, dtype=torch.bool)
    starts[7, 1] = True
    memory = torch.randn(1, 3, 8)
    unrolled, after = encoder.unroll(x, x + 0.1, memory, starts)
    parts, between = [], memory
    for part in (slice(0, 5), slice(5, 12)):  # in two chunks
        beliefs, _ = encoder.unroll(x[part], None, between, starts[part])
        parts.append(beliefs)
        between = beliefs[-1:]
    torch.testing.assert_close(torch.cat(parts), unrolled)
    for t in range(12):
        memory = memory * (~starts[t]).view(1, -1, 1)
        then, _ = encoder.step(x[t] + 0.1, encoder.step(x[t], memory)[1])
        features, memory = encoder.step(x[t], memory)
        torch.testing.assert_close(features, unrolled[t])
        torch.testing.assert_close(then, after[t])
    assert not after.requires_grad
    forgotten, _ = encoder.step(x[7, 1:2], torch.zeros(1, 1, 8))
    torch.testing.assert_close(forgotten[0], unrolled[7, 1])


def test_the_losses_of_predictions_by_hand():
    encoder = built(FLOW)
    with torch.no_grad():
        for decoder, mean in ((encoder.slow_decoder, 1.0), (encoder.fast_decoder, 0.5)):
            for parameter in decoder.parameters():
                parameter.zero_()
            decoder.layers[-1].bias[0] = mean
    # A slow value of 3 arrives in step 2, where 0.5 was held; the episode of step 3 is a new one.
    x = torch.stack([observed(0.5, 1), observed(0.5, 0), observed(3.0, 1), observed(9.0, 1)])
    x[2, 0, 0] = 1.5
    starts = torch.tensor([[False], [False], [False], [True]])
    beliefs, _ = encoder.unroll(x, None, encoder.initial_memory(1), starts)
    loss, metrics = encoder.loss(x, beliefs, starts)
    constant = 0.5 * math.log(2 * math.pi)
    assert metrics["slow_mse"].item() == pytest.approx(4.0)
    assert metrics["hold_mse"].item() == pytest.approx(6.25)
    assert metrics["slow_nll"].item() == pytest.approx(2.0 + constant)
    assert metrics["fast_nll"].item() == pytest.approx(0.25 + constant)  # errors 0 and 1
    assert loss.item() == pytest.approx(2.25 + 2 * constant)
    weighted = built(FLOW, slow_coef=0.0, fast_coef=2.0)
    weighted.load_state_dict(encoder.state_dict())
    assert weighted.loss(x, beliefs, starts)[0].item() == pytest.approx(0.5 + 2 * constant)


@ENCODERS
def test_a_prediction_does_not_see_what_arrives(cfg):
    encoder = built(cfg)
    x = oscillators(21, 4, torch.Generator().manual_seed(1))
    starts = torch.zeros(21, 4, dtype=torch.bool)
    env = 2
    arrival = next(t for t in range(5, 21) if x[t, env, 3] == 1)
    changed = x.clone()
    changed[arrival, env, 1] += 5.0
    (mean, beliefs), (other, moved) = (
        (encoder.predicted_slow(each, beliefs)[0], beliefs)
        for each in (x, changed)
        for beliefs, _ in [encoder.unroll(each, None, encoder.initial_memory(4), starts)]
    )
    assert torch.equal(mean[arrival - 1], other[arrival - 1])  # row t predicts step t + 1
    assert (beliefs[arrival, env] - moved[arrival, env]).abs().max() > 1e-3
    assert (mean[arrival, env] - other[arrival, env]).abs().max() > 1e-4


def test_a_belief_is_compared_with_where_it_really_went():
    encoder = built(FLOW, consistency_coef=2.0, consistency_steps=2)
    x = oscillators(4, 1, torch.Generator().manual_seed(0))
    starts = torch.zeros(4, 1, dtype=torch.bool)
    with torch.no_grad():
        beliefs, _ = encoder.unroll(x, None, encoder.initial_memory(1), starts)
        one, two = x[1:3, :, 2:3], x[2:4, :, 2:3]
        first = torch.stack([rolled(encoder, b, a) for b, a in zip(beliefs[:2], one, strict=True)])
        second = torch.stack([rolled(encoder, b, a) for b, a in zip(first, two, strict=True)])
        targets = torch.zeros_like(beliefs)
        expected = (first.square().mean() + second.square().mean()) / 2
        found = encoder.consistency(x, beliefs, starts, targets)
        assert found.item() == pytest.approx(expected.item(), rel=1e-5)
        # A new episode in step 2: only the first belief is rolled, and only by one step.
        starts[2] = True
        found = encoder.consistency(x, beliefs, starts, targets)
        assert found.item() == pytest.approx(first[0].square().mean().item() / 2, rel=1e-5)
        loss, metrics = encoder.loss(x, beliefs, starts, targets)
        plain, _ = built(FLOW).loss(x, beliefs, starts)
        assert (loss - plain).item() == pytest.approx(2 * metrics["consistency"].item(), rel=1e-4)


def rolled(encoder, belief: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """The belief after a step in which the fast dimensions are as they were predicted."""
    fast = encoder.predicted_fast(belief, action)[0]
    unseen = torch.zeros_like(action)
    return encoder.step(torch.cat([fast, unseen, action, unseen, unseen], -1), belief[None])[0]


def hold_ratio(encoder, num_updates: int) -> float:
    """Train on oscillators; then the error of predicted velocities on others, over that of holding
    the last value."""
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=3e-3, fused=True)

    def loss(num_steps: int, count: int):
        x = oscillators(num_steps, count, generator)
        starts = torch.zeros(num_steps, count, dtype=torch.bool)
        beliefs, _ = encoder.unroll(x, None, encoder.initial_memory(count), starts)
        return encoder.loss(x, beliefs, starts)

    for _ in range(num_updates):
        optimizer.zero_grad()
        loss(20, 32)[0].backward()
        optimizer.step()
    with torch.no_grad():
        metrics = loss(100, 256)[1]
    return (metrics["slow_mse"] / metrics["hold_mse"]).sqrt().item()


@ENCODERS
def test_a_velocity_is_predicted_better_than_by_holding_the_last(cfg):
    encoder = built(cfg, hidden_size=32)
    assert hold_ratio(encoder, 0) > 0.8
    assert hold_ratio(encoder, 100) < 0.5


@ENCODERS
def test_an_actor_with_normalised_observations_knows_what_was_seen(cfg):
    both = {"backbone_cfg": plain_mlp([8], "ReLU"), "encoder": cfg, "obs_normalization": True}
    pack = ActorQPackCfg(actor_cfg=SACActorCfg(**both), critic_cfg=QNetworkCfg(**both))
    actor = pack.build(Interface(observation_dims={"policy": 5}, num_actions=1)).actor
    for interval in (2, 10):
        x = torch.rand(20 * interval, 5)
        x[:, 3] = (torch.arange(20 * interval) % interval == 0).float()
        actor.normalizer.count.zero_()
        actor.normalizer.update(x)
        assert torch.equal(actor.memory.sensed(actor.normalized(x)).is_seen[:, 0], x[:, 3] == 1)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: FLOW.replace(num_slow=0), "num_slow is 0, allowed: 1 or more"),
        (lambda: FLOW.replace(hidden_size=0), "hidden_size is 0"),
        (lambda: FLOW.replace(fast_coef=-1.0), "fast_coef is -1.0, allowed: 0 or more"),
        (lambda: FLOW.replace(dt=0.0), "dt is 0.0, allowed: above 0 and up to 1"),
        (lambda: FLOW.replace(consistency_steps=0), "consistency_steps is 0"),
        (lambda: FLOW.replace(num_fast=2).build(5), "has 5 numbers.*SlowSensorEnvCfg"),
    ],
)
def test_impossible_encoders_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
