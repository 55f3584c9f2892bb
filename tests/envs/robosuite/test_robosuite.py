"""robosuite in its own interpreter, and what its config refuses without it."""

from pathlib import Path

import numpy as np
import pytest

from rrf.envs import ENVS
from rrf.envs.observations import digest
from rrf.envs.robosuite.configs import INSTRUCTIONS, SHIFTS, RobosuiteCfg
from rrf.envs.vec_env import InitialState
from rrf.evaluation.protocols.files import load_protocol
from rrf.presets import resolve
from rrf.runners.vla_rl.configs import VLARLRunnerCfg
from tests.envs.foreign import real
from tests.envs.foreign.real import starts

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
    robust = load_protocol(ROOT / "configs/protocols/robosuite-robust.yaml")
    assert robust.environment_cfg() == cfg
    assert set(robust.groups) >= {"as trained", "camera", "light", "texture", "start"}
    preset = resolve("robosuite-grpo-compact", ["init_from=somewhere"])
    assert isinstance(preset, VLARLRunnerCfg)
    assert preset.policy.cameras == CAMERAS
    assert (preset.policy.action_dim, preset.policy.state_dim) == (7, len(cfg.state_names))
    assert preset.env.control_hz // preset.env.action_repeat == cfg.fps == 10


def test_without_its_interpreter_it_says_what_to_type(tmp_path):
    real.check_says_what_to_type(CFG, tmp_path)


@pytest.fixture(scope="module")
def env():
    with real.built(CFG) as env:
        yield env


@pytest.mark.slow
def test_an_initial_state_is_the_same_episode_to_the_bit():
    real.check_exact(CFG, ["Lift", "Door"])


@pytest.mark.slow
def test_who_hides_all_gpus_sees_the_same(env, monkeypatch):
    seen = env.reset(starts(0, "Lift", "Lift")).images
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with real.built(CFG) as hidden:
        images = hidden.reset(starts(0, "Lift", "Lift")).images
    assert all(np.array_equal(images[name], seen[name]) for name in seen)


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
@pytest.mark.parametrize("task", ["Lift", "Stack", "Door"])
def test_the_experts_solve_initial_states_they_were_not_made_on(task, tmp_path):
    cfg = CFG.replace(action_repeat=2, max_episode_steps=60)
    with real.workspace_of("robosuite"):
        attempts, episodes = real.record(cfg, task, 8, tmp_path, [0.0, 0.3])
    assert attempts <= 12
    for episode in episodes:
        length = len(episode["actions"])
        assert episode["actions"].shape == (length, 7)
        for camera in CAMERAS:
            assert episode[f"obs/{camera}_image"].shape == (length, 64, 64, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "controller", "message"),
    [
        ("Milk", "OSC_POSE", "Milk has no scripted expert; these have one: Lift, Stack"),
        ("Door", "OSC_POSITION", "turns the hand; set controller=OSC_POSE"),
    ],
)
def test_without_an_expert_it_says_which_tasks_have_one(task, controller, message):
    with real.built(CFG.replace(num_envs=1, controller=controller, cameras=[])) as env:
        env.reset(starts(0, task))
        with pytest.raises(ValueError, match=message):
            env.expert_action(0)


@pytest.mark.slow
def test_every_task_runs_and_scenes_that_were_unloaded_come_back_the_same():
    begun = {}
    with real.built(CFG.replace(num_envs=1)) as one:
        for task in (*INSTRUCTIONS, "Lift", "Door"):  # nine scenes, three are kept
            observation = one.reset(starts(0, task))
            assert begun.setdefault(task, digest(observation, 0)) == digest(observation, 0)
            assert all(images.std() > 20 for images in observation.images.values())
            assert one.step(np.zeros((1, 4, 7), np.float32)).steps.tolist() == [4]
    assert len(set(begun.values())) == 9


def test_a_changed_task_is_a_task_with_its_words():
    CFG.check_task("Lift@texture")
    assert len(CFG.tasks) == len(INSTRUCTIONS) * (1 + len(SHIFTS))
    with pytest.raises(ValueError, match=r"no robosuite task 'Lift@lights'.*Lift@light"):
        CFG.check_task("Lift@lights")
    assert CFG.instruction("Lift@camera") == "lift the red cube"
    assert CFG.worded("Lift@camera", InitialState("Lift@camera", 1, 2)) == "lift the red cube"
    for task in INSTRUCTIONS:
        worded = {
            name: {
                CFG.worded(f"{task}@{name}", InitialState(f"{task}@{name}", 1, index))
                for index in range(50)
            }
            for name in ("wording", "other-wording")
        }
        assert min(map(len, worded.values())) >= 3
        assert not worded["wording"] & worded["other-wording"]


@pytest.mark.slow
@pytest.mark.parametrize("shift", SHIFTS)
def test_another_picture_of_the_same_episode(shift):
    """The expert, who sees what is in the hand, does the same to the bit; only @start moves."""
    cfg = CFG.replace(chunk_length=1, max_episode_steps=40, action_repeat=2)
    with real.built(cfg) as env:
        seen = env.reset([InitialState(f"Lift{at}", 4242, 3) for at in ("", f"@{shift}")])
        begun, is_same = seen, shift != "start"
        for _ in range(25):
            assert np.array_equal(seen.state[0], seen.state[1]) == is_same
            actions = np.stack([env.expert_action(slot) for slot in (0, 1)])
            assert np.array_equal(*actions) == is_same
            step = env.step(actions[:, None])
            assert not is_same or step.reward[0] == step.reward[1]
            seen = step.observation
            if step.terminated.any():  # the cube is lifted
                break
        assert step.terminated.all() or not is_same
        pictures = begun.images["agentview"].astype(int)
        assert (np.abs(pictures[0] - pictures[1]).max(axis=-1) > 10).any() == ("word" not in shift)
        # and whoever had another picture before has the plain one again
        again = env.reset([InitialState("Lift", 4242, 3)], env_ids=[1])
        np.testing.assert_array_equal(again.images["agentview"][0], begun.images["agentview"][0])
        np.testing.assert_array_equal(again.state[0], begun.state[0])


@pytest.mark.slow
def test_pictures_follow_from_the_initial_state():
    states = [InitialState("Door@light", 4242, 3), InitialState("Door@light", 777, 3)]
    with real.built(CFG) as env:
        first = env.reset(states).images["agentview"]
        other = env.reset(states[::-1]).images["agentview"]
    np.testing.assert_array_equal(first, other[::-1])
    assert np.abs(first[0].astype(int) - first[1]).max() > 10
