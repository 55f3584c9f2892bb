"""Runs in SwanLab, offline: what its own reader finds in the files."""

import collections
import signal
import sys
from pathlib import Path

import pytest
import yaml

from rrf.lineage import DatasetLineage, Lineage
from rrf.tracking.runs import open_trackers

CONFIG = {"seed": 1, "policy": {"type": "x:Y", "lr": 0.001, "words": ["open"], "lora": None}}


@pytest.fixture
def run_dir(tmp_path, monkeypatch) -> Path:
    reason = "swanlab is not installed: uv pip install -e '.[swanlab]'"
    pytest.importorskip("swanlab", reason=reason)
    monkeypatch.delenv("SWANLAB_MODE", raising=False)
    (tmp_path / "r").mkdir()
    return tmp_path / "r"


def open_run(run_dir, name="r", notes=""):
    return open_trackers(["swanlab"], "metaworld / demo", name, run_dir, notes=notes)


def read(start: Path):
    """What the record file of one start says: run, curves, files, how it ended."""
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record
    from swanlab.proto.swanlab.run.v1.run_pb2 import RunState
    from swanlab.sdk.internal.core_python.store import DataStoreReader

    [file] = start.glob("run-*.swanlab")
    reader = DataStoreReader()
    reader.open(file)
    found = {"curves": collections.defaultdict(list), "files": [], "end": None}
    for data in reader:
        record = Record()
        record.ParseFromString(data)
        if record.HasField("start"):
            found["run"] = (record.start.id, record.start.project, record.start.name)
            found["notes"] = record.start.description
        if record.HasField("scalar"):
            scalar = record.scalar
            found["curves"][scalar.key].append((scalar.step, scalar.value.number))
        if record.HasField("save"):
            found["files"].append(record.save.name)
        if record.HasField("finish"):
            found["end"] = RunState.Name(record.finish.state)
    reader.close()
    return found


def starts(run_dir: Path) -> list[Path]:
    return sorted((run_dir / "swanlab").glob("run-*"))


def test_a_run_is_recorded_whole_below_its_directory(run_dir, tmp_path):
    tracker = open_run(run_dir)
    assert tracker.run_id is None  # registration would take it for an MLflow run
    tracker.log_config(CONFIG | {"init_from": None})
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
    written = yaml.safe_load((start / "files/config.yaml").read_text())
    config = {name: item["value"] for name, item in written.items()}
    tags = {"kind": "sft", "checkpoint_digest": "c" * 64, "status": "FINISHED"}
    lineage = {"datasets": [{"name": "demo", "md5": "0" * 32}]}
    assert config == CONFIG | {"init_from": "null", "tags": tags, "lineage": lineage}
    assert found["curves"]["loss/total"] == [(25, 0.04), (50, 0.02), (75, 1 / 75), (100, 0.01)]
    assert found["curves"]["loss/validation"] == [(100, 0.5)]
    assert [step for step, _ in found["curves"]["gradient"]] == [100]
    assert {"artifacts/extra/notes.txt", "artifacts/videos/0.mp4"} <= set(found["files"])
    assert (start / "files/artifacts/extra/notes.txt").read_text() == "fine"
    assert found["end"] == "RUN_STATE_FINISHED"


def test_a_resumed_run_continues_with_the_same_id_and_says_how_each_start_ended(run_dir):
    for status, step in (("KILLED", 1), ("FAILED", 2), ("FINISHED", 3)):
        tracker = open_run(run_dir)
        tracker.log_metrics({"loss": 1.0}, step)
        tracker.close(status)
    found = [read(start) for start in starts(run_dir)]
    ends = [start["end"].removeprefix("RUN_STATE_") for start in found]
    assert ends == ["ABORTED", "CRASHED", "FINISHED"]
    assert [start["curves"]["loss"] for start in found] == [[(1, 1.0)], [(2, 1.0)], [(3, 1.0)]]
    assert len({start["run"][0] for start in found}) == 1


def test_a_resumed_run_keeps_its_name_and_its_notes_are_written_once(run_dir):
    for name in ("demo, seed 0, 0a1b2c3d", "another name"):
        open_run(run_dir, name, notes=f"begun as {name}").close("FINISHED")
    found = [read(start) for start in starts(run_dir)]
    assert [start["run"][2] for start in found] == ["demo, seed 0, 0a1b2c3d"] * 2
    assert [start["notes"] for start in found] == ["begun as demo, seed 0, 0a1b2c3d", ""]


def test_notes_that_are_longer_than_swanlab_takes_are_cut(run_dir):
    open_run(run_dir, notes="n" * 2000).close("FINISHED")
    [start] = starts(run_dir)
    assert read(start)["notes"] == "n" * 1024


def test_another_run_has_another_id(run_dir, tmp_path):
    (tmp_path / "other").mkdir()
    for root in (run_dir, tmp_path / "other"):
        open_run(root).close("FINISHED")
    ids = {read(starts(root)[0])["run"][0] for root in (run_dir, tmp_path / "other")}
    assert len(ids) == 2


def test_an_artifact_that_is_not_there_is_named_and_the_rest_arrives(run_dir, caplog):
    tracker = open_run(run_dir)
    tracker.log_artifact(run_dir / "nothing.txt")
    tracker.log_metrics({"loss": 1.0}, 1)
    tracker.close("FINISHED")
    assert "nothing.txt" in caplog.text
    assert read(starts(run_dir)[0])["curves"]["loss"] == [(1, 1.0)]


def test_an_interrupt_reaches_training_and_the_run_records_until_it_is_closed(run_dir):
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append("interrupt"))
    hook = sys.excepthook
    try:
        tracker = open_run(run_dir)
        assert sys.excepthook is hook
        signal.raise_signal(signal.SIGINT)
        tracker.log_metrics({"loss": 1.0}, 1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever sets a handler meanwhile keeps it
        tracker.close("KILLED")
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == ["interrupt"]
    assert read(starts(run_dir)[0])["curves"]["loss"] == [(1, 1.0)]


def test_a_second_run_at_the_same_time_is_refused(run_dir, tmp_path):
    tracker = open_run(run_dir)
    with pytest.raises(OSError, match=r"SwanLab cannot open a run with .*=offline.*inactive"):
        open_run(tmp_path)
    tracker.close("FINISHED")


def test_without_a_login_an_online_run_is_refused_at_the_start(run_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("SWANLAB_MODE", "online")
    monkeypatch.setenv("SWANLAB_SAVE_DIR", str(tmp_path))  # where a login would be kept
    monkeypatch.delenv("SWANLAB_API_KEY", raising=False)
    with pytest.raises(OSError, match=r"SWANLAB_MODE=online.*no API key"):
        open_run(run_dir)


def test_a_missing_package_is_named_with_the_extra_that_brings_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "swanlab", None)
    with pytest.raises(ImportError, match=r"'swanlab' is not installed.*'\.\[swanlab\]'"):
        open_trackers(["swanlab"], "train", "r", tmp_path)
