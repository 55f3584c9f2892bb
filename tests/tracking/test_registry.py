"""Registration, promotion, rollback and fetching on a real SQLite MLflow store."""

import dataclasses
import json
import shutil
from pathlib import Path
from urllib.parse import urlparse

import pytest

from rrf.tracking import registry, store
from rrf.tracking.ledger import Entry
from rrf.tracking.lineage import collect_lineage
from tests.tracking.conftest import (
    add_dataset,
    judge,
    make_checkpoint,
    make_evaluation,
    write_json,
)

NAME = "policy"


@pytest.fixture
def client(home):
    return store.connect()


@pytest.fixture
def run_id(client):
    return client.create_run(store.experiment_id(client, "train")).info.run_id


@pytest.fixture
def add(home, run_id):
    """Register checkpoint number `seed`, of which `solved` episodes of 20 succeeded."""

    def _add(seed: int, solved: int = 18, lineage: dict | None = None):
        checkpoint = make_checkpoint(home / f"checkpoints/{seed}", seed)
        report = make_evaluation(home / f"checkpoints/evaluation-{seed}", checkpoint, solved)
        lineage = collect_lineage("demo") if lineage is None else lineage
        version = registry.register(
            checkpoint, NAME, run_id, lineage, home / f"checkpoints/evaluation-{seed}"
        )
        return version, report

    return _add


def aliases() -> dict[str, str]:
    return {alias: v.version for v in registry.versions(NAME) for alias in v.aliases}


def test_the_registered_version_carries_lineage_evaluation_and_report(home, client, run_id, add):
    version, report = add(1)
    found = registry.find(f"{NAME}@candidate")
    assert (found.version, found.run_id) == (version, run_id) == ("1", run_id)
    assert found.checkpoint_digest == report.checkpoint_digest
    assert found.tags["lineage.dataset_md5"] == "0123456789abcdef0123456789abcdef.dir"
    assert found.tags["evaluation.success"] == "0.900000"
    attached = {f.path for f in client.list_artifacts(run_id, "evaluation")}
    assert attached == {"evaluation/evaluation.json", "evaluation/report.html"}
    models = client.search_logged_models([client.get_run(run_id).info.experiment_id])
    files = {
        f.path
        for f in client.list_logged_model_artifacts(models[0].model_id, "artifacts/checkpoint")
    }
    assert "artifacts/checkpoint/trainer_state" not in files
    assert "artifacts/checkpoint/model.safetensors" in files


def test_a_passing_verdict_is_noted_and_still_promotes_after_another_gate_failed(add):
    version, report = add(1)
    registry.note_verdict(NAME, version, judge(report))
    assert registry.find(f"{NAME}/1").tags["gate.outcome"] == "pass"
    strict = dataclasses.replace(judge(report), gate="strict", outcome="fail")
    registry.note_verdict(NAME, version, strict)
    assert registry.find(f"{NAME}/1").tags["gate.outcome"] == "fail"
    assert aliases() == {"candidate": "1"}
    assert registry.promote(NAME, version, judge(report)).champion == "1"
    with pytest.raises(ValueError, match="the verdict is about checkpoint"):
        registry.note_verdict(NAME, add(2)[0], judge(report))


def test_a_model_takes_policies_of_one_task_only(add):
    add(1, lineage={"environment": {"task": "CartPole-v1"}})
    add(2, lineage={"environment": {"task": "CartPole-v1"}})
    message = (
        f"'{NAME}' holds policies for CartPole-v1, but this one was trained on Pendulum-v1; give "
        f"another name, e.g. {NAME}-pendulum-v1"
    )
    with pytest.raises(ValueError, match=message):
        add(3, lineage={"environment": {"task": "Pendulum-v1"}})
    assert len(registry.versions(NAME)) == 2


def test_registering_the_same_checkpoint_again_gives_the_same_version(add):
    assert add(1)[0] == add(1)[0] == "1"
    assert add(2)[0] == "2"
    assert add(1, solved=12)[0] == "1"
    assert registry.find(f"{NAME}/1").tags["evaluation.success"] == "0.600000"
    assert aliases() == {"candidate": "1"}


def test_an_evaluation_of_another_checkpoint_is_refused(home, run_id, add):
    add(1)
    other = make_checkpoint(home / "checkpoints/2", 2)
    with pytest.raises(ValueError, match="the evaluation is of checkpoint"):
        registry.register(other, NAME, run_id, {}, home / "checkpoints/evaluation-1")
    assert [v.version for v in registry.versions(NAME)] == ["1"]


def test_a_tampered_checkpoint_is_not_registered(home, run_id):
    checkpoint = make_checkpoint(home / "checkpoints/1", 1)
    (checkpoint / "norm_stats.json").write_text('{"x": 1}')
    with pytest.raises(ValueError, match=r"norm_stats\.json was changed"):
        registry.register(checkpoint, NAME, run_id, {})
    assert not registry.versions()


def test_odd_names_and_unknown_runs_are_refused(home):
    checkpoint = make_checkpoint(home / "checkpoints/1", 1)
    with pytest.raises(ValueError, match="may contain only letters"):
        registry.register(checkpoint, "a@b", "0" * 32, {})
    with pytest.raises(ValueError, match="no MLflow run '000"):
        registry.register(checkpoint, NAME, "0" * 32, {})


def test_a_passing_verdict_makes_the_champion_and_the_ledger_entry(add):
    version, report = add(1)
    verdict = judge(report)
    entry = registry.promote(NAME, version, verdict)
    assert aliases() == {"champion": "1"}
    assert (entry.index, entry.action, entry.champion, entry.previous) == (1, "promote", "1", None)
    assert (entry.verdict_digest, entry.protocol_hash) == (verdict.digest, report.protocol_hash)
    found = registry.champion(NAME)
    assert found is not None
    assert json.loads(found.tags["gate.verdict"])["digest"] == verdict.digest
    assert registry.ledger(NAME) == [entry]


def test_promoting_the_champion_again_changes_nothing(add):
    version, report = add(1)
    first = registry.promote(NAME, version, judge(report))
    assert registry.promote(NAME, version, judge(report)) == first
    assert len(registry.ledger(NAME)) == 1


def test_registering_the_champion_again_leaves_the_candidate_what_it_is(add):
    version, report = add(1)
    registry.promote(NAME, version, judge(report))
    add(2)
    assert add(1)[0] == version
    assert aliases() == {"champion": "1", "candidate": "2"}


def test_without_a_verdict_nothing_is_promoted(add):
    version, _ = add(1)
    with pytest.raises(ValueError, match="has no verdict"):
        registry.promote(NAME, version, None)
    assert aliases() == {"candidate": "1"}


def test_a_failing_verdict_is_refused_with_its_reasons_which_stay_on_the_version(add):
    version, report = add(1, solved=4)
    with pytest.raises(ValueError, match=r"says fail:\n  fail: overall: 4/20 solved"):
        registry.promote(NAME, version, judge(report))
    found = registry.find(f"{NAME}@candidate")
    assert found.tags["gate.outcome"] == "fail"
    assert "4/20 solved" in found.tags["gate.verdict"]
    assert registry.ledger(NAME) == []


def test_the_verdict_of_another_checkpoint_is_refused_and_not_recorded(add):
    _, good = add(1)
    version, _ = add(2, solved=2)
    with pytest.raises(ValueError, match="the verdict is about checkpoint"):
        registry.promote(NAME, version, judge(good))
    assert "gate.verdict" not in registry.find(f"{NAME}/{version}").tags


def test_the_verdict_of_another_evaluation_is_refused(add):
    version, earlier = add(1, solved=18)
    add(1, solved=17)
    with pytest.raises(ValueError, match="register it with the evaluation that was judged"):
        registry.promote(NAME, version, judge(earlier))


def test_a_verdict_against_a_champion_of_yesterday_is_refused(add):
    first, report_1 = add(1)
    second, report_2 = add(2)
    third, report_3 = add(3)
    registry.promote(NAME, first, judge(report_1))
    late = judge(report_3, report_1, first)
    registry.promote(NAME, second, judge(report_2, report_1, first))
    with pytest.raises(
        ValueError, match="compared with version 1, but the champion is now version 2"
    ):
        registry.promote(NAME, third, late)
    with pytest.raises(
        ValueError, match="compared with no champion, but the champion is now version 2"
    ):
        registry.promote(NAME, third, judge(report_3))
    registry.promote(NAME, third, judge(report_3, report_2, second))
    assert aliases() == {"champion": "3", "previous": "2"}


@pytest.mark.parametrize("key", ["dataset_md5", "git_revision", "validation"])
def test_incomplete_lineage_is_refused(home, add, key):
    lineage = {k: v for k, v in collect_lineage("demo").items() if k != key}
    version, report = add(1, lineage=lineage)
    with pytest.raises(ValueError, match=f"its lineage lacks {key}"):
        registry.promote(NAME, version, judge(report))
    add(1)
    registry.promote(NAME, version, judge(report))


def test_a_dataset_that_failed_its_validation_promotes_nothing(home, add):
    write_json(home / "datasets/reports/demo/validation.json", {"passed": False})
    version, report = add(1)
    with pytest.raises(ValueError, match="validation of dataset demo is 'failed'"):
        registry.promote(NAME, version, judge(report))


def test_one_bad_dataset_of_a_mixture_promotes_nothing(home, add):
    add_dataset(home, "lab", "77.dir", passed=False)
    version, report = add(1, lineage=collect_lineage("demo", "lab"))
    with pytest.raises(ValueError, match="of dataset demo, lab is 'passed, failed', not 'passed'"):
        registry.promote(NAME, version, judge(report))
    version, report = add(2, lineage=collect_lineage("demo", "unknown"))
    with pytest.raises(ValueError, match="its lineage lacks dataset_md5, validation"):
        registry.promote(NAME, version, judge(report))


def test_a_version_that_was_never_evaluated_is_not_promoted(home, run_id):
    checkpoint = make_checkpoint(home / "checkpoints/1", 1)
    version = registry.register(checkpoint, NAME, run_id, collect_lineage("demo"))
    report = make_evaluation(home / "checkpoints/evaluation", checkpoint, 18)
    with pytest.raises(ValueError, match="has no evaluation"):
        registry.promote(NAME, version, judge(report))


def promote_three(add) -> None:
    reports = [add(seed)[1] for seed in (1, 2, 3)]
    registry.promote(NAME, "1", judge(reports[0]))
    registry.promote(NAME, "2", judge(reports[1], reports[0], "1"))
    registry.promote(NAME, "3", judge(reports[2], reports[1], "2"))


def test_rollbacks_walk_back_through_the_champions(add):
    promote_three(add)
    entry = registry.rollback(NAME, "drops the cup")
    assert (entry.version, entry.champion, entry.previous, entry.reason) == (
        "3",
        "2",
        "1",
        "drops the cup",
    )
    assert aliases() == {"champion": "2", "previous": "1"}
    registry.rollback(NAME, "so does this one")
    assert aliases() == {"champion": "1"}
    with pytest.raises(ValueError, match="no previous champion"):
        registry.rollback(NAME, "and this")
    assert [e.action for e in registry.ledger(NAME)] == ["promote"] * 3 + ["rollback"] * 2


def test_a_rollback_from_a_named_version_happens_once(add):
    promote_three(add)
    first = registry.rollback(NAME, "drops the cup", version="3")
    assert registry.rollback(NAME, "drops the cup", version="3") == first
    assert aliases() == {"champion": "2", "previous": "1"}
    with pytest.raises(ValueError, match="champion of 'policy' is version 2, not 1"):
        registry.rollback(NAME, "x", version="1")
    with pytest.raises(ValueError, match="needs a reason"):
        registry.rollback(NAME, " ")


def test_aliases_changed_by_hand_are_put_back_by_the_next_change(client, add):
    promote_three(add)
    client.set_registered_model_alias(NAME, "champion", "1")
    found = registry.champion(NAME)
    assert found is not None
    assert found.version == "3"
    registry.rollback(NAME, "drops the cup")
    assert aliases() == {"champion": "2", "previous": "1"}


def test_a_tampered_ledger_is_noticed_and_stops_promotions(client, add):
    promote_three(add)
    tags = dict(client.get_registered_model(NAME).tags)
    edit, remove = client.set_registered_model_tag, client.delete_registered_model_tag
    second = registry.ledger(NAME)[1]
    damages = [
        (lambda: edit(NAME, "ledger.000002", edited(second)), "entry 2 was edited"),
        (lambda: edit(NAME, "ledger.000002", "{}"), "entry 2 is unreadable"),
        (lambda: remove(NAME, "ledger.000001"), "entry 1 was removed"),
        (lambda: remove(NAME, "ledger.000003"), "entries after 2 were cut off"),
    ]
    for damage, message in damages:
        damage()
        with pytest.raises(ValueError, match=message):
            registry.ledger(NAME)
        with pytest.raises(ValueError, match=message):
            registry.rollback(NAME, "drops the cup")
        for key, value in tags.items():
            edit(NAME, key, value)
    assert len(registry.ledger(NAME)) == 3


def edited(entry: Entry) -> str:
    return json.dumps(dataclasses.asdict(entry) | {"champion": "1"})


def test_fetching_brings_the_deployable_checkpoint_and_nothing_else(home, add):
    version, report = add(1)
    registry.promote(NAME, version, judge(report))
    for number, reference in enumerate(
        (f"{NAME}@champion", f"models:/{NAME}@champion", f"{NAME}/1", NAME)
    ):
        out = home / f"fetched/{number}"
        assert registry.fetch(reference, out).version == "1"
        names = sorted(p.relative_to(out).as_posix() for p in out.rglob("*"))
        assert names == ["config.yaml", "manifest.json", "model.safetensors", "norm_stats.json"]
        assert (out / "model.safetensors").read_bytes() == (
            home / "checkpoints/1/model.safetensors"
        ).read_bytes()


def artifacts(client, run_id):
    experiment = client.get_run(run_id).info.experiment_id
    (model,) = client.search_logged_models([experiment])
    return Path(urlparse(model.artifact_location).path) / "artifacts/checkpoint"


def test_tampered_and_replaced_artifacts_are_not_fetched(home, client, run_id, add):
    add(1)
    stored = artifacts(client, run_id)
    (stored / "norm_stats.json").write_text('{"x": 1}')
    with pytest.raises(ValueError, match=r"norm_stats\.json was changed"):
        registry.fetch(f"{NAME}/1", home / "out")
    shutil.rmtree(stored)
    shutil.copytree(make_checkpoint(home / "checkpoints/9", 9), stored)
    with pytest.raises(ValueError, match="they were replaced"):
        registry.fetch(f"{NAME}/1", home / "out")
    shutil.rmtree(stored)
    with pytest.raises(OSError, match="cannot be read"):
        registry.fetch(f"{NAME}/1", home / "out")
    assert not (home / "out").exists()


def test_fetching_what_is_not_there_says_what_is(home, add):
    with pytest.raises(ValueError, match="no model 'policy'"):
        registry.fetch(f"{NAME}@champion", home / "out")
    add(1)
    with pytest.raises(ValueError, match="no @champion; it has 1, @candidate"):
        registry.fetch(f"{NAME}@champion", home / "out")
    with pytest.raises(ValueError, match="no version 7"):
        registry.fetch(f"{NAME}/7", home / "out")
    (home / "precious").mkdir()
    (home / "precious/file").write_text("mine")
    with pytest.raises(ValueError, match="is not a checkpoint"):
        registry.fetch(f"{NAME}/1", home / "precious")
