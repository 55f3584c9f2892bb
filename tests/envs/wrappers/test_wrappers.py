"""The wrapper chain: each wrapper is an environment again, over every kind of environment."""

import types

import pytest
import torch

from rrf.envs.gymnasium.configs import EnvPoolEnvCfg, GymnasiumEnvCfg, RegisteredEnvCfg
from rrf.envs.mjlab.configs import MjlabEnvCfg
from rrf.envs.wrappers.dynamic_env import DynamicEnv
from rrf.envs.wrappers.group_vec import GroupVecWrapper
from rrf.envs.wrappers.multi_modal import MultiModal
from rrf.policies.control.actor_critic import ControlPolicy
from rrf.policies.control.configs import StateIndStdActorCfg
from tests.envs.contract import check_contract

KINDS = {
    "choices": GymnasiumEnvCfg(task="CartPole-v1", num_envs=4),
    "reward terms": GymnasiumEnvCfg(task="Hopper-v5", num_envs=4),
    "hidden": GymnasiumEnvCfg(task="Pendulum-v1", num_envs=4, hidden=[2]),
    "registered": RegisteredEnvCfg(task="InvertedPendulum-v5", num_envs=4),
    "envpool": EnvPoolEnvCfg(task="Hopper-v5", num_envs=4),
    "mjlab": MjlabEnvCfg(task="Mjlab-Cartpole-Balance", num_envs=4, num_threads=1),
}
PACKAGES = {"envpool": "envpool", "mjlab": "mjlab"}


def build(kind, seed=0):
    if kind in PACKAGES:
        pytest.importorskip(PACKAGES[kind], exc_type=ImportError)
    return KINDS[kind].build(seed=seed)


@pytest.mark.parametrize("kind", KINDS)
def test_each_wrapper_and_the_chain_obey_the_contract(kind):
    def chain():
        return GroupVecWrapper(DynamicEnv(build(kind)), num_eval_envs=2)

    for make in (lambda: DynamicEnv(build(kind)), chain):
        check_contract(make, num_steps=30, has_state=kind != "envpool")


@pytest.mark.parametrize("kind", ["choices", "registered", "mjlab"])
def test_the_whole_chain_obeys_the_contract_with_images(kind):
    def make():
        chain = GroupVecWrapper(DynamicEnv(build(kind)), num_eval_envs=1)
        return MultiModal(chain, image_size=(24, 32))

    check_contract(make, num_steps=12)


# DynamicEnv


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("choices", {"policy_dim": 4, "action_dim": 2, "reward_dim": 1, "command_dim": 0}),
        ("hidden", {"policy_dim": 2, "action_dim": 1, "reward_dim": 1, "command_dim": 0}),
        ("reward terms", {"policy_dim": 11, "action_dim": 3, "reward_dim": 3, "command_dim": 0}),
    ],
)
def test_dim_params_are_the_widths_of_what_is_given(kind, expected):
    env = DynamicEnv(build(kind))
    assert env.dim_params == expected | {"critic_dim": expected["policy_dim"]}
    observations, extras = env.reset()
    assert env.policy_observations(observations).shape == (4, expected["policy_dim"])
    assert extras["dynamics"]["reward_terms"].shape == (4, expected["reward_dim"])
    assert extras["dynamics"]["command"].shape == (4, 0)


def test_reward_terms_add_up_also_where_episodes_end():
    env = DynamicEnv(build("reward terms"))
    assert env.reward_names == ["reward_forward", "reward_ctrl", "reward_survive"]
    num_ended = 0
    for _ in range(60):
        _, rewards, dones, extras = env.step(torch.ones(4, 3))
        terms = extras["dynamics"]["reward_terms"]
        torch.testing.assert_close(terms.sum(dim=1), rewards)
        survived = 1.0 - (dones & ~extras["time_outs"]).float()
        assert terms[:, 2].tolist() == survived.tolist()
        num_ended += int(dones.sum())
    assert num_ended > 0


def test_a_reward_without_parts_is_the_only_term():
    env = DynamicEnv(build("choices"))
    _, rewards, _, extras = env.step(torch.zeros(4, 1))
    assert env.reward_names == ["reward"]
    assert extras["dynamics"]["reward_terms"].tolist() == rewards[:, None].tolist() == [[1.0]] * 4


class Commanded:
    """An environment whose command changes in every step; its reward is the command it had."""

    def __init__(self, env):
        self._env, self.command = env, torch.zeros(env.num_envs, 2)

    def __getattr__(self, name):
        return getattr(self._env, name)

    def step(self, actions):
        observations, _, dones, extras = self._env.step(actions)
        rewards = self.command[:, 0].clone()
        self.command += 1
        return observations, rewards, dones, extras


def test_the_command_is_the_one_the_reward_was_given_for():
    env = DynamicEnv(Commanded(build("choices")))
    assert env.dim_params["command_dim"] == 2
    for step in range(3):
        _, rewards, _, extras = env.step(torch.zeros(4, 1))
        assert extras["dynamics"]["command"].tolist() == [[step, step]] * 4
        assert rewards.tolist() == [step] * 4


def test_the_order_of_wrappers_is_checked():
    with pytest.raises(ValueError, match=r"shows 3 of 4 environments; the order is GroupVec"):
        DynamicEnv(GroupVecWrapper(build("choices"), num_eval_envs=1))


# GroupVecWrapper


class Constant:
    """Always the same action; remembers what it was shown and which episodes it forgot."""

    def __init__(self, action, num_actions=1):
        self.action, self.num_actions = action, num_actions
        self.seen, self.forgotten = [], 0

    def act(self, observations, greedy=True):
        assert greedy
        self.seen.append(observations)
        return torch.full((len(observations), self.num_actions), self.action)

    def reset(self, where_n=None):
        self.forgotten += 0 if where_n is None else int(where_n.sum())


def test_the_training_view_has_the_first_rows_and_nothing_else():
    whole = build("reward terms", seed=3)
    policy = Constant(0.5, num_actions=3)
    group = GroupVecWrapper(DynamicEnv(build("reward terms", seed=3)), 1, policy)
    assert group.num_envs == 3
    assert group.eval_view.num_envs == 1
    num_train_ends = num_eval_ends = 0
    generator = torch.Generator().manual_seed(0)
    for _ in range(80):
        actions = torch.rand(3, 3, generator=generator) * 2 - 1
        expected = whole.step(torch.cat([actions, torch.full((1, 3), 0.5)]))
        observations, rewards, dones, extras = group.step(actions)
        assert torch.equal(observations["policy"], expected[0]["policy"][:3])
        assert torch.equal(group.eval_view.get_observations()["policy"], expected[0]["policy"][3:])
        assert torch.equal(rewards, expected[1][:3])
        assert torch.equal(dones, expected[2][:3])
        assert torch.equal(extras["time_outs"], expected[3]["time_outs"][:3])
        assert extras["dynamics"]["reward_terms"].shape == (3, 3)
        num_ended = int(expected[2][:3].sum())
        if num_ended:
            final = expected[3]["final_obs"]["policy"][:num_ended]
            assert torch.equal(extras["final_obs"]["policy"], final)
        else:
            assert extras["final_obs"] is None
        num_train_ends += num_ended
        num_eval_ends += int(expected[2][3])
        assert ("eval/return" in extras["log"]) == bool(expected[2][3])
    assert num_train_ends > 0
    assert num_eval_ends > 0
    assert policy.forgotten == num_eval_ends == len(group.eval_view.episodes)
    assert all(len(seen) == 1 for seen in policy.seen)


def test_statistics_are_of_evaluation_episodes_alone():
    """Pushed one way, the pole of CartPole falls after 8 to 10 steps, each worth 1."""
    group = GroupVecWrapper(build("choices"), 2, Constant(1.0))
    for step in range(40):
        group.step(torch.tensor([[float(step % 2)]] * 2))  # balances for longer
    found = group.eval_view.statistics()
    assert 8 <= found["eval/length"] <= 11
    assert found["eval/return"] == found["eval/length"]
    assert found["eval/episodes"] == len(group.eval_view.episodes) >= 6


def test_episodes_count_only_from_their_beginning():
    group = GroupVecWrapper(build("choices"), 2)
    for _ in range(15):
        _, _, _, extras = group.step(torch.zeros(2, 1))
        assert "eval/return" not in extras["log"]  # nobody evaluates
    group.step(torch.zeros(2, 1))
    group.evaluate_with(Constant(1.0))
    while not group.eval_view.episodes:
        group.step(torch.zeros(2, 1))
    assert all(8 <= length <= 11 for _, length in group.eval_view.episodes)
    group.reset()
    num = len(group.eval_view.episodes)
    lengths = [0, 0]
    while len(group.eval_view.episodes) == num:
        group.step(torch.zeros(2, 1))
        lengths = [length + 1 for length in lengths]
    assert group.eval_view.episodes[-1][1] == lengths[0]


def test_evaluation_goes_on_after_a_resume():
    group = GroupVecWrapper(build("choices"), 2, Constant(1.0))
    for _ in range(5):
        group.step(torch.zeros(2, 1))
    state = group.state()
    other = GroupVecWrapper(build("choices", seed=9), 2, Constant(1.0))
    other.load_state(state)
    for env in (group, other):
        env.eval_view.episodes.clear()
        for _ in range(25):
            env.step(torch.zeros(2, 1))
    assert list(other.eval_view.episodes) == list(group.eval_view.episodes)
    assert len(group.eval_view.episodes) >= 4


def test_a_policy_of_rrf_evaluates():
    torch.manual_seed(0)
    env = build("reward terms")
    policy = ControlPolicy(StateIndStdActorCfg().build(env.interface))
    group = GroupVecWrapper(env, 2, policy)
    for _ in range(200):
        group.step(torch.zeros(2, 3))
    assert group.eval_view.statistics()["eval/episodes"] >= 1


def test_lengths_of_the_training_view_may_be_set():
    env = build("choices")
    group = GroupVecWrapper(env, 1)
    group.episode_length_buf = torch.tensor([5, 6, 7])
    assert env.episode_length_buf.tolist() == [5, 6, 7, 0]


def test_both_groups_need_an_environment():
    for wrong in (0, 4):
        with pytest.raises(ValueError, match=f"num_eval_envs is {wrong}; of 4 environments 1 to 3"):
            GroupVecWrapper(build("choices"), wrong)


# MultiModal


def test_images_are_of_the_same_moment_as_the_vectors():
    env = MultiModal(build("choices"), image_size=(60, 80), instruction="hold the pole")
    observations, extras = env.reset()
    assert extras["instruction"] == ["hold the pole"] * 4
    assert env.image_shapes == {"image": (60, 80, 3)}
    for _ in range(30):
        observations, _, dones, extras = env.step(torch.zeros(4, 1))
        images = observations["image"]
        assert images.shape == (4, 60, 80, 3)
        assert images.dtype == torch.uint8
        for index in range(4):  # the cart's centre: 2.4 m are half of the picture
            position = observations["policy"][index, 0].item()
            assert cart_column(images[index]) == pytest.approx(40 + position / 2.4 * 40, abs=1.0)
        assert torch.equal(env.get_observations()["image"], images)
        if dones.any():
            final = extras["final_obs"]
            for row in range(len(final)):
                position = final["policy"][row, 0].item()
                expected = 40 + position / 2.4 * 40
                assert cart_column(final["image"][row]) == pytest.approx(expected, abs=1.0)
    env.close()
    assert env.unwrapped.before_reset is None


def cart_column(image: torch.Tensor) -> float:
    """Mean column of the blue pixels."""
    red, _, blue = image.float().unbind(dim=-1)
    return float((blue - red > 40).nonzero()[:, 1].float().mean())


def test_named_cameras_have_groups_of_their_own():
    env = MultiModal(build("reward terms"), (24, 32), cameras=["tracking", "track"])
    observations = env.get_observations()
    assert set(observations.keys()) == {"policy", "image", "image/track"}
    assert not torch.equal(observations["image"], observations["image/track"])
    assert env.interface.observation_dims == {"policy": 11}
    env.close()
    with pytest.raises(ValueError, match="no camera 'trak'; did you mean 'track'"):
        MultiModal(build("reward terms"), cameras=["trak"])
    with pytest.raises(
        ValueError, match=r"CartPole-v1 has only the camera 'tracking', but .* asked for are \['top"
    ):
        MultiModal(build("choices"), cameras=["top"])


# The seed's names


def test_recorders_of_mjlab_are_refused():
    pytest.importorskip("mjlab")
    from rrf.envs.mjlab.wrappers import RoboRenForceMJLabEnvWrapper

    env = types.SimpleNamespace(recorder_manager=types.SimpleNamespace(active_terms=["csv"]))
    with pytest.raises(ValueError, match="recorder 'csv' would not be told when episodes end"):
        RoboRenForceMJLabEnvWrapper(env)


@pytest.mark.slow
def test_an_mjlab_environment_of_ones_own_is_wrapped_by_the_names_it_had():
    pytest.importorskip("mjlab")
    import mjlab.tasks  # noqa: F401
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.tasks.registry import load_env_cfg

    from rrf.envs.mjlab.wrappers import MJLabDynamicEnvWrapper, MJLabGroupVecWrapper

    cfg = load_env_cfg("Mjlab-Velocity-Flat-Unitree-Go1")
    cfg.scene.num_envs = 2
    env = ManagerBasedRlEnv(cfg=cfg, device="cpu")
    wrapped = MJLabDynamicEnvWrapper(env)
    assert wrapped.num_envs == 2
    expected = {"policy_dim": 48, "critic_dim": 72, "action_dim": 12, "command_dim": 3}
    assert {name: wrapped.dim_params[name] for name in expected} == expected
    observations, extras = wrapped.reset()
    assert observations.shape == (2, 48)
    assert extras["observations"]["critic"].shape == (2, 72)
    wrapped.episode_length_buf = torch.tensor([wrapped.max_episode_length - 1, 0])
    observations, rewards, dones, extras = wrapped.step(torch.zeros(2, 12))
    assert dones.tolist() == [True, False]
    assert extras["final_obs"]["actor"].shape == (1, 48)
    torch.testing.assert_close(extras["dynamics"]["reward_terms"].sum(dim=1), rewards)
    group = MJLabGroupVecWrapper(wrapped, num_eval_envs=1)
    assert group.dim_params == wrapped.dim_params
    observations, rewards, _, extras = group.step(torch.zeros(1, 12))
    assert rewards.shape == (1,)
    assert group.policy_observations(observations).shape == (1, 48)
    assert extras["dynamics"]["reward_terms"].shape == (1, len(group.reward_names))
    wrapped.close()
