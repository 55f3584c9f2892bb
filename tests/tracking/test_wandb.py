"""Runs in Weights & Biases, offline: what its own reader finds in the files."""

import collections
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rrf.lineage import DatasetLineage, Lineage
from rrf.tracking.runs import open_trackers

CONFIG = {"seed": 1, "policy": {"type": "x:Y", "lr": 0.001}}


@pytest.fixture
def run_dir(tmp_path, monkeypatch) -> Path:
    pytest.importorskip("wandb", reason="wandb is not installed: uv pip install -e '.[wandb]'")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    (tmp_path / "r").mkdir()
    return tmp_path / "r"


def open_run(run_dir, name="r", notes=""):
    return open_trackers(["wandb"], "metaworld / demo", name, run_dir, notes=notes)


def read(start: Path, timeout_s=120.0):
    """What the transaction log of one start says: run, config, curves, files, exit code. The writer
    may still be at it for a moment.
    """
    deadline = time.monotonic() + timeout_s
    while (found := read_now(start))["exit"] is None and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def read_now(start: Path):
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    [file] = start.glob("run-*.wandb")
    log = DataStore()
    log.open_for_scan(str(file))
    found = {"config": {}, "curves": collections.defaultdict(list), "files": [], "exit": None}
    while (data := log.scan_data()) is not None:
        record = Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found["run"] = (record.run.run_id, record.run.project, record.run.display_name)
            found["notes"] = record.run.notes
        if kind == "config":
            for item in record.config.update:
                found["config"][item.key] = json.loads(item.value_json)
        if kind == "files":
            found["files"] += [item.path for item in record.files.files]
        if kind == "exit":
            found["exit"] = record.exit.exit_code
        if kind == "history":
            row = {item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            for name in row:
                if not name.startswith("_"):
                    found["curves"][name].append((row["_step"], row[name]))
    return found


def starts(run_dir: Path) -> list[Path]:
    return sorted((run_dir / "wandb").glob("offline-run-*"), key=lambda path: path.stat().st_ctime)


def test_a_run_is_recorded_whole_below_its_directory(run_dir, tmp_path):
    tracker = open_run(run_dir)
    assert tracker.run_id is None  # registration would take it for an MLflow run
    tracker.log_config(CONFIG)
    for step in range(25, 101, 25):
        tracker.log_metrics({"loss/total": 1 / step}, step)
    tracker.log_metrics({"loss/validation": 0.5, "gradient": float("nan")}, 100)
    tracker.set_tags({"kind": "sft"})
    tracker.set_tags({"checkpoint_digest": "c" * 64})
    (tmp_path / "notes.txt").write_text("fine")
    tracker.log_artifact(tmp_path / "notes.txt", "extra")
    (tmp_path / "report/videos").mkdir(parents=True)
    (tmp_path / "report/videos/0.mp4").write_text("film")
    tracker.log_artifact(tmp_path / "report")
    tracker.log_dataset(Lineage((DatasetLineage("demo", "0" * 32),)))
    (tmp_path / "notes.txt").unlink()  # the run keeps its own copy
    tracker.close("FINISHED")

    [start] = starts(run_dir)
    found = read(start)
    assert found["run"][1:] == ("metaworld-demo", "r")
    assert found["config"]["seed"] == 1
    assert found["config"]["policy"] == {"type": "x:Y", "lr": 0.001}
    assert found["config"]["lineage"] == {"datasets": [{"name": "demo", "md5": "0" * 32}]}
    tags = {"kind": "sft", "checkpoint_digest": "c" * 64, "status": "FINISHED"}
    assert found["config"]["tags"] == tags
    assert found["curves"]["loss/total"] == [(25, 0.04), (50, 0.02), (75, 1 / 75), (100, 0.01)]
    assert found["curves"]["loss/validation"] == [(100, 0.5)]
    assert [step for step, _ in found["curves"]["gradient"]] == [100]
    assert {"artifacts/extra/notes.txt", "artifacts/videos/0.mp4"} <= set(found["files"])
    assert (start / "files/artifacts/extra/notes.txt").read_text() == "fine"
    assert found["exit"] == 0


def test_a_resumed_run_continues_with_the_same_id_and_says_how_each_start_ended(run_dir):
    for status, step in (("KILLED", 1), ("FAILED", 2), ("FINISHED", 3)):
        tracker = open_run(run_dir)
        tracker.log_metrics({"loss": 1.0}, step)
        tracker.close(status)
    found = [read(start) for start in starts(run_dir)]
    assert [start["exit"] for start in found] == [255, 1, 0]
    assert [start["curves"]["loss"] for start in found] == [[(1, 1.0)], [(2, 1.0)], [(3, 1.0)]]
    assert len({start["run"][0] for start in found}) == 1


def test_a_resumed_run_keeps_its_name_and_its_notes_are_written_once(run_dir):
    for name in ("demo, seed 0, 0a1b2c3d", "another name"):
        tracker = open_run(run_dir, name, notes=f"begun as {name}")
        tracker.log_metrics({"loss": 1.0}, 1)
        tracker.close("FINISHED")
    found = [read(start) for start in starts(run_dir)]
    assert [start["run"][2] for start in found] == ["demo, seed 0, 0a1b2c3d"] * 2
    assert [start["notes"] for start in found] == ["begun as demo, seed 0, 0a1b2c3d", ""]


def test_another_run_has_another_id(run_dir, tmp_path):
    (tmp_path / "other").mkdir()
    trackers = [open_run(run_dir), open_run(tmp_path / "other")]  # at the same time, too
    for tracker in trackers:
        tracker.log_metrics({"loss": 1.0}, 1)
        tracker.close("FINISHED")
    ids = {read(starts(root)[0])["run"][0] for root in (run_dir, tmp_path / "other")}
    assert len(ids) == 2


def test_an_artifact_that_is_not_there_is_named_and_the_rest_arrives(run_dir, caplog):
    tracker = open_run(run_dir)
    tracker.log_artifact(run_dir / "nothing.txt")
    tracker.log_metrics({"loss": 1.0}, 1)
    tracker.close("FINISHED")
    assert "nothing.txt" in caplog.text
    assert read(starts(run_dir)[0])["curves"]["loss"] == [(1, 1.0)]


@pytest.mark.parametrize("records", [pytest.param(0, marks=pytest.mark.slow), 3])
def test_training_goes_on_when_the_process_that_writes_dies(run_dir, records):
    program = f"""
import logging, os, signal, time
from pathlib import Path
from rrf.tracking.runs import open_trackers
logging.basicConfig(format="%(message)s")
tracker = open_trackers(["wandb"], "train", "r", {str(run_dir)!r})
children = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
[writer] = [pid for pids in children for pid in pids]
assert "wandb-core" in Path(f"/proc/{{writer}}/comm").read_text()
os.kill(int(writer), signal.SIGKILL)
for step in range({records}):
    time.sleep(0.3)
    tracker.log_metrics({{"loss": 1.0}}, step)
tracker.close("FINISHED")
print("trained")
"""
    # With WANDB_SERVICE it would share the writer of this process.
    env = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, env=env)
    assert done.stdout.strip() == "trained"
    assert done.stderr.count("training continues without it") == 1


def test_without_a_login_an_online_run_is_refused_at_the_start(run_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))  # where a login would be kept
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(OSError, match=r"WANDB_MODE=online.*API key"):
        open_run(run_dir)


def test_a_missing_package_is_named_with_the_extra_that_brings_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match=r"'wandb' is not installed.*'\.\[wandb\]'"):
        open_trackers(["wandb"], "train", "r", tmp_path)
