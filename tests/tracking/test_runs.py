"""Runs in MLflow and TensorBoard: what is recorded, resuming, and a store that goes away."""

import json
import logging
import math
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from rrf.mlflow_store import store
from rrf.mlflow_store.store import metric_history
from rrf.registry.lineage_sources import collect_lineage
from rrf.run_directory import UNSENT
from rrf.tracking.mlflow_run import MLflowTracker, flatten
from rrf.tracking.runs import Trackers, open_trackers
from tests.registry.conftest import add_dataset, write_json
from tests.waiting import wait_for

CONFIG = {"seed": 1, "policy": {"type": "x:Y", "words": ["open", "drawer"] * 100, "lr": 0.001}}


@pytest.fixture
def run_dir(home):
    (home / ".rrf/runs/r").mkdir(parents=True)
    return home / ".rrf/runs/r"


def open_mlflow(run_dir, run_id=None, **speed) -> MLflowTracker:
    return MLflowTracker(
        "train", "r", run_dir, run_id, **{"interval_s": 0.05, "retry_s": 0.2} | speed
    )


def id_of(tracker: MLflowTracker | Trackers) -> str:
    assert tracker.run_id is not None
    return tracker.run_id


def test_a_run_is_recorded_whole(home, run_dir):
    tracker = open_trackers(["mlflow", "tensorboard"], "train", "r", run_dir)
    tracker.log_config(CONFIG)
    for step in range(1, 1201):
        tracker.log_metrics({"loss/total": 1 / step, "grad": 2.0}, step)
    tracker.set_tags({"kind": "sft"})
    (run_dir / "notes.txt").write_text("fine")
    tracker.log_artifact(run_dir / "notes.txt", "extra")
    tracker.log_dataset(collect_lineage("demo"))
    tracker.close("FINISHED")

    assert tracker.run_id is not None
    client = store.connect()
    run = client.get_run(id_of(tracker))
    assert (run.info.status, run.info.run_name) == ("FINISHED", "r")
    assert run.info.artifact_uri.startswith("rrf-artifacts:/train/")
    assert run.data.params["policy.lr"] == "0.001"
    assert len(run.data.params["policy.words"]) < 510
    assert "in config.yaml" in run.data.params["policy.words"]
    assert run.data.tags["kind"] == "sft"
    assert run.data.tags["lineage.git_dirty"] == "false"
    assert {f.path for f in client.list_artifacts(id_of(tracker))} == {
        *("config.yaml", "extra", "dataset")
    }
    (card,) = client.list_artifacts(id_of(tracker), "dataset")
    assert card.path == "dataset/README.md"
    curve = metric_history(id_of(tracker), ["loss/total"])["loss/total"]
    assert len(curve) == 1200
    assert curve[1] == (2, 0.5)
    assert not (run_dir / UNSENT).exists()


def test_a_tracker_that_cannot_open_leaves_no_run_of_those_opened_before(home, run_dir):
    (run_dir / "tensorboard").write_text("a file where a directory belongs")
    with pytest.raises(OSError, match="tensorboard"):
        open_trackers(["mlflow", "tensorboard"], "train", "r", run_dir)
    client = store.connect()
    assert client.search_runs([store.experiment_id(client, "train")]) == []


def test_mlflow_is_connected_beside_training_and_its_id_written_down_then(home, run_dir):
    write_json(run_dir / "run.json", {"run_id": None, "inputs": {"config": "01ab"}})
    tracker = open_mlflow(run_dir)
    tracker.log_config(CONFIG)
    assert tracker.run_id is None
    tracker.log_metrics({"loss": 1.0}, 1)  # only now it connects
    wait_for(lambda: tracker.run_id is not None)
    wait_for(lambda: json.loads((run_dir / "run.json").read_text())["run_id"] == tracker.run_id)
    assert json.loads((run_dir / "run.json").read_text())["inputs"] == {"config": "01ab"}
    tracker.close("FINISHED")
    assert store.connect().get_run(id_of(tracker)).data.params["policy.lr"] == "0.001"


def test_a_run_without_metrics_is_recorded_when_it_ends_or_takes_long(home, run_dir):
    failed = open_mlflow(run_dir)
    failed.set_tags({"kind": "sft"})
    failed.close("FAILED")
    assert failed.run_id is not None
    slow = open_mlflow(run_dir, connect_s=0.05)
    slow.log_config(CONFIG)
    wait_for(lambda: slow.run_id is not None)
    slow.close("KILLED")
    runs = [store.connect().get_run(id_of(tracker)) for tracker in (failed, slow)]
    assert [run.info.status for run in runs] == ["FAILED", "KILLED"]
    assert runs[0].data.tags["kind"] == "sft"


def test_a_run_that_was_stopped_before_its_first_metrics_is_not_recorded(home, run_dir):
    tracker = open_mlflow(run_dir)
    tracker.log_config(CONFIG)
    tracker.close("KILLED")
    client = store.connect()
    assert client.search_runs([store.experiment_id(client, "train")]) == []
    assert not (run_dir / UNSENT).exists()


def test_the_dataset_of_a_run_is_found_by_its_md5_and_leads_back_to_the_files(home, run_dir):
    import mlflow.data

    tracker = open_mlflow(run_dir)
    tracker.log_dataset(collect_lineage("demo"))
    tracker.close("FINISHED")
    client = store.connect()
    experiment = store.experiment_id(client, "train")
    found = client.search_runs(
        [experiment], "dataset.digest = '0123456789abcdef0123456789abcdef.dir'"
    )
    assert [run.info.run_id for run in found] == [tracker.run_id]
    dataset = found[0].inputs.dataset_inputs[0].dataset
    source = mlflow.data.get_source(dataset).to_dict()
    assert source["path"] == "datasets/demo"
    assert len(source["revision"]) == 40
    assert json.loads(dataset.profile) == {"num_episodes": 7, "num_frames": 91}


def test_every_dataset_of_a_run_is_an_input_with_its_card(home, run_dir):
    add_dataset(home, "lab", "77.dir")
    tracker = open_mlflow(run_dir)
    tracker.log_dataset(collect_lineage("demo", "lab"))
    tracker.close("FINISHED")
    assert tracker.run_id is not None
    client = store.connect()
    for digest in ("0123456789abcdef0123456789abcdef.dir", "77.dir"):
        (found,) = client.search_runs(
            [store.experiment_id(client, "train")], f"dataset.digest = '{digest}'"
        )
        assert found.info.run_id == tracker.run_id
    inputs = {one.dataset.name: one.dataset for one in found.inputs.dataset_inputs}
    assert json.loads(inputs["lab"].profile) == {"num_episodes": 3, "num_frames": 9}
    assert json.loads(inputs["demo"].source)["revision"] == found.data.tags["lineage.git_revision"]
    assert found.data.tags["lineage.num_frames"] == "100"
    assert "lineage.datasets" not in found.data.tags
    for name in ("demo", "lab"):
        card = client.download_artifacts(tracker.run_id, f"dataset/{name}/README.md", str(home))
        assert Path(card).read_text() == f"# {name}\n"


def test_tensorboard_files_hold_scalars_and_text(home, run_dir):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracker = open_trackers(["tensorboard"], "train", "r", run_dir)
    assert tracker.run_id is None
    tracker.log_config(CONFIG)
    tracker.log_metrics({"loss/total": 0.25}, 7)
    tracker.close("FINISHED")
    events = EventAccumulator(str(run_dir / "tensorboard")).Reload()
    (scalar,) = events.Scalars("loss/total")
    assert (scalar.step, scalar.value) == (7, 0.25)
    text = events.Tensors(
        "config/text_summary" if "config/text_summary" in events.Tags()["tensors"] else "config"
    )
    assert b"seed: 1" in text[0].tensor_proto.string_val[0]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_full_disk_ends_tensorboard_with_one_warning_and_not_training(
    run_dir, monkeypatch, caplog
):
    from tensorboard.summary.writer.record_writer import RecordWriter

    def full(*_):
        raise OSError("No space left on device")

    tracker = open_trackers(["tensorboard"], "train", "r", run_dir)
    monkeypatch.setattr(RecordWriter, "write", full)
    for step in range(30):  # the writer's thread fails at some time
        tracker.log_metrics({"loss": 1.0}, step)
        time.sleep(0.01)
    tracker.close("FINISHED")
    assert caplog.text.count("No space left on device") == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_removed_tensorboard_directory_keeps_no_other_tracker_open(home, run_dir, caplog):
    tracker = open_trackers(["tensorboard", "mlflow"], "train", "r", run_dir)
    shutil.rmtree(run_dir / "tensorboard")
    tracker.close("FINISHED")
    assert "TensorBoard is lost" in caplog.text
    assert store.connect().get_run(id_of(tracker)).info.status == "FINISHED"


def test_every_tracker_is_closed_even_if_one_raises():
    closed = []

    class Recorded:
        def close(self, status):
            closed.append(status)

    class Broken(Recorded):
        def close(self, status):
            super().close(status)
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        Trackers([Broken(), Recorded()]).close("FAILED")
    assert closed == ["FAILED", "FAILED"]


def test_a_resumed_run_continues_in_the_same_mlflow_run(run_dir):
    first = open_mlflow(run_dir)
    first.log_config(CONFIG)
    first.log_metrics({"loss": 1.0}, 1)
    first.close("KILLED")
    second = open_mlflow(run_dir, first.run_id)
    second.log_config(CONFIG)
    second.log_metrics({"loss": 0.5}, 2)
    second.close("FINISHED")
    assert second.run_id == first.run_id
    assert metric_history(id_of(first))["loss"] == [(1, 1.0), (2, 0.5)]
    assert store.connect().get_run(id_of(first)).info.status == "FINISHED"


def test_a_run_the_store_does_not_have_is_replaced_by_a_new_one(run_dir, caplog):
    tracker = open_mlflow(run_dir, "0" * 32)
    tracker.close("FINISHED")
    assert tracker.run_id != "0" * 32
    assert "cannot be continued" in caplog.text


def test_an_outage_neither_stops_nor_slows_training_and_loses_nothing(home, run_dir, caplog):
    caplog.set_level(logging.WARNING)
    tracker = open_mlflow(run_dir)
    holder = sqlite3.connect(home / ".rrf/mlflow.db")
    holder.execute("BEGIN EXCLUSIVE")  # nobody else can write, as when a disk or server hangs
    start = time.perf_counter()
    for step in range(100):
        tracker.log_metrics({"loss": float(step)}, step)
    assert time.perf_counter() - start < 60  # SQLite alone waits 5 s before it gives up, each time
    wait_for(lambda: "training continues without it" in caplog.text)
    holder.rollback()
    holder.close()
    tracker.close("FINISHED")
    assert len(metric_history(id_of(tracker))["loss"]) == 100
    assert store.connect().get_run(id_of(tracker)).info.status == "FINISHED"


def test_what_could_not_be_sent_is_kept_and_sent_when_the_run_is_resumed(home, run_dir, caplog):
    tracker = open_mlflow(run_dir, close_s=0.5)
    holder = sqlite3.connect(home / ".rrf/mlflow.db")
    holder.execute("BEGIN EXCLUSIVE")
    tracker.log_config(CONFIG)
    tracker.log_metrics({"loss": 3.0, "kl": float("nan")}, 5)
    tracker.log_artifact(home / "dvc.lock")
    tracker.close("FAILED")
    assert tracker.run_id is None  # the store never answered
    assert "MLflow did not come back: 6 records kept" in caplog.text
    kinds = [json.loads(line)["kind"] for line in (run_dir / UNSENT).read_text().splitlines()]
    assert kinds == ["params", "text", "metric", "metric", "artifact", "end"]
    holder.rollback()
    holder.close()
    resumed = open_mlflow(run_dir, tracker.run_id)
    resumed.close("FINISHED")
    assert metric_history(id_of(resumed))["loss"] == [(5, 3.0)]
    run = store.connect().get_run(id_of(resumed))
    assert (run.info.status, run.data.params["policy.lr"]) == ("FINISHED", "0.001")
    assert math.isnan(run.data.metrics["kl"])
    assert {f.path for f in store.connect().list_artifacts(id_of(resumed))} == {
        *("config.yaml", "dvc.lock")
    }
    assert not (run_dir / UNSENT).exists()


def test_what_a_killed_run_has_not_sent_is_sent_by_the_next_one_and_only_once(home, run_dir):
    program = f"""
        import os, pathlib, signal, sqlite3, time
        from rrf.tracking.mlflow_run import MLflowTracker
        tracker = MLflowTracker("train", "r", pathlib.Path({str(run_dir)!r}), interval_s=0.01)
        tracker.log_config({{"lr": 0.5}})
        tracker.log_metrics({{"loss": 1.0}}, 1)
        while tracker.run_id is None or tracker._outbox.unsent():
            time.sleep(0.01)  # without it, the thread that sends has little of Python's lock
        print(tracker.run_id, flush=True)
        holder = sqlite3.connect({str(home / ".rrf/mlflow.db")!r})
        holder.execute("BEGIN EXCLUSIVE")
        for step in range(2, 50):
            tracker.log_metrics({{"loss": float(step)}}, step)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    with (run_dir / UNSENT).open("a") as file:
        file.write('{"kind": "metr')  # the line that it was writing
    resumed = open_mlflow(run_dir, done.stdout.strip())
    resumed.log_metrics({"loss": 50.0}, 50)
    resumed.close("FINISHED")
    loss = metric_history(id_of(resumed))["loss"]
    assert loss == [(step, float(step)) for step in range(1, 51)]
    assert not (run_dir / UNSENT).exists()


def test_a_record_mlflow_refuses_is_named_and_the_next_one_arrives(run_dir, caplog):
    tracker = open_mlflow(run_dir)
    tracker.log_metrics({"../out of a run": 1.0}, 1)
    tracker.set_tags({"after": "yes"})
    tracker.close("FINISHED")
    assert "MLflow refused a record" in caplog.text
    assert store.connect().get_run(id_of(tracker)).data.tags["after"] == "yes"


def test_one_metric_that_mlflow_refuses_takes_no_other_with_it(run_dir, caplog):
    tracker = open_mlflow(run_dir)
    for step in range(5):
        tracker.log_metrics({"loss": 1.0, "../out of a run": 1.0, "kl": 2.0}, step)
    tracker.close("FINISHED")
    history = metric_history(id_of(tracker))
    assert history == {
        "loss": [(step, 1.0) for step in range(5)],
        "kl": [(step, 2.0) for step in range(5)],
    }
    assert caplog.text.count("MLflow refused a record") == 5


def test_metrics_wait_while_a_server_refuses_the_login(run_dir, monkeypatch, caplog):
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import PERMISSION_DENIED

    tracker = open_mlflow(run_dir)
    tracker.log_metrics({"loss": 1.0}, 1)
    wait_for(lambda: tracker.run_id is not None and not tracker._outbox.unsent())
    client = tracker._run._client
    expired = MlflowException("the token has expired", error_code=PERMISSION_DENIED)
    with monkeypatch.context() as patch:
        patch.setattr(client, "log_batch", lambda *_, **__: (_ for _ in ()).throw(expired))
        tracker.log_metrics({"loss": 2.0}, 2)
        wait_for(lambda: "the token has expired" in caplog.text)
    tracker.close("FINISHED")
    assert metric_history(id_of(tracker))["loss"] == [(1, 1.0), (2, 2.0)]


def test_a_store_that_mlflow_refuses_to_open_ends_no_thread(home, run_dir, monkeypatch, caplog):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{home}/mlruns")
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    tracker = open_mlflow(run_dir, close_s=2.0)
    tracker.log_metrics({"loss": 1.0}, 1)
    wait_for(lambda: "training continues without it" in caplog.text, 60)
    tracker.close("FAILED")
    assert len((run_dir / UNSENT).read_text().splitlines()) == 2


def test_metrics_wait_where_a_store_in_files_is_not_there_for_a_moment(
    home, run_dir, monkeypatch, caplog
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{home}/mounted")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    (home / "mounted").mkdir()
    tracker = open_mlflow(run_dir)
    tracker.log_metrics({"loss": 1.0}, 1)
    wait_for(lambda: tracker.run_id is not None and not tracker._outbox.unsent())
    (home / "mounted").rename(home / "away")
    tracker.log_metrics({"loss": 2.0}, 2)
    wait_for(lambda: "training continues without it" in caplog.text)
    shutil.rmtree(home / "mounted", ignore_errors=True)
    (home / "away").rename(home / "mounted")
    tracker.close("FINISHED")
    assert metric_history(id_of(tracker))["loss"] == [(1, 1.0), (2, 2.0)]


def test_an_artifact_that_is_gone_is_named_and_the_next_record_arrives(run_dir, caplog):
    tracker = open_mlflow(run_dir)
    tracker.log_artifact(run_dir / "gone.mp4", "videos")
    tracker.set_tags({"after": "yes"})
    tracker.close("FINISHED")
    assert "gone.mp4" in caplog.text
    run = store.connect().get_run(id_of(tracker))
    assert (run.data.tags["after"], run.info.status) == ("yes", "FINISHED")


def test_an_absent_server_is_reported_at_the_start(home, run_dir, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(OSError, match=r"no MLflow store at http://127.0.0.1:9.*rrf services up"):
        open_trackers(["mlflow"], "train", "r", run_dir)


def test_unknown_trackers_are_refused_with_the_closest_name(run_dir):
    with pytest.raises(ValueError, match="did you mean 'mlflow'"):
        open_trackers(["mlfow"], "train", "r", run_dir)


def test_leaves_of_a_config_are_named_by_dotted_paths():
    assert flatten({"a": 1, "b": {"c": [1, 2], "d": None, "e": "x"}}) == {
        "a": "1",
        "b.c": "[1, 2]",
        "b.d": "null",
        "b.e": "x",
    }
    mixture = {"s3://robots/pick": 2.0, "lab": 1.0}  # MLflow takes no such name
    assert flatten({"mixture": mixture}) == {"mixture": '{"s3://robots/pick": 2.0, "lab": 1.0}'}


@pytest.mark.slow
def test_recording_a_run_never_loads_torch(home, run_dir):
    write_json(run_dir / "x.json", {})
    program = f"""
import sys
from rrf.lineage import DatasetLineage, Lineage
from rrf.tracking.runs import open_trackers
tracker = open_trackers(["mlflow", "tensorboard"], "train", "r", {str(run_dir)!r})
tracker.log_config({{"a": 1}})
tracker.log_metrics({{"loss": 1.0}}, 1)
tracker.log_artifact({str(run_dir / "x.json")!r})
tracker.log_dataset(Lineage((DatasetLineage("demo"),)))
tracker.close("FINISHED")
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
