"""What is counted in a dataset, of any LeRobot version, ours or foreign."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from rrf.data.conversion.convert import convert
from rrf.data.formats.lerobot_source import LeRobotSource
from rrf.data.validation.summary import (
    START,
    TASK,
    describe_feature,
    dimension_labels,
    dimension_names,
    duration,
    find_dataset,
    read_summary,
    summarise,
)
from rrf.workspace import HOME_VARIABLE
from tests.data.conftest import edit_images, make_cfg, write_raw
from tests.data.fixtures_lerobot_v2 import (
    CAMERA,
    change_columns,
    data_path,
    edit_features,
    edit_info,
    video_path,
    write_v2,
)


def recompressed(blob: bytes, change: int = 0) -> bytes:
    """A PNG of the same pixels in other bytes; one of them grows by `change`."""
    pixels = np.array(Image.open(io.BytesIO(blob)))
    pixels[0, 0, 0] += change
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=0)
    assert buffer.getvalue() != blob
    return buffer.getvalue()


def test_a_foreign_dataset_is_counted(tmp_path):
    summary = read_summary(write_v2(tmp_path / "d", {0: 4, 1: 6, 2: 5}, version="v2.0"))
    assert [(one.number, one.length) for one in summary.episodes] == [(0, 4), (1, 6), (2, 5)]
    assert summary.num_frames == 15
    assert summary.instructions() == {"pull the lever": (2, 9), "push the button": (1, 6)}
    assert summary.cameras == [CAMERA]
    assert list(summary.stats) == ["observation.state", "action"]
    action = summary.stats["action"]
    assert action["min"] == pytest.approx([0.0, -0.02])
    assert action["max"] == pytest.approx([0.05, 0.0])
    # frame / 100 over 0..3, 0..5, 0..4 sums to 0.31; -episode / 100 to -(6 * 1 + 5 * 2) / 100
    assert action["mean"] == pytest.approx([0.31 / 15, -0.16 / 15])
    assert summary.warnings == []


def test_v3_gives_the_same_as_the_v2_it_was_converted_from(tmp_path, raw, cfg):
    convert(cfg, raw, tmp_path / "d")
    summary = summarise(tmp_path / "d")
    assert [one.length for one in summary.episodes] == [8, 6, 7, 5, 10]
    assert summary.instructions() == {"do the pull": (3, 21), "do the push": (2, 15)}
    assert summary.stats["observation.state"]["max"][2] == 4.0
    assert summary.stats["next.success"]["mean"] == [pytest.approx(5 / 36)]


def test_a_feature_that_is_not_on_disk_is_named_and_left_out(tmp_path):
    root = write_v2(tmp_path / "d", {0: 4})
    edit_features(root, action__extra={"dtype": "float32", "shape": [3], "names": None})
    video_path(root, 0).unlink()
    summary = summarise(root)
    assert summary.missing == [CAMERA, "action.extra"]
    assert summary.cameras == []
    assert list(summary.stats) == ["observation.state", "action"]
    assert summary.warnings[-1] == (
        f"{root}: 'action.extra' is declared in meta/info.json but not on disk"
    )
    assert describe_feature(summary, "action.extra")[0] == "float32 (not on disk)"


def test_a_feature_as_large_as_an_image_has_no_statistics(tmp_path):
    root = write_v2(tmp_path / "d", {0: 4})
    edit_features(root, depth={"dtype": "float32", "shape": [30, 40], "names": None})
    depth = [np.full((30, 40), frame, np.float32).tolist() for frame in range(4)]
    change_columns(data_path(root, 0), depth=depth)
    seen = []
    summary = summarise(root, on_values=lambda episode, values: seen.extend(values))
    assert list(summary.stats) == seen == ["observation.state", "action"]
    assert summary.warnings == [
        f"{root}: 'depth' has 1200 dimensions; of more than 512 there are no statistics"
    ]
    assert "depth" in summarise(root, with_digests=True).episodes[0].digests


def test_what_is_odd_is_told(tmp_path):
    root = write_v2(tmp_path / "d", {0: 4}, extra_frames=2)
    change_columns(data_path(root, 0), action=[json.dumps([i / 10, 1.0]) for i in range(4)])
    summary = summarise(root)
    assert summary.stats["action"]["max"] == pytest.approx([0.3, 1.0])
    assert [text.rpartition(": ")[2] for text in summary.warnings] == [
        "action is JSON text, converted to float64[2]"
    ]


def test_digests_see_values_and_pixels_and_not_how_they_are_stored(tmp_path, raw, cfg):
    convert(cfg, raw, tmp_path / "image")
    convert(cfg, raw, tmp_path / "other")
    edit_images(tmp_path / "other", {9: lambda blob: recompressed(blob)})
    one, other = (
        summarise(tmp_path / name, with_digests=True, with_images=True).episodes
        for name in ("image", "other")
    )
    assert one == other
    assert len({episode.digests["observation.images.front"] for episode in one}) == 5
    assert set(one[0].digests) >= {"action", "observation.state", START, TASK}
    edit_images(tmp_path / "other", {9: lambda blob: recompressed(blob, change=1)})
    other = summarise(tmp_path / "other", with_digests=True, with_images=True).episodes
    assert [a == b for a, b in zip(one, other, strict=True)] == [True, False, True, True, True]


def test_a_damaged_image_is_named(tmp_path, raw, cfg):
    convert(cfg, raw, tmp_path / "d")
    edit_images(tmp_path / "d", {9: lambda blob: blob[:60]})
    with pytest.raises(ValueError, match=r"episode_1: observation.images.front at frame 1: 60 byt"):
        summarise(tmp_path / "d", with_digests=True, with_images=True)


def test_one_episode_is_read_by_its_number(tmp_path, raw, cfg):
    convert(cfg, raw, tmp_path / "d")
    source = LeRobotSource(tmp_path / "d", {})
    episode = source.episode(3, ["action", "observation.images.front"])
    assert len(episode) == 5
    np.testing.assert_array_equal(episode.arrays["action"][:, 1], np.float32([-0.03] * 5))
    assert len(episode.images["observation.images.front"]) == 5
    with pytest.raises(ValueError, match="has no episode 5, only 0 to 4"):
        source.episode(5, ["action"])
    with pytest.raises(ValueError, match="did you mean 'action'"):
        source.episode(3, ["acton"])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["x", "y"], ["x", "y"]),
        ([["x", "y"]], ["x", "y"]),
        ({"motors": ["x", "y"]}, ["x", "y"]),
        ({"a": "x", "b": "y"}, ["x", "y"]),
        (None, ["0", "1"]),
        (["x"], ["0", "1"]),
    ],
)
def test_dimensions_are_named_as_lerobot_names_them(names, expected):
    assert dimension_names({"shape": [2], "names": names}) == expected


def test_a_number_without_a_name_is_called_by_its_key():
    assert dimension_labels("next.reward", {"shape": [1], "names": None}) == ["next.reward"]
    assert dimension_labels("action", {"shape": [1], "names": ["dx"]}) == ["action.dx"]
    assert dimension_labels("action", {"shape": [2], "names": None}) == ["action.0", "action.1"]


def test_durations_have_the_unit_that_suits_them():
    assert [duration(s) for s in (3.25, 119, 120, 7199, 7200)] == [
        "3.2 s", "119.0 s", "2.0 min", "120.0 min", "2.0 h",
    ]  # fmt: skip


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A repository with the dataset toy, converted."""
    write_raw(tmp_path / "datasets/raw/toy", {"pull": [4, 5]})
    (tmp_path / "configs/datasets").mkdir(parents=True)
    (tmp_path / "configs/datasets/toy.yaml").write_text(make_cfg().to_yaml())
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    convert(make_cfg(), tmp_path / "datasets/raw/toy", tmp_path / "datasets/converted/toy")
    return tmp_path


def test_a_name_means_what_is_published_else_what_is_converted(home):
    place = find_dataset("toy")
    assert place.root == home / "datasets/converted/toy"
    assert place.reports == home / "datasets/reports/toy"
    assert not place.is_published
    (home / "datasets/converted/toy").rename(home / "datasets/toy")
    assert find_dataset("toy").root == home / "datasets/toy"


def test_a_path_means_a_directory(home):
    place = find_dataset("./datasets/converted/toy")
    assert (place.name, place.reports) == ("toy", None)
    (home / "mine").mkdir()
    assert find_dataset("mine").root.resolve() == home / "mine"


def test_what_is_not_there_is_refused_with_what_to_type(home):
    with pytest.raises(ValueError, match="did you mean 'toy'"):
        find_dataset("toi")
    with pytest.raises(ValueError, match="no directory datasets/toi"):
        find_dataset("datasets/toi")
    with pytest.raises(ValueError, match=r"git worktree add ../v1 v1.*../v1/datasets/toy"):
        find_dataset("toy@v1")
    with pytest.raises(ValueError, match="s3://bucket/toy is not on this machine"):
        find_dataset("s3://bucket/toy")
    (home / "datasets/converted/toy").rename(home / "datasets/elsewhere")
    with pytest.raises(ValueError, match="run: rrf data convert toy && rrf data validate toy"):
        find_dataset("toy")
    with pytest.raises(ValueError, match=r"meta/info.json is missing"):
        read_summary(home / "configs")


def test_an_older_format_is_refused(tmp_path):
    root = write_v2(tmp_path / "d", {0: 4})
    edit_info(root, codebase_version="v1.6")
    with pytest.raises(ValueError, match=r"convert it to v2\.0 first"):
        read_summary(root)
