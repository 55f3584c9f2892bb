import json
import weakref

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

from rrf.cli import app
from rrf.envs.demonstrations.collect import CollectCfg, Progress, collect
from rrf.envs.demonstrations.recorder import Recorder, _attempt_numbers, _Images
from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.envs.metaworld.env import Expert
from rrf.envs.metaworld.tasks import TASKS as ALL_TASKS
from rrf.envs.pusht.configs import PushtCfg
from rrf.envs.robosuite.configs import RobosuiteCfg
from rrf.envs.vec_env import InitialState

TASKS = ["faucet-close-v3", "plate-slide-v3"]


def config(out, env=None, **changes):
    env = MetaWorldCfg(**{"image_size": 32, "max_episode_steps": 50} | (env or {}))
    defaults = {"tasks": TASKS, "episodes": 2, "seed": 5, "action_noise": [0.0, 0.4]}
    return CollectCfg(env=env, **defaults | changes, out=str(out))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    out = tmp_path_factory.mktemp("recorded")
    progress: list[Progress] = []
    return out, collect(config(out), progress.append), progress


def demos(path):
    with h5py.File(path) as file:
        data = file["data"]
        for number in range(len(data)):
            demo = data[f"demo_{number}"]
            values = {}
            demo.visititems(
                lambda name, item, values=values: (
                    values.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
                )
            )
            yield dict(demo.attrs), values


@pytest.mark.slow
def test_a_file_holds_successful_episodes_in_robomimic_layout(recorded):
    out, results, progress = recorded
    assert [result.task for result in results] == TASKS
    for result in results:
        assert not result.is_reused
        with h5py.File(out / f"{result.task}.hdf5") as file:
            attributes = dict(file["data"].attrs)
            assert attributes["total"] == result.frames
            assert attributes["fps"] == 16
            env_args = json.loads(attributes["env_args"])
        assert env_args["env_name"] == result.task
        assert env_args["env_kwargs"] == {
            "image_size": 32, "camera": "corner2", "action_repeat": 5, "control_hz": 80,
        }  # fmt: skip
        lengths, indices = [], []
        for attributes, demo in demos(result.path):
            length = int(attributes["num_samples"])
            lengths.append(length)
            assert attributes["seed"] == 5
            indices.append(int(attributes["index"]))
            assert attributes["success"] == 1
            assert demo["success"].tolist() == [0] * (length - 1) + [1]
            assert demo["dones"].tolist() == [0] * (length - 1) + [1]
            assert demo["actions"].shape == (length, 4)
            assert demo["actions"].dtype == np.float32
            assert np.abs(demo["actions"]).max() <= 1
            assert demo["states"].dtype == np.float64
            assert demo["obs/corner2_image"].shape == (length, 32, 32, 3)
            assert demo["obs/eef_pos"].shape == (length, 3)
            assert demo["obs/gripper_opening"].shape == (length, 1)
        assert sum(lengths) == result.frames
        assert len(lengths) == 2
        assert indices == sorted(set(indices))  # the successful attempts, in their order
        assert indices[-1] < result.attempts
        last = [event for event in progress if event.task == result.task][-1]
        assert last == Progress(result.task, 2, 2, result.frames)
        first = next(p for p in progress if p.task == result.task)
        assert first == Progress(result.task, 0, 2, 0)  # before the simulator has started


def test_actions_without_noise_replay_to_the_recorded_states_and_success(recorded):
    out, _, _ = recorded
    attributes, demo = next(demos(out / "plate-slide-v3.hdf5"))
    assert attributes["action_noise"] == 0
    env = MetaWorldCfg(num_envs=1, chunk_length=1, cameras=[]).build()
    env.reset([InitialState("plate-slide-v3", 5, 0)])
    for frame, action in enumerate(demo["actions"]):
        np.testing.assert_array_equal(env.full_state(0), demo["states"][frame])
        step = env.step(action[None, None])
        assert step.reward[0] == demo["rewards"][frame]
    assert step.success[0]


def test_with_noise_the_experts_own_answer_is_recorded_not_the_executed_action(recorded):
    out, _, _ = recorded
    _, (attributes, demo) = demos(out / "plate-slide-v3.hdf5")
    assert attributes["action_noise"] == 0.4
    env = MetaWorldCfg(num_envs=1, chunk_length=1, cameras=[]).build()
    env.reset([InitialState("plate-slide-v3", 5, 1)])
    clean = Expert("plate-slide-v3").action(env.expert_observation(0))
    np.testing.assert_array_equal(demo["actions"][0], clean)
    np.testing.assert_array_equal(env.full_state(0), demo["states"][0])
    env.step(demo["actions"][:1, None])
    moved = np.abs(env.full_state(0) - demo["states"][1]).max()
    assert moved > 1e-3  # something else was executed


@pytest.mark.slow
def test_one_process_records_what_is_missing_to_the_byte_as_two_did_and_keeps_the_rest(
    recorded, tmp_path
):
    out, results, _ = recorded
    kept, *missing = (tmp_path / f"{task}.hdf5" for task in TASKS)
    kept.write_bytes((out / kept.name).read_bytes())
    before = kept.stat().st_mtime_ns
    again = collect(config(tmp_path, num_workers=1))
    assert [result.is_reused for result in again] == [True, False]
    assert [result.frames for result in again] == [result.frames for result in results]
    assert kept.stat().st_mtime_ns == before
    for path in missing:
        assert path.read_bytes() == (out / path.name).read_bytes()


def test_a_recording_with_other_settings_is_not_overwritten_silently(recorded):
    out, _, _ = recorded
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(ValueError, match=r"recorded with other settings.*--force"):
        collect(config(out, episodes=3))
    (out / "stray.hdf5").write_bytes(b"no hdf5")
    try:
        (out / "stray.hdf5").rename(out / "push-v3.hdf5")
        with pytest.raises(ValueError, match=r"push-v3.hdf5 was not recorded by rrf"):
            collect(config(out, tasks=["push-v3"]))
    finally:
        (out / "push-v3.hdf5").unlink()
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_an_expert_that_does_not_succeed_is_an_error_and_leaves_no_file(tmp_path):
    cfg = config(tmp_path, tasks=["reach-v3"], episodes=1, env={"max_episode_steps": 1})
    recorder = Recorder(cfg.to_dict())
    with pytest.raises(ValueError, match=r"solved 0 of \d+ attempts, but 1 episodes are wanted"):
        list(recorder.record("reach-v3"))
    assert list(tmp_path.iterdir()) == []


def test_tasks_whose_experts_do_not_succeed_do_not_keep_others_from_being_recorded(tmp_path):
    tasks = ["assembly-v3", "coffee-button-v3", "basketball-v3"]
    cfg = config(tmp_path, tasks=tasks, episodes=1, env={"max_episode_steps": 13}, num_workers=1)
    wanted = r"assembly-v3: .*; basketball-v3 failed, too; recorded in .*: 1 of 3"
    with pytest.raises(ValueError, match=wanted):
        collect(cfg)
    assert [path.name for path in tmp_path.iterdir()] == ["coffee-button-v3.hdf5"]


def test_without_noise_no_initial_state_is_played_twice(tmp_path):
    quiet = _attempt_numbers(config(tmp_path, episodes=30, action_noise=[0.0]))
    assert list(quiet) == list(range(50))
    mixed = _attempt_numbers(config(tmp_path, episodes=20, action_noise=[0.0, 0.3]))
    assert list(mixed)[48:53] == [48, 49, 51, 53, 55]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": ["faucet-clos-v3"]}, "did you mean 'faucet-close-v3'"),
        ({"tasks": ["reach-v3", "reach-v3"]}, "and no task twice"),
        ({"episodes": 0}, "episodes=0 and num_workers=2 must be at least 1"),
        ({"episodes": 51, "action_noise": [0.0, 0.1]}, "a seed has 50 initial states"),
        ({"action_noise": [-0.1]}, "must be a list of numbers >= 0"),
        ({"env": {"cameras": ["corner9"]}}, "no camera 'corner9'; did you mean 'corner"),
        ({"env": {"cameras": ["corner", "corner"]}}, "names one twice"),
    ],
)
def test_bad_settings_are_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        config(tmp_path, **changes)


def test_what_cannot_be_recorded_is_said_before(tmp_path):
    robosuite = RobosuiteCfg()
    with pytest.raises(ValueError, match="initial states; give trials too, or leave demonstr"):
        CollectCfg(env=robosuite, tasks=["Lift"], demonstrations=1, out=str(tmp_path))
    CollectCfg(env=robosuite, tasks=["Lift"], demonstrations=1, trials=9, out=str(tmp_path))
    with pytest.raises(ValueError, match="of PushT cannot be repeated in other initial states; le"):
        CollectCfg(env=PushtCfg(), tasks=["PushT"], demonstrations=1, trials=9, out=str(tmp_path))
    with pytest.raises(ValueError, match="no robosuite task 'Lft'; did you mean 'Lift'"):
        CollectCfg(env=robosuite, tasks=["Lft"], out=str(tmp_path))
    done = CliRunner().invoke(app, ["data", "collect", "--env", "robosuite"])
    assert done.exit_code != 0
    assert "name tasks of robosuite: --tasks Lift,Stack,Can" in str(done.exception)


def test_a_simulator_that_is_not_set_up_is_said_before_a_process_is_started(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    cfg = CollectCfg(env=RobosuiteCfg(), tasks=["Lift"], out=str(tmp_path / "raw"))
    with pytest.raises(ValueError, match="not set up here; type: rrf envs setup robosuite") as info:
        collect(cfg)
    assert not hasattr(info.value, "__notes__")  # the traceback of a child process


def test_settings_of_a_simulator_are_part_of_the_recording():
    usual = CollectCfg(env=RobosuiteCfg(), tasks=["Lift"], out="")
    other = usual.replace(env=RobosuiteCfg(controller="OSC_POSITION"))
    assert usual.env_args("Lift")["type"] == "robosuite"
    assert usual.env_args("Lift")["env_kwargs"] == {
        "image_size": 64, "camera": "agentview", "action_repeat": 1, "control_hz": 20,
    }  # fmt: skip
    assert other.env_args("Lift")["env_kwargs"]["controller"] == "OSC_POSITION"


@pytest.mark.slow
def test_every_task_can_be_demonstrated(tmp_path):
    env = {"max_episode_steps": 100}
    results = collect(config(tmp_path, env, tasks=list(ALL_TASKS), episodes=1))
    assert [result.task for result in results] == list(ALL_TASKS)
    assert all(result.frames > 0 for result in results)


@pytest.mark.slow
def test_several_cameras_are_recorded_side_by_side(tmp_path):
    def one_demo(folder, cameras):
        cfg = config(tmp_path / folder, {"cameras": cameras}, tasks=TASKS[:1], episodes=1)
        (result,) = collect(cfg)
        with h5py.File(result.path) as file:
            settings = json.loads(str(file["data"].attrs["env_args"]))["env_kwargs"]
        ((_, demo),) = demos(result.path)
        return settings, demo

    settings, both = one_demo("both", ["corner2", "gripperPOV"])
    assert settings["cameras"] == ["corner2", "gripperPOV"]
    _, alone = one_demo("alone", ["corner2"])
    np.testing.assert_array_equal(both["obs/corner2_image"], alone["obs/corner2_image"])
    np.testing.assert_array_equal(both["actions"], alone["actions"])
    assert both["obs/gripperPOV_image"].shape == alone["obs/corner2_image"].shape
    assert (both["obs/gripperPOV_image"] != both["obs/corner2_image"]).mean() > 0.5


def test_images_of_kept_episodes_leave_the_memory(tmp_path):
    images = _Images(tmp_path)
    pixels = [np.full((3, 4, 4, 3), number, np.uint8) for number in range(2)]
    kept = [weakref.ref(each) for each in pixels]
    read = [images.put(each) for each in pixels]
    pixels.clear()
    assert [each() for each in kept] == [None, None]
    assert [int(each().mean()) for each in (read[1], read[0], read[1])] == [1, 0, 1]
    assert list(tmp_path.iterdir()) == []  # the file has no name
