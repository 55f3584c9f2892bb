"""RoboTwin in its own interpreter, and what its config says without it and without its assets."""

import subprocess
import typing
from pathlib import Path

import numpy as np
import pytest

from rrf.envs import ENVS
from rrf.envs.foreign import interpreters
from rrf.envs.robotwin.configs import CAMERAS, RobotwinCfg
from rrf.envs.robotwin.tasks import BLOCKS, INSTRUCTIONS
from rrf.envs.vec_env import InitialState
from rrf.evaluation.gates.gate import load_gate
from rrf.evaluation.protocols.files import load_protocol
from rrf.presets import resolve
from tests.envs.foreign import real

CFG = RobotwinCfg(num_envs=2, chunk_length=1, max_episode_steps=24, shadows=False)
HOME = np.array([0, -1.75, 2.45, 0, 0.87, 0, 1] * 2, np.float32)  # of the stand-in arms


@pytest.fixture(autouse=True)
def without_assets(monkeypatch):
    """Whatever this machine has."""
    monkeypatch.delenv("ASSETS_PATH", raising=False)
    monkeypatch.delenv("ROBOTWIN_PATH", raising=False)


def test_a_config_says_what_it_does_not_know():
    assert ENVS.get("robotwin") is RobotwinCfg
    assert (CFG.action_dim, CFG.state_dim, len(CFG.tasks)) == (14, 14, 50)
    assert list(CFG.expert_tasks) == list(BLOCKS)
    with pytest.raises(ValueError, match="no camera 'head_camra'; did you mean 'head_camera'"):
        CFG.replace(cameras=["head_camra"])
    with pytest.raises(ValueError, match="an action of RoboTwin is a whole motion"):
        CFG.replace(action_repeat=2)
    with pytest.raises(ValueError, match=r"rrf-arm has one arm; set apart_m=0\.6"):
        CFG.replace(apart_m=None)
    with pytest.raises(ValueError, match="no RoboTwin task 'stack_block'; did you mean 'stack_bl"):
        CFG.check_initial_state(InitialState("stack_block", 0, 0))


@pytest.mark.parametrize(
    ("task", "named"),
    [
        ("open_laptop", "open_laptop"),
        ("close_laptop_lid", "RoboTwin has no task close_laptop_lid; open_laptop"),
    ],
)
def test_a_task_whose_objects_are_not_here_says_where_they_are_from(task, named):
    with pytest.raises(ValueError, match=f"^{named} needs objects of RoboTwin's assets") as said:
        CFG.check_task(task)
    assert "TianxingChen/RoboTwin2.0, MIT licence" in str(said.value)
    assert "set ASSETS_PATH to that folder" in str(said.value)


def test_with_assets_all_tasks_are_there(tmp_path, monkeypatch):
    (tmp_path / "assets/objects/objaverse").mkdir(parents=True)
    for name in ("ASSETS_PATH", "ROBOTWIN_PATH"):
        with monkeypatch.context() as patch:
            patch.setenv(name, str(tmp_path))
            CFG.check_task("open_laptop")
            assert CFG.variables["ASSETS_PATH"] == str(tmp_path)
            assert list(CFG.expert_tasks) == list(INSTRUCTIONS)
            with pytest.raises(ValueError, match="no task close_laptop_lid; open_laptop is what"):
                CFG.check_task("close_laptop_lid")


@pytest.mark.parametrize(("field", "value"), [("robot", "piper"), ("scene", "randomized")])
def test_robots_and_scenes_whose_assets_are_not_here_say_so(field, value):
    with pytest.raises(ValueError, match=r"assets, which are not here: .* Without them set"):
        CFG.replace(**{field: value}).versions([])


def test_without_its_interpreter_it_says_what_to_type(tmp_path):
    real.check_says_what_to_type(CFG, tmp_path)


def test_the_protocols_are_those_of_the_presets():
    demo = load_protocol("configs/protocols/robotwin-demo.yaml")
    own: typing.Any = load_protocol("configs/protocols/robotwin.yaml")
    for preset in ("compact-vla-robotwin", "robotwin-grpo-compact"):
        demo.build().check_training(resolve(preset, []))
    assert load_gate("configs/gates/robotwin-demo.yaml").protocol.name == demo.name
    cfg = own.environment_cfg()
    assert (own.tasks, own.episodes_per_task, own.seed) == (list(BLOCKS), 100, 0)
    assert [cfg.horizon(task) for task in BLOCKS] == [800, 1200, 1200, 1200, 800]  # RoboTwin's
    assert (cfg.skips, cfg.moves, cfg.shadows) == ("unsolved", "each action", True)


@pytest.mark.slow
def test_an_initial_state_is_the_same_episode_to_the_bit():
    real.check_exact(CFG.replace(chunk_length=2), ["stack_blocks_two"] * 2)
    whole = CFG.replace(chunk_length=3, moves="whole chunk")
    real.check_exact(whole, ["blocks_ranking_rgb"] * 2)


@pytest.mark.slow
@pytest.mark.parametrize("task", BLOCKS)
def test_robotwins_experts_solve_the_tasks_of_blocks(task, tmp_path):
    with real.workspace_of("robotwin"):
        cfg = CFG.replace(max_episode_steps=30)
        attempts, episodes = real.record(cfg, task, 2, tmp_path, [0.0])
    assert attempts <= 4
    for episode in episodes:
        assert episode["rewards"].sum() == 1.0
        assert 12 <= len(episode["actions"]) <= 24
        assert episode["obs/head_camera_image"].shape[1:] == (64, 64, 3)
        np.testing.assert_allclose(episode["obs/joint_action"][0], HOME, atol=1e-5)
        np.testing.assert_allclose(  # where the arms were told to go is the next state
            episode["obs/joint_action"][1:], episode["actions"][:-1], atol=1e-3
        )


@pytest.mark.slow
def test_the_state_follows_the_actions_and_the_cameras_the_hands():
    lifted = np.tile(HOME, (2, 1, 1)).astype(np.float32)
    lifted[:, 0, [1, 8]], lifted[:, 0, 6] = -1.2, 0.0
    with real.built(CFG.replace(cameras=list(CAMERAS))) as env:
        begun = env.reset([InitialState("stack_blocks_two", real.SEED, n) for n in (0, 1)])
        step = env.step(lifted)
    np.testing.assert_allclose(begun.state, np.tile(HOME, (2, 1)), atol=1e-5)
    np.testing.assert_allclose(step.observation.state, lifted[:, 0], atol=1e-5)
    red = begun.images["head_camera"][0].astype(int)
    assert ((red[..., 0] - red[..., 1:].max(-1)) > 60).sum() > 10  # the block is seen
    for camera in CAMERAS[1:]:
        assert (step.observation.images[camera] != begun.images[camera]).any()


@pytest.mark.slow
def test_a_whole_chunk_is_one_motion_that_ends_where_its_actions_do():
    chunk = np.linspace(HOME, HOME + 0.3, 6)[None, 1:].astype(np.float32)
    chunk[..., [6, 13]] = 1.0
    cfg = CFG.replace(num_envs=1, chunk_length=5, cameras=[])
    states = []
    for moves in ("each action", "whole chunk"):
        with real.built(cfg.replace(moves=moves)) as env:
            env.reset([InitialState("stack_blocks_two", real.SEED, 0)])
            step = env.step(chunk)
            states.append(step.observation.state[0])
            assert step.steps[0] == 5
    np.testing.assert_allclose(states[0], chunk[0, -1], atol=1e-5)
    np.testing.assert_allclose(states[1], chunk[0, -1], atol=2e-3)


@pytest.mark.slow
def test_a_seed_that_the_expert_does_not_solve_is_replaced():
    """RoboTwin's seed 100,003 of handover_block: the box falls when the left arm takes it."""
    state = [InitialState("handover_block", 0, 3)]
    boxes = []
    for skips in ("unstable", "unsolved"):
        with real.built(CFG.replace(num_envs=1, skips=skips)) as env:
            boxes.append(env.reset(state).images["head_camera"][0])
    assert (boxes[0] != boxes[1]).any()


@pytest.mark.slow
def test_whole_chunks_are_those_of_the_vector_environment_that_rlinf_trains_in(tmp_path):
    """The expert's motions, five by five, through both: states and successes."""
    task, cfg = "stack_blocks_two", CFG.replace(num_envs=1, cameras=[])
    states, successes, chunks = [], [], []
    whole = cfg.replace(chunk_length=5, moves="whole chunk")
    with real.built(cfg) as expert, real.built(whole) as env:
        expert.reset([InitialState(task, 0, 1)])
        states.append(env.reset([InitialState(task, 0, 1)]).state[0])
        for _ in range(3):
            chunk = np.stack([expert.expert_action(0) for _ in range(5)])
            step = env.step(chunk[None])
            chunks.append(chunk)
            states.append(step.observation.state[0])
            successes.append(bool(step.success[0]))
        np.save(tmp_path / "actions.npy", np.stack(chunks))
        python = interpreters.interpreter("robotwin")
        script = Path(__file__).with_name("vector_env.py")
        arm = RobotwinCfg.simulator_file.with_name("arm.py")
        subprocess.run(
            [python.python, "-s", script, tmp_path, arm, task, "100001"],
            env=interpreters.foreign_environment() | python.variables,
            check=True,
            capture_output=True,
        )
    played = np.load(tmp_path / "played.npz")
    np.testing.assert_allclose(played["states"], states, atol=2e-3)
    assert played["successes"].tolist() == successes  # none: the grippers close on the way
