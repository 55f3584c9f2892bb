"""Each mistake in an RLDS directory is named with file, record, key and step."""

import json
import re
import sys
from importlib.util import find_spec

import pytest

from rrf.data.formats.rlds import RLDSSource
from tests.data.fixtures_rlds import (
    draw_jpeg,
    encode_example,
    episodes_of,
    features_dict,
    frame,
    tensor,
    text,
    toy_episode,
    write_rlds,
)

SHARD = "toy-train.tfrecord-00000-of-00001"
has_array_record = find_spec("array_record") is not None


@pytest.fixture
def toy(tmp_path):
    """One shard of three episodes."""
    return write_rlds(tmp_path / "toy", {"train": [[toy_episode(i, 3 + i) for i in range(3)]]})


def read(path, **options):
    source = RLDSSource(path, options)
    keys = list(source.keys())
    return [e for recording in source.recordings() for e in source.episodes(recording, keys)]


def read_changed(tmp_path, **changes):
    """A dataset whose second record has these values instead."""
    shard = [toy_episode(0, 3), toy_episode(1, 3, **changes)]
    return read(write_rlds(tmp_path / "changed", {"train": [shard]}))


def starts(path):
    """Byte offsets of the records of a shard."""
    content, offsets = path.read_bytes(), [0]
    while offsets[-1] < len(content):
        length = int.from_bytes(content[offsets[-1] : offsets[-1] + 8], "little")
        offsets.append(offsets[-1] + 16 + length)
    return offsets


def edit_info(path, change):
    file = path / "dataset_info.json"
    info = json.loads(file.read_text())
    change(info)
    file.write_text(json.dumps(info))


@pytest.mark.parametrize(("cut", "what"), [(5, "within its length"), (40, "bytes are missing")])
def test_a_truncated_file_names_record_and_byte(toy, cut, what):
    file = toy / SHARD
    offset = starts(file)[1]
    file.write_bytes(file.read_bytes()[: offset + cut])
    with pytest.raises(ValueError, match=rf"{SHARD}: record 1 at byte {offset} is cut off.*{what}"):
        read(toy)


def test_a_file_cut_between_records_disagrees_with_shard_lengths(toy):
    file = toy / SHARD
    file.write_bytes(file.read_bytes()[: starts(file)[2]])
    with pytest.raises(ValueError, match=rf"{SHARD} holds 2 episodes, but shardLengths .* says 3"):
        read(toy)


def test_a_file_of_more_records_disagrees_with_shard_lengths(toy):
    file = toy / SHARD
    file.write_bytes(file.read_bytes() + frame(encode_example(toy_episode(3, 3))))
    with pytest.raises(ValueError, match=rf"{SHARD} holds 4 or more episodes.* says 3"):
        read(toy)


@pytest.mark.parametrize(
    ("at", "what"),
    [
        (0, r"the length \d+ does not match its CRC"),
        (9, r"the length \d+ does not match its CRC"),
        (12, "do not match their CRC"),
        (500, "do not match their CRC"),
        (-1, "do not match their CRC"),
    ],
)
def test_a_wrong_checksum_names_record_and_byte(toy, at, what):
    file = toy / SHARD
    content, offsets = bytearray(file.read_bytes()), starts(file)
    content[(offsets[2] if at < 0 else offsets[1]) + at] ^= 0x10
    file.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=rf"{SHARD}: record 1 at byte {offsets[1]}: .*{what}"):
        read(toy)


def test_records_that_are_no_examples_are_named(toy):
    (toy / SHARD).write_bytes(frame(encode_example(toy_episode(0, 3))) + frame(b"\xff" * 90) * 2)
    with pytest.raises(ValueError, match=rf"{SHARD}:record_1: 90 bytes that are not a tf.train.E"):
        read(toy)


@pytest.mark.parametrize("name", ["features.json", "dataset_info.json"])
def test_a_missing_or_damaged_json_is_named(toy, name):
    content = (toy / name).read_text()
    for damage, what in ((content[:50], "is truncated"), ("[]", "must hold an object")):
        (toy / name).write_text(damage)
        with pytest.raises(ValueError, match=rf"{name} {what}"):
            read(toy)
    (toy / name).unlink()
    with pytest.raises(ValueError, match=rf"no file .*{name}"):
        read(toy)


def test_a_directory_of_something_else_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no dataset_info\.json in"):
        read(tmp_path)
    with pytest.raises(ValueError, match="no directory"):
        read(tmp_path / "absent")


def test_a_tfds_dataset_without_steps_is_refused(tmp_path):
    path = write_rlds(tmp_path / "x", {"train": [[]]}, features_dict({"label": tensor("int64")}))
    with pytest.raises(ValueError, match=r"'steps'.*not RLDS; found: label"):
        read(path)


@pytest.mark.parametrize(
    "features",
    [{"type": "old.FeaturesDict", "content": {}}, features_dict({"steps": {"sequence": []}})],
)
def test_another_layout_of_features_json_is_refused(tmp_path, features):
    path = write_rlds(tmp_path / "x", {"train": [[]]}, features)
    with pytest.raises(ValueError, match=r"features\.json: .* has no mapping"):
        read(path)


def test_a_leaf_that_is_described_wrongly_is_named(tmp_path):
    leaf = tensor("float32", 2)
    leaf["tensor"]["shape"]["dimensions"] = ["two"]
    path = write_rlds(tmp_path / "x", {"train": [[]]}, episodes_of({"action": leaf}))
    with pytest.raises(ValueError, match=r"features\.json: 'action' is not described"):
        read(path)


def test_a_missing_shard_is_named_unless_a_part_will_do(tmp_path):
    shards = [[toy_episode(0, 3)], [toy_episode(1, 3)], [toy_episode(2, 3)]]
    path = write_rlds(tmp_path / "toy", {"train": shards})
    (path / "toy-train.tfrecord-00001-of-00003").unlink()
    with pytest.raises(
        ValueError, match=r"lacks 1 of 3 shards.*toy-train\.tfrecord-00001-of-00003"
    ):
        read(path)
    assert [e.instruction for e in read(path, skip_missing_shards=True)] == ["öffne 0", "öffne 2"]


def test_no_shard_at_all_is_refused_even_if_a_part_will_do(toy):
    (toy / SHARD).unlink()
    with pytest.raises(ValueError, match="lacks 1 of 1 shards"):
        read(toy, skip_missing_shards=True)


@pytest.mark.parametrize("splits", [[], [{"name": "train"}], [{"name": "t", "shardLengths": []}]])
def test_zero_episodes_are_refused(toy, splits):
    edit_info(toy, lambda info: info.update(splits=splits))
    with pytest.raises(ValueError, match=r"dataset_info\.json names no episodes"):
        read(toy)


def test_an_empty_shard_is_refused(tmp_path):
    with pytest.raises(ValueError, match="names no episodes in train"):
        read(write_rlds(tmp_path / "toy", {"train": [[]]}))


def test_shard_lengths_that_are_no_numbers_are_refused(toy):
    edit_info(toy, lambda info: info["splits"][0].update(shardLengths=["three"]))
    with pytest.raises(ValueError, match=r"shardLengths of train are not numbers: \['three'\]"):
        read(toy)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("../{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}", "toy"),
        ("/etc/{DATASET}", "passwd"),
        ("{DATASET}/data", "../../elsewhere"),
        ("a/../../{SPLIT}", "toy"),
    ],
)
def test_a_path_that_leaves_the_directory_is_refused(toy, template, name):
    edit_info(toy, lambda info: info.update(name=name))
    edit_info(toy, lambda info: info["splits"][0].update(filepathTemplate=template))
    with pytest.raises(
        ValueError, match=r"dataset_info\.json names the file .* outside the dataset"
    ):
        read(toy)


def test_a_template_is_filled_in(toy):
    (toy / "train").mkdir()
    (toy / SHARD).rename(toy / "train/00000_00001.tfrecord")
    template = "{SPLIT}/{SHARD_INDEX}_{NUM_SHARDS}.{FILEFORMAT}"
    edit_info(toy, lambda info: info["splits"][0].update(filepathTemplate=template))
    assert len(read(toy)) == 3
    edit_info(toy, lambda info: info["splits"][0].update(filepathTemplate="{SPLITS}"))
    with pytest.raises(ValueError, match=r"unknown part \{SPLITS\}; did you mean 'SPLIT'"):
        read(toy)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"steps__action": [0.5] * 6}, "action has 2 steps, but is_first has 3"),
        ({"steps__action": [0.5] * 10}, "action holds 10 items, not a multiple of 3"),
        ({"steps__action": [1] * 9}, r"action is a int64_list, features.json says float32\[3\]"),
        ({"steps__phase": [0.5] * 3}, r"phase is a float_list, features.json says int32\[\]"),
        ({"steps__phase": []}, "phase has 0 steps, but is_first has 3"),
        ({"steps__is_first": []}, "has no steps"),
        ({"episode_metadata__success": [1, 1]}, "success has 2 steps, but it should have 1"),
        (
            {"steps__language_instruction": [b"a", b"b", b"\xff"]},
            "instruction at step 2 is not UTF",
        ),
        (
            {"steps__observation__front": [draw_jpeg(0), b"", draw_jpeg(0)]},
            "front at step 1: 0 byt",
        ),
        ({"steps__observation__front": [draw_jpeg(0, 9)] * 3}, r"step 0 is an image of \[9, 9\]"),
    ],
)
def test_wrong_values_name_file_record_key_and_step(tmp_path, changes, what):
    with pytest.raises(ValueError, match=rf"{SHARD}:record_1\b.*{what}"):
        read_changed(tmp_path, **changes)


def test_an_id_beside_the_steps_of_another_type_is_named_though_nobody_asked(tmp_path):
    others = features_dict({"episode_id": text()})
    features = episodes_of({"action": tensor("float32", 3)}, episode_metadata=others)
    values = {"steps/action": [0.5] * 3, "episode_metadata/episode_id": [7]}
    source = RLDSSource(write_rlds(tmp_path / "x", {"train": [[values]]}, features), {})
    with pytest.raises(
        ValueError, match=r"record_0: .*episode_id is a int64_list, .*json says tex"
    ):
        next(source.episodes(source.recordings()[0], ["action"]))


def test_a_missing_key_names_the_closest_one_there_is(tmp_path):
    values = toy_episode(0, 3)
    values["steps/actions"] = values.pop("steps/action")
    path = write_rlds(tmp_path / "toy", {"train": [[values]]})
    with pytest.raises(ValueError, match=r"record_0: action is missing.*mean 'steps/actions'"):
        read(path)


def test_asking_for_an_unknown_key_names_the_closest_one(toy):
    source = RLDSSource(toy, {})
    with pytest.raises(ValueError, match="no key 'actions'; did you mean 'action'"):
        next(source.episodes(source.recordings()[0], ["actions"]))


def test_another_file_format_is_refused(toy):
    edit_info(toy, lambda info: info.update(fileFormat="parquet"))
    with pytest.raises(ValueError, match="format 'parquet' are not read; known: array_record, tfr"):
        read(toy)


def as_array_record(toy):
    edit_info(toy, lambda info: info.update(fileFormat="array_record"))
    return toy / SHARD.replace("tfrecord", "array_record")


def test_array_record_without_its_package_says_what_to_install(toy, monkeypatch):
    monkeypatch.setitem(sys.modules, "array_record.python.array_record_module", None)
    as_array_record(toy).write_bytes(b"")
    with pytest.raises(ValueError, match=r"array_record-00000-of-00001 is an.*uv pip install"):
        read(toy)


@pytest.mark.skipif(not has_array_record, reason="the package array_record is not installed")
def test_array_record_gives_the_same_episodes_and_names_damage(toy):
    from array_record.python import array_record_module

    expected = [(e.source.rpartition(":")[2], e.arrays["action"].tolist()) for e in read(toy)]
    file = as_array_record(toy)
    writer = array_record_module.ArrayRecordWriter(str(file), "group_size:1")
    for i in range(3):
        writer.write(encode_example(toy_episode(i, 3 + i)))
    writer.close()
    found = [(e.source.rpartition(":")[2], e.arrays["action"].tolist()) for e in read(toy)]
    assert found == expected
    content = bytearray(file.read_bytes())
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=f"{re.escape(file.name)} is truncated or not an array_r"):
        read(toy)
    content[200] ^= 0xFF
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{re.escape(file.name)}: record \d is damaged"):
        read(toy)
