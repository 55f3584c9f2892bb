"""The flow-matching head: which steps are random, what is executed, and what it learns."""

import pytest
import torch

from rrf.policies import FlowMatchingHeadCfg
from rrf.policies.vla.flow_matching import noise_share, ode_step
from rrf.policies.vla.mlp_flow_head import FlowMatchingHead
from tests.policies.vla.conftest import (
    ACTION,
    CHUNK,
    FEATURES,
    FLOWS,
    draw,
    features,
    make_head,
    name,
    train,
)


def test_flow_loss_is_the_squared_error_of_the_velocity_without_padding():
    head = make_head(FlowMatchingHeadCfg())
    with torch.no_grad():
        head.output.weight.zero_()
    is_pad = torch.tensor([[False, True]])
    target = torch.full((1, CHUNK, ACTION), 0.5)
    torch.manual_seed(7)
    loss, metrics = head.loss(features(1), target, is_pad)
    torch.manual_seed(7)
    noise = torch.randn(1, CHUNK, ACTION)
    # the network says 0, so the error is noise - action itself, in the first step alone
    assert loss.item() == pytest.approx(((noise[0, 0] - 0.5) ** 2).mean().item(), rel=1e-6)
    assert set(metrics) == {"loss/action_l1"}


@pytest.mark.parametrize(
    ("method", "with_noise"),
    [("flow_cps", [0, 1, 2]), ("flow_sde", [0, 1, 2, 3]), ("reinflow", [0, 1, 2, 3])],
)
def test_each_sample_draws_its_own_step_among_those_with_noise(method, with_noise):
    head = make_head(FlowMatchingHeadCfg(noise_method=method))
    index = draw(head, features(3000), seed=5).replay["denoise_index"]
    shares = torch.bincount(index, minlength=4) / 3000
    expected = [1 / len(with_noise) if step in with_noise else 0.0 for step in range(4)]
    assert shares.tolist() == pytest.approx(expected, abs=0.03)
    assert shares[torch.tensor(expected) == 0].tolist() == [0.0] * (4 - len(with_noise))
    assert torch.equal(index, draw(head, features(3000), seed=5).replay["denoise_index"])
    assert not torch.equal(index, draw(head, features(3000), seed=6).replay["denoise_index"])
    log_prob = draw(head, features(50), seed=5).log_prob
    assert log_prob is not None
    assert (log_prob != 0).all()


@pytest.mark.parametrize("cfg", FLOWS, ids=name)
def test_steps_other_than_the_drawn_one_follow_the_ode(cfg):
    head = make_head(cfg)
    sample = draw(head, features(40))
    chain = sample.replay["chain"]
    for step in range(4):
        steps = torch.full((40,), step)
        with torch.no_grad():
            velocity, _ = head.velocity(features(40), chain[:, step], noise_share(steps, 4))
        ode, _ = ode_step(chain[:, step], velocity, steps, 4, cfg.time_convention)
        follows = (chain[:, step + 1] - ode).abs().amax((1, 2)) < 1e-5
        # CPS ends without noise: its last step is the ODE's even where every step is random.
        is_last_of_cps = cfg.noise_method == "flow_cps" and step == 3
        if cfg.stochastic_steps == "one":
            assert torch.equal(~follows, sample.replay["denoise_index"] == step)
        else:
            assert follows.all() if is_last_of_cps else not follows.any()
    assert torch.equal(chain[:, -1], sample.actions)


def test_greedy_follows_the_ode_from_zero_and_needs_no_generator():
    head = make_head(FlowMatchingHeadCfg(num_denoise_steps=2))
    with torch.no_grad():
        head.output.weight.zero_()
        head.output.bias.copy_(torch.tensor([0.2, -0.4, 0.6, 0.0, 1.0, 2.0]))
    sample = draw(head, features(3), greedy=True)
    assert torch.equal(sample.replay["chain"][:, 0], torch.zeros(3, CHUNK, ACTION))
    # openpi's velocity points from action to noise: the action is minus the constant velocity
    expected = [-0.2, 0.4, -0.6, 0.0, -1.0, -2.0]
    assert sample.actions[0].flatten().tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("cfg", FLOWS, ids=name)
def test_elements_that_are_not_executed_change_no_log_prob(cfg):
    head = make_head(cfg)
    short = make_head(cfg.replace(env_chunk_length=1, env_action_dim=2))
    whole, sample = draw(head, features(6)), draw(short, features(6))
    assert torch.equal(whole.actions, sample.actions)
    assert whole.log_prob is not None
    assert sample.log_prob is not None
    executed = torch.tensor([True, True, False, False, False, False])
    assert torch.equal(sample.log_prob[:, executed], whole.log_prob[:, executed])
    assert (sample.log_prob[:, ~executed] == 0).all()
    log_prob, entropy = short.evaluate(features(6), sample.replay)
    assert (entropy[:, ~executed] == 0).all()
    assert (entropy[:, executed] != 0).all()
    # the end of a chain is no input of the network: what pads it must not matter
    changed = sample.replay | {"chain": sample.replay["chain"].clone()}
    changed["chain"][:, -1].flatten(1)[:, ~executed] += 1.0
    assert torch.equal(short.evaluate(features(6), changed)[0], log_prob)


@pytest.mark.parametrize(
    ("steps", "start_noise"), [("one", 1.0), ("one", 0.5), ("all", 1.0), ("all", 0.5), ("all", 0.0)]
)
def test_flow_log_prob_is_that_of_its_normal_distributions(steps, start_noise):
    cfg = FlowMatchingHeadCfg(
        stochastic_steps=steps, start_noise=start_noise, noise_level=1 / 3, num_denoise_steps=2
    )
    head = make_head(cfg)
    usual = make_head(cfg.replace(start_noise=1.0))
    with torch.no_grad():
        head.output.weight.zero_()
        head.output.bias.fill_(0.5)
    sample = draw(head, features(4))
    start, middle, _ = sample.replay["chain"].unbind(1)
    wide = draw(usual, features(4)).replay["chain"][:, 0]
    assert torch.allclose(start, start_noise * wide)
    # s = 1, v = 0.5: action start - 0.5, noise start; s' = 0.5, angle pi / 6
    mean = 0.5 * (start - 0.5) + 0.5 * 0.8660254 * start
    expected = torch.distributions.Normal(mean, 0.25).log_prob(middle)
    if steps == "all":  # the start, the first step, and the last, which has no noise
        beginning = 0.0  # a start without noise has no density
        if start_noise:
            beginning = torch.distributions.Normal(0.0, start_noise).log_prob(start)
        expected = (beginning + expected + 0.0) / 3
    assert sample.log_prob is not None
    assert torch.allclose(sample.log_prob, expected.flatten(1), atol=1e-5)
    assert torch.equal(head.evaluate(features(4), sample.replay)[0], sample.log_prob)


def test_a_flow_learns_two_modes_where_a_mean_would_lie_between_them():
    torch.manual_seed(0)
    head = FlowMatchingHead(
        FlowMatchingHeadCfg(hidden_features=[64, 64], num_denoise_steps=10), 1, 1, 1
    )
    inputs = torch.zeros(512, 1)
    target = torch.where(torch.arange(512) % 2 == 0, 0.8, -0.8).view(512, 1, 1)
    train(head, inputs, target, num_steps=500, lr=3e-3)
    actions = draw(head, inputs).actions.flatten()
    assert ((actions.abs() - 0.8).abs() < 0.3).float().mean() > 0.8
    assert 0.35 < (actions > 0).float().mean() < 0.65


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_denoise_steps": 1}, "num_denoise_steps is 1, allowed for flow_cps: 2 or more"),
        ({"num_denoise_steps": 0, "noise_method": "flow_sde"}, "flow_sde: 1 or more"),
        ({"noise_level": 0.0}, "noise_level is 0.0"),
        ({"noise_level": 1.5}, "noise_level is 1.5"),
        ({"start_noise": 1.5}, "start_noise is 1.5, allowed: 0 to 1"),
        ({"noise_method": "flow_ode"}, "noise_method"),
        ({"time_convention": "openvla"}, "time_convention"),
        ({"stochastic_steps": "some"}, "stochastic_steps"),
        ({"hidden_features": []}, r"hidden_features is \[\]"),
        ({"std_hidden_features": [0]}, r"std_hidden_features is \[0\]"),
        ({"min_std": 0.2}, "min_std is 0.2 and max_std is 0.16"),
        ({"env_action_dim": 0}, "env_action_dim is 0"),
        ({"env_chunk_length": -1}, "env_chunk_length is -1"),
    ],
)
def test_a_flow_head_without_sense_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        FlowMatchingHeadCfg(**values)


@pytest.mark.parametrize(("field", "have"), [("env_action_dim", 3), ("env_chunk_length", 2)])
def test_more_executed_elements_than_predicted_are_refused(field, have):
    cfg = FlowMatchingHeadCfg().replace(**{field: 4})
    with pytest.raises(ValueError, match=f"{field} is 4, allowed: 1 to {have}"):
        cfg.build(FEATURES, CHUNK, ACTION)
