import json

import av
import numpy as np
import pytest

from rrf.data.conversion import video_encoding
from rrf.data.conversion.conversion_record import read_conversion
from rrf.data.conversion.dataset_cfg import MergeCfg, MergePartCfg
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.conversion.merge import merge
from rrf.data.conversion.parts import parts_of
from rrf.data.dataset import layout, parquet
from rrf.data.dataset.opening import open_dataset
from rrf.data.schema import Episode, Schema, Vector
from tests.data.conftest import draw
from tests.data.conversion.test_lerobot_writer import content

FRONT = "observation.images.front"


def write(root, numbers, cameras=("front",), storage="image", facts=None, **changes):
    """A dataset whose state and action dimensions hold 10 * episode + position of the name."""
    fields = dict(
        fps=10,
        image_size=(16, 16) if cameras else (0, 0),
        cameras=cameras,
        state=Vector(("x", "y"), "m, rad", (-1, -2), (1, 2)),
        action=Vector(("dx", "dy", "grip"), "m", (-9, -9, 0), (9, 9, 1)),
        has_reward=False,
        has_success=False,
    )
    schema = Schema(**(fields | changes))
    episodes = []
    for number in numbers:
        length = 3 + number
        base = np.full((length, 1), 10.0 * number)
        episodes.append(
            Episode(
                images={camera: draw(number, length, schema.image_size[0]) for camera in cameras},
                state=(base + np.arange(len(schema.state.names))).astype(np.float32),
                action=(base + np.arange(len(schema.action.names))).astype(np.float32),
                instruction=f"task {number % 2}",
                source=f"made:{number}",
                reward=np.zeros(length, np.float32),
                success=np.zeros(length, bool),
                facts=facts or {},
            )
        )
    write_dataset(root, schema, episodes, storage, provenance={"licence": "MIT"})


def make_cfg(*parts, **changes):
    parts = [MergePartCfg(dataset=p) if isinstance(p, str) else p for p in parts or ("a", "b")]
    return MergeCfg(name="both", merge=parts, licence="MIT", provenance="a and b", **changes)


@pytest.mark.parametrize("storage", ["image", "video"])
def test_episodes_follow_each_other_with_their_origin_and_weight(tmp_path, storage):
    write(tmp_path / "a", [0, 1], storage=storage)
    write(tmp_path / "b", [2, 3, 4], storage=storage)
    cfg = make_cfg(MergePartCfg(dataset="a", weight=2.5), "b")
    assert merge(cfg, tmp_path, tmp_path / "both") == 3 + 4 + 5 + 6 + 7
    table = parquet.read_episodes(tmp_path / "both")
    assert table["dataset"].tolist() == ["a", "a", "b", "b", "b"]
    assert table["weight"].tolist() == [2.5, 2.5, 1.0, 1.0, 1.0]
    info = layout.read_info(tmp_path / "both")
    assert info["weights"] == {"a": 2.5, "b": 1.0}
    assert info["merged"] == {"a": {"licence": "MIT"}, "b": {"licence": "MIT"}}
    both = open_dataset(tmp_path / "both", 1)
    for source, first in (("a", 0), ("b", 2)):
        reader = open_dataset(tmp_path / source, 1)
        for number in range(reader.num_episodes):
            ours, theirs = both.episode(first + number), reader.episode(number)
            np.testing.assert_array_equal(ours.state, theirs.state)
            np.testing.assert_array_equal(ours.action, theirs.action)
            np.testing.assert_array_equal(ours.images["front"], theirs.images["front"])
            assert ours.instruction == theirs.instruction
    assert both.instructions == ["task 0", "task 1"]


def test_merging_is_the_same_as_writing_all_episodes_at_once(tmp_path):
    write(tmp_path / "a", [0, 1])
    write(tmp_path / "b", [2])
    write(tmp_path / "whole", [0, 1, 2])
    merge(make_cfg(), tmp_path, tmp_path / "both")
    merge(make_cfg(), tmp_path, tmp_path / "again")
    both, whole = content(tmp_path / "both"), content(tmp_path / "whole")
    assert both == content(tmp_path / "again")
    for name in ("data/chunk-000/file-000.parquet", "meta/stats.json", "meta/tasks.parquet"):
        assert both[name] == whole[name]


def test_who_acted_in_a_logged_episode_is_kept(tmp_path):
    write(tmp_path / "a", [0])
    write(tmp_path / "b", [1], facts={"log_policy": "arm/3", "log_interventions": 2.0})
    merge(make_cfg(), tmp_path, tmp_path / "both")
    both = parquet.read_episodes(tmp_path / "both")
    assert both["log_policy"].tolist() == ["", "arm/3"]
    assert both["log_interventions"].tolist() == [-1.0, 2.0]


def test_video_is_not_compressed_again(tmp_path):
    write(tmp_path / "a", [0, 1], storage="video")
    write(tmp_path / "b", [2], storage="video")
    write(tmp_path / "whole", [0, 1, 2], storage="video")
    merge(make_cfg(), tmp_path, tmp_path / "both")
    file = f"videos/{FRONT}/chunk-000/file-000.mp4"

    def packets(name):
        with av.open(str(tmp_path / name / file)) as container:
            return [bytes(packet) for packet in container.demux(video=0)]

    assert len(packets("both")) == 3 + 4 + 5 + 1
    assert packets("both") == packets("whole")


def test_video_that_was_encoded_otherwise_gets_a_file_of_its_own(tmp_path, monkeypatch):
    write(tmp_path / "a", [0], storage="video")
    encoder, options = video_encoding._ENCODERS["h264"]
    other = (encoder, options | {"preset": "ultrafast"})
    monkeypatch.setitem(video_encoding._ENCODERS, "h264", other)
    write(tmp_path / "b", [1, 2], storage="video")
    merge(make_cfg(), tmp_path, tmp_path / "both")
    table = parquet.read_episodes(tmp_path / "both")
    assert table[f"videos/{FRONT}/file_index"].tolist() == [0, 1, 1]
    both = open_dataset(tmp_path / "both", 1)
    for source, numbers in (("a", [0]), ("b", [1, 2])):
        reader = open_dataset(tmp_path / source, 1)
        for own, number in enumerate(numbers):
            expected = reader.episode(own).images["front"]
            np.testing.assert_array_equal(both.episode(number).images["front"], expected)


def test_weights_within_a_merged_dataset_count_on_top(tmp_path):
    for number, name in enumerate(("a", "b", "c")):
        write(tmp_path / name, [number])
    merge(make_cfg(MergePartCfg(dataset="a", weight=3.0), "b"), tmp_path, tmp_path / "ab")
    merge(make_cfg(MergePartCfg(dataset="ab", weight=0.5), "c"), tmp_path, tmp_path / "both")
    assert parquet.read_episodes(tmp_path / "both")["weight"].tolist() == [1.5, 0.5, 1.0]


def test_what_is_lost_in_merging_is_written_down(tmp_path):
    write(tmp_path / "a", [0], has_reward=True)
    write(tmp_path / "b", [1, 2])
    info = layout.read_info(tmp_path / "b") | {"splits": {"train": "0:1", "val": "1:2"}}
    (tmp_path / "b" / layout.INFO).write_text(json.dumps(info))
    odd = {"check": "timestamps", "value": "a gap"}
    record = {
        "format": "lerobot",
        "path": "raw",
        "warnings": [],
        "problems": [{"episode": 1} | odd],
    }
    (tmp_path / "b/meta/conversion.json").write_text(json.dumps(record))
    merge(make_cfg(), tmp_path, tmp_path / "both")
    assert read_conversion(tmp_path / "both")["problems"] == [{"episode": 2} | odd]
    assert read_conversion(tmp_path / "both")["warnings"] == [
        "a: next.reward is left out, because another of the datasets lacks it",
        "b: its splits are not kept (train 0:1, val 1:2): all episodes count as train",
    ]


def test_two_processes_cannot_merge_the_same_dataset_at_once(tmp_path):
    for number, name in enumerate(("a", "b")):
        write(tmp_path / name, [number])
    with (
        parts_of(tmp_path / "both"),
        pytest.raises(ValueError, match=r"another process is converting or publi.*/both at this"),
    ):
        merge(make_cfg(), tmp_path, tmp_path / "both")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_value_for_what_is_not_there_is_refused(tmp_path):
    for number, name in enumerate(("a", "b")):
        write(tmp_path / name, [number])
    message = "fill: 'state.xx': the merged dataset has no 'xx'; did you mean 'x'"
    with pytest.raises(ValueError, match=message):
        merge(make_cfg(fill={"state.xx": 0.0}), tmp_path, tmp_path / "both")


def test_features_are_aligned_by_name(tmp_path):
    write(tmp_path / "a", [0])
    write(
        tmp_path / "b",
        [1],
        cameras=("side", "top"),
        state=Vector(("b", "y", "extra"), "rad, rad, m", (-3, -3, -3), (3, 3, 3)),
        action=Vector(("grip", "dy", "dx"), "m", (0, -7, -7), (2, 7, 7)),
    )
    part = MergePartCfg(dataset="b", cameras={"front": "top"})
    cfg = make_cfg(
        "a", part, cameras=["front"], state=["x", "y"], fill={"state.x": -5.0}
    )  # fmt: skip
    merge(cfg, tmp_path, tmp_path / "both")
    episode = open_dataset(tmp_path / "both", 1).episode(1)
    assert episode.state[0].tolist() == [-5.0, 11.0]
    assert episode.action[0].tolist() == [12.0, 11.0, 10.0]
    np.testing.assert_array_equal(episode.images["front"], draw(1, 4))
    schema = layout.schema_of(layout.read_info(tmp_path / "both"))
    assert schema.state == Vector(("x", "y"), "m, rad", (-5.0, -3.0), (1.0, 3.0))
    assert schema.action == Vector(("dx", "dy", "grip"), "m", (-9.0, -9.0, 0.0), (9.0, 9.0, 2.0))


@pytest.mark.parametrize("storage", ["image", "video"])
def test_a_camera_that_is_missing_can_be_filled(tmp_path, storage):
    write(tmp_path / "a", [0], cameras=("front", "top"), storage=storage)
    write(tmp_path / "b", [1], storage=storage)
    merge(make_cfg(fill={"cameras.top": 128}), tmp_path, tmp_path / "both")
    images = open_dataset(tmp_path / "both", 1).episode(1).images
    assert np.abs(images["top"].astype(int) - 128).max() <= (2 if storage == "video" else 0)
    assert images["front"].std() > 10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fps": 20}, "fps of a is 10, of b 20"),
        ({"image_size": (8, 8)}, r"image_size of a is \(16, 16\), of b \(8, 8\)"),
        ({"storage": "video"}, "image storage of a is .*image.*, of b .*video"),
        ({"cameras": ("frond",)}, "b has no 'front' under cameras; did you mean 'frond'"),
        ({"cameras": ("front", "top")}, "b has 'top' under cameras, which a lacks"),
        (
            {"state": Vector(("x",), "m", (0,), (1,))},
            r"b has no 'y' under state; known: x; say .*fill: \{state.y: ...\}",
        ),
        (
            {"state": Vector(("x", "y"), "mm, rad", (0, 0), (1, 1))},
            "state 'x' is in 'm' in a, but 'mm' in b",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_the_way_out(tmp_path, changes, message):
    write(tmp_path / "a", [0])
    write(tmp_path / "b", [1], **changes)
    with pytest.raises(ValueError, match=message):
        merge(make_cfg(), tmp_path, tmp_path / "both")
    assert not (tmp_path / "both").exists()


def test_a_dataset_that_is_not_there_is_named(tmp_path):
    write(tmp_path / "a", [0])
    with pytest.raises(ValueError, match=r"no dataset at .*/b"):
        merge(make_cfg(), tmp_path, tmp_path / "both")


def test_datasets_of_states_alone_can_be_merged(tmp_path):
    write(tmp_path / "a", [0], cameras=())
    write(tmp_path / "b", [1], cameras=(), has_reward=True)
    assert merge(make_cfg(), tmp_path, tmp_path / "both") == 7
    reader = open_dataset(tmp_path / "both", 1)
    assert reader.schema.has_reward is False
    assert reader.episode(1).state[0].tolist() == [10.0, 11.0]
