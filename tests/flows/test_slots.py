"""Cards are counted, and one at a time holds each. `test_train_vla.py` has commands that run at
once, on a server.
"""

import contextlib
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL

from flows import slots
from rrf import processes
from tests.waiting import wait_for

ROOT = str(Path(slots.__file__).parents[1])


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The folder with the locks of a machine that the server does not know."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("RRF_MACHINE", tmp_path.name)
    return tmp_path / "rrf/gpus" / tmp_path.name


def test_cards_are_counted_where_no_variable_names_them(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(slots, "_DEVICES", tmp_path)
    assert (slots.cards(), slots.num_gpus()) == ([], 1)
    for name in ("nvidia4", "nvidia7", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert (slots.cards(), slots.num_gpus()) == (["0", "1"], 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert (slots.cards(), slots.num_gpus()) == ([], 1)


@pytest.mark.parametrize("variable", ["SLURM_JOB_ID", "RRF_OWN_GPUS"])
def test_a_job_of_a_cluster_has_its_cards_already_and_asks_no_server(home, monkeypatch, variable):
    monkeypatch.setenv(variable, "7")
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")  # nobody is there
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    with slots.gpu_slot() as card:
        assert (card.env, card.num_gpus, card.wanted()) == ({}, 2, "")


def test_a_machine_has_a_limit_of_its_own(home, monkeypatch):
    monkeypatch.setenv("RRF_MACHINE", "robot-lab.1")
    assert slots.gpu_limit() == "gpu-robot-lab.1"
    monkeypatch.setenv("RRF_MACHINE", "lab/1")
    with pytest.raises(ValueError, match=r"'lab/1' is no name for a machine.*RRF_MACHINE=NAME"):
        slots.gpu_limit()


def test_without_a_gpu_a_command_is_told_nothing_and_is_the_only_one(home, monkeypatch, server):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with slots.gpu_slot() as card, (home / "card-none").open("a") as file:
        assert (card.env, card.num_gpus, card.wanted()) == ({}, 0, "")
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


HOLDER = """
import contextlib, sys
from flows import slots
with contextlib.ExitStack() as held:
    print(slots._take(held, ["0", "1"], 2), flush=True)
    input()
"""


def test_the_card_of_a_killed_flow_is_free_and_its_slot_when_its_lease_has_expired(home, server):
    slots.create(slots.gpu_limit(), 3)  # of three slots, it leaves two
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        cwd=ROOT,
        env=os.environ | {"PREFECT_API_URL": str(PREFECT_API_URL.value())},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"0\n"
    with contextlib.ExitStack() as held:
        assert slots._take(held, ["0", "1"], 2) == "1"
        holder.kill()
        holder.wait()
        assert slots._take(held, ["0", "1"], 2) == "0"


def test_who_is_less_important_takes_no_card_while_another_waits(home, server):
    slots.create(slots.gpu_limit(), 3)
    taken: dict[int, str] = {}

    def take(priority: int, held: contextlib.ExitStack) -> None:
        taken[priority] = slots._take(held, ["0"], priority)

    with contextlib.ExitStack() as first, contextlib.ExitStack() as others:
        take(2, first)
        threads = []
        for priority in (3, 1):  # the less important one has waited for longer
            threads.append(threading.Thread(target=take, args=(priority, others)))
            threads[-1].start()
            waits = home / f"waiting-{priority}"
            wait_for(lambda waits=waits: waits.exists() and is_locked(waits))
        assert slots._wanted(2) == "a run of a higher priority waits for a card"
        assert slots._wanted(1) == ""
        first.close()
        threads[1].join()
        assert set(taken) == {2, 1}
        others.close()
        threads[0].join()
        assert set(taken) == {2, 1, 3}
        others.close()
    assert slots._wanted(9) == ""


def is_locked(path: Path) -> bool:
    with path.open("a") as file:
        return not slots._lock(file, fcntl.LOCK_SH)


def test_work_that_gave_its_card_back_is_begun_again(home, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    began = []

    def work(card: slots.Card) -> str:
        began.append(card)
        if len(began) < 3:
            raise processes.StoppedError("a run of a higher priority waits for a card")
        return "done"

    assert slots.on_gpu(work) == "done"
    with pytest.raises(processes.StoppedError, match="the budget"):
        slots.on_gpu(lambda card: processes.run(["sleep", "60"], stop_when=lambda: "the budget"))
