"""How off-policy algorithms act, count and remember."""

import dataclasses
import json

import pytest
import torch

from rrf.algorithms import DSACCfg, DSACTCfg, SACCfg, SACSeqCfg, SACTransCfg
from rrf.networks import plain_mlp
from rrf.policies import DistributionalQCfg, GRUEncoderCfg, SACActorCfg
from rrf.storage.replay import Transitions
from rrf.storage.rollout import ControlStep
from rrf.storage.sequences import Sequences
from tests.algorithms.off_policy.toy import ALGORITHMS, GRU, TRANSFORMER, pack
from tests.envs.toy import CorridorCfg
from tests.golden_files import GOLDEN

NAMES = list(ALGORITHMS)
TRACE = GOLDEN / "off_policy_trace.json"


class Loop:
    """An algorithm and its environment, stepped by hand."""

    def __init__(self, algorithm, policy, seed: int = 0, replay_size: int = 400, num_envs: int = 4):
        self.env = CorridorCfg(num_envs=num_envs).build(seed=seed)
        torch.manual_seed(seed)
        self.policy = policy.build(self.env.interface)
        generator = torch.Generator().manual_seed(seed)
        self.algorithm = algorithm.build(self.policy, num_envs, replay_size, generator)
        self.observations = self.env.get_observations()

    def step(self) -> dict[str, torch.Tensor]:
        actions = self.algorithm.act(self.observations)
        step = ControlStep.of(self.observations, actions, self.env.step(actions))
        self.algorithm.observe(step)
        self.observations = step.next_observations
        return self.algorithm.update()

    def run(self, num_steps: int) -> "Loop":
        for _ in range(num_steps):
            self.step()
        return self

    def everything(self) -> dict[str, torch.Tensor]:
        return self.policy.state_dict() | self.algorithm.state()[0]


def loop(name: str, seed: int = 0) -> Loop:
    return Loop(*ALGORITHMS[name], seed=seed)


def assert_same(first: dict, second: dict) -> None:
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_twice_gives_equal_parameters(name):
    first, second, other = loop(name).run(30), loop(name).run(30), loop(name, seed=1).run(30)
    assert_same(first.everything(), second.everything())
    weights = "actor.backbone.layers.0.weight"
    assert not torch.equal(first.policy.state_dict()[weights], other.policy.state_dict()[weights])


@pytest.mark.parametrize("name", ["sac", "dsac", "dsact"])
def test_bf16_learns_nearly_what_fp32_learns(name):
    algorithm, policy = ALGORITHMS[name]
    exact, rounded = (
        Loop(algorithm.replace(precision=precision), policy) for precision in ("fp32", "bf16")
    )
    start = {key: value.clone() for key, value in exact.policy.named_parameters()}
    for each in (exact, rounded):
        each.run(14)  # a warm-up of 10 and a few gradient steps
    for key, value in exact.policy.named_parameters():
        moved, apart = (
            (value - start[key]).norm(),
            (rounded.policy.get_parameter(key) - value).norm(),
        )
        assert 0 < apart < 0.5 * moved, key


@pytest.mark.parametrize("name", NAMES)
def test_state_continues_bit_for_bit(name):
    original = loop(name).run(25)
    tensors = {key: value.clone() for key, value in original.algorithm.state()[0].items()}
    facts = json.loads(json.dumps(original.algorithm.state()[1]))
    again = loop(name, seed=7)
    again.policy.load_state_dict(original.policy.state_dict())
    again.algorithm.load_state(tensors, facts)
    again.algorithm.generator.set_state(original.algorithm.generator.get_state())
    again.env.load_state(original.env.state())
    again.observations = again.env.get_observations()
    assert_same(original.run(10).everything(), again.run(10).everything())


def test_actions_are_uniform_until_the_warm_up_is_over():
    algorithm = SACCfg(warmup_steps=4000, batch_size=8)
    policy = pack().override({"actor_cfg.action_limit": 0.5})
    it = Loop(algorithm, policy, replay_size=8000, num_envs=1000)
    actions = [it.algorithm.act(it.observations)]
    for _ in range(4):
        assert it.algorithm.is_warming_up
        assert it.step() == {}
        actions.append(it.algorithm.act(it.observations))
    drawn = torch.cat(actions[:4])
    assert drawn.abs().max() <= 0.5
    assert drawn.std().item() == pytest.approx(1 / 12**0.5, rel=0.03)
    assert not it.algorithm.is_warming_up
    assert it.algorithm.num_updates == 0
    shifted = it.policy.actor.backbone.layers[-1].bias
    with torch.no_grad():
        shifted.copy_(torch.tensor([10.0, -10.0]))
    assert it.algorithm.act(it.observations).min() > 0.49


@pytest.mark.parametrize(
    ("updates_per_step", "expected"), [(1.0, [4, 8, 12]), (0.375, [1, 3, 4]), (0.1, [0, 0, 1])]
)
def test_gradient_steps_follow_the_ratio(updates_per_step, expected):
    algorithm, policy = ALGORITHMS["sac"]
    it = Loop(algorithm.replace(updates_per_step=updates_per_step), policy).run(10)
    counts = []
    for _ in range(3):
        it.step()
        counts.append(it.algorithm.num_updates)
    assert counts == expected


def test_a_delayed_policy_moves_at_every_second_step_of_the_critics():
    algorithm, policy = ALGORITHMS["dsact"]
    it = Loop(algorithm.replace(updates_per_step=0.25), policy).run(10)
    moved = []
    for _ in range(4):
        before = [
            module.state_dict()["backbone.layers.0.weight"].clone()
            for module in (it.policy.actor, it.policy.critic, it.algorithm.target_actor)
        ]
        metrics = it.step()
        after = [
            module.state_dict()["backbone.layers.0.weight"]
            for module in (it.policy.actor, it.policy.critic, it.algorithm.target_actor)
        ]
        moved.append([not torch.equal(*pair) for pair in zip(before, after, strict=True)])
        assert ("loss/actor" in metrics) == moved[-1][0]
    assert moved == [[True, True, True], [False, True, False]] * 2


def test_slow_copies_move_by_tau():
    algorithm, policy = ALGORITHMS["sac"]
    it = Loop(algorithm.replace(updates_per_step=0.25, tau=0.25), policy).run(10)
    slow = it.algorithm.target_critic.backbone.layers[0].weight
    before = slow.clone()
    it.step()
    fast = it.policy.critic.backbone.layers[0].weight.detach()
    torch.testing.assert_close(slow, 0.75 * before + 0.25 * fast)


def test_the_replay_keeps_where_episodes_really_ended():
    it = loop("sac").run(20)
    steps = it.algorithm.replay.gather(torch.arange(80))
    # The corridor's critic sees the time left; after the last step of an episode that is 0, while
    # the next episode begins with 1.
    left = steps.next_critic_obs[:, 1]
    assert steps.ended.sum() == 8
    assert torch.equal(left == 0, steps.ended.bool())
    torch.testing.assert_close(left, steps.critic_obs[:, 1] - 0.1)
    assert steps.terminated.sum() == 0


def test_normalisers_learn_from_what_is_seen_and_the_slow_critic_shares_them():
    algorithm, _ = ALGORITHMS["sac"]
    it = Loop(algorithm, pack(obs_normalization=True)).run(15)
    seen = it.algorithm.replay.gather(torch.arange(60))
    assert it.policy.actor.normalizer.count == 60
    torch.testing.assert_close(it.policy.actor.normalizer.mean, seen.actor_obs.mean(0))
    torch.testing.assert_close(it.policy.critic.normalizer.mean, seen.critic_obs.mean(0))
    assert it.algorithm.target_critic.normalizer is it.policy.critic.normalizer
    assert any(name.startswith("actor.normalizer") for name in it.policy.state_dict())


def test_a_recurrent_policy_forgets_at_resets_and_stores_what_it_remembered():
    it = loop("sac_seq").run(9)
    assert it.algorithm.memories["actor"].abs().min() > 0
    it.run(1)  # the tenth step ends every episode
    assert it.algorithm.memories["actor"].abs().max() == 0
    assert it.algorithm.memories["critic"].abs().max() == 0
    found = it.algorithm.replay.gather(torch.tensor([0, 1]), torch.tensor([2, 2]))
    assert found.memories["actor"][0, 0].abs().max() == 0
    assert found.memories["actor"][0, 1].abs().min() > 0


def test_given_up_episodes_leave_no_memory_behind():
    it = loop("sac_seq").run(5)
    it.algorithm.episodes_cut()
    assert it.algorithm.memories["actor"].abs().max() == 0
    assert it.algorithm.replay.replay.gather(torch.arange(16, 20)).ended.tolist() == [1.0] * 4


def test_gradients_are_clipped():
    algorithm, policy = ALGORITHMS["sac"]
    it = Loop(algorithm.replace(max_grad_norm=1e-3), policy).run(12)
    for name in ("actor", "critic"):
        gradients = [p.grad.norm() for p in it.algorithm.optimizers[name].param_groups[0]["params"]]
        assert torch.stack(gradients).norm().item() <= 1e-3 * 1.001


def test_the_learning_rate_can_be_lowered():
    it = loop("sac")
    it.algorithm.slow_down(0.25)
    rates = {name: o.param_groups[0]["lr"] for name, o in it.algorithm.optimizers.items()}
    assert rates == {"actor": 2.5e-4, "critic": 2.5e-4, "alpha": 2.5e-4}


@pytest.mark.parametrize(
    ("algorithm", "policy", "message"),
    [
        (SACCfg(), pack(encoder=GRU), "actor_cfg.encoder is set, but SAC learns .*SACSeqCfg"),
        (DSACTCfg(), pack(), "critic_cfg is a QNetworkCfg, but DSACT .*DistributionalQCfg"),
        (DSACCfg(), pack(), "DSAC learns distributions"),
        (SACSeqCfg(), pack(encoder=TRANSFORMER), "must be a components.GRUEncoderCfg for SACSeq"),
        (SACTransCfg(), pack(encoder=GRU), "must be a components.TransformerEncoderCfg"),
        (SACTransCfg(), pack(encoder=TRANSFORMER), "sequence_length is 16, but .*context is 8"),
    ],
)
def test_a_policy_of_another_kind_is_refused(algorithm, policy, message):
    with pytest.raises(ValueError, match=message):
        Loop(algorithm, policy)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SACCfg(gamma=1.5), "gamma is 1.5"),
        (lambda: SACCfg(batch_size=0), "batch_size is 0, allowed: 1 or more"),
        (lambda: SACCfg(updates_per_step=0.0), "updates_per_step is 0.0"),
        (lambda: SACCfg(max_grad_norm=-1.0), "max_grad_norm is -1.0"),
        (lambda: SACSeqCfg(burn_in=-1), "burn_in is -1"),
        (lambda: DSACTCfg(tau_b=0.0), "tau_b is 0.0"),
        (lambda: SACActorCfg(min_log_std=3.0), "min_log_std is 3.0"),
        (lambda: SACActorCfg(action_limit=0.0), "action_limit is 0.0"),
        (lambda: DistributionalQCfg(num_critics=0), "num_critics is 0"),
        (lambda: GRUEncoderCfg(hidden_size=0), "hidden_size is 0"),
        (lambda: TRANSFORMER.replace(num_heads=3), "width is 8 and num_heads 3"),
        (lambda: SACCfg.from_dict({"gama": 0.9}), "no field 'gama'; did you mean 'gamma'"),
    ],
)
def test_impossible_settings_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_configs_survive_yaml():
    for algorithm, policy in ALGORITHMS.values():
        assert type(algorithm).from_yaml(algorithm.to_yaml()) == algorithm
        assert type(policy).from_yaml(policy.to_yaml()) == policy


def traces(num_steps: int = 10) -> dict[str, dict[str, list[float]]]:
    """Losses of the steps after the warm-up, by algorithm."""
    found = {}
    for name in NAMES:
        it = loop(name).run(12)
        rounds = [{k: v.item() for k, v in it.step().items()} for _ in range(num_steps)]
        # Of a delayed policy only every second step has numbers.
        found[name] = {key: [r[key] for r in rounds if key in r] for key in rounds[0]}
    return found


def test_steps_leave_the_trace_they_left_before():
    expected = json.loads(TRACE.read_text())
    num_steps = max(len(values) for metrics in expected.values() for values in metrics.values())
    found = traces(num_steps)
    assert found.keys() == expected.keys()
    for name, metrics in expected.items():
        for key, values in metrics.items():
            assert found[name][key] == pytest.approx(values, rel=2e-3, abs=2e-4), (name, key)


def test_wide_networks_have_the_parameters_they_should():
    # Actor 3-256-256-4, twin critics 5-256-256-1.
    it = Loop(SACCfg(), pack(backbone_cfg=plain_mlp([256, 256], "ReLU")))
    actor = sum(p.numel() for p in it.policy.actor.parameters())
    critic = sum(p.numel() for p in it.policy.critic.parameters())
    assert actor == (1 * 256 + 256) + (256 * 256 + 256) + (256 * 2 + 2)
    assert critic == 2 * ((3 * 256 + 256) + (256 * 256 + 256) + 257)


def test_returns_over_several_steps_end_with_episode_and_sequence():
    algorithm, policy = ALGORITHMS["sac_seq"]
    changes = {"sequence_length": 4, "burn_in": 1, "n_steps": 3, "gamma": 0.5}
    it = Loop(algorithm.replace(**changes), policy).algorithm
    layout = it.replay.replay.layout  # rows: 3 observed, 2 actions, reward, terminated, ended, next
    reward = layout.observation_width + layout.num_actions
    rows = torch.zeros(5, 2, layout.width)
    rows[..., 0] = torch.arange(10.0).view(5, 2)
    rows[..., reward + 3] = 100 + rows[..., 0]  # what each led to
    rows[1:, 0, reward] = torch.tensor([1.0, 2.0, 4.0, 8.0])
    rows[1:, 1, reward] = torch.tensor([1.0, 2.0, 4.0, 8.0])
    rows[2, 1, reward + 1 : reward + 3] = 1.0  # terminated
    found = Sequences(Transitions(rows, layout), torch.zeros(5, 2, dtype=torch.bool), {})
    steps, discounts, last = it._trained(found)
    # Of the first sequence 1 + 2/2 + 4/4, 2 + 4/2 + 8/4, then fewer; of the second 1 + 2/2 and 2.
    expected = [3.0, 2.0, 6.0, 2.0, 8.0, 8.0, 8.0, 8.0]
    assert steps.rewards.tolist() == expected
    assert discounts.tolist() == [0.125, 0.0, 0.125, 0.0, 0.25, 0.25, 0.5, 0.5]
    assert last.tolist() == [4, 3, 6, 3, 6, 7, 6, 7]
    assert steps.actor_obs[:, 0].tolist() == [2, 3, 4, 5, 6, 7, 8, 9]
    assert steps.next_actor_obs[:, 0].tolist() == [106, 105, 108, 105, 108, 109, 108, 109]


@pytest.mark.parametrize("name", ["sac_seq", "sac_trans"])
def test_sequences_are_learned_from_over_several_steps(name):
    algorithm, policy = ALGORITHMS[name]
    one, three = (Loop(algorithm.replace(n_steps=n), policy).run(25) for n in (1, 3))
    assert one.algorithm.num_updates == three.algorithm.num_updates > 0
    weights = [it.policy.critic.backbone.layers[0].weight for it in (one, three)]
    assert torch.isfinite(weights[1]).all()
    assert not torch.equal(*weights)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_diverged_environment_ended_in_is_not_learned_from(name):
    algorithm, policy = ALGORITHMS[name]
    policy = policy.override(
        {"actor_cfg.obs_normalization": True, "critic_cfg.obs_normalization": True}
    )
    it = Loop(algorithm, policy)
    ends = torch.tensor([True, False, False, False])
    for t in range(30):
        actions = it.algorithm.act(it.observations)
        step = ControlStep.of(it.observations, actions, it.env.step(actions))
        it.observations = step.next_observations
        if t in (12, 16):
            final = step.next_observations[:1].apply(lambda x: torch.full_like(x, torch.inf))
            none = torch.zeros_like(ends)
            step = dataclasses.replace(step, dones=ends, time_outs=none, final_observations=final)
        it.algorithm.observe(step)
        it.algorithm.update()
    assert it.algorithm.num_updates > 0
    for key, value in it.everything().items():
        assert torch.isfinite(value).all(), key
