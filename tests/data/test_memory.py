"""Arrays that memory cannot hold: the message says how large they are and what is free."""

import h5py
import numpy as np
import pytest

from rrf.data import memory
from rrf.data.conversion.recordings import RecordingConverter
from rrf.data.formats import hdf5
from rrf.data.formats.aloha import AlohaSource
from rrf.data.formats.calvin import CalvinSource
from rrf.data.formats.d4rl import D4RLSource
from rrf.data.formats.minari import MinariSource
from rrf.data.formats.padded_images import decode_all
from rrf.data.formats.robomimic import RobomimicSource
from rrf.data.images import encode_png
from rrf.data.raw import RawEpisode, Recording
from tests.data.conftest import draw, make_cfg, write_raw
from tests.data.fixtures_lerobot_v2 import CAMERA, read, write_v2
from tests.data.fixtures_simulators import (
    edit,
    read_all,
    write_calvin,
    write_d4rl,
    write_minari,
)

HUGE = (1 << 20, 480, 640, 3)  # bytes: 900 GiB
SAYS_SO = (
    r"uint8\[1048576, 480, 640, 3\] is too large for memory: it needs 900 GiB, [\d.]+ [KMGT]iB are "
    r"free; close other programs, convert with fewer --workers or on a machine with more memory"
)


def huge(group, key):
    """As large as it says, but nothing of it is stored."""
    group.create_dataset(key, HUGE, np.uint8, chunks=(1, *HUGE[1:]))


def robomimic(folder):
    path = write_raw(folder, {"pull": [4]}) / "pull.hdf5"
    edit(path, lambda f: huge(f, "data/demo_0/obs/big"))
    return RobomimicSource(folder, {}), "obs/big"


def aloha(folder):
    folder.mkdir()
    with h5py.File(folder / "episode_0.hdf5", "w") as file:
        huge(file, "observations/images/big")
    return AlohaSource(folder, {}), "observations/images/big"


def d4rl(folder):
    path = write_d4rl(folder / "a.hdf5", [5])

    def stretch(file):
        for key in ("observations", "actions", "rewards", "terminals"):
            del file[key]
        huge(file, "observations")
        for key in ("actions", "rewards", "terminals"):
            file.create_dataset(key, HUGE[:1], bool)
        del file["timeouts"]
        file.create_dataset("timeouts", HUGE[:1], bool)

    edit(path, stretch)
    return D4RLSource(path, {}), "observations"


def minari(folder):
    path = write_minari(folder)
    edit(path, lambda f: huge(f, "episode_0/observations/big"))
    return MinariSource(folder, {}), "observations/big"


@pytest.mark.parametrize("make", [robomimic, aloha, d4rl, minari], ids=lambda make: make.__name__)
def test_an_array_too_large_for_memory_is_not_called_damaged(tmp_path, make):
    source, key = make(tmp_path / "raw")
    with pytest.raises(ValueError, match=SAYS_SO) as error:
        read_all(source, [key])
    assert "damaged" not in str(error.value)


def test_a_few_rows_of_an_array_too_large_for_memory_are_read(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        huge(file, "x")
        assert hdf5.read(file, "x", "a", slice(7, 9)).shape == (2, *HUGE[1:])


@pytest.fixture
def nearly_full(tmp_path, monkeypatch):
    """A machine with 1 KiB of free memory."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 16000000 kB\nMemAvailable:  1 kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", meminfo)


def test_the_frames_of_a_video_must_fit(tmp_path, nearly_full):
    root = write_v2(tmp_path / "v2", {0: 6})
    with pytest.raises(ValueError, match=r"(timestamp|mp4).* is too large for memory: it needs"):
        read(root, [CAMERA])


def test_the_rows_of_a_table_must_fit(tmp_path, nearly_full):
    root = write_v2(tmp_path / "v2", {0: 100}, storage="image")
    with pytest.raises(
        ValueError,
        match=r"parquet: observation\.images\.front, .* is too large .*needs [\d.]+ KiB, 1 KiB are",
    ):
        read(root, [CAMERA])


def test_the_steps_of_a_calvin_range_must_fit_or_be_cut(tmp_path, nearly_full):
    write_calvin(tmp_path / "calvin", [(10, 19)], None)
    key = "scene_obs"
    with pytest.raises(ValueError, match=r"scene_obs of 10 steps, float64\[10, 24\] .*max_steps"):
        read_all(CalvinSource(tmp_path / "calvin", {"instruction": "go"}), [key])
    shorter = CalvinSource(tmp_path / "calvin", {"instruction": "go", "max_steps": 5})
    assert [len(episode) for episode in read_all(shorter, [key])] == [5, 5]


def test_decoded_images_must_fit(nearly_full):
    with pytest.raises(ValueError, match=r"a, decoded to uint8\[6, 16, 16, 3\] is too large"):
        decode_all(encode_png(draw(0, 6)), "a")


def test_the_limit_of_a_container_counts_too(tmp_path, monkeypatch):
    for name, text in {
        "memory.max": "5000000000\n",
        "memory.current": "4000000000\n",
        "memory.stat": "anon 3000000000\ninactive_file 500000000\n",
    }.items():
        (tmp_path / name).write_text(text)
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemAvailable: 8000000 kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", meminfo)
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert memory.free_bytes() == 1_500_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_bytes() == 8_000_000 * 1024


class Greedy:
    """A reader of somebody else's, which does not look before it reads."""

    def recordings(self):
        return []

    def keys(self):
        return {}

    def episodes(self, recording, keys):
        yield RawEpisode({"actions": np.empty(1 << 48)}, {}, "go", "a")


def test_what_does_not_fit_anywhere_else_is_named_with_its_recording(tmp_path):
    recording = Recording("one", (tmp_path / "one.bin",), 1)
    converter = RecordingConverter(make_cfg(), Greedy())
    with pytest.raises(ValueError, match=r"one\.bin \(one\) is too large for memory \(Unable to"):
        converter.convert(recording, tmp_path / "part", lambda frames: None)
