import json
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rrf import atomic
from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import ModalityCfg, SourceCfg, VectorCfg
from rrf.data.dataset.opening import open_dataset
from rrf.data.images import decode_image
from rrf.data.raw import Recording
from tests.data.conftest import make_cfg, write_raw
from tests.data.conversion.test_lerobot_writer import content
from tests.data.jpeg_source import JpegSource, jpegs, write_jpegs  # noqa: F401 (a fixture)
from tests.waiting import wait_for

ROOT = Path(__file__).parents[3]
SCRIPT = """
import os, sys
from rrf.data.conversion.convert import convert
from tests.data.conftest import make_cfg
at = lambda progress: print(progress.episodes, progress.total, flush=True)
if __name__ == "__main__":
    convert(make_cfg(image_size=[64, 64]), sys.argv[1], sys.argv[2], at, int(sys.argv[3]))
"""


def start(raw, out, num_workers=1, script=SCRIPT, **options):
    command = [sys.executable, "-c", script, str(raw), str(out), str(num_workers)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, **options)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_recordings_are_converted_in_alphabetical_order_with_progress(raw, cfg, tmp_path):
    seen = []
    done = convert(cfg, raw, tmp_path / "d", seen.append)
    assert (done.episodes, done.frames, done.reused, done.warnings) == (5, 36, 0, [])
    assert [(p.episodes, p.total, p.recording) for p in seen] == [
        (0, 5, "pull"),
        (1, 5, "pull"),
        (2, 5, "pull"),
        (3, 5, "pull"),
        (3, 5, "push"),
        (4, 5, "push"),
        (5, 5, "push"),
        (5, 5, "done"),
    ]
    assert seen[0].remaining_s is None
    assert seen[-1].frames_per_s > 0
    assert names(tmp_path) == ["d", "raw"]


def test_missing_recordings_name_the_commands_that_bring_them(cfg, tmp_path):
    with pytest.raises(
        ValueError, match=r"no .*absent.*recordings are brought by rrf data download"
    ):
        convert(cfg, tmp_path / "absent", tmp_path / "d")
    assert names(tmp_path) == []


def test_a_key_that_no_recording_has_is_refused_before_anything_is_read(raw, tmp_path):
    cfg = make_cfg(cameras={"front": "obs/frond_image"})
    message = "toy: cameras.front: .* no key 'obs/frond_image'; did you mean 'obs/front_image'"
    with pytest.raises(ValueError, match=message):
        convert(cfg, raw, tmp_path / "d")
    assert names(tmp_path) == ["raw"]


def test_a_damaged_recording_leaves_the_earlier_dataset_and_what_is_finished(raw, cfg, tmp_path):
    convert(cfg, raw, tmp_path / "d")
    before = content(tmp_path / "d")
    path = raw / "push.hdf5"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"push\.hdf5 is truncated"):
        convert(cfg, raw, tmp_path / "d")
    assert content(tmp_path / "d") == before
    path.write_bytes(whole)
    convert(cfg, raw, tmp_path / "d")
    assert content(tmp_path / "d") == before
    assert names(tmp_path) == ["d", "raw"]


@pytest.mark.parametrize("storage", ["image", "video"])
def test_the_number_of_processes_does_not_change_a_byte(raw, tmp_path, storage):
    cfg = make_cfg(storage=storage)
    convert(cfg, raw, tmp_path / "one")
    done = convert(cfg, raw, tmp_path / "two", num_workers=2)
    assert (done.episodes, done.frames) == (5, 36)
    assert content(tmp_path / "two") == content(tmp_path / "one")
    assert names(tmp_path) == ["one", "raw", "two"]


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_conversion_killed_at_any_moment_is_repeated_to_the_same_bytes(tmp_path, num_workers):
    tasks = {name: [40] * 8 for name in ("lift", "open", "pull", "push", "turn")}
    raw = write_raw(tmp_path / "raw", tasks, size=64)
    cfg = make_cfg(image_size=[64, 64])
    undisturbed = tmp_path / "undisturbed"
    convert(cfg, raw, undisturbed)
    out, moments = tmp_path / "d", random.Random(7)
    # After each episode it waits for a word from here, so that it cannot be done before the kill.
    script = SCRIPT.replace("flush=True)", "flush=True) or sys.stdin.readline()")
    for _ in range(3):
        process = start(raw, out, num_workers, script, stdin=subprocess.PIPE)
        wanted = moments.randrange(35)
        for line in process.stdout:  # at some episode, and some moment within it
            done, total = map(int, line.split())
            if done < total:
                process.stdin.write("go on\n")
                process.stdin.flush()
            if done >= wanted:
                time.sleep(moments.uniform(0, 0.02))
                break
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        process.stdin.close()
        process.stdout.read()  # ends only when all its processes have
        process.stdout.close()
        assert not out.exists()
    convert(cfg, raw, out)
    assert content(out) == content(undisturbed)
    assert names(tmp_path) == ["d", "raw", "undisturbed"]


def test_processes_die_with_the_one_that_started_them(tmp_path):
    raw = write_raw(tmp_path / "raw", {"pull": [40] * 8, "push": [40] * 8}, size=64)
    script = SCRIPT.replace(
        "progress.total", "[c.pid for c in __import__('multiprocessing').active_children()]"
    )
    process = start(raw, tmp_path / "d", 2, script)
    children = json.loads(process.stdout.readline().split(maxsplit=1)[1])
    assert len(children) == 2
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    wait_for(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in children))


def test_what_an_interrupted_conversion_finished_is_not_done_again(raw, cfg, tmp_path):
    def stop(progress):
        if progress.recording == "push":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(cfg, raw, tmp_path / "d", stop)
    assert names(tmp_path) == ["d.parts", "raw"]
    seen = []
    done = convert(cfg, raw, tmp_path / "d", seen.append)
    assert (done.episodes, done.frames, done.reused) == (5, 36, 1)
    assert (seen[0].episodes, seen[0].recording) == (3, "push")
    convert(cfg, raw, tmp_path / "undisturbed")
    assert content(tmp_path / "d") == content(tmp_path / "undisturbed")


def test_a_part_of_another_config_or_another_recording_is_not_used(raw, cfg, tmp_path):
    def stop(progress):
        if progress.recording == "push":
            raise KeyboardInterrupt

    def interrupt(cfg):
        with pytest.raises(KeyboardInterrupt):
            convert(cfg, raw, tmp_path / "d", stop)

    interrupt(cfg)
    assert convert(make_cfg(image_size=[8, 8]), raw, tmp_path / "d").reused == 0
    interrupt(cfg)
    assert convert(make_cfg(provenance="another text"), raw, tmp_path / "d").reused == 1
    interrupt(cfg)
    write_raw(raw, {"pull": [3]})
    assert convert(cfg, raw, tmp_path / "d").frames == 3 + 15


@pytest.mark.parametrize("code", ["hdf5.py", "jpeg_source.py"])  # ours, and a plugin's
@pytest.mark.usefixtures("jpegs")
def test_a_part_made_by_other_code_is_not_used(tmp_path, monkeypatch, code):
    for name in ("a", "b"):
        write_jpegs(tmp_path / f"raw/{name}.npz", 0, 5)

    def stop(progress):
        if progress.recording == "b":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(jpeg_cfg(), tmp_path / "raw", tmp_path / "d", stop)
    sha256 = atomic.sha256
    monkeypatch.setattr(
        atomic, "sha256", lambda path: "0" if Path(path).name == code else sha256(path)
    )
    assert convert(jpeg_cfg(), tmp_path / "raw", tmp_path / "d").reused == 0


def test_a_kill_while_replacing_leaves_a_whole_dataset(raw, cfg, tmp_path):
    """The old dataset stands until the new one is complete, also if the process dies first."""
    convert(cfg, raw, tmp_path / "d")
    before = content(tmp_path / "d")
    script = SCRIPT.replace("image_size=[64, 64]", "").replace(
        "print(progress.episodes, progress.total, flush=True)",
        "os.kill(os.getpid(), 9) if progress.episodes == 4 else 0",
    )
    process = start(raw, tmp_path / "d", script=script)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    assert content(tmp_path / "d") == before
    assert any(name.startswith(".tmp-d-") for name in names(tmp_path))
    assert convert(cfg, raw, tmp_path / "d").reused == 1
    assert content(tmp_path / "d") == before
    assert names(tmp_path) == ["d", "raw"]


def test_two_processes_cannot_convert_the_same_dataset_at_once(raw, cfg, tmp_path):
    script = SCRIPT.replace("image_size=[64, 64]", "").replace(
        "flush=True)", "flush=True) or (progress.episodes == 1 and sys.stdin.readline())"
    )
    first = start(raw, tmp_path / "d", script=script, stdin=subprocess.PIPE)
    while not first.stdout.readline().startswith("1 "):
        pass
    with pytest.raises(ValueError, match=r"another process is converting or publi.*/d at this"):
        convert(cfg, raw, tmp_path / "d")
    convert(cfg, raw, tmp_path / "elsewhere")
    first.communicate("go on\n")
    assert first.returncode == 0
    assert content(tmp_path / "d") == content(tmp_path / "elsewhere")
    assert names(tmp_path) == ["d", "elsewhere", "raw"]


@pytest.mark.parametrize(
    ("storage", "num_workers", "share"),
    [
        ("image", 1, 0.1),
        pytest.param("image", 2, 0.1, marks=pytest.mark.slow),
        ("image", 1, 0.5),
        ("video", 1, 0.5),
    ],
)
def test_a_full_disk_is_reported_with_the_path_and_leaves_no_dataset(
    tmp_path, storage, num_workers, share
):
    """The largest size of a file stands in for the disk's: a tenth of the dataset is too little for
    one of the four parts, half of it for the dataset."""
    tasks = {name: [10] * 3 for name in ("lift", "open", "pull", "push")}
    raw = write_raw(tmp_path / "raw", tasks, size=64)
    cfg = make_cfg(image_size=[64, 64], storage=storage)
    convert(cfg, raw, tmp_path / "whole")
    largest = max(path.stat().st_size for path in (tmp_path / "whole").rglob("*"))
    limit = int(largest * share)
    process = start(
        raw,
        tmp_path / "d",
        num_workers,
        SCRIPT.replace("64]", f"64], storage='{storage}'"),
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},  # it would write half a file of it, too
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    _, errors = process.communicate()
    assert process.returncode == 1
    last = errors.strip().splitlines()[-1]
    assert "File too large" in last
    assert str(tmp_path / "d") in last
    assert set(names(tmp_path)) <= {"raw", "whole", "d.parts"}
    convert(cfg, raw, tmp_path / "d")
    assert content(tmp_path / "d") == content(tmp_path / "whole")


def test_a_process_that_dies_is_reported_and_nothing_is_lost(raw, cfg, tmp_path):
    def kill_one(progress):
        for child in multiprocessing.active_children():
            child.kill()

    with pytest.raises(ChildProcessError, match="was killed, perhaps for lack of memory"):
        convert(cfg, raw, tmp_path / "d", kill_one, num_workers=2)
    assert not (tmp_path / "d").exists()
    assert convert(cfg, raw, tmp_path / "d").episodes == 5


def test_what_keeps_a_process_from_beginning_is_told(raw, cfg, tmp_path, monkeypatch):
    """A plugin that only the processes load, since `convert` itself loads none."""
    information = tmp_path / "site/plugin-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Name: plugin\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[rrf.plugins]\nplugin = plugin:register\n")
    (tmp_path / "site/plugin.py").write_text(
        "from rrf.data.conversion.dataset_cfg import DatasetCfg\n\n"
        "def reader(self, path):\n    raise ValueError('the plugin is of another version')\n\n"
        "def register():\n    DatasetCfg.reader = reader\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.raises(ValueError, match="the plugin is of another version"):
        convert(cfg, raw, tmp_path / "d", num_workers=2)
    assert not (tmp_path / "d").exists()


@pytest.mark.usefixtures("jpegs")
@pytest.mark.parametrize("listed", [0, 2])
def test_a_recording_that_gives_other_episodes_than_it_lists_is_refused(
    tmp_path, monkeypatch, listed
):
    write_jpegs(tmp_path / "raw/a.npz", 0, 5)
    recordings = [Recording("a", (tmp_path / "raw/a.npz",), listed)]
    monkeypatch.setattr(JpegSource, "recordings", lambda self: recordings)
    message = rf"a\.npz \(a\) gave 1 episodes, {listed} were listed"
    with pytest.raises(ValueError, match=message):
        convert(jpeg_cfg(), tmp_path / "raw", tmp_path / "d")
    assert not (tmp_path / "d").exists()


def jpeg_cfg(**changes):
    fields = dict(
        source=SourceCfg(format="jpegs", path="x"),
        cameras={"front": "image"},
        state=VectorCfg(keys=["state"], names=["x", "y"], unit="m"),
        action=VectorCfg(keys=["action"], names=["dx", "dy", "dz"], unit="m"),
        reward=None,
        success=None,
    )
    return make_cfg(**(fields | changes))


def stored(root):
    table = pq.read_table(root / "data/chunk-000/file-000.parquet")
    return table["observation.images.front"].to_pylist()


@pytest.mark.usefixtures("jpegs")
def test_jpeg_images_are_stored_byte_for_byte(tmp_path):
    blobs = write_jpegs(tmp_path / "raw/a.npz", 0, 5) + write_jpegs(tmp_path / "raw/b.npz", 1, 3)
    convert(jpeg_cfg(), tmp_path / "raw", tmp_path / "d")
    images = stored(tmp_path / "d")
    assert [image["bytes"] for image in images] == blobs
    assert images[6]["path"] == "frame-000001.jpg"
    stats = json.loads((tmp_path / "d/meta/stats.json").read_text())
    pixels = np.stack([decode_image(blob) for blob in blobs]) / 255
    mean = np.ravel(stats["observation.images.front"]["mean"])
    np.testing.assert_allclose(mean, pixels.mean(axis=(0, 1, 2)))


@pytest.mark.usefixtures("jpegs")
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_jpeg_images_become_png_when_asked_for_or_not_rgb(tmp_path, mode):
    blobs = write_jpegs(tmp_path / "raw/a.npz", 0, 5, mode=mode)
    cfg = jpeg_cfg(jpeg="transcode" if mode == "RGB" else "keep")
    convert(cfg, tmp_path / "raw", tmp_path / "d")
    for image, blob in zip(stored(tmp_path / "d"), blobs, strict=True):
        assert image["bytes"].startswith(b"\x89PNG")
        np.testing.assert_array_equal(decode_image(image["bytes"]), decode_image(blob))


@pytest.mark.usefixtures("jpegs")
def test_mixed_action_dimensions_name_both_recordings(tmp_path):
    write_jpegs(tmp_path / "raw/a.npz", 0, 5)
    write_jpegs(tmp_path / "raw/b.npz", 0, 5, dims=4)
    action = VectorCfg(keys=["action[0:3]"], names=["dx", "dy", "dz"], unit="m")
    cfg = jpeg_cfg(action=action)
    with pytest.raises(ValueError, match=r"4 dimensions in .*b\.npz:0, but 3 in .*a\.npz:0"):
        convert(cfg, tmp_path / "raw", tmp_path / "d")


@pytest.mark.usefixtures("jpegs")
def test_warnings_of_all_recordings_are_collected(tmp_path):
    for name in ("a", "b"):
        write_jpegs(tmp_path / f"raw/{name}.npz", 0, 6)
    cfg = jpeg_cfg(source=SourceCfg(format="jpegs", path="x", fps=20))
    done = convert(cfg, tmp_path / "raw", tmp_path / "d")
    assert done.frames == 6
    first = tmp_path / "raw/a.npz"
    assert done.warnings == [
        f"one of 2 frames is kept: 20 to 10 frames/s (in 2 episodes, first in {first}:0)"
    ]


def test_the_parts_of_state_and_action_are_written_for_groot_on_request(raw, tmp_path):
    cfg = make_cfg(modality=ModalityCfg(action={"arm": [0, 2], "tool": [2, 3]}))
    convert(cfg, raw, tmp_path / "d")
    modality = json.loads((tmp_path / "d/meta/modality.json").read_text())
    assert {name: (part["start"], part["end"]) for name, part in modality["action"].items()} == {
        "arm": (0, 2),
        "tool": (2, 3),
    }
    assert list(modality["state"]) == ["x", "y", "z", "gripper"]
    assert modality["video"] == {"front": {"original_key": "observation.images.front"}}
    wrong = make_cfg(modality=ModalityCfg(action={"arm": [0, 9]}))
    with pytest.raises(ValueError, match=r"part 'arm' of action is \[0, 9\]"):
        convert(wrong, raw, tmp_path / "wrong")
    assert names(tmp_path) == ["d", "raw"]


def test_a_dataset_of_states_alone_is_converted_and_read(raw, tmp_path):
    cfg = make_cfg(cameras={}, image_size=None)
    convert(cfg, raw, tmp_path / "d")
    reader = open_dataset(tmp_path / "d", 2)
    assert (reader.num_frames, reader.schema) == (36, cfg.schema())
    batch = reader.batch(np.arange(3))
    assert batch.observation.images == {}
    assert batch.action[2, :, 0].tolist() == [pytest.approx(0.02), pytest.approx(0.03)]
    assert reader.episode(1).images == {}
