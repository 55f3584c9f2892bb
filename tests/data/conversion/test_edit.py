"""Edits of converted datasets: what is left is what it was, and the origin stays as it is."""

import json

import av
import numpy as np
import pytest

from rrf.data.conversion.conversion_record import read_conversion
from rrf.data.conversion.edit import edit, plan_edit
from rrf.data.conversion.edit_cfg import EditCfg
from rrf.data.dataset import layout, parquet
from rrf.data.dataset.opening import open_dataset
from rrf.data.files import content_digest
from rrf.data.formats.modality import modality_of, read_modality, write_modality
from tests.data.conftest import edit_column
from tests.data.conversion.test_lerobot_writer import content
from tests.data.conversion.test_merge import write
from tests.data.dataset.test_lerobot_reads_it import assert_reads_as_we_do

FRONT = "observation.images.front"


def make_cfg(*steps, **changes):
    data = {"name": "edited", "edit_of": "a", "steps": list(steps)} | changes
    return EditCfg.from_dict(data)


@pytest.fixture(scope="module")
def origins(tmp_path_factory):
    """Datasets of five episodes of 3 to 7 frames with two cameras, as images and as video."""
    root = tmp_path_factory.mktemp("origins")
    for storage in ("image", "video"):
        write(
            root / storage, range(5), cameras=("front", "top"), storage=storage,
            has_reward=True, has_success=True,
        )  # fmt: skip
    return root


def episodes(root):
    reader = open_dataset(root, 1)
    return [reader.episode(number) for number in range(reader.num_episodes)]


def test_who_acted_in_a_logged_episode_is_kept(tmp_path):
    write(tmp_path / "a", [0, 1], facts={"log_policy": "arm/3"})
    edit(make_cfg({"delete": [0]}), tmp_path / "a", tmp_path / "edited")
    assert parquet.read_episodes(tmp_path / "edited")["log_policy"].tolist() == ["arm/3"]


@pytest.mark.parametrize("storage", ["image", "video"])
def test_what_is_left_is_what_it_was_and_lerobot_reads_it(
    open_with_lerobot, origins, tmp_path, storage
):
    before = content(origins / storage)
    cfg = make_cfg({"delete": [0, 3]}, {"trim": {"end": 2}})
    assert edit(cfg, origins / storage, tmp_path / "edited") == (2 + 3 + 5, [])
    assert content(origins / storage) == before
    whole, left = episodes(origins / storage), episodes(tmp_path / "edited")
    for ours, number in zip(left, (1, 2, 4), strict=True):
        theirs, length = whole[number], len(ours)
        assert length == len(theirs) - 2
        np.testing.assert_array_equal(ours.state, theirs.state[:length])
        np.testing.assert_array_equal(ours.action, theirs.action[:length])
        for camera in ("front", "top"):
            np.testing.assert_array_equal(ours.images[camera], theirs.images[camera][:length])
        assert ours.instruction == theirs.instruction
    table = parquet.read_episodes(tmp_path / "edited")
    assert table["episode_index"].tolist() == [0, 1, 2]
    assert table["origin_episode"].tolist() == [1, 2, 4]
    columns = parquet.read_columns(tmp_path / "edited", ["index", "timestamp"])
    assert columns["index"].tolist() == [*range(10)]
    assert columns["timestamp"].tolist()[2:5] == [np.float32(t) for t in (0, 0.1, 0.2)]
    assert_reads_as_we_do(
        open_with_lerobot(tmp_path / "edited"), open_dataset(tmp_path / "edited", 3)
    )


def test_an_edit_gives_the_same_bytes_as_writing_only_what_is_left(origins, tmp_path):
    write(
        tmp_path / "whole", [1, 2], cameras=("front", "top"), has_reward=True, has_success=True
    )  # fmt: skip
    edit(make_cfg({"keep": ["1-2"]}), origins / "image", tmp_path / "edited")
    whole, edited = content(tmp_path / "whole"), content(tmp_path / "edited")
    for name in ("data/chunk-000/file-000.parquet", "meta/stats.json", "meta/tasks.parquet"):
        assert edited[name] == whole[name]


def test_the_record_names_the_content_that_was_edited_and_the_steps(origins, tmp_path):
    steps = [{"delete": [4]}, {"trim": {"start_s": 0.1}}, {"rename": {"state.x": "state.reach"}}]
    edit(make_cfg(*steps, provenance="cleaned"), origins / "image", tmp_path / "edited")
    record = read_conversion(tmp_path / "edited")
    assert record is not None
    assert (record["format"], record["path"]) == ("edit", "a")
    assert record["origin"] == {"dataset": "a", "sha256": content_digest(origins / "image")}
    assert record["steps"] == steps
    info = layout.read_info(tmp_path / "edited")
    assert info["provenance"] == {"licence": "MIT", "name": "edited", "provenance": "cleaned"}


def packets(root, camera="front"):
    path = root / f"videos/observation.images.{camera}/chunk-000/file-000.mp4"
    with av.open(str(path)) as container:
        return [bytes(packet) for packet in container.demux(video=0) if packet.pts is not None]


def test_video_is_compressed_again_only_where_its_new_beginning_is_no_keyframe(origins, tmp_path):
    cfg = make_cfg({"trim": {"start": 2, "episodes": [3]}}, {"drop": ["cameras.top"]})
    _, warnings = edit(cfg, origins / "video", tmp_path / "edited")
    assert warnings == [
        "videos compressed again, because the first frame that is left is no keyframe: 1"
    ]
    record = read_conversion(tmp_path / "edited")
    assert record is not None
    assert record["warnings"] == warnings
    old, new = packets(origins / "video"), packets(tmp_path / "edited")
    assert new[:12] == old[:12]  # episodes 0 to 2 have 3 + 4 + 5 frames
    assert new[16:] == old[18:]
    ours = episodes(tmp_path / "edited")[3].images["front"].astype(int)
    theirs = episodes(origins / "video")[3].images["front"][2:].astype(int)
    assert ours.shape == theirs.shape == (4, 16, 16, 3)
    assert np.abs(ours - theirs).mean() < 4


def test_a_start_that_is_a_keyframe_is_copied(tmp_path):
    write(tmp_path / "a", [12], storage="video")  # 15 frames, keyframes 0 and 10
    _, warnings = edit(make_cfg({"trim": {"start": 10}}), tmp_path / "a", tmp_path / "edited")
    assert warnings == []
    assert packets(tmp_path / "edited") == packets(tmp_path / "a")[10:]


def test_features_are_renamed_and_dropped_with_their_units_and_limits(origins, tmp_path):
    cfg = make_cfg(
        {"rename": {"cameras.front": "cameras.head", "action.grip": "action.gripper"}},
        {"drop": ["observation.images.top", "state.x", "action.dy", "next.reward"]},
    )
    edit(cfg, origins / "image", tmp_path / "edited")
    schema = layout.schema_of(layout.read_info(tmp_path / "edited"))
    assert schema.cameras == ("head",)
    assert (schema.state.names, schema.state.unit, schema.state.low) == (("y",), "rad", (-2,))
    assert schema.action.names == ("dx", "gripper")
    assert (schema.action.low, schema.action.high) == ((-9, 0), (9, 1))
    assert (schema.has_reward, schema.has_success) == (False, True)
    old, new = episodes(origins / "image")[4], episodes(tmp_path / "edited")[4]
    np.testing.assert_array_equal(new.images["head"], old.images["front"])
    np.testing.assert_array_equal(new.state, old.state[:, [1]])
    np.testing.assert_array_equal(new.action, old.action[:, [0, 2]])


def test_cameras_can_change_places(origins):
    swap = {"cameras.front": "cameras.top", "cameras.top": "cameras.front"}
    plan = plan_edit(make_cfg({"rename": swap}).steps, origins / "image")
    assert plan.cameras == {"top": "front", "front": "top"}


def test_instructions_are_replaced_by_text_and_by_episode(origins, tmp_path):
    relabel = {"instructions": {"task 0": "pull"}, "episodes": {"1": "push", "3-4": "lift it"}}
    edit(make_cfg({"relabel": relabel}), origins / "image", tmp_path / "edited")
    assert [one.instruction for one in episodes(tmp_path / "edited")] == [
        "pull", "push", "pull", "lift it", "lift it",
    ]  # fmt: skip
    assert parquet.read_tasks(tmp_path / "edited") == ["pull", "push", "lift it"]


def test_parts_of_a_split_share_no_episode_and_depend_on_the_seed(origins):
    def part(name, seed=0, fractions=(0.6, 0.4)):
        split = {"parts": dict(zip(("train", "val"), fractions, strict=True)), "part": name}
        plan = plan_edit(make_cfg({"split": split | {"seed": seed}}).steps, origins / "image")
        return [cut.number for cut in plan.cuts]

    assert sorted(part("train") + part("val")) == [0, 1, 2, 3, 4]
    assert (len(part("train")), len(part("val"))) == (3, 2)
    assert part("train") == part("train")
    assert len({tuple(part("train", seed)) for seed in range(5)}) > 1
    assert len(part("val", fractions=(0.4, 0.2))) == 1


def test_splits_cut_episodes_and_problems_keep_to_their_episodes(tmp_path):
    write(tmp_path / "a", range(5))
    info = layout.read_info(tmp_path / "a") | {"splits": {"train": "0:3", "val": "3:5"}}
    (tmp_path / "a" / layout.INFO).write_text(json.dumps(info))
    record = {"format": "d4rl", "path": "raw", "warnings": ["odd"], "cut_episodes": [1, 2, 4]}
    odd = {"check": "timestamps", "value": "a gap"}
    record["problems"] = [{"episode": 3} | odd, {"episode": 4} | odd]
    (tmp_path / "a/meta/conversion.json").write_text(json.dumps(record))
    cfg = make_cfg({"delete": [0, 3]}, {"trim": {"end": 1, "episodes": [2]}})
    edit(cfg, tmp_path / "a", tmp_path / "edited")
    assert layout.read_info(tmp_path / "edited")["splits"] == {"train": "0:2", "val": "2:3"}
    record = read_conversion(tmp_path / "edited")
    assert record is not None
    assert record["warnings"] == ["a: odd"]
    assert record["cut_episodes"] == [0, 2]  # 1 and 4; the end of 2 was trimmed
    assert record["problems"] == [{"episode": 2} | odd]


def test_the_parts_of_groots_modality_follow_their_dimensions(tmp_path):
    write(tmp_path / "a", [0], cameras=("front", "top"))
    schema = layout.schema_of(layout.read_info(tmp_path / "a"))
    groups = {"arm": [0, 2], "hand": [2, 3]}
    write_modality(tmp_path / "a", modality_of(schema, {"joints": [0, 2]}, groups))
    cfg = make_cfg(
        {"drop": ["action.dx", "cameras.top"]}, {"rename": {"cameras.front": "cameras.head"}}
    )
    edit(cfg, tmp_path / "a", tmp_path / "edited")
    modality = read_modality(tmp_path / "edited")
    assert modality is not None
    assert {name: (part.start, part.end) for name, part in modality.action.items()} == {
        "arm": (0, 1), "hand": (1, 2),
    }  # fmt: skip
    assert modality.video == {"front": "observation.images.head"}


@pytest.mark.parametrize("storage", ["image", "video"])
def test_episodes_cut_into_parts_hold_every_frame_once(origins, tmp_path, storage):
    cfg = make_cfg({"keep": [2, 4]}, {"trim": {"start": 1}}, {"cut": 3})
    assert edit(cfg, origins / storage, tmp_path / "edited")[0] == 4 + 6
    whole, left = episodes(origins / storage), episodes(tmp_path / "edited")
    assert [len(one) for one in left] == [1, 1, 2, 2, 2, 2]
    for number, parts in ((2, left[:3]), (4, left[3:])):
        together = np.concatenate([one.action for one in parts])
        np.testing.assert_array_equal(together, whole[number].action[1:])
        shown = np.concatenate([one.images["front"] for one in parts])
        assert np.abs(shown.astype(int) - whole[number].images["front"][1:]).mean() < 3
    table = parquet.read_episodes(tmp_path / "edited")
    assert table["origin_episode"].tolist() == [2, 2, 2, 4, 4, 4]


def test_a_success_that_was_trimmed_is_told(tmp_path):
    write(tmp_path / "a", [0], has_success=True)
    edit_column(tmp_path / "a", "next.success", {2: True})
    _, warnings = edit(make_cfg({"trim": {"end": 1}}), tmp_path / "a", tmp_path / "edited")
    assert warnings == [
        "episodes that lost their success, because it stands in frames that were trimmed: 1"
    ]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([{"delete": [5]}], r"steps\[0\] \(delete\): there is no episode 5, only 0 to 4"),
        ([{"delete": ["0-4"]}], "no episode would be left"),
        ([{"delete": [2]}, {"keep": ["1-2"]}], r"steps\[1\] .*episode 2 was removed by an earlier"),
        ([{"trim": {"start": 1, "end": 2}}], "episode 0 has 3 frames, so none is left without the"),
        ([{"rename": {"cameras.front": "cameras.top"}}], "two features would be called 'cameras.t"),
        ([{"rename": {"cameras.frnt": "cameras.a"}}], "no 'cameras.frnt'; did you mean"),
        ([{"rename": {"cameras.front": "state.a"}}], "'cameras.front' cannot become 'state"),
        ([{"rename": {"cameras.front": "cameras.a/b"}}], "cameras.NAME, without '/'"),
        ([{"rename": {"reward": "reward.b"}}], "'reward' is called so in every dataset"),
        ([{"drop": ["state.x", "state.y"]}], "the state would have no dimension left"),
        ([{"relabel": {"instructions": {"task 2": "x"}}}], "no episode has the instruction 'task"),
        ([{"relabel": {"episodes": {"9": "x"}}}], "there is no episode 9"),
        ([{"split": {"parts": {"a": 0.05}, "part": "a"}}], "no episode would be left"),
        ([{"cut": 4}], "episode 0 has 3 frames, too few for 4 episodes; cut into fewer"),
        ([{"cut": 2}, {"delete": [1]}], r"steps\[1\] \(delete\): it stands after cut, which"),
    ],
)  # fmt: skip
def test_a_step_that_does_not_fit_is_named_and_nothing_is_lost(origins, tmp_path, steps, message):
    (tmp_path / "edited").mkdir()
    (tmp_path / "edited/kept").write_text("as before")
    with pytest.raises(ValueError, match=message):
        edit(make_cfg(*steps), origins / "image", tmp_path / "edited")
    assert content(tmp_path) == {"edited/kept": b"as before"}


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([], "steps is empty"),
        ([{}], "a step is one of delete, keep, split"),
        ([{"delete": [1], "keep": [2]}], r"this one has \['delete', 'keep'\]"),
        ([{"delete": ["4-2"]}], "'4-2' is neither an episode"),
        ([{"trim": {}}], "trim needs a positive"),
        ([{"trim": {"end": 1, "end_s": 0.5}}], "not both"),
        ([{"split": {"parts": {"a": 0.7, "b": 0.4}, "part": "a"}}], "at most 1"),
        ([{"split": {"parts": {"a": 0.7}, "part": "b"}}], "there is no part 'b'"),
        ([{"relabel": {"instructions": {"a": " "}}}], "may not be empty"),
        ([{"cut": 1}], "cut is 1, allowed: 2 or more"),
        ([{"remove": [1]}], "has no field 'remove'"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(steps, message):
    with pytest.raises(ValueError, match=message):
        make_cfg(*steps)
