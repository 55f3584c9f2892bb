"""What `rrf data convert` answers to recordings that are damaged or not what they claim to be: one
line that says which file, episode and key, exit code 2, and nothing written.
"""

import json
import sys

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

from rrf.cli import main
from rrf.workspace import HOME_VARIABLE
from tests.data.fixtures_hdf5 import cut_short
from tests.data.fixtures_lerobot_v2 import change_columns, data_path, video_path
from tests.data.fixtures_rlds import encode_example, frame, toy_episode
from tests.data.formats.test_every_format import CASES, cfg_of

SHARD = "toy-train.tfrecord-00000-of-00001"


@pytest.fixture
def rrf(tmp_path, monkeypatch, capsys):
    """A function that converts the recordings of a case, changed by `damage`; gives exit code,
    last line of stderr, and all of stdout.
    """
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))

    def convert(name, damage):
        case, raw = CASES[name], tmp_path / "raw"
        case.write(raw)
        damage(raw)
        cfg = cfg_of(case)
        cfg = cfg.replace(source=cfg.source.replace(path=str(raw)))
        (tmp_path / "configs/datasets").mkdir(parents=True)
        (tmp_path / "configs/datasets/real.yaml").write_text(cfg.to_yaml())
        monkeypatch.setattr(sys, "argv", ["rrf", "data", "convert", "real", "--workers", "1"])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return stopped.value.code, printed.err.strip().splitlines()[-1:], printed.out

    return convert


def change_second_episode(**changes):
    """Damage of RLDS recordings: the second of two episodes has these values."""

    def damage(raw):
        episodes = [toy_episode(0, 3), toy_episode(1, 4, **changes)]
        content = b"".join(frame(encode_example(values)) for values in episodes)
        (raw / SHARD).write_bytes(content)

    return damage


def change_file(name, change):
    """Damage of HDF5 recordings."""

    def damage(raw):
        with h5py.File(raw / name, "r+") as file:
            change(file)

    return damage


def replaced(key, values):
    def change(file):
        del file[key]
        if values is not None:
            file[key] = values

    return change


def change_json(name, **changes):
    def damage(raw):
        content = json.loads((raw / name).read_text())
        (raw / name).write_text(json.dumps(content | changes))

    return damage


def flip_a_bit(raw):
    content = bytearray((raw / SHARD).read_bytes())
    content[-10] ^= 1
    (raw / SHARD).write_bytes(content)


def pickle_instead(raw):
    for path in raw.glob("*.hdf5"):
        path.rename(path.with_suffix(".pkl"))


ONE_IMAGE = np.zeros((3, 16, 16), np.uint8)
BAD = {
    "truncated tfrecord": (
        "tfrecord", lambda raw: cut_short(raw / SHARD), [SHARD, "record 1 at byte", "is cut off"],
    ),
    "wrong CRC": (
        "tfrecord", flip_a_bit, [SHARD, "record 1 at byte", "do not match their CRC"],
    ),
    "truncated HDF5": (
        "robomimic", lambda raw: cut_short(raw / "pull.hdf5"), ["pull.hdf5 is truncated"],
    ),
    "truncated parquet": (
        "lerobot v2.1", lambda raw: cut_short(data_path(raw, 0)),
        ["episode_000000.parquet is truncated"],
    ),
    "truncated mp4": (
        "lerobot v2.1", lambda raw: cut_short(video_path(raw, 0)), ["episode_000000.mp4"],
    ),
    "a key that an episode lacks": (
        "robomimic", change_file("pull.hdf5", replaced("data/demo_1/actions", None)),
        ["pull.hdf5", "demo_1", "has no key 'actions'"],
    ),
    "a key that all episodes lack": (
        "lerobot v2.1",
        lambda raw: [change_columns(data_path(raw, number), action=None) for number in (0, 1)],
        ["action"],
    ),
    "images of another shape": (
        "robomimic", change_file("pull.hdf5", replaced("data/demo_1/obs/front_image", ONE_IMAGE)),
        ["pull.hdf5", "demo_1", "obs/front_image", "[3, 16, 16]"],
    ),
    "zero episodes": (
        "libero",
        change_file("demo.hdf5", lambda file: [file.pop(f"data/demo_{n}") for n in (0, 1)]),
        ["demo.hdf5"],
    ),
    "mixed action dimensions": (
        "robomimic", change_file("pull.hdf5", replaced("data/demo_1/actions", np.zeros((3, 4)))),
        ["pull.hdf5:demo_1", "actions", "4 dimensions", "pull.hdf5:demo_0"],
    ),
    "task text that is not UTF-8": (
        "tfrecord", change_second_episode(steps__language_instruction=[b"\xff\xfe"] * 4),
        [SHARD, "record_1", "language_instruction", "UTF-8"],
    ),
    "paths that lead out of an RLDS dataset": (
        "tfrecord",
        change_json("dataset_info.json", splits=[
            {"name": "train", "shardLengths": ["2"], "filepathTemplate": "../{DATASET}"}
        ]),
        ["dataset_info.json", "'../toy'", "outside the dataset"],
    ),
    "paths that lead out of a LeRobot dataset": (
        "lerobot v2.1",
        change_json("meta/info.json", data_path="../../{episode_index:06d}.parquet"),
        ["info.json", "data_path"],
    ),
    "pickles": ("robomimic", pickle_instead, [".pkl", "pickle"]),
}  # fmt: skip


@pytest.mark.parametrize(("name", "damage", "words"), BAD.values(), ids=BAD)
def test_bad_input_ends_in_one_line_and_writes_nothing(rrf, tmp_path, name, damage, words):
    code, lines, _ = rrf(name, damage)
    assert code == 2
    (line,) = lines
    assert line.startswith("error: ")
    for word in words:
        assert word in line
    written = [path for path in (tmp_path / "datasets").rglob("*") if path.is_file()]
    assert not [path for path in written if path.parents[1].name != "real.parts"]  # to go on with


def test_vectors_written_as_json_are_converted_with_a_warning(rrf, tmp_path):
    def as_json(raw):
        for path in (data_path(raw, number) for number in (0, 1)):
            rows = pq.read_table(path)["action"].to_pylist()
            change_columns(path, action=[json.dumps(row) for row in rows])

    code, _, output = rrf("lerobot v2.1", as_json)
    assert code == 0
    assert "action is JSON text, converted to float64[2]" in " ".join(output.split())
    assert (tmp_path / "datasets/converted/real/meta/info.json").is_file()
