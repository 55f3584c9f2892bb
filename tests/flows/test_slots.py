"""A GPU slot names a card: flows that run at the same time train on different ones."""

import itertools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prefect.testing.utilities import prefect_test_harness

from flows import commands, progress, slots

ROOT = str(Path(slots.__file__).parents[1])


@pytest.fixture(scope="module")
def server():
    with prefect_test_harness(server_startup_timeout=120):
        yield


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    (tmp_path / "seen.py").write_text(
        "import os, sys, time\n"
        "start = time.time()\n"
        "time.sleep(1)\n"
        "print(os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ.get('CUDA_DEVICE_ORDER'),\n"
        "      start, time.time())\n"
    )
    return tmp_path


def seen_by_command(step: str) -> tuple[str, str, float, float]:
    """The card and the order of cards that a command of a flow sees, and when it ran."""
    with progress.listening(lambda step, line: None), slots.gpu_slot() as card:
        (line,) = commands.module(step, "seen", env=card)
    gpu, order, start, end = line.split()
    return gpu, order, float(start), float(end)


def test_commands_of_flows_that_run_at_once_see_different_cards(home, monkeypatch, server):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-5ab2/1")
    assert slots.num_gpus() == 2
    with ThreadPoolExecutor(4) as threads:
        seen = list(threads.map(seen_by_command, "abcd"))
    assert {gpu for gpu, *_ in seen} == {"3", "GPU-5ab2/1"}
    assert {order for _, order, *_ in seen} == {"PCI_BUS_ID"}
    for gpu in ("3", "GPU-5ab2/1"):  # never two on the same card
        times = sorted((start, end) for name, _, start, end in seen if name == gpu)
        assert all(end < start for (_, end), (start, _) in itertools.pairwise(times))


def test_cards_are_counted_where_no_variable_names_them(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(slots, "_DEVICES", tmp_path)
    assert (slots.cards(), slots.num_gpus()) == ([], 1)
    for name in ("nvidia4", "nvidia7", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert (slots.cards(), slots.num_gpus()) == (["0", "1"], 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert (slots.cards(), slots.num_gpus()) == ([], 1)


def test_without_a_gpu_a_command_is_told_nothing(home, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with slots._card() as name:
        assert name is None


def test_the_card_of_a_killed_flow_is_free(home, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    code = (
        "from flows import slots\n"
        "with slots._card() as name:\n"
        "    print(name, flush=True)\n"
        "    input()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"0\n"
    with slots._card() as name:
        assert name == "1"
        holder.kill()
        holder.wait()
        with slots._card() as other:
            assert other == "0"
