"""SAC for discrete actions: its losses by hand, its loop, what it learns."""

import math
import signal

import pytest
import torch
from tensordict import TensorDict

from rrf.algorithms import DiscreteSACCfg, SACCfg
from rrf.algorithms.off_policy.discrete_sac import DiscreteSAC, soft_value
from rrf.algorithms.off_policy.learner import Batch
from rrf.envs.control_env import Interface
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.networks import plain_mlp
from rrf.policies import (
    ActorQPackCfg,
    CategoricalActorCfg,
    DiscreteActorQPackCfg,
    DiscreteQNetworkCfg,
    GRUEncoderCfg,
    MemoryCfg,
)
from rrf.runners import OffPolicyRunnerCfg
from rrf.runners.checkpoints.control import load_control_policy
from rrf.runners.interruption import Interrupted, SignalWatch
from rrf.storage.replay import RowLayout, Transitions
from rrf.storage.rollout import ControlStep
from tests.runners.control.test_off_policy_runner import assert_same, everything

RATES = {"actor_lr": 3e-3, "critic_lr": 3e-3, "alpha_lr": 3e-3}
TWO_STATES = Interface(observation_dims={"policy": 1}, num_actions=1, num_choices=2, task="Two")


def pack(hidden=(16,), **actor) -> DiscreteActorQPackCfg:
    network = plain_mlp(list(hidden), "ReLU")
    return DiscreteActorQPackCfg(
        actor_cfg=CategoricalActorCfg(backbone_cfg=network, obs_normalization=False, **actor),
        critic_cfg=DiscreteQNetworkCfg(backbone_cfg=network),
    )


def build(**changes) -> DiscreteSAC:
    """Without hidden layers; one environment."""
    torch.manual_seed(0)
    policy = pack(hidden=()).build(TWO_STATES)
    generator = torch.Generator().manual_seed(0)
    return DiscreteSACCfg(**changes).build(policy, 1, 100, generator)


def one_transition(action: float, reward: float, discount: float) -> Batch:
    """From observation 0 to observation 0, where only biases matter."""
    row = torch.tensor([[0.0, action, reward, 0.0, 0.0, 0.0]])
    return Batch(Transitions(row, RowLayout(1, None, 1)), torch.tensor([discount]))


def set_outputs(network, values) -> None:
    """Let a network without hidden layers answer `values` ([C] or [K, C]) to every observation."""
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            is_bias = name.endswith("bias")
            parameter.copy_(torch.tensor(values).view_as(parameter) if is_bias else 0.0)


def test_the_value_of_a_state_by_hand():
    log_prob = torch.tensor([[0.25, 0.75]]).log()
    q = torch.tensor([[[4.0, 2.0]], [[8.0, 1.0]]])
    value = soft_value(log_prob, q, torch.tensor(0.5))
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert value.item() == pytest.approx(0.25 * 4 + 0.75 * 1 + 0.5 * entropy)


def test_a_gradient_step_by_hand():
    rate = 1e-3
    algorithm = build(
        init_alpha=0.5, target_entropy_fraction=0.5, actor_lr=rate, critic_lr=rate, alpha_lr=rate
    )
    policy = algorithm.policy
    set_outputs(policy.actor.backbone, [math.log(0.25), math.log(0.75)])
    set_outputs(policy.critic.backbone, [[4.0, 2.0], [8.0, 1.0]])
    set_outputs(algorithm.target_critic.backbone, [[1.0, 2.0], [3.0, 0.0]])
    metrics = algorithm.learn(one_transition(action=1.0, reward=10.0, discount=0.9))

    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    target = 10 + 0.9 * (0.25 * 1 + 0.75 * 0 + 0.5 * entropy)
    errors = (2.0 - target), (1.0 - target)
    assert metrics["loss/critic"].item() == pytest.approx(sum(e * e for e in errors) / 2, rel=1e-6)
    # Adam's first step moves each parameter by its learning rate against its gradient's sign: both
    # critics rise for the action taken and stay for the other.
    bias = policy.critic.backbone.layers[0].bias[:, 0]
    expected = torch.tensor([[4.0, 2.0 + rate], [8.0, 1.0 + rate]])
    torch.testing.assert_close(bias, expected, atol=1e-6, rtol=0)
    # The policy is judged by the critics just updated.
    value = 0.25 * 4 + 0.75 * (1 + rate) + 0.5 * entropy
    assert metrics["loss/actor"].item() == pytest.approx(-value, rel=1e-5)
    wanted = 0.5 * math.log(2)
    assert metrics["loss/alpha"].item() == pytest.approx(math.log(0.5) * (entropy - wanted))
    assert metrics["policy/entropy"].item() == pytest.approx(entropy)
    # It is more random than wanted, so the temperature falls.
    assert algorithm.temperature.log_alpha.item() == pytest.approx(math.log(0.5) - rate)


def test_the_gradient_of_the_policy_is_the_exact_expectation():
    algorithm = build(init_alpha=0.5, actor_lr=1e-9, critic_lr=1e-9)
    set_outputs(algorithm.policy.actor.backbone, [math.log(0.25), math.log(0.75)])
    set_outputs(algorithm.policy.critic.backbone, [[4.0, 2.0], [8.0, 1.0]])
    algorithm.learn(one_transition(action=0.0, reward=0.0, discount=0.0))
    # d/dlogit_i of sum_a p_a (alpha log p_a - q_a) is p_i ((alpha log p_i - q_i) - that sum).
    costs = 0.5 * math.log(0.25) - 4.0, 0.5 * math.log(0.75) - 1.0
    mean = 0.25 * costs[0] + 0.75 * costs[1]
    expected = [0.25 * (costs[0] - mean), 0.75 * (costs[1] - mean)]
    gradient = algorithm.policy.actor.backbone.layers[0].bias.grad
    assert gradient.tolist() == pytest.approx(expected, rel=1e-5)


def test_the_target_entropy_is_a_fraction_of_the_largest_or_a_number():
    assert build().target_entropy == pytest.approx(0.98 * math.log(2))
    assert build(target_entropy=0.1).target_entropy == 0.1
    with pytest.raises(ValueError, match=r"target_entropy_fraction is 1.5, allowed: above 0"):
        DiscreteSACCfg(target_entropy_fraction=1.5)


def test_random_actions_are_indices():
    algorithm = build(warmup_steps=1000)
    observations = TensorDict({"policy": torch.zeros(1, 1)}, [1])
    actions = torch.cat([algorithm.act(observations) for _ in range(50)])
    assert actions.shape == (50, 1)
    assert set(actions.flatten().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (ActorQPackCfg(), "Two has 2 discrete actions.*discrete SAC.*--algorithm sac"),
        (pack(memory=MemoryCfg(hidden_size=4)), "policy has a memory.*memory=null"),
        (
            pack().replace(critic_cfg=DiscreteQNetworkCfg(encoder=GRUEncoderCfg())),
            "policy has a memory.*encoder=null",
        ),
    ],
)
def test_policies_that_it_cannot_train(policy, message):
    with pytest.raises(ValueError, match=message):
        DiscreteSACCfg().build(policy.build(TWO_STATES), 1, 100, torch.Generator())


def test_a_policy_of_real_actions_is_refused():
    policy = ActorQPackCfg().build(Interface(observation_dims={"policy": 1}, num_actions=1))
    with pytest.raises(ValueError, match=r"has a SACActor and a QNetwork.*DiscreteActorQPackCfg"):
        DiscreteSACCfg().build(policy, 1, 100, torch.Generator())


def test_plain_sac_refuses_a_policy_of_discrete_actions():
    with pytest.raises(ValueError, match=r"SAC learns real actions.*algorithms.DiscreteSACCfg"):
        SACCfg().build(pack().build(TWO_STATES), 1, 100, torch.Generator())


CARTPOLE = GymnasiumEnvCfg(task="CartPole-v1", num_envs=4)


def run_cfg(**changes) -> OffPolicyRunnerCfg:
    algorithm = DiscreteSACCfg(
        batch_size=16, warmup_steps=40, updates_per_step=0.25, n_steps=3, **RATES
    )
    defaults = {
        "env": CARTPOLE,
        "policy": pack(),
        "algorithm": algorithm,
        "num_steps_per_env": 10,
        "max_iterations": 4,
        "save_interval": 2,
        "replay_size": 400,
    }
    return OffPolicyRunnerCfg(**(defaults | changes))


def test_a_stopped_run_continues_bit_for_bit(tmp_path):
    whole = run_cfg().build(tmp_path / "whole").run()
    signals = SignalWatch()

    def stop(progress):
        signals.received = signal.SIGTERM if progress.iteration == 3 else None

    with pytest.raises(Interrupted):
        run_cfg().build(tmp_path / "parts").run(on_progress=stop, signals=signals)
    resumed = run_cfg().build(tmp_path / "parts").run()
    assert_same(everything(whole), everything(resumed))
    assert resumed["num_steps"] == 160


def test_the_checkpoint_holds_a_policy_that_acts(tmp_path):
    runner = run_cfg().build(tmp_path)
    policy, interface = load_control_policy(runner.run()["checkpoint"])
    assert interface.num_choices == 2
    actions = policy.act(runner.observations)
    assert set(actions.flatten().tolist()) <= {0.0, 1.0}
    assert torch.equal(actions, runner.policy.deployable().act(runner.observations))


class Signs:
    """Shows a sign, -1 or 1, and pays 1 for the action that it asks for; episodes of 8 steps."""

    interface = TWO_STATES
    num_envs, num_actions = 4, 1

    def __init__(self, seed: int = 0):
        self.generator = torch.Generator().manual_seed(seed)
        self.time = 0
        self._draw()

    def _draw(self):
        self.signs = torch.randint(2, (4, 1), generator=self.generator) * 2.0 - 1

    def get_observations(self):
        return TensorDict({"policy": self.signs}, [4])

    def step(self, actions):
        rewards = (actions * 2 - 1 == self.signs).squeeze(-1).float()
        self.time += 1
        dones = torch.full((4,), self.time % 8 == 0)
        self._draw()
        observations = self.get_observations()
        final = observations.clone() if bool(dones.any()) else None
        return observations, rewards, dones, {"time_outs": dones, "final_obs": final}


def test_it_learns_which_action_a_sign_asks_for():
    torch.manual_seed(0)
    env = Signs()
    policy = pack().build(env.interface)
    cfg = DiscreteSACCfg(
        gamma=0.5, batch_size=32, warmup_steps=100, target_entropy_fraction=0.3, **RATES
    )
    algorithm = cfg.build(policy, 4, 2000, torch.Generator().manual_seed(0))
    for _ in range(100):
        observations = env.get_observations()
        actions = algorithm.act(observations)
        algorithm.observe(ControlStep.of(observations, actions, env.step(actions)))
        algorithm.update()
    signs = TensorDict({"policy": torch.tensor([[-1.0], [1.0]])}, [2])
    assert policy.deployable().act(signs).tolist() == [[0.0], [1.0]]
    with torch.no_grad():
        q = policy.critic(signs["policy"]).amin(0)
    assert bool((q[0, 0] > q[0, 1] + 0.5) & (q[1, 1] > q[1, 0] + 0.5))  # one is worth 1 more
