"""robosuite in its own interpreter, and what its config refuses without it."""

import os
from pathlib import Path

import numpy as np
import pytest

from rrf.envs import ENVS
from rrf.envs.demonstrations.collect import CollectCfg, collect
from rrf.envs.foreign import interpreters
from rrf.envs.observations import digest
from rrf.envs.robosuite.configs import RobosuiteCfg
from rrf.envs.vec_env import InitialState
from rrf.evaluation.protocols.files import load_protocol
from rrf.presets import resolve
from rrf.runners.vla_rl.configs import VLARLRunnerCfg
from tests.envs.demonstrations.test_demonstrations import demos

ROOT = Path(__file__).parents[3]
CAMERAS = ["agentview", "robot0_eye_in_hand"]
CFG = RobosuiteCfg(num_envs=2, chunk_length=4, max_episode_steps=8, cameras=CAMERAS, image_size=64)


def test_a_config_says_what_it_does_not_know():
    assert ENVS.get("robosuite") is RobosuiteCfg
    assert (CFG.fps, CFG.action_dim) == (20, 7)
    assert CFG.replace(action_repeat=2).fps == 10
    assert CFG.replace(controller="OSC_POSITION").action_names == ("dx", "dy", "dz", "gripper")
    with pytest.raises(ValueError, match="no camera 'agentveiw'; did you mean 'agentview'"):
        CFG.replace(cameras=["agentveiw"])
    with pytest.raises(ValueError, match="controller is 'JOINT', allowed: OSC_POSE, OSC_POSITION"):
        CFG.replace(controller="JOINT")
    with pytest.raises(ValueError, match="no robosuite task 'lift'"):
        CFG.check_initial_state(InitialState("lift", 0, 0))


def test_the_protocol_is_that_of_the_environment():
    protocol = load_protocol(ROOT / "configs/protocols/robosuite-demo.yaml")
    cfg = protocol.environment_cfg()
    assert isinstance(cfg, RobosuiteCfg)
    assert cfg.cameras == CAMERAS
    preset = resolve("robosuite-grpo-compact", ["init_from=somewhere"])
    assert isinstance(preset, VLARLRunnerCfg)
    assert preset.policy.cameras == CAMERAS
    assert (preset.policy.action_dim, preset.policy.state_dim) == (7, len(cfg.state_names))
    assert preset.env.control_hz // preset.env.action_repeat == cfg.fps == 10


def test_without_its_interpreter_it_says_what_to_type(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    lock = tmp_path / "configs/envs/robosuite.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text((ROOT / "configs/envs/robosuite.lock").read_text())
    with pytest.raises(ValueError, match="not set up here; type: rrf envs setup robosuite"):
        CFG.build()


@pytest.fixture(scope="module")
def env():
    """The real simulator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RRF_HOME", os.environ.get("RRF_HOME", str(ROOT)))
        try:
            interpreters.interpreter("robosuite")
        except ValueError as error:
            pytest.skip(str(error))
        env = CFG.build()
        yield env
        env.close()


def starts(index, *tasks):
    return [InitialState(task, 42, index) for task in tasks]


@pytest.mark.slow
def test_an_initial_state_is_the_same_episode_whatever_ran_before(env):
    tasks = ("Lift", "Door")
    chunks = np.random.default_rng(0).uniform(-1, 1, (2, 2, 4, 7)).astype(np.float32)
    first = env.reset(starts(0, *tasks))
    begun = [digest(first, row) for row in range(2)]
    after = [digest(env.step(chunk).observation, row) for row, chunk in enumerate(chunks)]
    other = env.reset(starts(1, *tasks))
    assert all(digest(other, row) != begun[row] for row in range(2))
    swapped = env.reset(starts(0, *tasks)[::-1])
    assert [digest(swapped, row) for row in (1, 0)] == begun
    again = [env.step(chunk[::-1]).observation for chunk in chunks]
    assert [digest(again[row], 1 - row) for row in range(2)] == after


@pytest.mark.slow
def test_images_are_upright_and_the_state_follows_the_actions(env):
    begun = env.reset(starts(0, "Lift", "Lift"))
    image = begun.images["agentview"][0]
    assert image[-1].mean() > 220 > image[0].mean()  # the white table is below
    up = np.zeros((2, 4, 7), np.float32)
    up[:, :, 2], up[0, :, 6], up[1, :, 6] = 1.0, -1.0, 1.0
    env.step(up)
    ended = env.step(up)
    assert ended.truncated.all()
    assert not ended.success.any()
    moved = ended.observation.state - begun.state
    assert (moved[:, 2] > 0.03).all()
    assert (np.abs(moved[:, :2]) < 0.02).all()
    fingers = ended.observation.state[:, 7:]
    assert np.ptp(fingers[0]) > 0.06  # open
    assert np.ptp(fingers[1]) < 0.02  # closed


@pytest.mark.slow
def test_the_experts_solve_initial_states_they_were_not_made_on(env, tmp_path):
    cfg = CollectCfg(
        env=CFG.replace(action_repeat=2, max_episode_steps=60),
        tasks=["Lift", "Stack", "Door"],
        episodes=8,
        seed=11,
        action_noise=[0.0, 0.3],
        out=str(tmp_path),
    )
    for recorded in collect(cfg):
        assert recorded.episodes == 8
        assert recorded.attempts <= 12
        _, frames = next(demos(recorded.path))
        length = len(frames["actions"])
        assert frames["actions"].shape == (length, 7)
        assert frames["success"].tolist() == [0] * (length - 1) + [1]
        assert [frames[f"obs/{camera}_image"].shape for camera in CAMERAS] == [
            (length, 64, 64, 3)
        ] * 2
        widths = [frames[f"obs/{name}"].shape[1] for name in RobosuiteCfg.state_parts]
        assert widths == [3, 4, 2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "controller", "message"),
    [
        ("Milk", "OSC_POSE", "Milk has no scripted expert; these have one: Lift, Stack"),
        ("Door", "OSC_POSITION", "turns the hand; set controller=OSC_POSE"),
    ],
)
def test_without_an_expert_it_says_which_tasks_have_one(env, task, controller, message):
    one = CFG.replace(num_envs=1, controller=controller, cameras=[]).build()
    try:
        one.reset(starts(0, task))
        with pytest.raises(ValueError, match=message):
            one.expert_action(0)
    finally:
        one.close()


@pytest.mark.slow
def test_every_task_runs_and_scenes_that_were_unloaded_come_back_the_same(env):
    one = CFG.replace(num_envs=1).build()
    begun = {}
    try:
        for task in (*one.cfg.tasks, "Lift", "Door"):  # nine scenes, three are kept
            observation = one.reset(starts(0, task))
            assert begun.setdefault(task, digest(observation, 0)) == digest(observation, 0)
            assert all(images.std() > 20 for images in observation.images.values())
            assert one.step(np.zeros((1, 4, 7), np.float32)).steps.tolist() == [4]
    finally:
        one.close()
    assert len(set(begun.values())) == 9
