"""Whether the state of a frame came before its action is told from what explains its steps."""

import dataclasses

import h5py
import numpy as np
import pytest

from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import InstructionCfg, SourceCfg, VectorCfg
from rrf.data.formats.d4rl_writer import write_d4rl
from rrf.data.schema import STATE
from rrf.data.validation.alignment import unexplained_steps
from tests.data.conftest import make_cfg
from tests.data.fixtures_hdf5 import JOINTS, drive, record_isaac_lab
from tests.data.validation.conftest import findings, run

LATE = f"{STATE}: the action of a frame explains the step that led to its state (0% remain"


def state_cfg(source_format, key, action_key, **options):
    return make_cfg(
        source=SourceCfg(format=source_format, path="x", options=options),
        cameras={},
        image_size=None,
        state=VectorCfg(keys=[key], names=["a", "b"], unit="rad"),
        action=VectorCfg(keys=[action_key], names=["da", "db"], unit="rad"),
        instruction=InstructionCfg(text="reach"),
        reward=None,
        success=None,
    )


def alignment(root):
    return [text for check, text in findings(run(root), "warn") if check == "alignment"]


@pytest.mark.parametrize(
    ("options", "is_late"),
    [({}, False), ({"states": "before"}, True), ({"states": "after"}, False)],
)
def test_states_of_isaac_lab_are_aligned_unless_the_config_is_wrong(tmp_path, options, is_late):
    record_isaac_lab(tmp_path / "raw/demos.hdf5", [drive(60), drive(70, seed=1)])
    cfg = state_cfg("isaac_lab", JOINTS, "actions", **options)
    convert(cfg, tmp_path / "raw", tmp_path / "d")
    assert [text.startswith(LATE) for text in alignment(tmp_path / "d")] == [True] * is_late


def test_a_late_state_is_mended_by_what_the_finding_says(tmp_path):
    record_isaac_lab(tmp_path / "raw/demos.hdf5", [drive(60), drive(70, seed=1)])
    cfg = state_cfg("isaac_lab", JOINTS, "actions", states="before")
    convert(cfg, tmp_path / "raw", tmp_path / "d")
    (text,) = alignment(tmp_path / "d")
    assert text.endswith("if so, write into the config after_action: [state]")
    convert(dataclasses.replace(cfg, after_action=["state"]), tmp_path / "raw", tmp_path / "d")
    assert alignment(tmp_path / "d") == []


def test_a_layout_that_says_when_the_state_was_seen_is_not_doubted(tmp_path):
    joints, actions = drive(200)
    ends = np.arange(200) == 199
    write_d4rl(
        tmp_path / "raw/toy.hdf5",
        {
            "observations": joints[1:],
            "next_observations": joints[1:],
            "actions": actions,
            "rewards": actions[:, 0],
            "terminals": ends,
            "timeouts": ends,
        },
        {},
    )
    convert(state_cfg("d4rl", "observations", "actions"), tmp_path / "raw", tmp_path / "d")
    assert unexplained_steps(joints[1:], actions, np.zeros(200)) == (
        pytest.approx(1, abs=0.05),
        pytest.approx(1e-4),
    )
    assert alignment(tmp_path / "d") == []


@pytest.mark.slow
def test_what_a_layout_leaves_open_is_told_from_the_numbers(tmp_path):
    """`infos` of D4RL are written before the step by some, after it by others."""
    joints, actions = drive(200)
    ends = np.arange(200) == 199
    arrays = {
        "observations": joints[:-1],
        "next_observations": joints[1:],
        "actions": actions,
        "rewards": actions[:, 0],
        "terminals": ends,
        "timeouts": ends,
    }
    write_d4rl(tmp_path / "raw/toy.hdf5", arrays, {})
    with h5py.File(tmp_path / "raw/toy.hdf5", "a") as file:
        file["infos/before"], file["infos/after"] = joints[:-1], joints[1:]
    convert(state_cfg("d4rl", "infos/before", "actions"), tmp_path / "raw", tmp_path / "d")
    assert alignment(tmp_path / "d") == []
    late = state_cfg("d4rl", "infos/after", "actions")
    convert(late, tmp_path / "raw", tmp_path / "d")
    (text,) = alignment(tmp_path / "d")
    assert text.startswith(LATE)
    convert(dataclasses.replace(late, after_action=["state"]), tmp_path / "raw", tmp_path / "d")
    assert alignment(tmp_path / "d") == []


def shares(states, actions):
    return unexplained_steps(states, actions, np.zeros(len(actions)))


def test_a_robot_that_follows_its_target_is_aligned_and_late_if_it_stands_there_already():
    rng = np.random.default_rng(0)
    targets = np.cumsum(rng.normal(size=(300, 3)), axis=0)
    states = np.concatenate([np.zeros((1, 3)), targets])  # there with the next frame
    before, after = shares(states[:-1], targets)
    assert (before, after > 0.4) == (pytest.approx(1e-4), True)
    before, after = shares(states[1:], targets)
    assert (before > 0.9, after) == (True, pytest.approx(1e-4))


def test_nothing_is_said_of_few_frames_and_of_what_does_not_move():
    joints, actions = drive(20)
    assert shares(joints[:-1], actions) is None
    assert shares(np.ones((300, 2)), np.random.default_rng(0).normal(size=(300, 2))) is None


def test_frames_that_are_no_numbers_do_not_count():
    joints, actions = drive(100)
    joints[7, 0], actions[50, 1] = np.nan, np.inf
    assert shares(joints[:-1], actions)[0] == pytest.approx(1e-4)


def test_steps_from_one_episode_to_the_next_do_not_count():
    joints, actions = drive(100)
    states = joints[:-1].copy()
    states[50:] += 1000
    episodes = np.repeat([0, 1], 50)
    before, after = unexplained_steps(states, actions, episodes)
    assert (before, after > 0.9) == (pytest.approx(1e-4), True)
