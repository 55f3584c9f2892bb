"""Flow runs as jobs of a real Slurm of one node, with a card that is /dev/null."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from infra.slurm import SlurmCfg, load
from tests.flows import slurm_cluster
from tests.flows.conftest import Checkout, copy_checkout
from tests.waiting import wait_for

FLOW = """
import os, pathlib, signal, time
from prefect import flow, get_run_logger

@flow(name="stand-in", persist_result=True)
def stand_in(mark: str, waits: bool = False) -> str:
    folder = pathlib.Path("marks", mark)
    folder.mkdir(parents=True, exist_ok=True)
    begun = len(list(folder.glob("begun-*")))
    cards = os.environ.get("CUDA_VISIBLE_DEVICES")
    (folder / f"begun-{begun}").write_text(f"{os.environ['SLURM_JOB_ID']} {cards}")
    get_run_logger().warning("a line of the log of %s", mark)
    while waits and not (folder / "go").exists():
        time.sleep(0.2)
    return mark
"""
DEPLOYMENTS = [
    {"name": name, "entrypoint": "flows/stand_in.py:stand_in", "tags": tags}
    | {"work_pool": {"name": "slurm"}}
    for name, tags in (("stand-in", []), ("with-card", ["gpu"]))
]


class Cluster:
    """A checkout whose server runs, and a cluster that its flows run on."""

    def __init__(self, checkout: Checkout, slurm: dict[str, str]):
        self.checkout, self.slurm = checkout, slurm
        checkout.env |= {key: slurm[key] for key in ("PATH", "SLURM_CONF")}
        line = (checkout.root / ".rrf/login").read_text().strip()
        checkout.env["PREFECT_API_AUTH_STRING"] = line
        self.worker: subprocess.Popen | None = None

    def work(self) -> None:
        """Start the process that submits."""
        log = (self.checkout.root / ".rrf/slurm.log").open("ab")
        command = [sys.executable, "-m", "infra.slurm"]
        env, root = self.checkout.env, self.checkout.root
        self.worker = subprocess.Popen(command, cwd=root, env=env, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self.worker
        self.worker.kill()
        self.worker.wait()

    def log(self) -> str:
        files = [self.checkout.root / ".rrf/slurm.log"]
        files += self.checkout.root.glob(".rrf/logs/slurm-*.log")
        return "\n".join(file.read_text()[-1500:] for file in files)

    def start(self, deployment: str, mark: str, waits: bool = False) -> str:
        found = self.checkout.request(f"/deployments/name/stand-in/{deployment}")
        body = {"parameters": {"mark": mark, "waits": waits}, "state": {"type": "SCHEDULED"}}
        return self.checkout.request(f"/deployments/{found['id']}/create_flow_run", body)["id"]

    def state(self, run: str) -> dict:
        return self.checkout.request(f"/flow_runs/{run}")["state"]

    def wait_for_state(self, run: str, *names: str) -> dict:
        wait_for(
            lambda: self.state(run)["name"] in names,
            600,
            lambda: f"{self.state(run)}\n{self.log()}",
        )
        return self.state(run)

    def lines(self, run: str) -> list[str]:
        """What the log of a run says so far, as the server has it."""
        wanted = {"logs": {"flow_run_id": {"any_": [run]}}}
        return [line["message"] for line in self.checkout.request("/logs/filter", wanted)]

    def job(self, run: str) -> str:
        """The number of the job of a run, once it has one."""
        wait_for(
            lambda: self.checkout.request(f"/flow_runs/{run}")["infrastructure_pid"], 300, self.log
        )
        return self.checkout.request(f"/flow_runs/{run}")["infrastructure_pid"]

    def jobs(self, run: str) -> list[str]:
        """The numbers of all jobs of a run that Slurm knows."""
        words = ["squeue", "-h", "--states=all", "-o", "%i", f"--name=rrf-{run}"]
        return sorted(self.tell(*words).split(), key=int)

    def tell(self, *words: str) -> str:
        """Output of a command of Slurm's."""
        done = subprocess.run(words, env=self.slurm, capture_output=True, text=True, check=True)
        return done.stdout

    def begun(self, mark: str) -> list[str]:
        return sorted(p.name for p in (self.checkout.root / "marks" / mark).glob("begun-*"))

    def wait_for_begun(self, mark: str, times: int = 1) -> None:
        wait_for(lambda: len(self.begun(mark)) >= times, 600, self.log)

    def go(self, mark: str) -> None:
        (self.checkout.root / "marks" / mark / "go").touch()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    with slurm_cluster.running(tmp_path_factory.mktemp("slurm")) as slurm:
        checkout = Checkout(copy_checkout(tmp_path_factory.mktemp("checkout")))
        (checkout.root / "flows/stand_in.py").write_text(FLOW)
        file = checkout.root / "infra/prefect.yaml"
        described = yaml.safe_load(file.read_text())
        file.write_text(yaml.safe_dump(described | {"deployments": DEPLOYMENTS}))
        (checkout.root / "infra/slurm.yaml").write_text("options: [--time=60]\npoll_s: 1\n")
        try:
            checkout.run(sys.executable, "-m", "infra.services", "up")
            one = Cluster(checkout, slurm)
            one.work()
            yield one
            one.kill()
        finally:
            checkout.run(sys.executable, "-m", "infra.services", "down")


@pytest.mark.slow
def test_a_run_is_a_job_with_its_log_and_with_a_card_if_its_deployment_has_the_tag(cluster):
    plain, with_card = cluster.start("stand-in", "plain"), cluster.start("with-card", "card")
    for run, mark, card in ((plain, "plain", "None"), (with_card, "card", "0")):
        cluster.wait_for_state(run, "Completed")
        said = (cluster.checkout.root / "marks" / mark / "begun-0").read_text()
        assert said == f"{cluster.job(run)} {card}"
        wait_for(
            lambda run=run, mark=mark: f"a line of the log of {mark}" in cluster.lines(run),
            found=lambda run=run: str(cluster.lines(run)),
        )
        assert (cluster.checkout.root / f".rrf/logs/slurm-{cluster.job(run)}.log").is_file()


@pytest.mark.slow
def test_a_queued_run_waits_and_is_cancelled_on_either_side(cluster):
    holder = cluster.start("with-card", "holder", waits=True)
    cluster.wait_for_begun("holder")
    here, there = (cluster.start("with-card", mark, waits=True) for mark in ("here", "there"))
    for run in (here, there):
        assert cluster.wait_for_state(run, "Queued")["type"] == "PENDING"
    cluster.checkout.run("prefect", "flow-run", "cancel", here)
    cluster.wait_for_state(here, "Cancelled")
    cluster.tell("scancel", cluster.job(there))
    assert "scancel" in cluster.wait_for_state(there, "Cancelled")["message"]
    states = cluster.tell("squeue", "-h", "--states=all", "-o", "%T", f"--jobs={cluster.job(here)}")
    assert states.strip() == "CANCELLED"
    cluster.go("holder")
    cluster.wait_for_state(holder, "Completed")
    assert cluster.begun("here") == cluster.begun("there") == []


@pytest.mark.slow
def test_a_running_run_is_cancelled_on_either_side(cluster):
    here, there = (
        cluster.start("stand-in", mark, waits=True) for mark in ("run-here", "run-there")
    )
    cluster.wait_for_begun("run-here")
    cluster.wait_for_begun("run-there")
    cluster.checkout.run("prefect", "flow-run", "cancel", here)
    cluster.wait_for_state(here, "Cancelled")
    cluster.tell("scancel", cluster.job(there))
    cluster.wait_for_state(there, "Cancelled")
    wait_for(lambda: not cluster.tell("squeue", "-h", "-o", "%i").split(), 300, cluster.log)


@pytest.mark.slow
def test_who_submits_may_be_killed_and_finds_its_jobs_again(cluster):
    run = cluster.start("stand-in", "orphan", waits=True)
    cluster.wait_for_begun("orphan")
    cluster.kill()
    waiting = cluster.start("stand-in", "later")  # nobody submits it now
    # As if it had been killed between taking a run and submitting it.
    taken = cluster.start("stand-in", "taken")
    cluster.checkout.request(f"/flow_runs/{taken}/set_state", {"state": {"type": "PENDING"}})
    cluster.go("orphan")
    cluster.wait_for_state(run, "Completed")  # the job needs nobody
    cluster.work()
    for each in (waiting, taken):
        cluster.wait_for_state(each, "Completed")
        assert len(cluster.jobs(each)) == 1
    assert cluster.begun("orphan") == ["begun-0"]


@pytest.mark.slow
def test_a_requeued_job_runs_its_run_again(cluster):
    run = cluster.start("stand-in", "again", waits=True)
    cluster.wait_for_begun("again")
    cluster.tell("scontrol", "requeue", cluster.job(run))
    assert "waits again" in cluster.wait_for_state(run, "Queued")["message"]
    cluster.tell("scontrol", "release", cluster.job(run))
    cluster.wait_for_begun("again", times=2)
    cluster.go("again")
    cluster.wait_for_state(run, "Completed")
    assert cluster.jobs(run) == [cluster.job(run)]


@pytest.mark.slow
def test_a_run_that_was_cancelled_can_be_tried_again(cluster):
    run = cluster.start("stand-in", "retried", waits=True)
    cluster.wait_for_begun("retried")
    first = cluster.job(run)
    cluster.tell("scancel", first)
    cluster.wait_for_state(run, "Cancelled")
    retry = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}, "force": True}
    cluster.checkout.request(f"/flow_runs/{run}/set_state", retry)
    cluster.wait_for_begun("retried", times=2)
    cluster.go("retried")
    cluster.wait_for_state(run, "Completed")
    assert cluster.jobs(run) == [first, cluster.job(run)]


@pytest.mark.slow
def test_a_job_that_ends_without_its_run_says_why(cluster):
    run = cluster.start("stand-in", "killed", waits=True)
    cluster.wait_for_begun("killed")
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            is_of_job = f"SLURM_JOB_ID={cluster.job(run)}\0".encode() in path.read_bytes()
        except OSError:
            continue
        if is_of_job:
            os.kill(int(path.parent.name), signal.SIGKILL)
    state = cluster.wait_for_state(run, "Crashed")
    assert "of Slurm ended: it failed" in state["message"] or "exited" in state["message"]


@pytest.mark.slow
def test_options_that_slurm_refuses_are_told_in_the_run(cluster):
    file = cluster.checkout.root / "infra/slurm.yaml"
    before = file.read_text()
    cluster.kill()
    file.write_text("options: [--partition=none]\npoll_s: 1\n")
    cluster.work()
    try:
        state = cluster.wait_for_state(cluster.start("stand-in", "refused"), "Crashed")
        assert state["message"].startswith("not submitted: sbatch: Batch job submission failed")
        assert "partition" in state["message"]
    finally:
        file.write_text(before)
        cluster.kill()
        cluster.work()


def test_the_file_of_options_is_checked(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    assert load() == SlurmCfg()
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra/slurm.yaml").write_text("options: [--partition=a]\ngpu_options: []\n")
    assert (load().options, load().gpu_options) == (["--partition=a"], [])
    (tmp_path / "infra/slurm.yaml").write_text("option: [--partition=a]\n")
    with pytest.raises(ValueError, match=r"slurm\.yaml: .*option"):
        load()


def test_without_slurm_one_line_says_what_is_missing(tmp_path):
    env = {**os.environ, "RRF_HOME": str(tmp_path), "PATH": str(tmp_path)}
    command = [sys.executable, "-m", "infra.slurm"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("error: sbatch, squeue, scancel: not")
