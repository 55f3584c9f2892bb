"""`rrf models` on a real store: what it prints and what it refuses."""

import json
from pathlib import Path

import pytest
import typer.testing

from rrf.cli.models import app
from rrf.lineage import DatasetLineage, Lineage
from rrf.mlflow_store import store
from rrf.registry import listing, versions
from tests.registry.conftest import judge, make_checkpoint, make_evaluation, write_json


@pytest.fixture
def rrf(home):
    """Run `rrf models WORDS`; output and exception."""
    runner = typer.testing.CliRunner()

    def run(*words):
        result = runner.invoke(app, [str(word) for word in words])
        return result.output, result.exception

    return run


@pytest.fixture
def run_dir(home):
    """A finished run with its checkpoint and evaluation, as training and `rrf eval` leave them."""
    client = store.connect()
    run_id = client.create_run(store.experiment_id(client, "train")).info.run_id
    folder = home / ".rrf/runs/mine"
    checkpoint = make_checkpoint(folder / "global_step_3", 3)
    write_json(folder / "run.json", {"run_id": run_id})
    report = make_evaluation(home / "evaluation", checkpoint, 18)
    judge(report).save(home / "verdict.json")
    return folder


def test_the_way_of_a_checkpoint_from_run_to_champion_and_back_here(home, rrf, run_dir):
    assert "no models yet" in rrf("list")[0]
    words = ("register", run_dir / "global_step_3", "m", "--dataset", "demo")
    assert "m version 1 is @candidate" in rrf(*words, "--evaluation", home / "evaluation")[0]
    assert "no gate rules 'm' yet" in rrf("gate", "m")[0]
    shown = rrf("gate", "m", home / "configs/gates/g.yaml", "--reason", "the usual one")[0]
    assert "m is ruled by configs/gates/g.yaml" in shown
    assert "overall_lower_bound: 0.5" in shown
    assert "m version 1 is @champion" in rrf("promote", "m", "1")[0]
    listed = rrf("list")[0]
    assert "@champion" in listed
    assert "90.0% [69.9%, 97.2%] n 20" in listed
    assert "pass" in listed
    assert "3 entries, chain of hashes intact" in rrf("ledger", "m")[0]
    assert "m version 1 is at" in rrf("fetch", "m@champion", "--out", home / "mine")[0]
    assert json.loads((home / "mine/manifest.json").read_text())["step"] == 3


def test_the_attached_report_shows_verdict_and_lineage(home, rrf, run_dir):
    judge_file = home / "evaluation/verdict-g.json"
    (home / "verdict.json").rename(judge_file)
    words = ("register", run_dir / "global_step_3", "m", "--dataset", "demo")
    rrf(*words, "--evaluation", home / "evaluation")
    client = store.connect()
    run_id = json.loads((run_dir / "run.json").read_text())["run_id"]
    (place,) = client.list_artifacts(run_id, "evaluation")
    file = client.download_artifacts(run_id, f"{place.path}/report.html", str(home))
    text = Path(file).read_text()
    assert "gate g: pass" in text
    assert "0123456789abcdef0123456789abcdef.dir" in text
    assert "m version 1" in text


def test_refusals_say_what_to_do(home, rrf, run_dir):
    words = ("register", run_dir / "global_step_3", "m", "--dataset", "demo")
    rrf(*words, "--evaluation", home / "evaluation")
    assert "rrf models gate m configs/gates/FILE.yaml" in str(rrf("promote", "m", "1")[1])
    assert "needs a reason" in str(rrf("promote", "m", "1", "--unrevoke")[1])
    assert "needs a reason" in str(rrf("gate", "m", home / "configs/gates/g.yaml")[1])
    assert "no @champion; it has 1, @candidate" in str(rrf("fetch", "m@champion")[1])
    assert "no previous champion" in str(rrf("rollback", "m", "--reason", "x")[1])
    assert "there is no model 'n'" in str(rrf("ledger", "n")[1])
    assert str(rrf("list", "n")[1]) == "there is no model 'n'; known: m"
    lonely = make_checkpoint(home / "lonely", 4)
    known = rrf("register", lonely, "m", "--dataset", "demo")[1]
    assert f"rrf models register {lonely} NAME --run-id RUN" in str(known)
    assert f"rrf models register {lonely} NAME --dataset DATASET" in str(
        rrf("register", lonely, "m")[1]
    )
    write_json(run_dir / "run.json", {})
    (run_dir / "mlflow_unsent.json").write_text("")
    assert "type the same `rrf train` again" in str(rrf(*words)[1])
    (run_dir / "run.json").write_text("[]")
    assert "run.json is damaged" in str(rrf(*words)[1])


def test_a_list_warns_of_an_alias_that_somebody_set_and_a_repair_explains_and_mends(
    home, rrf, run_dir
):
    words = ("register", run_dir / "global_step_3", "m", "--dataset", "demo")
    rrf(*words, "--evaluation", home / "evaluation")
    assert "nothing to mend" in rrf("repair", "m")[0]
    store.connect().set_registered_model_alias("m", "champion", "1")
    assert "warning: @champion of 'm' is version 1 in MLflow, but no version by" in rrf("list")[0]
    explained, ended = rrf("repair", "m")
    assert "@champion is version 1, but none by the entries that are proved" in explained
    assert isinstance(ended, SystemExit)
    assert "mended: 1 entries are proved" in rrf("repair", "m", "--reason", "a slip")[0]
    assert "warning" not in rrf("list")[0]


def test_there_may_be_more_models_than_the_store_tells_at_once(home, rrf):
    client = store.connect()
    for number in range(103):
        client.create_registered_model(f"m{number:03}")
    assert listing.versions("m102") == []
    assert str(rrf("list", "m103")[1]).startswith("there is no model 'm103'; did you mean 'm10")
    assert "the nearest of 103: m102, " in str(rrf("list", "n")[1])


def test_a_checkpoint_is_registered_with_all_it_was_trained_on(home, rrf, run_dir):
    lineage = Lineage((DatasetLineage("demo"), DatasetLineage("lab")))
    make_checkpoint(run_dir / "global_step_4", 4, lineage)
    assert "lineage lacks lab: dataset_md5" in rrf("register", run_dir, "m")[0]
    assert versions.find("m/1").tags["lineage.dataset"] == "demo, lab"
