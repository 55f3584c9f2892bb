"""Registration, promotion, rollback and fetching on a real SQLite MLflow store."""

import dataclasses
import json
import shutil

import pytest

from rrf import workspace
from rrf.lineage import EnvironmentLineage, Lineage
from rrf.mlflow_store.artifacts import local_folder
from rrf.registry import changes, listing, loading, promotion, registration, versions
from rrf.registry.ledger import Entry, Ledger
from rrf.registry.lineage_sources import collect_lineage
from tests.registry.conftest import (
    add_dataset,
    judge,
    make_checkpoint,
    register,
    write_json,
)

NAME = "policy"


@pytest.fixture
def add(home, run_id):
    """Register checkpoint number `seed`, of which `solved` episodes of 20 succeeded."""

    def _add(seed: int, solved: int = 18, lineage: Lineage | None = None):
        return register(home, NAME, run_id, seed, solved, lineage)

    return _add


def aliases() -> dict[str, str]:
    return {alias: v.version for v in listing.versions(NAME) for alias in v.aliases}


def test_the_registered_version_carries_lineage_evaluation_and_report(home, client, run_id, add):
    version, report = add(1)
    found = versions.find(f"{NAME}@candidate")
    assert (found.version, found.run_id) == (version, run_id) == ("1", run_id)
    assert found.checkpoint_digest == report.checkpoint_digest
    assert found.tags["lineage.dataset_md5"] == "0123456789abcdef0123456789abcdef.dir"
    assert found.tags["evaluation.success"] == "0.900000"
    place = f"evaluation/{report.digest[:12]}"
    attached = {f.path for f in client.list_artifacts(run_id, place)}
    assert attached == {f"{place}/evaluation.json", f"{place}/report.html"}
    models = client.search_logged_models([client.get_run(run_id).info.experiment_id])
    files = {
        f.path
        for f in client.list_logged_model_artifacts(models[0].model_id, "artifacts/checkpoint")
    }
    assert "artifacts/checkpoint/trainer_state" not in files
    assert "artifacts/checkpoint/model.safetensors" in files


def test_only_verdicts_of_the_models_gate_are_noted(home, add):
    version, report = add(1)
    promotion.note_verdict(NAME, version, dataclasses.replace(judge(report), gate_hash="another"))
    assert "gate.outcome" not in versions.find(f"{NAME}/1").tags
    promotion.note_verdict(NAME, version, judge(report))
    assert versions.find(f"{NAME}/1").tags["gate.outcome"] == "pass"
    assert aliases() == {"candidate": "1"}


def test_a_model_takes_policies_of_one_task_only(add):
    add(1, lineage=Lineage(environment=EnvironmentLineage("CartPole-v1")))
    add(2, lineage=Lineage(environment=EnvironmentLineage("CartPole-v1")))
    message = (
        f"'{NAME}' holds policies for CartPole-v1, but this one was trained on Pendulum-v1; give "
        f"another name, e.g. {NAME}-pendulum-v1"
    )
    with pytest.raises(ValueError, match=message):
        add(3, lineage=Lineage(environment=EnvironmentLineage("Pendulum-v1")))
    assert len(listing.versions(NAME)) == 2


def test_registering_the_same_checkpoint_again_gives_the_same_version(add):
    assert add(1)[0] == add(1)[0] == "1"
    assert add(2)[0] == "2"
    assert add(1, solved=12)[0] == "1"
    assert versions.find(f"{NAME}/1").tags["evaluation.success"] == "0.600000"
    assert aliases() == {"candidate": "1"}


def test_an_evaluation_of_another_checkpoint_is_refused(home, run_id, add):
    add(1)
    other = make_checkpoint(home / "checkpoints/2", 2)
    with pytest.raises(ValueError, match="the evaluation is of checkpoint"):
        registration.register(other, NAME, run_id, {}, home / "checkpoints/evaluation-1")
    assert [v.version for v in listing.versions(NAME)] == ["1"]


def test_a_tampered_checkpoint_is_not_registered(home, run_id):
    checkpoint = make_checkpoint(home / "checkpoints/1", 1)
    (checkpoint / "norm_stats.json").write_text('{"x": 1}')
    with pytest.raises(ValueError, match=r"norm_stats\.json was changed"):
        registration.register(checkpoint, NAME, run_id, {})
    assert not listing.versions()


def test_odd_names_and_unknown_runs_are_refused(home):
    checkpoint = make_checkpoint(home / "checkpoints/1", 1)
    with pytest.raises(ValueError, match="may contain only letters"):
        registration.register(checkpoint, "a@b", "0" * 32, {})
    with pytest.raises(ValueError, match="no MLflow run '000"):
        registration.register(checkpoint, NAME, "0" * 32, {})


def test_a_passing_version_becomes_champion_and_gets_a_ledger_entry(add):
    version, report = add(1)
    verdict = judge(report)
    entry = promotion.promote(NAME, version)
    assert aliases() == {"champion": "1"}
    assert (entry.index, entry.action, entry.champion, entry.previous) == (2, "promote", "1", None)
    assert (entry.verdict_digest, entry.protocol_hash) == (verdict.digest, report.protocol_hash)
    found = versions.champion(NAME)
    assert found is not None
    assert json.loads(found.tags["gate.verdict"])["digest"] == verdict.digest
    assert [e.action for e in promotion.ledger_of(NAME).entries] == ["gate", "promote"]


def test_promoting_the_champion_again_changes_nothing(add):
    version, _ = add(1)
    first = promotion.promote(NAME, version)
    assert promotion.promote(NAME, version) == first
    assert len(promotion.ledger_of(NAME).entries) == 2


def test_registering_the_champion_again_leaves_the_candidate_what_it_is(add):
    version, _ = add(1)
    promotion.promote(NAME, version)
    add(2)
    assert add(1)[0] == version
    assert aliases() == {"champion": "1", "candidate": "2"}


def test_a_failing_verdict_is_refused_with_its_reasons_which_stay_on_the_version(add):
    version, _ = add(1, solved=4)
    with pytest.raises(ValueError, match=r"says fail:\n  fail: overall: 4/20 solved"):
        promotion.promote(NAME, version)
    found = versions.find(f"{NAME}@candidate")
    assert found.tags["gate.outcome"] == "fail"
    assert "4/20 solved" in found.tags["gate.verdict"]
    assert [e.action for e in promotion.ledger_of(NAME).entries] == ["gate"]


def test_a_candidate_is_compared_with_the_champion_of_today(add):
    for seed in (1, 2):
        add(seed, solved=20)
    weak, _ = add(3, solved=12)
    promotion.promote(NAME, "1")
    with pytest.raises(promotion.NotPromotedError, match="champion: 0 won, 8 lost of 20 pairs"):
        promotion.promote(NAME, weak)
    promotion.promote(NAME, "2")
    verdict = json.loads(versions.find(f"{NAME}/2").tags["gate.verdict"])
    assert (verdict["champion_version"], verdict["best_version"]) == ("1", None)
    assert aliases() == {"champion": "2", "previous": "1", "candidate": "3"}


def without(lineage: Lineage, key: str) -> Lineage:
    """The lineage of one dataset without one of the facts that a promotion needs."""
    [dataset] = lineage.datasets
    return {
        "dataset_md5": lineage.replace(datasets=(dataclasses.replace(dataset, md5=None),)),
        "git_revision": lineage.replace(git_revision=None),
        "validation": lineage.replace(datasets=(dataclasses.replace(dataset, validation=None),)),
    }[key]


@pytest.mark.parametrize("key", ["dataset_md5", "git_revision", "validation"])
def test_incomplete_lineage_is_refused(home, add, key):
    version, _ = add(1, lineage=without(collect_lineage("demo"), key))
    with pytest.raises(ValueError, match=f"its lineage lacks {key}"):
        promotion.promote(NAME, version)
    add(1)
    promotion.promote(NAME, version)


def test_a_dataset_that_failed_its_validation_promotes_nothing(home, add):
    write_json(home / "datasets/reports/demo/validation.json", {"passed": False})
    version, _ = add(1)
    with pytest.raises(ValueError, match="validation of dataset demo is 'failed'"):
        promotion.promote(NAME, version)


def test_one_bad_dataset_of_a_mixture_promotes_nothing(home, add):
    add_dataset(home, "lab", "77.dir", passed=False)
    version, _ = add(1, lineage=collect_lineage("demo", "lab"))
    with pytest.raises(ValueError, match="of dataset demo, lab is 'passed, failed', not 'passed'"):
        promotion.promote(NAME, version)
    version, _ = add(2, lineage=collect_lineage("demo", "unknown"))
    with pytest.raises(ValueError, match="its lineage lacks dataset_md5, validation"):
        promotion.promote(NAME, version)


def test_a_version_that_was_never_evaluated_is_not_promoted(home, run_id, add):
    add(2)
    checkpoint = make_checkpoint(home / "checkpoints/1", 1)
    version = registration.register(checkpoint, NAME, run_id, collect_lineage("demo"))
    with pytest.raises(ValueError, match="has no evaluation under protocol 'p' of its gate"):
        promotion.promote(NAME, version)


def promote_three(add) -> None:
    for seed in (1, 2, 3):
        add(seed)
    for version in ("1", "2", "3"):
        promotion.promote(NAME, version)


def test_rollbacks_walk_back_through_the_champions(add):
    promote_three(add)
    entry = promotion.rollback(NAME, "drops the cup")
    assert (entry.version, entry.champion, entry.previous, entry.reason) == (
        "3",
        "2",
        "1",
        "drops the cup",
    )
    assert aliases() == {"champion": "2", "previous": "1"}
    promotion.rollback(NAME, "so does this one")
    assert aliases() == {"champion": "1"}
    with pytest.raises(ValueError, match="no previous champion"):
        promotion.rollback(NAME, "and this")
    actions = [e.action for e in promotion.ledger_of(NAME).entries]
    assert actions == ["gate"] + ["promote"] * 3 + ["rollback"] * 2


def test_a_rollback_from_a_named_version_happens_once(add):
    promote_three(add)
    first = promotion.rollback(NAME, "drops the cup", version="3")
    assert promotion.rollback(NAME, "drops the cup", version="3") == first
    assert aliases() == {"champion": "2", "previous": "1"}
    with pytest.raises(ValueError, match="champion of 'policy' is version 2, not 1"):
        promotion.rollback(NAME, "x", version="1")
    with pytest.raises(ValueError, match="needs a reason"):
        promotion.rollback(NAME, " ")


def test_an_alias_changed_by_hand_is_noticed_by_every_read_and_put_back_by_a_change(
    home, client, add
):
    promote_three(add)
    client.set_registered_model_alias(NAME, "champion", "1")
    message = "@champion of 'policy' is version 1 in MLflow, but version 3 by the promotion ledger"
    reads = [
        lambda: versions.champion(NAME),
        lambda: versions.find(f"{NAME}@champion"),
        lambda: versions.find(f"{NAME}@previous"),
        lambda: loading.fetch(f"{NAME}@champion", home / "out"),
        lambda: promotion.rivals(NAME),
    ]
    for read in reads:
        with pytest.raises(ValueError, match=message):
            read()
    assert listing.problems(NAME)
    assert versions.find(f"{NAME}/1").version == "1"  # a version by its number is what it is
    promotion.rollback(NAME, "drops the cup")
    assert listing.problems(NAME) == []
    assert aliases() == {"champion": "2", "previous": "1"}


def test_a_tampered_ledger_is_noticed_and_stops_promotions(client, add):
    promote_three(add)
    tags = dict(client.get_registered_model(NAME).tags)
    edit, remove = client.set_registered_model_tag, client.delete_registered_model_tag
    second = promotion.ledger_of(NAME).entries[1]

    damages = [
        (lambda: edit(NAME, "ledger.000002", edited(second)), "entry 2 was edited"),
        (lambda: edit(NAME, "ledger.000002", "{}"), "entry 2 is unreadable"),
        (lambda: remove(NAME, "ledger.000001"), "entry 1 was removed"),
        (lambda: remove(NAME, "ledger.000004"), "entries after 3 were cut off"),
    ]
    for damage, message in damages:
        damage()
        with pytest.raises(ValueError, match=message):
            promotion.ledger_of(NAME)
        with pytest.raises(ValueError, match=message):
            promotion.rollback(NAME, "drops the cup")
        for key, value in tags.items():
            edit(NAME, key, value)
    assert len(promotion.ledger_of(NAME).entries) == 4


def cut_off_the_last(client) -> None:
    """Remove the last entry and make the one before it the head, and the champion by its alias."""
    entries = promotion.ledger_of(NAME).entries
    client.delete_registered_model_tag(NAME, f"ledger.{len(entries):06d}")
    client.set_registered_model_tag(NAME, "ledger.head", entries[-2].hash)
    for alias, version in changes.expected_aliases(Ledger(NAME, entries[:-1])).items():
        if version:
            client.set_registered_model_alias(NAME, alias, version)


def test_the_last_entry_removed_with_its_head_and_aliases_is_noticed_by_who_has_seen_it(
    client, add
):
    promote_three(add)
    cut_off_the_last(client)
    with pytest.raises(ValueError, match="an entry that this workspace has seen"):
        versions.champion(NAME)
    assert "has seen" in listing.problems(NAME)[0]


def edited(entry: Entry) -> str:
    return entry.text().replace("promote", "rollback")


def test_fetching_brings_the_deployable_checkpoint_and_nothing_else(home, add):
    version, _ = add(1)
    promotion.promote(NAME, version)
    for number, reference in enumerate(
        (f"{NAME}@champion", f"models:/{NAME}@champion", f"{NAME}/1", NAME)
    ):
        out = home / f"fetched/{number}"
        assert loading.fetch(reference, out).version == "1"
        names = sorted(p.relative_to(out).as_posix() for p in out.rglob("*"))
        assert names == ["config.yaml", "manifest.json", "model.safetensors", "norm_stats.json"]
        assert (out / "model.safetensors").read_bytes() == (
            home / "checkpoints/1/model.safetensors"
        ).read_bytes()


def artifacts(client, run_id):
    experiment = client.get_run(run_id).info.experiment_id
    (model,) = client.search_logged_models([experiment])
    folder = local_folder(model.artifact_location, workspace.tracking_uri())
    assert folder
    return folder / "artifacts/checkpoint"


def test_tampered_and_replaced_artifacts_are_not_fetched(home, client, run_id, add):
    add(1)
    stored = artifacts(client, run_id)
    (stored / "norm_stats.json").write_text('{"x": 1}')
    with pytest.raises(ValueError, match=r"norm_stats\.json was changed"):
        loading.fetch(f"{NAME}/1", home / "out")
    shutil.rmtree(stored)
    shutil.copytree(make_checkpoint(home / "checkpoints/9", 9), stored)
    with pytest.raises(ValueError, match="they were replaced"):
        loading.fetch(f"{NAME}/1", home / "out")
    shutil.rmtree(stored)
    with pytest.raises(OSError, match="cannot be read"):
        loading.fetch(f"{NAME}/1", home / "out")
    assert not (home / "out").exists()


def test_fetching_what_is_not_there_says_what_is(home, add):
    with pytest.raises(ValueError, match="no model 'policy'"):
        loading.fetch(f"{NAME}@champion", home / "out")
    add(1)
    with pytest.raises(ValueError, match="no @champion; it has 1, @candidate"):
        loading.fetch(f"{NAME}@champion", home / "out")
    with pytest.raises(ValueError, match="no version 7"):
        loading.fetch(f"{NAME}/7", home / "out")
    (home / "precious").mkdir()
    (home / "precious/file").write_text("mine")
    with pytest.raises(ValueError, match="is not a checkpoint"):
        loading.fetch(f"{NAME}/1", home / "precious")
