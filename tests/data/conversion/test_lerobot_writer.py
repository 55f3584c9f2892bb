import json
import os

import av
import numpy as np
import pyarrow.parquet as pq
import pytest

from rrf.data.conversion import rolling_files
from rrf.data.conversion.lerobot_writer import FileLimits, write_dataset
from rrf.data.dataset import layout, parquet
from rrf.data.dataset.opening import open_dataset
from rrf.data.encoding import Encoding
from rrf.data.schema import Episode
from tests.data.conftest import draw, make_cfg, make_demo

TINY = FileLimits(data_mb=0.004, video_mb=0.001, files_per_chunk=2)


def make_episode(number, length=6, size=16, instruction="pull"):
    demo = make_demo(number, length, size)
    obs = demo["obs"]
    return Episode(
        images={"front": draw(number, length, size)},
        state=np.concatenate([obs["eef_pos"], obs["gripper_opening"]], axis=1).astype(np.float32),
        action=demo["actions"],
        instruction=instruction,
        source=f"made:{number}",
        reward=demo["rewards"],
        success=demo["success"] > 0,
    )


def make_schema(size=16):
    return make_cfg(image_size=[size, size]).schema()


def write(root, storage="image", num_episodes=4, **options):
    episodes = (make_episode(number) for number in range(num_episodes))
    return write_dataset(root, make_schema(), episodes, storage=storage, **options)


def content(root):
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.mark.parametrize("storage", ["image", "video"])
def test_the_same_episodes_give_the_same_bytes(tmp_path, storage):
    for name in ("a", "b"):
        assert write(tmp_path / name, storage) == 24
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_info_says_what_is_there(tmp_path):
    write(tmp_path / "d", provenance={"licence": "MIT"}, robot_type="arm")
    info = json.loads((tmp_path / "d/meta/info.json").read_text())
    assert info["codebase_version"] == "v3.0"
    assert (info["total_episodes"], info["total_frames"], info["total_tasks"]) == (4, 24, 1)
    assert info["splits"] == {"train": "0:4"}
    assert info["provenance"] == {"licence": "MIT"}
    assert info["features"]["action"] == {
        "dtype": "float32",
        "shape": [3],
        "names": ["dx", "dy", "dz"],
        "info": {"unit": "fraction", "low": [-1.0, -1.0, -1.0], "high": [1.0, 1.0, 1.0]},
    }
    assert layout.schema_of(info) == make_schema()


def test_columns_have_the_types_lerobot_declares(tmp_path):
    write(tmp_path / "d")
    schema = pq.read_schema(tmp_path / "d/data/chunk-000/file-000.parquet")
    assert {field.name: str(field.type) for field in schema} == {
        "observation.images.front": "struct<bytes: binary, path: string>",
        "observation.state": "fixed_size_list<element: float>[4]",
        "action": "fixed_size_list<element: float>[3]",
        "next.reward": "float",
        "next.success": "bool",
        "timestamp": "float",
        "frame_index": "int64",
        "episode_index": "int64",
        "index": "int64",
        "task_index": "int64",
    }


def test_indices_and_timestamps_worked_by_hand(tmp_path):
    episodes = [make_episode(0, 2), make_episode(1, 3, instruction="push")]
    write_dataset(tmp_path / "d", make_schema(), episodes)
    columns = parquet.read_columns(tmp_path / "d", list(layout.INDEX_FEATURES))
    assert columns["timestamp"].tolist() == [np.float32(t) for t in (0, 0.1, 0, 0.1, 0.2)]
    assert columns["frame_index"].tolist() == [0, 1, 0, 1, 2]
    assert columns["episode_index"].tolist() == [0, 0, 1, 1, 1]
    assert columns["index"].tolist() == [0, 1, 2, 3, 4]
    assert columns["task_index"].tolist() == [0, 0, 1, 1, 1]
    assert parquet.read_tasks(tmp_path / "d") == ["pull", "push"]


def test_statistics_cover_every_feature_per_episode_and_overall(tmp_path):
    write_dataset(tmp_path / "d", make_schema(), [make_episode(0, 3), make_episode(1, 5)])
    stats = json.loads((tmp_path / "d/meta/stats.json").read_text())
    assert list(stats) == list(json.loads((tmp_path / "d/meta/info.json").read_text())["features"])
    assert stats["next.reward"]["mean"] == [1.625]  # (0+1+2 + 0+1+2+3+4) / 8
    assert stats["action"]["max"] == [pytest.approx(0.04), 0.0, pytest.approx(0.4997, abs=1e-3)]
    assert stats["next.success"]["mean"] == [0.25]
    assert np.shape(stats["observation.images.front"]["mean"]) == (3, 1, 1)
    table = pq.read_table(tmp_path / "d/meta/episodes/chunk-000/file-000.parquet")
    assert table["stats/next.reward/max"].to_pylist() == [[2.0], [4.0]]
    assert table["stats/observation.images.front/count"].to_pylist() == [[3], [5]]


@pytest.mark.parametrize("storage", ["image", "video"])
def test_files_roll_over_between_episodes_and_chunks_when_full(tmp_path, storage):
    write(tmp_path / "d", storage, num_episodes=7, limits=TINY)
    table = parquet.read_episodes(tmp_path / "d")
    prefix = "data" if storage == "image" else "videos/observation.images.front"
    places = [*zip(table[f"{prefix}/chunk_index"], table[f"{prefix}/file_index"], strict=True)]
    assert places == sorted(places)
    assert len(set(places)) > 2
    assert (1, 0) in places
    assert (0, 2) not in places
    pattern = "data/*/*.parquet" if storage == "image" else "videos/*/*/*.mp4"
    assert len(list((tmp_path / "d").glob(pattern))) == len(set(places))
    for path in parquet.data_files(tmp_path / "d"):
        rows = pq.read_table(path)
        chunk, file = parquet.chunk_and_file(path)
        own = table[(table["data/chunk_index"] == chunk) & (table["data/file_index"] == file)]
        assert rows["index"].to_pylist() == [
            *range(own["dataset_from_index"].min(), own["dataset_to_index"].max())
        ]


def test_an_episode_larger_than_the_limit_has_a_file_to_itself(tmp_path):
    limits = FileLimits(data_mb=1e-6, video_mb=1e-6)
    write(tmp_path / "d", num_episodes=3, limits=limits)
    assert [pq.read_metadata(p).num_rows for p in parquet.data_files(tmp_path / "d")] == [6, 6, 6]


def test_an_episode_starts_with_a_keyframe_and_keyframes_are_at_most_two_seconds_apart(tmp_path):
    write_dataset(
        tmp_path / "d", make_schema(), [make_episode(0, 13), make_episode(1, 26)], "video"
    )
    assert keyframes(tmp_path / "d") == ("h264", [0, 10, 13, 23, 33])


def keyframes(root):
    with av.open(str(next(root.rglob("*.mp4")))) as container:
        codec = container.streams.video[0].codec_context.name
        frames = container.decode(video=0)
        return codec, [index for index, frame in enumerate(frames) if frame.key_frame]


@pytest.mark.parametrize("codec", ["h264", "av1"])
def test_a_codec_and_a_keyframe_interval_can_be_asked_for(tmp_path, codec):
    encoding = Encoding("video", codec, keyframe_interval_s=0.55)  # 5 frames at 10 frames/s
    for name in ("a", "b"):
        episodes = [make_episode(0, 12, 64), make_episode(1, 7, 64)]
        write_dataset(tmp_path / name, make_schema(64), episodes, encoding)
    assert content(tmp_path / "a") == content(tmp_path / "b")
    name, found = keyframes(tmp_path / "a")
    assert name == {"h264": "h264", "av1": "libdav1d"}[codec]
    assert found == [0, 5, 10, 12, 17]
    info = layout.read_info(tmp_path / "a")
    assert info["features"]["observation.images.front"]["info"]["video.codec"] == codec
    images = open_dataset(tmp_path / "a", 1).episode(1).images["front"]
    error = np.abs(images.astype(int) - draw(1, 7, 64)).mean()
    assert error < 6


@pytest.mark.skipif(not hasattr(os, "sched_getscheduler"), reason="this system does not tell")
def test_an_encoder_leaves_the_process_without_real_time_priority(tmp_path):
    before = os.sched_getscheduler(0)
    write_dataset(tmp_path, make_schema(64), [make_episode(0, 3, 64)], Encoding("video", "av1"))
    assert os.sched_getscheduler(0) == before


def test_the_episode_table_is_written_in_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(rolling_files, "ROW_GROUP_ROWS", 4)
    monkeypatch.setattr(rolling_files, "_ROWS_AS_PYTHON", 2)
    write(tmp_path / "d", num_episodes=11)
    path = tmp_path / "d/meta/episodes/chunk-000/file-000.parquet"
    assert pq.read_metadata(path).num_row_groups == 3
    assert parquet.read_episodes(tmp_path / "d")["episode_index"].tolist() == [*range(11)]


def test_the_episode_table_has_more_files_when_it_is_large(tmp_path):
    write(tmp_path / "d", num_episodes=5, limits=TINY)
    files = list((tmp_path / "d/meta/episodes").glob("*/*.parquet"))
    assert len(files) > 1
    assert parquet.read_episodes(tmp_path / "d")["episode_index"].tolist() == [*range(5)]
    for path in files:
        table = pq.read_table(path)
        places = zip(table["meta/episodes/chunk_index"].to_pylist(),
                     table["meta/episodes/file_index"].to_pylist(), strict=True)  # fmt: skip
        assert set(places) == {parquet.chunk_and_file(path)}


@pytest.mark.parametrize("storage", ["image", "video"])
def test_a_bad_episode_is_named_and_leaves_the_old_dataset(tmp_path, storage):
    write(tmp_path / "d", storage)
    before = content(tmp_path / "d")
    bad = make_episode(1)
    bad.action[4, 2] = np.nan
    with pytest.raises(ValueError, match="made:1: action at frame 4, dimension 2 is nan"):
        write_dataset(tmp_path / "d", make_schema(), [make_episode(0), bad], storage)
    assert content(tmp_path / "d") == before
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


def test_a_wrong_image_shape_is_named(tmp_path):
    with pytest.raises(
        ValueError, match=r"made:0: observation.images.front is uint8\[6, 8, 8, 3\]"
    ):
        write_dataset(tmp_path / "d", make_schema(), [make_episode(0, size=8)])


def test_success_that_is_not_a_flag_is_refused(tmp_path):
    episode = make_episode(0)
    episode.success = episode.success.astype(np.int64)
    with pytest.raises(ValueError, match=r"made:0: next.success is missing or not bool\[6\]"):
        write_dataset(tmp_path / "d", make_schema(), [episode])


def test_no_episodes_make_no_dataset(tmp_path):
    with pytest.raises(ValueError, match="no episodes to write"):
        write_dataset(tmp_path / "d", make_schema(), [])
    assert list(tmp_path.iterdir()) == []


def test_video_of_odd_size_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(ValueError, match="even sizes, got 15x15; use storage: image"):
        write_dataset(tmp_path / "d", make_schema(15), [make_episode(0, size=15)], "video")


def test_an_unknown_storage_is_refused(tmp_path):
    with pytest.raises(ValueError, match="storage is 'jpeg', must be 'image' or 'video'"):
        write_dataset(tmp_path / "d", make_schema(), [], "jpeg")
