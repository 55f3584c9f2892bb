"""Decoded images in a mapped file: written once, whole or not at all, never stale."""

import errno
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.dataset.decoded_cache import mapped_images
from rrf.data.dataset.opening import open_dataset
from tests.data.conversion.test_lerobot_writer import make_episode, make_schema
from tests.waiting import wait_for

ROOT = Path(__file__).parents[3]
SHAPE = (5, 2, 3, 3)
FORK = multiprocessing.get_context("fork")


def pixels(frames):
    """Every pixel of frame n is n."""
    return np.broadcast_to(frames.astype(np.uint8)[:, None, None, None], (len(frames), *SHAPE[1:]))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_images_are_decoded_once_and_cannot_be_written(tmp_path):
    calls = []

    def decode(frames):
        calls.append(len(frames))
        return pixels(frames)

    for _ in range(2):
        images = mapped_images(tmp_path, "front", "v1", "all", SHAPE, decode)
        assert images[:, 1, 2, 0].tolist() == [0, 1, 2, 3, 4]
        assert not images.flags.writeable
    assert calls == [5]
    assert names(tmp_path) == ["front-v1-all.u8"]


def test_another_version_replaces_the_file_of_that_name_only(tmp_path):
    old = mapped_images(tmp_path, "front", "v1", "all", SHAPE, pixels)
    mapped_images(tmp_path, "wrist", "v1", "all", SHAPE, pixels)
    new = mapped_images(tmp_path, "front", "v2", "all", SHAPE, lambda frames: pixels(frames + 10))
    assert names(tmp_path) == ["front-v2-all.u8", "wrist-v1-all.u8"]
    assert (old[:, 0, 0, 0].tolist(), new[:, 0, 0, 0].tolist()) == (
        [0, 1, 2, 3, 4],
        [10, 11, 12, 13, 14],
    )


def test_another_version_replaces_every_part(tmp_path):
    for part in ("training", "validation"):
        mapped_images(tmp_path, "front", "v1", part, SHAPE, pixels)
    assert names(tmp_path) == ["front-v1-training.u8", "front-v1-validation.u8"]
    mapped_images(tmp_path, "front", "v2", "other", SHAPE, pixels)
    assert names(tmp_path) == ["front-v2-other.u8"]


def test_a_name_does_not_lead_out_of_the_folder(tmp_path):
    for name in ("../../front", "wrist/[left]*"):
        for version in ("v1", "v2"):
            mapped_images(tmp_path / "cache", name, version, "all", SHAPE, pixels)
    assert names(tmp_path) == ["cache"]
    assert names(tmp_path / "cache") == [
        "..%2F..%2Ffront-v2-all.u8", "wrist%2F%5Bleft%5D%2A-v2-all.u8",
    ]  # fmt: skip


def test_a_truncated_file_is_written_again(tmp_path):
    mapped_images(tmp_path, "front", "v1", "all", SHAPE, pixels)
    path = tmp_path / "front-v1-all.u8"
    path.write_bytes(path.read_bytes()[:-1])
    images = mapped_images(tmp_path, "front", "v1", "all", SHAPE, pixels)
    assert images[4, 1, 2, 2] == 4


def test_of_processes_that_want_the_same_file_one_writes_it(tmp_path):
    log, results, all_there = tmp_path / "log", FORK.Queue(), FORK.Barrier(3)

    def decode(frames):
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(0.5)  # the others come to the lock meanwhile; one that is late finds the file
        return pixels(frames)

    def want():
        all_there.wait(120)
        results.put(int(mapped_images(tmp_path / "cache", "a", "v1", "all", SHAPE, decode).sum()))

    processes = [FORK.Process(target=want) for _ in range(3)]
    for process in processes:
        process.start()
    sums = [results.get(timeout=300) for _ in processes]
    for process in processes:
        process.join()
    assert sums == [(0 + 1 + 2 + 3 + 4) * 18] * 3
    assert len(log.read_text().splitlines()) == 1
    assert names(tmp_path / "cache") == ["a-v1-all.u8"]


def test_a_killed_process_leaves_nothing_that_the_next_one_does_not_replace(tmp_path):
    folder = tmp_path / "cache"

    def stall(frames):
        (tmp_path / "begun").touch()
        time.sleep(600)

    process = FORK.Process(target=mapped_images, args=(folder, "a", "v1", "all", SHAPE, stall))
    process.start()
    wait_for((tmp_path / "begun").exists)
    assert names(folder) == [".tmp-a-v1-all.u8"]
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert mapped_images(folder, "a", "v1", "all", SHAPE, pixels)[3, 0, 0, 0] == 3
    assert names(folder) == ["a-v1-all.u8"]


def test_a_frame_that_cannot_be_decoded_leaves_nothing(tmp_path):
    def fail(frames):
        raise ValueError("episode 3 is damaged")

    with pytest.raises(ValueError, match="episode 3 is damaged"):
        mapped_images(tmp_path, "front", "v1", "all", SHAPE, fail)
    assert names(tmp_path) == []


def test_a_disk_that_is_too_small_is_refused_before_anything_is_decoded(tmp_path):
    size = 1 << 14
    num_frames = shutil.disk_usage(tmp_path).free // (size * size * 3) + 1000
    with pytest.raises(OSError, match=r"no space left to keep decoded images: they need \d+") as e:
        mapped_images(tmp_path, "front", "v1", "all", (num_frames, size, size, 3), pixels)
    assert e.value.errno == errno.ENOSPC
    assert e.value.filename == str(tmp_path)
    assert names(tmp_path) == []


@pytest.fixture
def root(tmp_path):
    episodes = [make_episode(number, 4) for number in range(3)]
    write_dataset(tmp_path / "d", make_schema(), episodes, "video")
    return tmp_path / "d"


def read(root, cache, **options):
    reader = open_dataset(root, 1, cache_bytes=0, cache_dir=cache, **options)
    return reader.batch(np.arange(reader.num_frames)).observation.images["front"]


def test_a_reader_notices_that_its_dataset_was_replaced(root, tmp_path):
    cache = tmp_path / "cache"
    first = read(root, cache)
    before = names(cache)
    write_dataset(root, make_schema(), [make_episode(n + 5, 4) for n in range(3)], "video")
    second = read(root, cache)
    assert not (first == second).all()
    np.testing.assert_array_equal(
        second, open_dataset(root, 1).batch(np.arange(12)).observation.images["front"]
    )
    assert len(names(cache)) == 1
    assert names(cache) != before


def test_nothing_is_left_of_a_dataset_that_has_grown(root, tmp_path):
    cache = tmp_path / "cache"
    read(root, cache)
    read(root, cache, episodes=[1])
    write_dataset(root, make_schema(), [make_episode(n, 4) for n in range(4)], "video")
    assert len(read(root, cache)) == 16
    assert len(names(cache)) == 1


def test_what_was_opened_before_a_replacement_is_not_kept_for_after_it(root, tmp_path):
    cache = tmp_path / "cache"
    opened = open_dataset(root, 1, cache_bytes=0, cache_dir=cache)
    write_dataset(root, make_schema(), [make_episode(n + 5, 4) for n in range(3)], "video")
    opened.batch(np.arange(12))  # of the old table and the new files
    before = names(cache)
    read(root, cache)
    assert len(names(cache)) == 1
    assert names(cache) != before


def test_a_card_or_statistics_beside_the_data_do_not_make_the_cache_stale(root, tmp_path):
    cache = tmp_path / "cache"
    read(root, cache)
    before = names(cache)
    (root / "README.md").write_text("a dataset")
    (root / "norm_stats.json").write_text("{}")
    read(root, cache)
    assert names(cache) == before


def test_training_and_validation_episodes_have_a_file_each(root, tmp_path):
    cache = tmp_path / "cache"
    training, validation = read(root, cache, episodes=[0, 2]), read(root, cache, episodes=[1])
    assert (len(training), len(validation)) == (8, 4)
    assert len(names(cache)) == 2
    np.testing.assert_array_equal(read(root, cache, episodes=[0, 2]), training)
    assert len(names(cache)) == 2


DISK_FULL = """
import sys
from pathlib import Path
import numpy as np
from rrf.data.dataset.decoded_cache import mapped_images

disk = Path(sys.argv[1])

def decode(frames):
    (disk / "other").write_bytes(bytes(400_000))  # someone else needs the space meanwhile
    return np.zeros((len(frames), 100, 100, 3), np.uint8)

try:
    mapped_images(disk / "cache", "front", "v1", "all", (25, 100, 100, 3), decode)
except OSError as error:
    print(error)
print(sorted(path.name for path in (disk / "cache").iterdir()))
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare, of util-linux")
def test_a_disk_that_fills_up_meanwhile_is_told_and_nothing_is_left(tmp_path):
    mount = f"mount -t tmpfs -o size=1m none {tmp_path} || exit 77"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
         f"{mount}; exec {sys.executable} - {tmp_path}"],
        input=DISK_FULL, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    told, left = done.stdout.splitlines()
    assert "no space left to keep decoded images: they need 750000 bytes" in told
    assert told.endswith("/cache'")
    assert left == "[]"
