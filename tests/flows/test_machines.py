"""Two machines with one and two GPUs run the flows of one Prefect server."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.flows.conftest import ROOT, Checkout, copy_checkout
from tests.waiting import is_running, wait_for

CARDS = {"a": ["0"], "b": ["0", "1"]}


@pytest.fixture(scope="module")
def server_of_two(tmp_path_factory) -> Iterator[Checkout]:
    """The first machine has the servers and a worker, the second one a worker; as the page says."""
    first = Checkout(copy_checkout(tmp_path_factory.mktemp("a")))
    file = first.root / "infra/prefect.yaml"
    described = yaml.safe_load(file.read_text())
    described["deployments"] += yaml.safe_load((ROOT / "tests/flows/standins.yaml").read_text())
    file.write_text(yaml.safe_dump(described))
    first.env |= {
        "XDG_STATE_HOME": str(first.root / "state"),
        "RRF_MACHINE": "a",
        "CUDA_VISIBLE_DEVICES": "0",
        "RRF_WORKER_LIMIT": "2",
    }
    try:
        first.run(sys.executable, "-m", "infra.services", "up")
        first.pause("tick")
        second = copy_checkout(tmp_path_factory.mktemp("b"))
        env = first.env | {
            "RRF_HOME": str(second),
            "PYTHONPATH": str(second),
            "RRF_MACHINE": "b",
            "CUDA_VISIBLE_DEVICES": "0,1",
            "PREFECT_HOME": str(second / ".rrf/prefect"),
            "PREFECT_API_AUTH_STRING": (first.root / ".rrf/login").read_text().strip(),
        }
        env.pop("RRF_WORKER_LIMIT")
        command = [sys.executable, "-m", "infra.worker"]
        with (second / "log").open("wb") as log:
            worker = subprocess.Popen(command, cwd=second, env=env, stdout=log, stderr=log)
        try:
            yield first
        finally:
            worker.terminate()
            worker.wait(timeout=120)
    finally:
        first.run(sys.executable, "-m", "infra.services", "down")


def holders(folder: Path) -> dict[str, str]:
    """Run -> the machine and the card that it holds."""
    return {
        path.name: path.read_text()
        for path in folder.iterdir()
        if not path.suffix and path.name != "end"
    }


@pytest.mark.slow
def test_a_night_gives_way_to_trainings_and_each_has_a_card_of_its_machine(server_of_two, tmp_path):
    live = server_of_two
    every = [f"{machine} {card}" for machine, cards in CARDS.items() for card in cards]
    night = live.start("holding-at-night", folder=str(tmp_path), run="night")
    wait_for(lambda: "night" in holders(tmp_path), 300)

    runs = {name: live.start("holding", folder=str(tmp_path), run=name) for name in "stuv"}
    wait_for(
        lambda: "night" not in holders(tmp_path) and len(holders(tmp_path)) == 3,
        300,
        lambda: str(holders(tmp_path)),
    )
    assert sorted(holders(tmp_path).values()) == sorted(every)
    limits = live.request("/v2/concurrency_limits/filter", {})
    assert {
        limit["name"]: (limit["limit"], limit["active_slots"])
        for limit in limits
        if limit["name"].startswith("gpu")
    } == {"gpu-a": (1, 1), "gpu-b": (2, 2)}
    assert live.state_of(night) == "Running"  # it waits

    killed = next(iter(holders(tmp_path)))
    flow_pid = int((tmp_path / f"{killed}.pid").read_text())
    os.kill(flow_pid, signal.SIGKILL)
    wait_for(lambda: not is_running(flow_pid) and killed not in holders(tmp_path), 60)
    live.wait_for_state(runs.pop(killed), "Crashed")
    wait_for(lambda: len(holders(tmp_path)) == 3, 300)  # its lease has expired after a minute
    assert sorted(holders(tmp_path).values()) == sorted(every)

    (tmp_path / "end").touch()
    for run in [night, *runs.values()]:
        live.wait_for_state(run, "Completed")
