"""`rrf gc` removes what nothing refers to, and nothing else."""

import os
import shutil
from pathlib import Path

import pytest
import yaml

from rrf import atomic
from rrf.registry import garbage, packaging, promotion, versions
from rrf.registry.loading import fetch
from rrf.runners.checkpoints.deployable import deployable_digest
from tests.registry.conftest import make_checkpoint, make_evaluation, new_run, register

DAY_S = 86_400.0
ROOT = Path(__file__).parents[2]


@pytest.fixture
def champion(home, run_id) -> str:
    """The run of a champion."""
    version, _ = register(home, "policy", run_id, seed=1, solved=18)
    promotion.promote("policy", version)
    return run_id


def listed(older_than_s: float = 0.0) -> dict[str, str]:
    return {leftover.name: leftover.kind for leftover in garbage.find(older_than_s)}


def write_run(home: Path, name: str, run_id: str, init_from: str | None = None) -> Path:
    run = home / ".rrf/runs" / name
    atomic.write_json(run / "run.json", {"run_id": run_id, "config": {"init_from": init_from}})
    return run


def test_runs_of_versions_and_their_parents_are_kept(home, champion, client):
    first = write_run(home, "first", new_run(client))
    middle = write_run(home, "middle", new_run(client), f"{first}/global_step_7")
    write_run(home, "last", champion, os.path.relpath(middle, home))
    registered_by_hand = write_run(home, "by-hand", new_run(client))
    shutil.copytree(home / "checkpoints/1", registered_by_hand / "global_step_3")
    write_run(home, "other", new_run(client), f"{first}/global_step_7")
    (home / ".rrf/runs/of-the-user").mkdir()
    assert listed() == {".rrf/runs/other": "run"}
    assert listed(older_than_s=DAY_S) == {}


def test_a_run_whose_metrics_wait_to_be_sent_is_kept(home, champion, client):
    run = write_run(home, "waiting", new_run(client))
    atomic.write_json(run / "mlflow_unsent.json", [])
    assert listed() == {}
    (run / "mlflow_unsent.json").unlink()
    assert listed() == {".rrf/runs/waiting": "run"}


def test_what_cannot_be_read_is_named_and_kept_with_all_that_it_may_need(
    home, champion, client, caplog
):
    write_run(home, "whole", new_run(client))
    damaged = write_run(home, "damaged", new_run(client))
    (damaged / "run.json").write_text("{")
    (home / ".rrf/hf/me%2Fset@1").mkdir(parents=True)
    atomic.write_text(home / "configs/datasets/mine.yaml", "source: [")
    assert listed() == {".rrf/runs/whole": "run"}  # and no download: a dataset may need it
    assert f"{damaged / 'run.json'}" in caplog.text
    assert "mine.yaml is not YAML" in caplog.text
    (home / "configs/datasets/mine.yaml").unlink()
    assert ".rrf/hf/me%2Fset@1" in listed()
    shutil.copytree(home / "checkpoints/1", damaged / "global_step_3")  # the champion's run
    assert "run" not in listed().values()  # from any of them it may have been trained


def test_a_run_that_is_being_trained_is_kept(home, champion, client):
    run = write_run(home, "busy", new_run(client))
    (leftover,) = garbage.find(0.0)
    with atomic.alone(run, "busy"), pytest.raises(ValueError, match="used by another process"):
        leftover.remove()
    assert run.is_dir()
    leftover.remove()
    assert not run.exists()


def test_evaluations_copies_and_downloads_are_kept_while_something_names_them(home, champion):
    state = home / ".rrf"
    make_evaluation(state / "evaluations/known", home / "checkpoints/1", 18)
    make_evaluation(state / "evaluations/old", make_checkpoint(home / "checkpoints/9", 9), 3)
    (state / "evaluations/interrupted").mkdir()
    fetch("policy@champion", state / "fetched/policy-1")
    fetch("policy@champion", state / "fetched/policy-7")
    md5 = versions.find("policy@champion").tags["lineage.dataset_md5"]
    commits = {"used": "1" * 40, "unused": "2" * 40}
    downloads = [f"hf/me%2Fset@{commit}" for commit in commits.values()]
    for folder in (f"datasets/{md5}", "datasets/other", *downloads):
        (state / folder).mkdir(parents=True)
    (state / "nightly/policy/2026-11-24").mkdir(parents=True)
    config = yaml.safe_load((ROOT / "configs/datasets/g1.yaml").read_text())
    config["name"] = "set"
    config["source"]["path"] = f"hf://me/set@{commits['used']}"
    atomic.write_text(home / "configs/datasets/set.yaml", yaml.safe_dump(config))
    assert listed() == {
        ".rrf/evaluations/old": "evaluation",
        ".rrf/evaluations/interrupted": "evaluation",
        ".rrf/fetched/policy-7": "fetched copy",
        ".rrf/nightly/policy/2026-11-24": "night",
        ".rrf/datasets/other": "dataset copy",
        f".rrf/hf/me%2Fset@{commits['unused']}": "download",
    }


@pytest.mark.slow
def test_the_store_loses_models_without_version_and_artifacts_of_deleted_runs(
    home, champion, client
):
    unregistered = make_checkpoint(home / "checkpoints/2", 2)
    digest = deployable_digest(unregistered)
    killed = packaging.log_model(client, unregistered, champion, digest, home / "scratch")
    deleted = new_run(client)
    client.log_text(deleted, "a video", "video.mp4")
    client.delete_run(deleted)
    client.delete_run(champion)  # its version needs it
    theirs = client.create_logged_model(client.get_run(champion).info.experiment_id, "theirs")
    found = {leftover.name: leftover for leftover in garbage.find(0.0)}
    assert {name: one.kind for name, one in found.items()} == {
        killed.model_id: "logged model",
        deleted: "deleted run",
    }
    assert found[deleted].size == len("a video")
    for leftover in found.values():
        leftover.remove()
    assert listed() == {}
    assert client.get_logged_model(theirs.model_id).name == "theirs"
    fetch("policy@champion", home / "fetched")
    version, _ = register(home, "policy", new_run(client), seed=3, solved=20)
    assert promotion.promote("policy", version).champion == version  # reads both evaluations


def test_without_the_store_nothing_is_called_unused(home, champion, client, monkeypatch):
    write_run(home, "other", new_run(client))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(OSError, match="no MLflow store"):
        garbage.find(0.0)


def test_the_command_lists_first_and_removes_with_an_option(home, champion, client, capsys):
    from rrf.cli.gc import gc

    run = write_run(home, "other", new_run(client))
    gc(older_than=1.0)
    assert "nothing older than 1 days" in capsys.readouterr().out
    gc(older_than=0.0)
    assert ".rrf/runs/other" in (said := capsys.readouterr().out)
    assert "rrf gc --delete" in said
    assert run.is_dir()
    gc(older_than=0.0, delete=True)
    assert "removed 1 of 1" in capsys.readouterr().out
    assert not run.exists()
