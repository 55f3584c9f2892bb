"""Recordings: what is on disk when, what goes on, and what lerobot reads of it."""

import json

import numpy as np
import pytest

from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import dataset_paths, load_dataset_cfg
from rrf.data.dataset.opening import open_dataset
from rrf.data.validation.validate import validate
from rrf.envs.robots.recording import EventLog, Recording, write_dataset_cfg
from rrf.workspace import shipped
from tests.envs.robots.conftest import AT_REST

NAMES = list(AT_REST)
SIZE = (12, 16)


@pytest.fixture
def schema(cfg):
    return cfg.schema(NAMES, NAMES, {"front": SIZE})


def image(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 255, (*SIZE, 3), np.uint8)


def add_episode(recording: Recording, number: int, length: int = 5, success: bool = True) -> None:
    recording.begin()
    for step in range(length):
        state = {name: value + number + step for name, value in AT_REST.items()}
        recording.add(state | {"front": image(100 * number + step)}, state)
    recording.keep(success)


def test_a_recording_is_a_dataset_of_lerobot(cfg, schema):
    with Recording("mine", cfg, schema) as recording:
        add_episode(recording, 0)
        add_episode(recording, 1, length=3, success=False)
        assert recording.finish() == 8
    reader = open_dataset(recording.out, chunk_length=1)
    episode = reader.episode(1)
    assert len(reader.episodes) == 2
    np.testing.assert_array_equal(episode.state[2], np.array([*AT_REST.values()]) + 3)
    np.testing.assert_array_equal(episode.images["front"][1], image(101))
    assert reader.episode(0).success.tolist() == [False] * 4 + [True]
    assert not episode.success.any()
    assert episode.instruction == "pick up the red cube"
    info = json.loads((recording.out / "meta/info.json").read_text())
    assert info["robot_type"] == "so101_sim"
    assert info["features"]["observation.state"]["names"] == NAMES
    assert info["features"]["action"]["info"]["unit"] == "deg, deg, deg, deg, deg, 0..100"


def test_it_goes_on_where_it_ended_whether_it_was_finished_or_killed(cfg, schema):
    with Recording("mine", cfg, schema) as recording:
        add_episode(recording, 0)
        recording.finish()
    with Recording("mine", cfg, schema) as killed:  # after an episode, without finish
        assert killed.num_episodes == 1
        add_episode(killed, 1)
    with Recording("mine", cfg, schema) as recording:
        assert recording.num_episodes == 2
        add_episode(recording, 2)
        assert recording.finish() == 15
    reader = open_dataset(recording.out, chunk_length=1)
    for number in range(3):
        assert reader.episode(number).state[0][0] == number
        np.testing.assert_array_equal(
            reader.episode(number).images["front"][4], image(100 * number + 4)
        )


def test_killed_between_the_dataset_and_the_removal_of_its_parts(cfg, schema, monkeypatch):
    with Recording("mine", cfg, schema) as recording:
        add_episode(recording, 0)
        with monkeypatch.context() as killed:
            killed.setattr("rrf.envs.robots.recording.atomic.remove", lambda path: None)
            recording.finish()
    with Recording("mine", cfg, schema) as recording:
        assert recording.num_episodes == 1  # not two


def test_the_same_episodes_give_the_same_bytes_in_one_go_or_in_two(cfg, schema):
    for name, stops in (("one", (3,)), ("two", (1, 3))):
        done = 0
        for stop in stops:
            with Recording(name, cfg, schema) as recording:
                for number in range(done, stop):
                    add_episode(recording, number)
                recording.finish()
            done = stop
    one, two = (dict(_tree(cfg, schema, name)) for name in ("one", "two"))
    assert one == two


def _tree(cfg, schema, name):
    root = Recording(name, cfg, schema).out
    for path in sorted(root.rglob("*.parquet")):
        yield str(path.relative_to(root)), path.read_bytes()


def test_other_features_are_not_mixed_in(cfg, schema):
    with Recording("mine", cfg, schema) as recording:
        add_episode(recording, 0)
    other = cfg.override({"fps": 20.0})
    with (
        pytest.raises(ValueError, match=r"recorded with other features \(10 steps/s"),
        Recording("mine", other, other.schema(NAMES, NAMES, {"front": SIZE})),
    ):
        pass
    with Recording("mine", cfg, schema) as recording:
        recording.finish()
    with pytest.raises(ValueError, match=r"other features \(10 steps/s, .*now: 20 steps/s"):
        Recording("mine", other, other.schema(NAMES, NAMES, {"front": SIZE}))


def test_two_processes_do_not_record_the_same(cfg, schema):
    with (
        Recording("mine", cfg, schema),
        pytest.raises(ValueError, match="another process records"),
        Recording("mine", cfg, schema),
    ):
        pass


@pytest.mark.parametrize("name", ["../x", "raw", "a/b"])
def test_a_name_is_no_path(cfg, schema, name):
    with pytest.raises(ValueError, match="name"):
        Recording(name, cfg, schema)


def test_an_episode_without_frames_and_one_that_is_begun_again_leave_nothing(cfg, schema):
    with Recording("mine", cfg, schema) as recording:
        with pytest.raises(ValueError, match="no frames"):
            recording.keep(True)
        recording.add(AT_REST | {"front": image(0)}, AT_REST)
        recording.begin()
        add_episode(recording, 1)
        recording.finish()
    assert open_dataset(recording.out, chunk_length=1).num_frames == 5


def test_jpeg_is_kept_as_such(cfg, schema):
    smooth = np.linspace(0, 255, 12 * 16 * 3).reshape(*SIZE, 3).astype(np.uint8)
    with Recording("mine", cfg.override({"image_format": "jpg"}), schema) as recording:
        recording.add(AT_REST | {"front": smooth}, AT_REST)
        recording.keep(True)
        recording.finish()
    shown = open_dataset(recording.out, chunk_length=1).episode(0).images["front"][0]
    assert 0 < np.abs(shown.astype(int) - smooth).mean() < 3


def test_what_is_recorded_is_converted_and_valid(cfg, schema, home):
    with Recording("mine", cfg, schema) as recording:
        for number in range(14):
            add_episode(recording, number, length=15)
        recording.finish()
        path = write_dataset_cfg(recording)
        assert path == home / "configs/datasets/mine.yaml"
        assert write_dataset_cfg(recording) is None  # it is the user's now
    dataset = load_dataset_cfg("mine")
    paths = dataset_paths(dataset)
    assert convert(dataset, paths.raw, paths.converted).frames == 210
    report = validate("mine", paths.converted, dataset.checks, paths.reports)
    failed = [check.check for check in report.checks if check.status in ("fail", "crashed")]
    assert failed == []


def test_the_shipped_config_is_what_recording_writes(cfg):
    size = {"front": (64, 64)}
    written = Recording("so101-sim", cfg, cfg.schema(NAMES, NAMES, size)).dataset_cfg()
    shown = load_dataset_cfg("so101-sim")
    assert (shipped() / "configs/datasets/so101-sim.yaml").is_file()
    assert shown == written.replace(checks=shown.checks)


def test_events_are_lines_and_the_next_attempt_is_found(home):
    log = EventLog("arm")
    assert log.next_attempt("mine") == 0
    log("episode", recording="mine", attempt=4)
    log("episode", recording="other", attempt=9)
    with log.path.open("a") as file:
        file.write('{"event": "episode", "recor')  # killed here
    assert log.next_attempt("mine") == 5
    assert log.next_attempt("mine", 7000, 1000) == 7000
    log = EventLog("arm")
    log("episode", recording="mine", attempt=7001)
    assert log.next_attempt("mine", 7000, 1000) == 7002
    assert log.next_attempt("mine", 4000, 1000) == 4000
    assert log.path == home / ".rrf/robots/arm.jsonl"
