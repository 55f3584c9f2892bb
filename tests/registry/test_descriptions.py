"""What MLflow's pages say of models, versions and runs, and that a person's words stay."""

import logging
import sqlite3

import pytest
import yaml
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from rrf import atomic
from rrf.mlflow_store import authorship, store
from rrf.mlflow_store.flow_run import FlowRun
from rrf.registry import promotion, registration, versions
from rrf.registry.descriptions import model_text
from rrf.registry.entries import Entry
from rrf.registry.lineage_sources import collect_lineage
from rrf.registry.versions import Version
from tests.registry.conftest import judge, make_checkpoint, make_evaluation

NAME = "policy"
FOOTER = "*Written by rrf, which keeps this up to date until somebody edits it ("


@pytest.fixture
def client(home):
    return store.connect()


@pytest.fixture
def add(home, client):
    """Register a checkpoint of training `reach-grpo`, of which `solved` episodes succeeded."""
    run_id = client.create_run(store.experiment_id(client, "train")).info.run_id

    def _add(seed: int, solved: int = 18, **options):
        folder = home / f"checkpoints/{seed}"
        if not folder.exists():
            make_trained_checkpoint(folder, seed)
        report = make_evaluation(home / f"checkpoints/evaluation-{seed}", folder, solved)
        evaluation = home / f"checkpoints/evaluation-{seed}"
        lineage = collect_lineage("demo")
        options = {"gate": home / "configs/gates/g.yaml"} | options
        return registration.register(folder, NAME, run_id, lineage, evaluation, **options), report

    return _add


def make_trained_checkpoint(folder, seed: int) -> None:
    make_checkpoint(folder, seed)
    training = {
        "experiment_name": "reach-grpo",
        "seed": seed,
        "algorithm": {"type": "rrf.algorithms.vla.configs:GRPOCfg"},
        "init_from": "/home/me/.rrf/runs/reach-sft-0123456789ab/global_step_40",
    }
    config = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump(config | training))
    atomic.write_manifest(folder, kind="vla", step=seed, lineage={})


def of_model(client) -> str:
    return client.get_registered_model(NAME).description


def of_version(version: str) -> str:
    return versions.find(f"{NAME}/{version}").description


def test_a_version_says_what_trained_it_on_what_and_how_well_it_does(client, add):
    version, report = add(1)
    text = of_version(version)
    first, *_ = text.splitlines()
    rate = "90.0% of 20 episodes solved (95 % bounds 69.9% to 97.2%)"
    assert first == f"Candidate: {rate}; judged by no gate"
    run_id = versions.find(f"{NAME}/1").run_id
    parent = "reach-sft-0123456789ab/global_step_40"
    trained = f"`reach-grpo`, seed 1, with GRPO, starting from `{parent}`"
    assert f"- Training: {trained}; MLflow run `{run_id}`" in text
    md5 = "0123456789abcdef0123456789abcdef.dir"
    assert f"`demo` (DVC md5 {md5}, 7 episodes, 91 frames, validation passed)" in text
    assert f"- Evaluated under protocol `p` (`{report.protocol_hash[:12]}`): {rate}" in text
    promotion.note_verdict(NAME, version, judge(report))
    assert of_version(version).splitlines()[0] == f"Candidate: {rate}; gate g: pass"
    assert "- Gate `g`: pass, look 1 of 1, against no champion" in of_version(version)
    assert "    - pass: overall: 18/20 solved" in of_version(version)


def test_a_refused_version_says_why(add):
    version, _ = add(1, solved=4)
    with pytest.raises(ValueError, match="says fail"):
        promotion.promote(NAME, version)
    assert of_version(version).splitlines()[0].endswith("; gate g: fail")
    assert "    - fail: overall: 4/20 solved" in of_version(version)


def test_promotions_and_rollbacks_are_told_on_every_version_they_concern(add):
    for seed in (1, 2):
        add(seed)
    promotion.promote(NAME, "1")
    promotion.promote(NAME, "2")
    assert of_version("1").startswith("Previous champion: ")
    assert of_version("2").startswith("Champion: ")
    promotion.rollback(NAME, "drops\nthe cup")
    assert of_version("1").startswith("Champion: ")
    assert of_version("2").startswith("Rolled back: ")
    assert "of the ledger), as version 2 was rolled back: drops the cup" in of_version("1")
    assert "- Rolled back to version 1, 20" in of_version("2")


def test_a_version_that_never_was_champion_is_not_called_a_former_one(add):
    for seed in (1, 2):
        add(seed)
    assert of_version("1").startswith("Registered: ")


def test_a_model_says_what_it_is_for_how_to_use_it_and_who_was_champion(client, add):
    for seed in (1, 2):
        add(seed)
    text = of_model(client)
    purpose = "A policy that sees images, trained on dataset `demo`, evaluated under protocol `p`."
    assert text.splitlines()[0] == f"{purpose} Tasks: `a`."
    assert "rrf models fetch policy@candidate --out policy" in text
    assert "No version has been promoted yet." in text
    promotion.promote(NAME, "1")
    entry = promotion.promote(NAME, "2")
    promotion.rollback(NAME, "drops | the cup")
    lines = of_model(client).splitlines()
    assert "rrf play policy@champion --task a --video policy.mp4" in lines
    assert 'rrf.load_policy("policy@champion").predict(observations)' in lines
    table = [line for line in lines if line.startswith("|")]
    assert table[0].startswith("| # | when (UTC) | change | champion | before | verdict |")
    when = entry.time[:16].replace("T", " ")
    assert table[2].endswith(f"| {entry.actor} | drops / the cup |")
    assert table[3] == (
        f"| 5 | {when} | version 2 promoted | 2 | 1 | {(entry.verdict_digest or '')[:8]} "
        f"| {entry.actor} | gate g: pass, success 0.900 |"
    )
    assert "ruled by gate configs/gates/g.yaml" in table[5]
    columns = [row.split(" | ")[3:5] for row in table[2:]]
    assert columns == [["1", "2"], ["2", "1"], ["1", "-"], ["-", "-"]]


def test_a_history_that_is_too_long_for_mlflow_loses_its_oldest_changes():
    def change(index: int) -> Entry:
        time, reason = "2026-11-24T07:49:41+00:00", "gate g: pass, success 0.900"
        facts = {"checkpoint_digest": "c", "verdict_digest": "v" * 64, "protocol_hash": "p"}
        who = {"actor": "me", "parent": "", "reason": reason}
        numbers = (str(index), str(index), None)
        return Entry(NAME, index, time, "promote", *numbers, **facts, **who)

    version = Version(NAME, "200", "run", 0, {}, ("champion",))
    text = model_text(NAME, [version], [change(index) for index in range(1, 201)])
    assert len(authorship.signed(text)) <= 5000
    assert "| 200 | 2026-11-24 07:49 | version 200 promoted | 200 | - | vvvvvvvv |" in text
    assert "| 1 | 2026" not in text
    shown = text.count("version ") - 1
    assert text.endswith(f"{200 - shown} earlier changes are not shown here.")


def test_what_a_person_wrote_or_edited_is_never_overwritten(client, add):
    version, report = add(1)
    assert FOOTER in of_version(version)
    client.update_registered_model(NAME, "Ours. Ask Ada.")
    edited = of_version(version).replace("seed 1", "seed 1 (the good one)")
    client.update_model_version(NAME, version, edited)
    promotion.promote(NAME, version)
    add(2)
    assert of_model(client) == "Ours. Ask Ada."
    assert of_version(version) == edited
    client.update_registered_model(NAME, "")
    client.update_model_version(NAME, version, "")
    promotion.note_verdict(NAME, version, judge(report))
    assert FOOTER in of_model(client)
    assert of_version(version).startswith("Champion: ")


def test_line_ends_that_a_browser_changes_make_a_description_nobody_elses():
    text = authorship.signed("one  \ntwo")
    assert authorship.is_ours(text.replace("\n", "\r\n") + "\n")
    assert authorship.is_ours(None)
    assert not authorship.is_ours(text.replace("two", "2"))
    assert not authorship.is_ours("one\ntwo")


def test_a_description_that_cannot_be_written_leaves_registration_and_promotion_whole(
    client, add, monkeypatch, caplog
):
    def away(*_):
        raise MlflowException("the store is away")

    for write in ("update_model_version", "update_registered_model"):
        monkeypatch.setattr(MlflowClient, write, away)
    caplog.set_level(logging.WARNING)
    version, _ = add(1)
    promotion.promote(NAME, version)
    assert "the descriptions of 'policy' are not up to date: the MLflow store at" in caplog.text
    assert "the store is away" in caplog.text
    found = versions.find(f"{NAME}@champion")
    assert (found.version, found.description) == ("1", "")
    monkeypatch.undo()


def test_descriptions_that_lag_behind_are_brought_up_to_date_by_the_next_command(home, client, add):
    version, _ = add(1)
    behind = of_version(version)
    promotion.promote(NAME, version)
    database = sqlite3.connect(home / ".rrf/mlflow.db")
    database.execute("UPDATE model_versions SET description = ?", (behind,))
    database.commit()
    database.close()
    promotion.promote(NAME, version)  # changes nothing else
    assert of_version(version).startswith("Champion: ")
    assert len(promotion.ledger_of(NAME).entries) == 3


def test_versions_made_by_hand_or_by_earlier_code_get_descriptions_too(client, add):
    client.create_registered_model(NAME)
    client.create_model_version(NAME, "file:///somewhere")
    add(1)
    assert of_version("1").startswith("Registered: not evaluated; judged by no gate")
    assert "- Training: not recorded" in of_version("1")


def test_a_version_made_in_a_flow_run_links_to_it(add, monkeypatch):
    address = "http://127.0.0.1:4200/runs/flow-run/11-22"
    version, _ = add(1, flow_run=FlowRun("11-22", "train-vla policy: demo", address))
    found = versions.find(f"{NAME}/{version}")
    assert found.tags["prefect.flow_run_id"] == "11-22"
    assert found.tags["prefect.flow_run_url"] == address
    link = f"- Registered by Prefect flow run [train-vla policy: demo]({address})"
    assert link in found.description
    for key, value in FlowRun("33", "evaluate").environment().items():
        monkeypatch.setenv(key, value)
    add(1)  # again, by a command that a flow started
    assert "- Registered by Prefect flow run evaluate (`rrf open 33`)" in of_version(version)
