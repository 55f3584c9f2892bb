"""What recordings claim and do not hold is written down by conversion, alike on every machine."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from rrf.data.conversion.conversion_record import read_conversion, write_conversion
from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import SourceCfg, VectorCfg
from rrf.data.conversion.video_encoding import encode_video
from rrf.data.formats.lerobot_source import LeRobotSource
from rrf.data.formats.rlds import RLDSSource
from rrf.data.formats.source_audit import audit
from rrf.data.formats.tfrecord import fingerprints
from rrf.data.images import encode_png
from tests.data import fixtures_lerobot_v2 as v2
from tests.data import fixtures_rlds as rlds
from tests.data.conftest import draw, make_cfg, write_raw

METADATA = {
    "file_path": rlds.text(),
    "success": rlds.tensor("bool"),
    "has_front": rlds.tensor("bool"),
    "episode_id": rlds.tensor("int32"),
}
STEPS = {
    "action": rlds.tensor("float32", 3),
    "is_first": rlds.tensor("bool"),
    "language_instruction": rlds.text(),
    "observation": rlds.features_dict({"front": rlds.image(), "state": rlds.tensor("float64", 2)}),
    "phase": rlds.tensor("int32"),
}
GRADIENT = encode_png(np.arange(64, dtype=np.uint8).reshape(1, 8, 8, 1).repeat(3, 3))[0]
FEATURES = rlds.episodes_of(STEPS, episode_metadata=rlds.features_dict(METADATA))


def said(number, num_steps=3, has_front=True, episode_id=0, success=True):
    changes = {
        "episode_metadata__success": [int(success)],
        "episode_metadata__has_front": [int(has_front)],
        "episode_metadata__episode_id": [episode_id],
    }
    return rlds.toy_episode(number, num_steps, **changes)


def rlds_cfg(**options):
    return make_cfg(
        source=SourceCfg(format="rlds", path="datasets/raw/toy", options=options),
        image_size=[rlds.SIZE, rlds.SIZE],
        cameras={"front": "observation/front"},
        state=VectorCfg(keys=["observation/state"], names=["x", "y"], unit="m"),
        action=VectorCfg(keys=["action"], names=["dx", "dy", "dz"], unit="m"),
        reward=None,
        success=None,
    )


def lerobot_cfg():
    return make_cfg(
        source=SourceCfg(format="lerobot", path="datasets/raw/toy"),
        cameras={"front": v2.CAMERA},
        state=VectorCfg(keys=["observation.state"], names=["a", "b", "c", "d"], unit="m"),
        action=VectorCfg(keys=["action"], names=["dx", "dy"], unit="m"),
        reward=None,
        success=None,
    )


def oddities(root):
    """Of a LeRobot directory, without the path they begin with."""
    source = LeRobotSource(root, {})
    return [text.replace(f"{root}/", "") for text in audit(source, source.keys())]


def test_splits_that_share_episodes_are_noticed_though_only_one_is_read(tmp_path):
    train = [said(n, episode_id=n) for n in range(4)]
    val = [train[2], said(7), train[0]]
    raw = rlds.write_rlds(tmp_path / "raw", {"train": [train], "val": [val]}, FEATURES)
    done = convert(rlds_cfg(split="train"), raw, tmp_path / "d")
    expected = "2 of the 3 episodes of split 'val' are in split 'train' too"
    assert done.warnings == [f"{raw}: {expected}"]
    record = read_conversion(tmp_path / "d")
    assert record == {
        "format": "rlds",
        "path": "datasets/raw/toy",
        "warnings": [f"datasets/raw/toy: {expected}"],
    }
    info = json.loads((tmp_path / "d/meta/info.json").read_text())
    assert info["splits"] == {"train": "0:4"}


def test_the_splits_of_the_recordings_become_those_of_the_dataset(tmp_path):
    train = [[said(0, episode_id=0), said(1, episode_id=1)], [said(2, episode_id=2)]]
    splits = {"train": train, "val": [[said(3), said(4, episode_id=1)]]}
    raw = rlds.write_rlds(tmp_path / "raw", splits, FEATURES)
    assert convert(rlds_cfg(), raw, tmp_path / "d").warnings == []
    info = json.loads((tmp_path / "d/meta/info.json").read_text())
    assert info["splits"] == {"train": "0:3", "val": "3:5"}


def test_flags_and_numbers_beside_the_steps_that_cannot_be_true_are_noticed(tmp_path):
    shard = [said(0, has_front=False, episode_id=5), said(1, episode_id=6)]
    other = [said(2, episode_id=5), said(3, has_front=False, episode_id=5)]
    raw = rlds.write_rlds(tmp_path / "raw", {"train": [shard, other]}, FEATURES)
    first, second = (raw / f"toy-train.tfrecord-0000{k}-of-00002" for k in (0, 1))
    flag = "episode_metadata/has_front is false for episodes whose observation/front is there"
    assert convert(rlds_cfg(), raw, tmp_path / "d").warnings == [
        f"{first}: {flag}",
        f"{second}: {flag}",
        f"{second}: episode_metadata/episode_id is the same for several episodes",
    ]
    source = RLDSSource(raw, {})
    assert len(list(source.episodes(source.recordings()[0], ["action"]))) == 2
    assert source.warnings == []  # the image was not asked for


@pytest.mark.parametrize("num_workers", [1, 2])
def test_episodes_that_say_they_failed_are_left_out_and_counted(tmp_path, num_workers):
    def shard(first):
        return [said(first + n, episode_id=first + n, success=n != 1) for n in range(3)]

    raw = rlds.write_rlds(tmp_path / "raw", {"train": [shard(0), shard(3)]}, FEATURES)
    files = sorted(raw.glob("*.tfrecord-*"))
    done = convert(rlds_cfg(), raw, tmp_path / "d", num_workers=num_workers)
    assert done.episodes == 4
    assert done.warnings == [
        f"{file}: 1 of 3 episodes failed and are left out; to keep them, write options: "
        "{only_successful: false}"
        for file in files
    ]
    kept = convert(rlds_cfg(only_successful=False), raw, tmp_path / "e")
    assert kept.episodes == 6
    assert "failed and are kept, as the config says" in kept.warnings[0]
    skipped = convert(rlds_cfg().replace(skip=[2]), raw, tmp_path / "f")  # of those given
    assert skipped.episodes == 3
    assert starts_of(tmp_path / "f") == [0, 2, 5]


def starts_of(root):
    """The episodes by their first states, which are their numbers."""
    table = pq.read_table(root / "data/chunk-000/file-000.parquet")
    first = np.asarray(table["frame_index"]) == 0
    return [round(row[1] - 0.25) for row in np.array(table["observation.state"].to_pylist())[first]]


def test_where_all_have_failed_the_error_names_the_option(tmp_path):
    shard = [said(n, episode_id=n, success=False) for n in range(2)]
    raw = rlds.write_rlds(tmp_path / "raw", {"train": [shard]}, FEATURES)
    with pytest.raises(ValueError, match=r"all 2 episodes .*failed.*\{only_successful: false\}"):
        convert(rlds_cfg(), raw, tmp_path / "d")


def test_a_reward_is_a_sign_of_success_where_the_config_says_so(tmp_path):
    steps = STEPS | {"reward": rlds.tensor("float32")}
    features = rlds.episodes_of(steps, episode_metadata=rlds.features_dict({}))
    shard = [rlds.toy_episode(n, 3, steps__reward=[0.0, 0.0, float(n != 1)]) for n in range(3)]
    raw = rlds.write_rlds(tmp_path / "raw", {"train": [shard]}, features)
    assert convert(rlds_cfg(), raw, tmp_path / "d").episodes == 3
    assert convert(rlds_cfg(reward_means_success=True), raw, tmp_path / "e").episodes == 2


def test_a_camera_that_was_never_connected_is_noticed_though_nobody_reads_it(tmp_path):
    black = {"steps__observation__front": [rlds.draw_jpeg(0)] * 3}
    still = {"steps__observation__front": [GRADIENT] * 3}
    empty = {"steps__observation__front": [b""] * 3}
    shards = [[rlds.toy_episode(1, 3, **changes)] for changes in (black, still, empty)]
    raw = rlds.write_rlds(tmp_path / "raw", {"train": [*shards, [said(3)]]}, FEATURES)
    source = RLDSSource(raw, {})
    for recording in source.recordings():
        assert len(list(source.episodes(recording, ["action"]))) == 1
    first = raw / "toy-train.tfrecord-00000-of-00004"
    text = "observation/front, which is not read, shows nothing but one colour"
    assert source.warnings == [f"{first}: {text}"]
    source = RLDSSource(raw, {})
    assert len(list(source.episodes(source.recordings()[0], ["observation/front"]))) == 1
    assert source.warnings == []  # `blank_image` tells of those


def test_records_are_told_apart_without_reading_them(tmp_path):
    episodes = [said(0), said(1), said(0)]
    raw = rlds.write_rlds(tmp_path / "raw", {"train": [episodes]}, FEATURES)
    (file,) = raw.glob("*.tfrecord-*")
    one, other, again = fingerprints(file)
    assert one == again != other
    assert one[0] == len(rlds.encode_example(episodes[0]))
    file.write_bytes(file.read_bytes()[:-3])
    assert list(fingerprints(file)) == [one, other]


def test_sound_lerobot_directories_have_nothing_odd(tmp_path):
    assert oddities(v2.write_v2(tmp_path / "v2", {0: 5, 1: 6})) == []
    convert(make_cfg(), write_raw(tmp_path / "raw", {"pull": [5, 6]}), tmp_path / "v3")
    assert oddities(tmp_path / "v3") == []


CLAIMS = {
    "a split past the end": (
        {"splits": {"train": "0:100"}},
        "meta/info.json: split 'train' is '0:100', on disk there are 2 episodes",
    ),
    "chunks of none": (
        {"total_chunks": 0},
        "meta/info.json: total_chunks is 0, on disk there are 1",
    ),
    "videos of others": (
        {"total_videos": 9},
        "meta/info.json: total_videos is 9, on disk there are 2",
    ),
    "frames of others": (
        {"total_frames": 35965},
        "meta/info.json: total_frames is 35965, on disk there are 11",
    ),
    "tasks of others": (
        {"total_tasks": 3},
        "meta/info.json: total_tasks is 3, on disk there are 2",
    ),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_claims_of_lerobot_metadata_that_do_not_hold_are_noticed(tmp_path, claim):
    changes, expected = CLAIMS[claim]
    root = v2.write_v2(tmp_path / "d", {0: 5, 1: 6}, info=changes)
    assert oddities(root) == [expected]


def test_a_declared_camera_without_files_is_noticed(tmp_path):
    root = v2.write_v2(tmp_path / "d", {0: 5, 1: 6})
    camera = {"dtype": "video", "shape": [16, 16, 3], "names": ["height", "width", "channel"]}
    v2.edit_features(root, observation__images__wrist=camera)
    assert oddities(root) == ["'observation.images.wrist' is declared but not on disk"]


def test_episodes_with_gaps_in_their_numbers_are_noticed(tmp_path):
    root = v2.write_v2(tmp_path / "d", {3: 5, 7: 6})
    (text,) = oddities(root)
    assert text.endswith(
        "the 2 episodes on disk have the numbers 3 to 7; they are numbered anew from 0"
    )


def test_tasks_that_are_numbers_or_several_per_episode_are_noticed(tmp_path):
    root = v2.write_v2(tmp_path / "d", {0: 5, 1: 6})
    v2.write_lines(
        root / "meta/tasks.jsonl",
        [{"task_index": 0, "task": "pull the lever"}, {"task_index": 1, "task": 17}],
    )
    v2.write_lines(
        root / "meta/episodes.jsonl",
        [
            {"episode_index": 0, "tasks": ["pull the lever"], "length": 5},
            {"episode_index": 1, "tasks": ["pull the lever", "valid"], "length": 6},
        ],
    )
    assert [text.partition(": ")[2] for text in oddities(root)] == [
        "task 1 is '17', not a sentence",
        "1 episodes list several tasks, as episode 1 does: 'pull the lever', 'valid'; one is kept",
    ]


def test_videos_with_keyframes_far_apart_or_of_another_rate_are_noticed(tmp_path):
    root = v2.write_v2(tmp_path / "d", {0: 30, 1: 6})
    film = encode_video(list(draw(0, 30)), v2.FPS, (16, 16), "h264", keyframe_interval=250)
    v2.video_path(root, 0).write_bytes(film)
    name = f"videos/chunk-000/{v2.CAMERA}/episode_000000.mp4"
    assert oddities(root) == [
        f"{name} has up to 29 frames from one keyframe to the next, so reaching a frame means "
        "decoding hundreds"
    ]
    v2.write_video(v2.video_path(root, 0), draw(0, 30), fps=20)
    assert oddities(root) == [f"{name} runs at 20 frames/s, 10 are declared"]


@pytest.mark.slow
def test_what_conversion_writes_down_depends_on_no_machine_and_no_number_of_processes(tmp_path):
    written = []
    for place, num_workers in (("a", 1), ("somewhere/else", 2)):
        root = v2.write_v2(tmp_path / place / "raw", {2: 5, 5: 6, 6: 4}, extra_frames=1)
        v2.edit_info(root, total_chunks=0)
        convert(lerobot_cfg(), root, tmp_path / place / "d", num_workers=num_workers)
        written.append((tmp_path / place / "d/meta/conversion.json").read_text())
    assert written[0] == written[1]
    assert str(tmp_path) not in written[0]
    record = json.loads(written[0])
    assert record["format"] == "lerobot"
    assert record["warnings"] == sorted(record["warnings"])
    assert sum("the last 1 are dropped" in text for text in record["warnings"]) == 3
    assert (
        "datasets/raw/toy/meta/info.json: total_chunks is 0, on disk there are 1"
        in (record["warnings"])
    )


def test_vectors_written_as_json_are_in_the_record(tmp_path):
    root = v2.write_v2(tmp_path / "raw", {0: 4}, storage="image")
    texts = [json.dumps([frame / 100, 0.0]) for frame in range(4)]
    v2.change_columns(v2.data_path(root, 0), action=texts)
    convert(lerobot_cfg(), root, tmp_path / "d")
    record = read_conversion(tmp_path / "d")
    assert record is not None
    (text,) = [text for text in record["warnings"] if "JSON" in text]
    assert text.endswith("episode_000000.parquet:episode_0: action is JSON text, "
                         "converted to float64[2]")  # fmt: skip


def test_the_record_of_a_dataset_converted_elsewhere_is_none_and_damage_is_told(tmp_path):
    (tmp_path / "meta").mkdir()
    assert read_conversion(tmp_path) is None
    write_conversion(tmp_path, "rlds", "x", ["zwei", "öins"])
    assert read_conversion(tmp_path) == {
        "format": "rlds",
        "path": "x",
        "warnings": ["zwei", "öins"],
    }
    for content in ("{", "[]", '{"warnings": 3}'):
        (tmp_path / "meta/conversion.json").write_text(content)
        with pytest.raises(ValueError, match=r"meta/conversion.json .*; make it again"):
            read_conversion(tmp_path)
