"""What lerobot 0.6 added to its datasets: language annotations and depth maps. lerobot writes what
we read, and reads what we made of it.
"""

import json
import re
import shutil

import numpy as np
import pyarrow as pa
import pytest

from rrf.data.conversion.checks_cfg import ChecksCfg
from rrf.data.conversion.conversion_record import read_conversion
from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import DatasetCfg, MergeCfg, MergePartCfg
from rrf.data.conversion.edit import edit
from rrf.data.conversion.edit_cfg import EditCfg
from rrf.data.conversion.merge import merge
from rrf.data.dataset import layout
from rrf.data.dataset.opening import open_dataset
from rrf.data.dataset.stats import STATISTICS, norm_stats
from rrf.data.language import EVENTS, PERSISTENT, Language
from rrf.data.pages.card import render_card
from rrf.data.pages.episode_view import view_dataset
from rrf.data.validation.diff import diff_datasets
from rrf.data.validation.summary import describe_feature, read_summary, summarise
from rrf.data.validation.validate import validate
from tests.data.conftest import edit_table, run
from tests.data.fixtures_annotated import (
    CALL,
    DEPTH,
    DEPTH_IMAGE,
    DEPTH_VIDEO,
    FPS,
    FRONT,
    LENGTHS,
    depth_m,
    depth_mm,
    read_json,
    write_annotated,
)


@pytest.fixture(scope="module")
def root(lerobot_dataset, tmp_path_factory):
    return write_annotated(lerobot_dataset, tmp_path_factory.mktemp("annotated") / "d")


@pytest.fixture(scope="module")
def theirs(lerobot_dataset, root):
    """The same as lerobot reads it, depth in metres."""
    return lerobot_dataset(
        "local/annotated", root=root, video_backend="pyav", depth_output_unit="m"
    )


def cfg(**changes):
    vector = {"names": ["x", "y"], "unit": "m", "low": [-9, -9], "high": [9, 9]}
    depth = {"size": [DEPTH, DEPTH]}
    return DatasetCfg.from_dict(
        {
            "name": "d",
            "source": {"format": "lerobot", "path": "raw"},
            "fps": FPS,
            "image_size": [64, 64],
            "cameras": {"top": FRONT},
            "maps": {
                "far": {"key": DEPTH_VIDEO, "dtype": "float32", "unit": "m", **depth},
                "near": {"key": DEPTH_IMAGE, "dtype": "uint16", "unit": "mm", **depth},
            },
            "state": {"keys": ["observation.state"], **vector},
            "action": {"keys": ["action"], **vector},
            "licence": "MIT",
            "provenance": "drawn by a test",
        }
        | changes
    )


@pytest.fixture(scope="module")
def converted(root, tmp_path_factory):
    out = tmp_path_factory.mktemp("converted") / "d"
    convert(cfg(), root, out)
    return out


@pytest.mark.parametrize("style", ["subtask", "memory", "task_aug"])
def test_instructions_of_a_style_are_those_that_lerobot_renders(root, theirs, style):
    from lerobot.configs.recipe import MessageTurn, TrainingRecipe
    from lerobot.datasets.language_render import render_sample

    said = "${task}" if style == "task_aug" else "${said}"
    turn = MessageTurn(role="user", content=said, stream="high_level", target=True)
    bindings = None if style == "task_aug" else {"said": f"active_at(t, style={style})"}
    recipe = TrainingRecipe(messages=[turn], bindings=bindings)
    reader = open_dataset(root, 1, instruction_style=style)
    found = reader.instructions_of(np.arange(reader.num_frames))
    for index in range(len(theirs)):
        item = theirs[index]
        rendered = render_sample(
            recipe=recipe,
            persistent=item["language_persistent"],
            events=item["language_events"],
            t=item["timestamp"].item(),
            sample_idx=index,
            dataset_ctx={"task": item["task"]},
        )
        assert rendered is not None
        assert found[index] == (rendered["messages"][0]["content"] or item["task"])
    assert reader.batch(np.array([10])).observation.instruction == [found[10]]
    assert reader.instructions == list(dict.fromkeys(found))


def test_expected_instructions_by_hand(root):
    def told(style, episodes=None):
        reader = open_dataset(root, 1, episodes=episodes, instruction_style=style)
        return reader.instructions_of(np.arange(reader.num_frames))

    assert told(None, [1]) == ["task 1"] * 5
    assert told("subtask", [1]) == ["reach"] * 3 + ["grasp"] * 2
    assert told("memory", [0]) == ["task 0"] * 2 + ["was there"] * 4
    assert set(told("task_aug")) == {"please do", "go on"}
    whole = open_dataset(root, 1)
    assert whole.identity != open_dataset(root, 1, instruction_style="subtask").identity


def test_a_style_that_is_none_or_nowhere_is_refused(root, tmp_path):
    with pytest.raises(ValueError, match="instruction_style is 'vqa', allowed: subtask, plan"):
        open_dataset(root, 1, instruction_style="vqa")
    convert(cfg(language="drop"), root, tmp_path / "d")
    with pytest.raises(ValueError, match=r"has no column language_persistent; annotate it"):
        open_dataset(tmp_path / "d", 1, instruction_style="subtask")


def annotations(root, number=0) -> Language:
    language = open_dataset(root, 1).episode(number).language
    assert language is not None
    return language


def assert_same_rows(language, dataset, first_frame, cameras):
    for frame in range(LENGTHS[0]):
        item = dataset[first_frame + frame]
        for row in item["language_persistent"] + item["language_events"]:
            row["camera"] = cameras.get(row["camera"], row["camera"])
        assert item["language_persistent"] == [
            {key: row[key] for key in item["language_persistent"][0]} for row in language.persistent
        ]
        expected = language.events.get(frame, [])
        assert item["language_events"] == [
            {key: row[key] for key in item["language_events"][0]} for row in expected
        ]


def test_the_reader_gives_all_rows(root, theirs):
    language = annotations(root)
    assert_same_rows(language, theirs, 0, {})
    assert language.events[4][0]["tool_calls"] == [CALL]
    assert {row["content"] for row in language.events[1]} == {
        "which colour?",
        '{"label": "grey"}',
    }


def test_depth_is_what_lerobot_reads_in_metres_and_millimetres(root, theirs):
    reader = open_dataset(root, 1, maps=["front_depth", "wrist_depth"])
    assert [(one.dtype, one.unit) for one in reader.schema.maps] == [
        ("float32", "m"),
        ("uint16", "mm"),
    ]
    assert reader.schema.cameras == ("front",)
    maps = reader.batch(np.arange(11)).observation.maps
    for index in range(11):
        item, episode, frame = theirs[index], index // 6, index % 6
        np.testing.assert_allclose(maps["front_depth"][index], item[DEPTH_VIDEO][0], rtol=2e-6)
        np.testing.assert_array_equal(maps["wrist_depth"][index], depth_mm(episode, frame))
        np.testing.assert_allclose(
            maps["front_depth"][index], depth_m(episode, frame), atol=2e-3
        )  # 12 bits of a logarithm


def test_depth_is_no_camera(root):
    with pytest.raises(ValueError, match=r"camera 'front_depth' is .*, a depth map, which no pol"):
        open_dataset(root, 1, cameras=["front_depth"])
    with pytest.raises(ValueError, match="a depth map, which no policy sees"):
        open_dataset(root, 1, keys={FRONT: DEPTH_VIDEO})


def test_a_conversion_keeps_both_and_lerobot_reads_the_result(
    converted, root, lerobot_dataset, theirs
):
    info, origin = layout.read_info(converted), layout.read_info(root)
    assert info["tools"] == origin["tools"]
    assert info["features"][PERSISTENT] == origin["features"][PERSISTENT]
    dataset = lerobot_dataset("local/d", root=converted, video_backend="pyav")
    language = annotations(converted)
    assert_same_rows(language, dataset, 0, {})
    new = {FRONT: "observation.images.top"}
    assert_same_rows(language, theirs, 0, new)
    reader = open_dataset(converted, 1, maps=["far", "near"])
    ours = open_dataset(root, 1, maps=["front_depth", "wrist_depth"])
    for name, key in (("far", "front_depth"), ("near", "wrist_depth")):
        np.testing.assert_array_equal(reader.episode(1).maps[name], ours.episode(1).maps[key])
    report = validate("d", converted, ChecksCfg(), converted.parent / "report")
    assert not [one.check for one in report.checks if one.status in ("fail", "crashed")]


def test_statistics_have_the_keys_that_lerobot_writes(converted, root):
    written = read_json(converted / layout.STATS)
    for key, stats in read_json(root / layout.STATS).items():
        assert set(stats) == set(STATISTICS), key
    for key, stats in written.items():
        assert set(stats) == set(STATISTICS), key
    declared = set(layout.read_info(converted)["features"])
    assert set(written) == declared - {PERSISTENT, EVENTS}


def test_what_a_conversion_leaves_out_is_named(root, tmp_path):
    done = convert(cfg(maps={}, language="drop"), root, tmp_path / "d")
    assert f"{DEPTH_VIDEO} is a depth map and left out; to keep it, name it under maps" in " ".join(
        done.warnings
    )
    assert any("language annotations are left out" in text for text in done.warnings)
    with pytest.raises(ValueError, match=r"style vqa is about .*front, which is not kept; .*drop"):
        convert(cfg(cameras={}, image_size=None), root, tmp_path / "e")
    with pytest.raises(ValueError, match="name it under maps"):
        convert(cfg(cameras={"top": DEPTH_VIDEO}), root, tmp_path / "e")


def test_a_lower_rate_moves_events_to_the_frame_that_is_kept(root, tmp_path):
    convert(cfg(fps=5), root, tmp_path / "d")
    language = annotations(tmp_path / "d")
    assert {frame: len(rows) for frame, rows in language.events.items()} == {0: 2, 2: 1}
    assert [row["timestamp"] for row in language.persistent][-1] == pytest.approx(0.3)


def test_an_edit_keeps_both(root, lerobot_dataset, tmp_path):
    steps = [{"trim": {"start": 2, "end": 1}}, {"rename": {"cameras.front": "cameras.top"}}]
    edited = EditCfg.from_dict({"name": "e", "edit_of": "d", "steps": steps})
    edit(edited, root, tmp_path / "e")
    top = layout.read_info(tmp_path / "e")["features"]["observation.images.top"]
    assert top["info"]["video.codec"] == "av1"  # lerobot's video is kept as it is
    reader = open_dataset(tmp_path / "e", 1, maps=["front_depth"], instruction_style="subtask")
    assert reader.instructions_of(np.arange(5)) == ["reach", "grasp", "grasp", "reach", "grasp"]
    episode, language = reader.episode(0), annotations(tmp_path / "e")
    starts = {row["content"]: row["timestamp"] for row in language.persistent}
    assert starts == {
        "reach": 0.0, "was there": 0.0, "please do": 0.0, "go on": 0.0,
        "grasp": pytest.approx(0.1),
    }  # fmt: skip
    assert list(language.events) == [2]
    origin = open_dataset(root, 1, maps=["front_depth"]).episode(0).maps["front_depth"]
    np.testing.assert_array_equal(episode.maps["front_depth"], origin[2:5])
    dataset = lerobot_dataset("local/e", root=tmp_path / "e", video_backend="pyav")
    assert dataset[2]["language_events"][0]["tool_calls"] == [CALL]
    for drop, message in (
        (["cameras.front"], "about .*front, which is not kept; .*drop"),
        (["maps.front_depth", "language", "cameras.front"], None),
    ):
        one = EditCfg.from_dict({"name": "e", "edit_of": "d", "steps": [{"drop": drop}]})
        if message is None:
            edit(one, root, tmp_path / "f")
            assert not open_dataset(tmp_path / "f", 1).schema.has_language
            continue
        with pytest.raises(ValueError, match=message):
            edit(one, root, tmp_path / "f")


def test_a_merge_keeps_the_annotations_of_those_that_have_any(root, converted, tmp_path):
    convert(cfg(cameras={"front": FRONT}), root, tmp_path / "a")
    convert(cfg(cameras={"front": FRONT}, maps={}, language="drop"), root, tmp_path / "b")
    parts = [
        MergePartCfg(dataset="a"),
        MergePartCfg(dataset="b"),
        MergePartCfg(dataset=str(converted), cameras={"front": "top"}),
    ]
    merged = MergeCfg(name="m", merge=parts, licence="MIT", provenance="all")
    merge(merged, tmp_path, tmp_path / "m")
    for number in (0, 1, 4, 5):
        language = annotations(tmp_path / "m", number)
        assert {row["camera"] for row in language.events[1]} == {FRONT}
        assert language.persistent == annotations(root, number % 2).persistent
    assert annotations(tmp_path / "m", 2) == Language()
    assert layout.read_info(tmp_path / "m")["tools"] == layout.read_info(root)["tools"]
    record = read_conversion(tmp_path / "m")
    assert record is not None
    assert any("maps.far is left out" in text for text in record["warnings"])
    without = MergeCfg(name="m", merge=parts[:2], cameras=[], licence="MIT", provenance="all")
    with pytest.raises(ValueError, match=r"about .*front, which is not kept; .* edit a first"):
        merge(without, tmp_path, tmp_path / "n")


def test_views_show_both(root, converted, tmp_path):
    view_dataset(root, "d", [0], tmp_path / "page.html")
    page = re.sub(r"\s+", " ", (tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "<h3>Language</h3>" in page
    assert "<td>0.30 s</td><td>from then on</td> <td>subtask</td><td>assistant</td>" in page
    assert "<td>0.10 s</td><td>frame 1</td>" in page
    assert "&#34;name&#34;: &#34;say&#34;" in page
    assert page.count(f"<code>{DEPTH_VIDEO}</code>") == 2  # a picture, and a row of the keys
    summary = summarise(root)
    assert summary.warnings == []
    assert summary.cameras == [FRONT]
    assert describe_feature(summary, DEPTH_VIDEO)[3] == "m"
    counts = {"subtask": (2, 4), "memory": (2, 2), "task_aug": (2, 4), "vqa": (2, 4), "": (2, 2)}
    assert summary.annotations == counts
    published = shutil.copytree(converted, tmp_path / "published")
    (published / layout.NORM_STATS).write_text(json.dumps(norm_stats(converted)))
    assert read_summary(published).annotations == counts
    assert "| subtask | 2 | 4 |" in render_card(summary, None)
    code, output, _ = run("show", root)
    assert code == 0
    assert "│ task_aug │ 2 │ 4 │" in re.sub(r" +", " ", output)


def test_a_changed_annotation_is_a_difference(converted, tmp_path):
    steps = [{"relabel": {"episodes": {0: "task 0"}}}]
    edit(
        EditCfg.from_dict({"name": "e", "edit_of": "d", "steps": steps}), converted, tmp_path / "e"
    )
    assert not diff_datasets(converted, tmp_path / "e").is_different

    def reworded(table):
        rows = table[PERSISTENT].to_pylist()
        for row in [one for frame in rows[:6] for one in frame if one["content"] == "reach"]:
            row["content"] = "stretch"
        column = Language().columns(1)[PERSISTENT].type
        place = table.schema.get_field_index(PERSISTENT)
        return table.set_column(place, PERSISTENT, pa.array(rows, column))

    edit_table(tmp_path / "e/data/chunk-000/file-000.parquet", reworded)
    found = diff_datasets(converted, tmp_path / "e")
    assert [one.keys for one in found.changed] == [["language"]]


def test_what_lerobot_merges_is_read_alike(root, tmp_path):
    from lerobot.datasets.aggregate import aggregate_datasets

    names = {"repo_ids": ["local/a", "local/b"], "aggr_repo_id": "local/both"}
    aggregate_datasets(**names, roots=[root, root], aggr_root=tmp_path / "both")
    maps = ["front_depth", "wrist_depth"]
    both, once = (open_dataset(one, 1, maps=maps) for one in (tmp_path / "both", root))
    for number in range(4):
        found, expected = both.episode(number), once.episode(number % 2)
        assert found.language == expected.language
        for name in maps:
            np.testing.assert_array_equal(found.maps[name], expected.maps[name])


def test_a_recording_that_is_not_annotated_yet_has_no_rows(lerobot_dataset, tmp_path):
    from lerobot.datasets.language import language_feature_info

    vector = {"dtype": "float32", "shape": (2,), "names": ["x", "y"]}
    features = {"observation.state": vector, "action": vector, **language_feature_info()}
    dataset = lerobot_dataset.create("local/plain", FPS, features, root=tmp_path / "d")
    for frame in range(3):
        values = np.full(2, frame, np.float32)
        dataset.add_frame(
            {"observation.state": values, "action": values, "task": "go", PERSISTENT: None,
             EVENTS: None}
        )  # fmt: skip
    dataset.save_episode()
    dataset.finalize()
    assert annotations(tmp_path / "d") == Language()
    reader = open_dataset(tmp_path / "d", 1, instruction_style="subtask")
    assert reader.instructions_of(np.arange(3)) == ["go"] * 3


def test_rows_that_differ_within_an_episode_are_refused(converted, tmp_path):
    steps = [{"keep": [0]}]
    edit(
        EditCfg.from_dict({"name": "e", "edit_of": "d", "steps": steps}), converted, tmp_path / "e"
    )

    def shortened(table):
        column = table[PERSISTENT].combine_chunks()
        joined = pa.concat_arrays([column.slice(0, 3), column.slice(0, 0), column.slice(3)])
        values = joined.to_pylist()
        values[4] = []
        place = table.schema.get_field_index(PERSISTENT)
        return table.set_column(place, PERSISTENT, pa.array(values, column.type))

    edit_table(tmp_path / "e/data/chunk-000/file-000.parquet", shortened)
    with pytest.raises(ValueError, match="language_persistent at frame 4 differs from that at fra"):
        open_dataset(tmp_path / "e", 1, instruction_style="subtask")


def test_two_rows_that_begin_together_are_refused():
    row = {"role": "assistant", "style": "plan", "camera": None, "tool_calls": None}
    rows = [row | {"content": text, "timestamp": 0.5} for text in ("a", "b")]
    with pytest.raises(ValueError, match=r"here: two rows of style plan begin at 0\.5 s"):
        Language(rows).texts("plan", np.zeros(1, np.float32), 0, "here")
