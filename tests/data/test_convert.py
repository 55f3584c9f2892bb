import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rrf.data.convert import convert
from tests.data.conftest import make_cfg, write_raw
from tests.data.test_lerobot_writer import content

SCRIPT = """
import sys
from rrf.data.convert import convert
from tests.data.conftest import make_cfg
convert(make_cfg(image_size=[64, 64]), sys.argv[1], sys.argv[2], lambda *at: print(*at, flush=True))
"""


def test_recordings_are_converted_in_alphabetical_order_with_progress(raw, cfg, tmp_path):
    seen = []
    assert convert(cfg, raw, tmp_path / "d", lambda *at: seen.append(at)) == 36
    assert seen == [
        (0, 5, "pull"),
        (1, 5, "pull"),
        (2, 5, "pull"),
        (3, 5, "push"),
        (4, 5, "push"),
        (5, 5, "done"),
    ]


def test_missing_recordings_name_the_commands_that_bring_them(cfg, tmp_path):
    with pytest.raises(ValueError, match=r"no recordings \*\.hdf5 .*dvc pull, or record them"):
        convert(cfg, tmp_path / "absent", tmp_path / "d")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_recording_leaves_the_earlier_dataset(raw, cfg, tmp_path):
    convert(cfg, raw, tmp_path / "d")
    before = content(tmp_path / "d")
    path = raw / "push.hdf5"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=r"push\.hdf5 is truncated"):
        convert(cfg, raw, tmp_path / "d")
    assert content(tmp_path / "d") == before


def start(raw, out):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(raw), str(out)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_conversion_killed_at_any_moment_is_repeated_to_the_same_bytes(tmp_path):
    raw = write_raw(tmp_path / "raw", {"pull": [40] * 20, "push": [40] * 20}, size=64)
    cfg = make_cfg(image_size=[64, 64])
    undisturbed = tmp_path / "undisturbed"
    started = time.monotonic()
    convert(cfg, raw, undisturbed)
    duration = time.monotonic() - started
    out, moments = tmp_path / "d", random.Random(7)
    num_killed = 0
    for _ in range(3):
        process = start(raw, out)
        assert process.stdout.readline().startswith("0 40")  # imported, and writing
        time.sleep(moments.uniform(0, 0.9 * duration))
        os.kill(process.pid, signal.SIGKILL)
        num_killed += process.wait() == -signal.SIGKILL
        process.stdout.close()
        assert not out.exists() or content(out) == content(undisturbed)
    assert num_killed >= 1
    convert(cfg, raw, out)
    assert content(out) == content(undisturbed)
    leftovers = [path.name for path in tmp_path.iterdir() if path.name.startswith(".tmp-")]
    assert leftovers == []


def test_a_kill_while_replacing_leaves_a_whole_dataset(raw, cfg, tmp_path):
    """The old dataset stands until the new one is complete, also if the process dies first."""
    convert(cfg, raw, tmp_path / "d")
    before = content(tmp_path / "d")
    script = SCRIPT.replace("image_size=[64, 64]", "").replace(
        "print(*at, flush=True)",
        "__import__('os').kill(__import__('os').getpid(), 9) if at[0] == 3 else 0",
    )
    command = [sys.executable, "-c", script, str(raw), str(tmp_path / "d")]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == -signal.SIGKILL
    assert content(tmp_path / "d") == before
    assert any(path.name.startswith(".tmp-d-") for path in tmp_path.iterdir())
    convert(cfg, raw, tmp_path / "d")
    assert content(tmp_path / "d") == before
    assert not any(path.name.startswith(".tmp-d-") for path in tmp_path.iterdir())
