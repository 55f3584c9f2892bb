"""ManiSkill and Minari, and what they share with D4RL: many episodes in one HDF5 file."""

import json

import h5py
import numpy as np
import pytest

from rrf.data.formats.d4rl import D4RLSource
from rrf.data.formats.maniskill import ManiSkillSource
from rrf.data.formats.minari import MinariSource
from tests.data.fixtures_simulators import (
    edit,
    edit_json,
    pictures,
    read_all,
    replace,
    truncate,
    write_d4rl,
    write_maniskill,
    write_minari,
)

RGB = "obs/sensor_data/base_camera/rgb"


# ManiSkill


def test_maniskill_drops_the_observation_after_the_last_action(tmp_path):
    write_maniskill(tmp_path)
    source = ManiSkillSource(tmp_path, {})
    first, second = read_all(
        source, ["obs/agent/qpos", "actions", "success", RGB, "env_states/actors/cube"]
    )
    assert len(first) == 3
    assert len(second) == 5
    assert first.arrays["obs/agent/qpos"].tolist() == [[0.0, 0.1], [1.0, 1.1], [2.0, 2.1]]
    assert second.arrays["obs/agent/qpos"][:, 0].tolist() == [100, 101, 102, 103, 104]
    assert second.arrays["actions"][:, 0].tolist() == [-100, -101, -102, -103, -104]
    assert first.arrays["success"].tolist() == [False, False, True]
    assert first.arrays["obs/agent/qpos"].dtype == np.float64
    assert first.arrays["env_states/actors/cube"].shape == (3, 13)
    np.testing.assert_array_equal(first.images[RGB], pictures(4)[:3])
    assert second.source == f"{tmp_path}/trajectory.h5:traj_1"
    assert second.fps == 20.0
    assert second.instruction is None


def test_maniskill_offers_what_is_recorded(tmp_path):
    write_maniskill(tmp_path)
    keys = ManiSkillSource(tmp_path, {}).keys()
    assert keys[RGB] == "image[8, 12]"
    assert keys["obs/agent/qpos"] == "float64[2]"
    assert keys["obs/sensor_data/base_camera/depth"] == "int16[8, 12, 1]"
    assert keys["terminated"] == "bool[]"


def test_maniskill_reads_trajectory_10_after_2_and_names_recordings_alike_everywhere(tmp_path):
    write_maniskill(tmp_path / "b", [2] * 11)
    write_maniskill(tmp_path / "a")
    source = ManiSkillSource(tmp_path, {})
    recordings = source.recordings()
    assert [(r.name, r.num_episodes) for r in recordings] == [
        ("a/trajectory.h5", 2),
        ("b/trajectory.h5", 11),
    ]
    assert [path.name for path in recordings[0].paths] == ["trajectory.h5", "trajectory.json"]
    episodes = list(source.episodes(recordings[1], ["actions"]))
    assert [e.arrays["actions"][0, 0] for e in episodes] == [-100.0 * i for i in range(11)]


def test_maniskill_without_observations_and_with_actions_per_robot(tmp_path):
    path = write_maniskill(tmp_path, [3])

    def two_robots(file):
        del file["traj_0/obs"], file["traj_0/actions"]
        file["traj_0/actions/panda-0"] = np.ones((3, 8), np.float32)
        file["traj_0/actions/panda-1"] = np.zeros((3, 8), np.float32)

    edit(path, two_robots)
    (episode,) = read_all(ManiSkillSource(path, {}), ["actions/panda-0", "actions/panda-1"])
    assert episode.arrays["actions/panda-0"].shape == (3, 8)
    assert episode.images == {}


def test_maniskill_leaves_out_what_failed_unless_asked_for(tmp_path):
    path = write_maniskill(tmp_path)
    meta = json.loads(path.with_suffix(".json").read_text())
    meta["episodes"][0]["success"] = False
    path.with_suffix(".json").write_text(json.dumps(meta))
    source = ManiSkillSource(tmp_path, {})
    assert [len(episode) for episode in read_all(source, ["actions"])] == [5]
    assert source.warnings == [
        f"{path}: 1 of 2 episodes failed and are left out; to keep them, write options: "
        "{only_successful: false}"
    ]
    source = ManiSkillSource(tmp_path, {"only_successful": False})
    assert [len(episode) for episode in read_all(source, ["actions"])] == [3, 5]
    meta["episodes"][1]["success"] = False
    path.with_suffix(".json").write_text(json.dumps(meta))
    with pytest.raises(ValueError, match=r"all trajectories in .* failed; to keep them, write"):
        ManiSkillSource(tmp_path, {}).recordings()


def test_maniskill_refuses_to_mix_control_modes(tmp_path):
    write_maniskill(tmp_path, name="demo")
    write_maniskill(tmp_path, name="replay", control_mode="pd_ee_delta_pose")
    with pytest.raises(ValueError, match=r"pd_joint_pos in demo\.h5, pd_ee_delta_pose in replay"):
        ManiSkillSource(tmp_path, {}).recordings()
    (recording,) = ManiSkillSource(tmp_path, {"pattern": "replay.h5"}).recordings()
    assert recording.name == "replay.h5"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, r"trajectory\.h5 is truncated or not HDF5"),
        (lambda p: p.with_suffix(".json").unlink(), r"has no trajectory\.json beside it"),
        (lambda p: truncate(p.with_suffix(".json")), r"trajectory\.json is truncated or not JSON"),
        (
            lambda p: p.with_suffix(".json").write_bytes(b'{"episodes": "\xff"}'),
            r"trajectory\.json is not UTF-8",
        ),
        (lambda p: p.with_suffix(".json").write_text("[]"), r"must hold an object"),
        (
            lambda p: edit_json(p.with_suffix(".json"), lambda j: j["episodes"].pop()),
            r"2 trajectories, its \.json lists 1 episodes \(not in both: traj_1\)",
        ),
        (
            lambda p: edit_json(
                p.with_suffix(".json"), lambda j: j["episodes"][1].update(elapsed_steps=9)
            ),
            r"traj_1 has 5 actions, its \.json says elapsed_steps 9",
        ),
        (
            lambda p: edit(p, lambda f: replace(f, "traj_1/obs/agent/qpos", np.zeros((5, 2)))),
            r"traj_1: obs/agent/qpos has shape \[5, 2\], but 5 actions need 6 entries",
        ),
        (
            lambda p: edit(p, lambda f: f["traj_1/obs/agent"].pop("qpos")),
            r"traj_1 has no key 'obs/agent/qpos'",
        ),
        (
            lambda p: edit(p, lambda f: f["traj_1"].pop("actions")),
            r"traj_1 has no actions",
        ),
        (
            lambda p: edit(p, lambda f: [f.pop(name) for name in list(f)]),
            r"trajectory\.h5 holds no episodes \(traj_0, \.\.\.\)",
        ),
    ],
)
def test_maniskill_names_what_is_wrong(tmp_path, damage, message):
    path = write_maniskill(tmp_path)
    damage(path)
    with pytest.raises(ValueError, match=message):
        read_all(ManiSkillSource(tmp_path, {}), ["obs/agent/qpos"])


def test_maniskill_follows_no_link_to_another_file(tmp_path):
    secret = write_d4rl(tmp_path / "elsewhere/secret.hdf5")
    path = write_maniskill(tmp_path / "set")

    def link(file):
        del file["traj_1/obs/agent/qpos"]
        file["traj_1/obs/agent/qpos"] = h5py.ExternalLink(str(secret), "observations")

    edit(path, link)
    with pytest.raises(ValueError, match=r"traj_1: .*qpos is a link to another file"):
        read_all(ManiSkillSource(tmp_path / "set", {}), ["obs/agent/qpos"])


# Minari


def test_minari_reads_nested_observations_and_drops_the_last(tmp_path):
    write_minari(tmp_path / "reach")
    keys = [
        "observations/observation",
        "observations/camera",
        "observations/mission",
        "actions/_index_0",
        "rewards",
        "terminations",
        "infos/success",
    ]
    first, second = read_all(MinariSource(tmp_path / "reach", {}), keys)
    assert first.arrays["observations/observation"][:, 0].tolist() == [0, 1, 2]
    assert second.arrays["observations/observation"][:, 0].tolist() == [100, 101, 102, 103, 104]
    assert second.arrays["actions/_index_0"][:, 0].tolist() == [-100, -101, -102, -103, -104]
    assert second.arrays["observations/mission"].tolist() == ["goal 1"] * 5
    assert second.arrays["observations/mission"].dtype.kind == "U"
    assert first.arrays["terminations"].tolist() == [False, False, True]
    assert first.arrays["infos/success"].tolist() == [False, False, False]
    np.testing.assert_array_equal(first.images["observations/camera"], pictures(4)[:3])
    assert first.source.endswith("data/main_data.hdf5:episode_0")


def test_minari_offers_what_is_recorded(tmp_path):
    keys = MinariSource(write_minari(tmp_path), {}).keys()
    assert keys["observations/observation"] == "float64[2]"
    assert keys["observations/camera"] == "image[8, 12]"
    assert keys["observations/mission"] == "text"


def test_minari_flat_observations_and_infos_as_text(tmp_path):
    path = write_minari(tmp_path, [3])

    def flatten(file):
        replace(file["episode_0"], "observations", np.zeros((4, 6)))
        del file["episode_0/infos"]
        texts = ['{"success": false}'] * 4
        file["episode_0"].create_dataset("infos", data=texts, dtype=h5py.string_dtype())

    edit(path, flatten)
    (episode,) = read_all(MinariSource(tmp_path, {}), ["observations", "infos"])
    assert episode.arrays["observations"].shape == (3, 6)
    assert episode.arrays["infos"].tolist() == ['{"success": false}'] * 3


def test_minari_finds_every_dataset_below(tmp_path):
    write_minari(tmp_path / "b", [2] * 11)
    write_minari(tmp_path / "a/medium-v0")
    source = MinariSource(tmp_path, {})
    recordings = source.recordings()
    assert [(r.name, r.num_episodes) for r in recordings] == [
        ("a/medium-v0/data/main_data", 2),
        ("b/data/main_data", 11),
    ]
    last = list(source.episodes(recordings[1], ["actions/_index_0"]))[10]
    assert last.arrays["actions/_index_0"][0, 0] == -1000


def test_minari_metadata_may_be_attributes_of_the_file(tmp_path):
    path = write_minari(tmp_path)
    (tmp_path / "data/metadata.json").unlink()
    with pytest.raises(ValueError, match=r"main_data\.hdf5 has no metadata\.json beside it"):
        MinariSource(tmp_path, {}).recordings()
    edit(path, lambda f: f.attrs.update({"total_episodes": 2}))
    (recording,) = MinariSource(tmp_path, {}).recordings()
    assert recording.paths == (path,)


@pytest.mark.parametrize("data_format", ["arrow", "parquet"])
def test_minari_refuses_other_formats_clearly(tmp_path, data_format):
    write_minari(tmp_path).unlink()
    edit_json(tmp_path / "data/metadata.json", lambda j: j.update(data_format=data_format))
    with pytest.raises(ValueError, match=f"is stored as {data_format}, only hdf5 is read"):
        MinariSource(tmp_path, {}).recordings()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, r"main_data\.hdf5 is truncated or not HDF5"),
        (lambda p: p.unlink(), r"no recordings \*\*/main_data\.hdf5"),
        (
            lambda p: truncate(p.with_name("metadata.json")),
            r"metadata\.json is truncated or not JSON",
        ),
        (lambda p: edit(p, lambda f: f.pop("episode_1")), r"1 episodes, its metadata says 2"),
        (
            lambda p: edit(p, lambda f: [f.pop(name) for name in list(f)]),
            r"main_data\.hdf5 holds no episodes",
        ),
        (
            lambda p: edit(p, lambda f: replace(f, "episode_1/rewards", np.zeros(4))),
            r"episode_1 has 4 rewards, but its attribute total_steps says 5",
        ),
        (
            lambda p: edit(
                p, lambda f: replace(f, "episode_1/observations/observation", np.zeros((5, 2)))
            ),
            r"episode_1: observations/observation has shape \[5, 2\], but 5 actions need 6 entries",
        ),
        (
            lambda p: edit(p, lambda f: f["episode_1/observations"].pop("observation")),
            r"episode_1 has no key 'observations/observation'",
        ),
        (
            lambda p: edit(
                p,
                lambda f: replace(f, "episode_1/observations/mission", np.array([b"\xff\xfe"] * 6)),
            ),
            r"episode_1: observations/mission is not .*UTF-8",
        ),
    ],
)
def test_minari_names_what_is_wrong(tmp_path, damage, message):
    damage(write_minari(tmp_path))
    keys = ["observations/observation", "observations/mission"]
    with pytest.raises(ValueError, match=message):
        read_all(MinariSource(tmp_path, {}), keys)


# all three


@pytest.mark.parametrize("source_class", [ManiSkillSource, D4RLSource, MinariSource])
def test_pickles_are_refused_with_the_reason(tmp_path, source_class):
    (tmp_path / "demos.pkl").write_bytes(b"\x80\x04.")
    with pytest.raises(ValueError, match=r"demos\.pkl is a pickle.*never loaded"):
        source_class(tmp_path / "demos.pkl", {}).recordings()


@pytest.mark.parametrize(
    ("source_class", "write", "wrong", "right"),
    [
        (ManiSkillSource, lambda d: write_maniskill(d), "obs/agent/qpo", "obs/agent/qpos"),
        (D4RLSource, lambda d: write_d4rl(d / "a.hdf5"), "observation", "observations"),
        (MinariSource, lambda d: write_minari(d), "reward", "rewards"),
    ],
)
def test_an_unknown_key_or_option_is_answered_with_the_closest(
    tmp_path, source_class, write, wrong, right
):
    write(tmp_path)
    with pytest.raises(ValueError, match=rf"has no key '{wrong}'; did you mean '{right}'"):
        read_all(source_class(tmp_path, {}), [wrong])
    with pytest.raises(ValueError, match="has no field 'patern'"):
        source_class(tmp_path, {"patern": "*"})
