"""ManiSkill3 in its own interpreter, and what its config refuses without it."""

from pathlib import Path

import numpy as np
import pytest

from rrf.config import configclass
from rrf.envs import ENVS
from rrf.envs.maniskill.configs import ManiskillCfg, ManiskillGpuCfg
from rrf.envs.vec_env import InitialState
from rrf.evaluation.protocols.files import load_protocol
from rrf.presets import resolve
from tests.envs.foreign import real
from tests.envs.foreign.real import starts

ROOT = Path(__file__).parents[3]
CAMERAS = ["workspace", "hand_camera"]
CFG = ManiskillCfg(num_envs=2, chunk_length=4, max_episode_steps=60, cameras=CAMERAS)


@configclass
class OneSceneCfg(ManiskillGpuCfg):
    """The batched path on the CPU, which allows one scene."""

    @property
    def simulator_arguments(self):
        return {**super().simulator_arguments, "backend": "physx_cpu"}


EXPERTS = ("PickCube-v1", "PushCube-v1", "PullCube-v1", "StackCube-v1")


def test_a_config_says_what_it_does_not_know():
    assert ENVS.get("maniskill") is ManiskillCfg
    assert (CFG.fps, CFG.action_names) == (20, ("dx", "dy", "dz", "gripper"))
    assert CFG.replace(controller="pd_ee_delta_pose", action_repeat=2).fps == 10
    assert CFG.replace(controller="pd_ee_delta_pose").action_dim == 7
    with pytest.raises(ValueError, match="no camera 'hand_cam'; did you mean 'hand_camera'"):
        CFG.replace(cameras=["hand_cam"])
    with pytest.raises(ValueError, match="controller is 'pd_joint_pos', allowed: pd_ee_delta_pos"):
        CFG.replace(controller="pd_joint_pos")
    with pytest.raises(ValueError, match="no ManiSkill task 'PickCube'; did you mean"):
        CFG.check_initial_state(InitialState("PickCube", 0, 0))


def test_protocol_and_presets_are_of_the_same_cameras():
    protocol = load_protocol(ROOT / "configs/protocols/maniskill-pickcube.yaml")
    cfg = protocol.environment_cfg()
    assert isinstance(cfg, ManiskillCfg)
    for name in ("compact-vla-maniskill", "maniskill-grpo-compact"):
        policy = resolve(name).policy
        assert policy.cameras == cfg.cameras == CAMERAS
        assert (policy.state_dim, policy.action_dim) == (9, 4)


def test_openvla_gets_the_published_numbers():
    cfg = resolve("maniskill-ppo-openvla")
    assert (cfg.optimizer.lr, cfg.value_lr, cfg.max_grad_norm) == (1e-4, 3e-3, 10.0)
    assert (cfg.algorithm.gamma, cfg.algorithm.lam, cfg.algorithm.num_epochs) == (0.99, 0.95, 1)
    assert cfg.env.action_dim == cfg.policy.action_dim == 7


@pytest.fixture(scope="module")
def env():
    with real.built(CFG) as env:
        yield env


@pytest.fixture(scope="module")
def blind():
    """Without images, one action at a time."""
    with real.built(CFG.replace(num_envs=1, chunk_length=1, cameras=[])) as env:
        yield env


@pytest.mark.slow
def test_an_initial_state_is_the_same_episode_to_the_bit():
    down = {2: -1.0}  # into contact
    real.check_exact(CFG, ["PickCube-v1", "PushCube-v1"], held=down)


@pytest.mark.slow
def test_images_show_the_goal_and_the_state_follows_the_actions(env):
    begun = env.reset(starts(0, "PickCube-v1", "PickCube-v1"))
    for camera in CAMERAS:
        image = begun.images[camera][0].astype(int)
        red, green, blue = image.transpose(2, 0, 1)
        assert ((green > red + 60) & (green > blue + 60)).sum() >= 5, camera  # the ball
    up = np.zeros((2, 4, 4), np.float32)
    up[:, :, 2], up[0, :, 3], up[1, :, 3] = 0.5, -1.0, 1.0
    env.step(up)
    moved = env.step(up).observation.state - begun.state
    assert (moved[:, 2] > 0.1).all()
    assert (np.abs(moved[:, :2]) < 0.02).all()
    fingers = begun.state[:, 7:] + moved[:, 7:]
    assert (fingers[0] < 0.005).all()  # closed
    assert (fingers[1] > 0.035).all()  # open


@pytest.mark.slow
@pytest.mark.parametrize("task", EXPERTS)
def test_the_scripted_expert_solves_its_task(blind, task):
    solved = 0
    for index in range(3):
        blind.reset(starts(index, task))
        is_over = False
        while not is_over:
            step = blind.step(blind.expert_action(0)[None, None])
            is_over = bool(step.terminated[0] or step.truncated[0])
        solved += int(step.success[0])
    assert solved == 3


@pytest.mark.slow
def test_scenes_of_a_batch_begin_and_move_as_scenes_alone(blind):
    """With one scene on the CPU, where the calls are those of a GPU."""
    actions = np.random.default_rng(1).uniform(-1, 1, (10, 1, 1, 4)).astype(np.float32)
    seen = [blind.reset(starts(0, "PushCube-v1")).state]
    seen += [blind.step(action).observation.state for action in actions]
    one_scene = OneSceneCfg(num_envs=1, chunk_length=1, max_episode_steps=60, cameras=[])
    with real.built(one_scene) as batch:
        again = [batch.reset(starts(0, "PushCube-v1")).state]
        again += [batch.step(action).observation.state for action in actions]
    np.testing.assert_array_equal(seen[0], again[0])
    np.testing.assert_allclose(seen, again, atol=1e-4)


@pytest.mark.slow
def test_a_task_without_an_expert_says_which_have_one(blind):
    blind.reset(starts(0, "RollBall-v1"))
    message = "RollBall-v1 has no scripted expert; these have one: PickCube-v1"
    with pytest.raises(ValueError, match=message):
        blind.expert_action(0)


@pytest.fixture(scope="module", params=["slots", "one batch"])
def plays_on(request):
    """Episodes that go on after success, without images."""
    kind = OneSceneCfg if request.param == "one batch" else ManiskillCfg
    with real.built(
        kind(num_envs=1, chunk_length=4, max_episode_steps=20, cameras=[], ignore_terminations=True)
    ) as env:
        yield env


@pytest.mark.slow
def test_an_episode_goes_on_after_success_with_its_dense_rewards(plays_on, blind):
    """The cube is pushed by the expert of another environment of the same initial state."""
    blind.reset(starts(3, "PushCube-v1"))
    actions = []
    for _ in range(20):
        actions.append(blind.expert_action(0))
        step = blind.step(actions[-1][None, None])
        if step.terminated[0]:
            break
    solved_after = len(actions)
    assert solved_after < 17
    actions += [np.zeros(4, np.float32)] * (20 - solved_after)
    plays_on.reset(starts(3, "PushCube-v1"))
    steps = [plays_on.step(np.stack(actions[n : n + 4])[None]) for n in range(0, 20, 4)]
    assert [bool(step.success[0]) for step in steps] == [
        4 * n + 4 >= solved_after for n in range(5)
    ]
    assert [bool(step.truncated[0]) for step in steps] == [False] * 4 + [True]
    assert not any(step.terminated[0] for step in steps)
    rewards = np.concatenate([step.extras["rewards"][0] for step in steps])
    assert rewards.shape == (20,)
    assert np.all((rewards >= 0) & (rewards <= 1))  # ManiSkill's normalised dense reward
    assert rewards[solved_after - 1] == rewards.max() == 1
    assert len(np.unique(rewards)) > solved_after - 3
    assert [step.reward[0] for step in steps] == pytest.approx(rewards.reshape(5, 4).sum(1))
