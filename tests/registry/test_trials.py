"""Trials on a robot decide about promotions: planned in the ledger, scored, submitted, judged."""

import collections
import dataclasses
import json

import pytest
import yaml
from typer.testing import CliRunner

from rrf.cli import app
from rrf.evaluation.gates.gate import load_gate
from rrf.evaluation.results import Evaluation
from rrf.evaluation.trials.plan import Plan, folder_of
from rrf.evaluation.trials.record import Record, hold
from rrf.identity import keys, trust
from rrf.identity.trust import ModelTrustCfg
from rrf.mlflow_store import store
from rrf.registry import evidence, promotion, registration, taints, trials
from rrf.registry.lineage_sources import collect_lineage
from tests.evaluation.trials.studies import answer, play, write_configs
from tests.people import no_keys, people  # noqa: F401 (fixtures)
from tests.registry.conftest import NAME, aliases, copy_of, make_checkpoint, new_run, write_gate
from tests.registry.conftest import register as register_evaluated

RATES = {"only": 0.95, "champion": 0.5, "better": 1.0, "worse": 0.0, "equal": 0.5}


def rrf(*words) -> str:
    result = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def version(home, run_id, seed) -> str:
    checkpoint = make_checkpoint(home / f"checkpoints/{seed}", seed)
    return registration.register(checkpoint, NAME, run_id, collect_lineage("demo"))


def planned(home, name, **arms) -> Plan:
    file = home / f"configs/trials/{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    cfg = {"name": name, "model": NAME, "gate": "robot", "arms": arms}
    file.write_text(yaml.safe_dump(cfg, sort_keys=False))
    rrf("trial", "new", file)
    return Plan.load(folder_of(name))


def played(name, seed=0, most=10_000) -> None:
    with hold(folder_of(name)) as record:
        play(record, RATES, seed, most)


@pytest.fixture(scope="module")
def tried(tmp_path_factory, empty_store):
    """A model that trials rule, with a champion that one of them has made."""
    root = tmp_path_factory.mktemp("tried")
    with pytest.MonkeyPatch.context() as patch:
        copy_of(empty_store.parents[1], root, patch)
        write_configs(root)
        version(root, run := new_run(store.connect()), 1)
        promotion.rule(NAME, root / "configs/gates/robot.yaml", "tried on the robot")
        planned(root, "first", only=f"{NAME}/1")
        played("first")
        rrf("trial", "submit", "first")
        promotion.promote(NAME, "1")
    return root, run


@pytest.fixture
def model(tried, tmp_path, monkeypatch):
    """A copy of it. MLflow remembers for each run where its artifacts are, and copies have the same
    run."""
    from mlflow.tracking._tracking_service import utils

    monkeypatch.setattr(utils, "_artifact_repos_cache", collections.OrderedDict())
    return copy_of(tried[0], tmp_path, monkeypatch)


@pytest.fixture
def run_id(tried):
    """The run that trained all of its versions."""
    return tried[1]


def test_a_better_candidate_is_promoted_by_its_trial(model, run_id):
    version(model, run_id, 2)
    planned(model, "second", champion=f"{NAME}@champion", better=f"{NAME}/2")
    entry = promotion.ledger_of(NAME).entries[-1]
    assert (entry.action, entry.trial["digest"]) == ("trial", Plan.load(folder_of("second")).digest)
    with pytest.raises(ValueError, match="no evaluation under protocol"):
        promotion.promote(NAME, "2")
    played("second")
    said = rrf("trial", "submit", "second")
    assert "gate robot on better: pass" in said
    promotion.promote(NAME, "2")
    assert aliases()["champion"] == "2"
    kept = evidence.place(Evaluation.load(folder_of("second") / "results/better").digest)
    names = [a.path for a in store.connect().list_artifacts(run_id, kept)]
    assert f"{kept}/trial.json" in names
    card = rrf("models", "card", f"{NAME}/2")
    assert "in a trial on a robot" in card
    assert "simulation" not in card.split("## Limits")[1].split("##")[0]


def test_a_worse_candidate_is_refused_and_an_undecided_one_is_held(model, run_id):
    version(model, run_id, 2)
    planned(model, "second", champion=f"{NAME}/1", worse=f"{NAME}/2")
    played("second", most=8)
    assert "gate robot on worse: hold" in rrf("trial", "submit", "second", "--early")
    with pytest.raises(promotion.NotPromotedError, match="says hold"):
        promotion.promote(NAME, "2")
    played("second", seed=1)
    rrf("trial", "submit", "second")
    with pytest.raises(promotion.NotPromotedError, match="says fail"):
        promotion.promote(NAME, "2")
    assert aliases()["champion"] == "1"


@pytest.mark.slow
def test_a_gate_may_ask_for_simulation_and_trial_in_any_order(home):
    run = new_run(store.connect())
    write_configs(home)
    both = write_gate(home / "configs/gates/both.yaml", trial="robot")
    register_evaluated(home, NAME, run, 1, 18, gate="both")
    with pytest.raises(promotion.NotPromotedError, match=r"hold: trial: it has not been tried"):
        promotion.promote(NAME, "1")
    planned(home, "first", only=f"{NAME}/1")
    with pytest.raises(promotion.NotPromotedError, match=r"rrf trial new configs/trials/FILE"):
        promotion.promote(NAME, "1")  # planned is not played
    played("first")
    rrf("trial", "submit", "first")
    digest = Evaluation.load(folder_of("first") / "results/only").digest
    assert promotion.promote(NAME, "1").champion == "1"
    verdict = json.loads(store.connect().get_model_version(NAME, "1").tags["gate.verdict"])
    assert (verdict["gate"], verdict["trial_evaluation"]) == ("g", digest)
    assert len(promotion.rivals(NAME)) == len(promotion.rivals(NAME, in_trial=True)) == 1

    version(home, run, 2)  # now the trial comes before the simulation
    plan = planned(home, "second", champion=f"{NAME}@champion", better=f"{NAME}/2")
    assert plan.attempt == 1
    assert planned(home, "given-up", champion=f"{NAME}/1", better=f"{NAME}/2").attempt == 2
    played("second")
    rrf("trial", "submit", "second")
    with pytest.raises(ValueError, match="version 2 has no evaluation under protocol 'p' of its"):
        promotion.promote(NAME, "2")
    register_evaluated(home, NAME, run, 2, 18, gate="both")
    trial = promotion.trial_verdict(NAME, plan.arms[1].digest, load_gate(both))
    assert (trial.outcome, trial.champion_version, trial.attempt) == ("pass", "1", 1)
    promotion.promote(NAME, "2")
    assert aliases()["champion"] == "2"

    register_evaluated(home, NAME, run, 3, 18, gate="both")  # and the robot says no
    planned(home, "third", champion=f"{NAME}/2", worse=f"{NAME}/3")
    played("third")
    rrf("trial", "submit", "third")
    with pytest.raises(promotion.NotPromotedError, match=r"gate g says fail:\n  fail: trial: "):
        promotion.promote(NAME, "3")


@pytest.mark.slow
def test_results_without_a_plan_in_the_ledger_promote_nothing(model, run_id):
    version(model, run_id, 2)
    planned(model, "second", champion=f"{NAME}/1", better=f"{NAME}/2")
    played("second")
    folder = folder_of("second")
    plan = Plan.load(folder)
    other = dataclasses.replace(plan, notes="planned when the results were known")
    (folder / "plan.json").unlink()
    secret = (folder / "order.secret").read_text().strip()
    moved = folder.rename(folder.with_name("away"))
    other.save(folder, secret)
    lines = [json.loads(line) for line in (moved / "record.jsonl").read_text().splitlines()]
    with hold(folder) as record:
        for line in lines:  # the same answers under the other plan
            if line["event"] == "begin":
                record.begin(line["trial"])
            elif line["event"] == "score":
                record.score(line["trial"], {**line, "id": line["answer"]})
        with pytest.raises(ValueError, match=r"the plan of 'second' .* is not in the ledger"):
            trials.submit(record, secret, folder / "results")
        folders = trials.write(record, secret, folder / "results")
    registration.store_evaluation(NAME, "2", folders["better"], attempt=True)
    registration.store_evaluation(NAME, "1", folders["champion"], attempt=False)
    with pytest.raises(ValueError, match=r"nobody knows that it was planned before it was played"):
        promotion.promote(NAME, "2")


@pytest.mark.slow
def test_a_changed_plan_is_refused_by_name(model, run_id):
    version(model, run_id, 2)
    planned(model, "second", champion=f"{NAME}/1", better=f"{NAME}/2")
    version(model, run_id, 3)
    with pytest.raises(ValueError, match="'second' was planned already, with other arms"):
        planned(model, "second", champion=f"{NAME}/1", better=f"{NAME}/3")
    file = folder_of("second") / "plan.json"
    file.write_text(file.read_text().replace('"attempt": 1', '"attempt": 2'))
    with pytest.raises(ValueError, match=r"plan\.json was changed after the study was planned"):
        Record(folder_of("second"))


@pytest.mark.slow
def test_studies_that_were_given_up_count_as_attempts(model, run_id):
    version(model, run_id, 2)
    arms = {"champion": f"{NAME}/1", "better": f"{NAME}/2"}
    assert planned(model, "one", **arms).attempt == 1
    assert planned(model, "one", **arms).attempt == 1  # again: nothing changes
    assert planned(model, "two", **arms).attempt == 2
    assert planned(model, "three", **arms).attempt == 3
    played("three")
    rrf("trial", "submit", "three")
    promotion.promote(NAME, "2")
    confidences = json.loads(store.connect().get_model_version(NAME, "2").tags["gate.verdict"])
    assert (confidences["attempt"], confidences["round"]) == (3, 0)


@pytest.mark.slow
def test_a_trial_against_an_earlier_champion_or_under_another_gate_promotes_nothing(model, run_id):
    version(model, run_id, 2)
    version(model, run_id, 3)
    planned(model, "old", champion=f"{NAME}/1", better=f"{NAME}/3")
    planned(model, "new", champion=f"{NAME}/1", better=f"{NAME}/2")
    for name in ("old", "new"):
        played(name)
    rrf("trial", "submit", "old")
    rrf("trial", "submit", "new")
    promotion.promote(NAME, "2")
    with pytest.raises(ValueError, match=r"version 3 has no evaluation under protocol 'drawer'"):
        promotion.promote(NAME, "3")
    folder = folder_of("old")
    record = Record(folder)
    with pytest.raises(ValueError, match=r"planned when the champion .* was version 1, and now it"):
        trials.submit(record, record.plan.secret(folder), folder / "r")


@pytest.mark.slow
def test_the_first_arm_is_the_champion_and_it_must_be_there(model, run_id):
    version(model, run_id, 2)
    with pytest.raises(ValueError, match=r"champion of 'policy', version 1, so it must be an arm"):
        planned(model, "second", better=f"{NAME}/2")
    with pytest.raises(ValueError, match=r"let it be the champion: policy/1"):
        planned(model, "second", better=f"{NAME}/2", champion=f"{NAME}/1")


@pytest.mark.slow
def test_no_trial_begins_of_a_version_that_must_not_act(model, run_id):
    version(model, run_id, 2)
    arms = {"champion": f"{NAME}@champion", "better": f"{NAME}/2"}
    planned(model, "before", **arms)
    taints.add("demo", "", [], "a loose gripper")
    wanted = r"of 'second' begins, because of its arm 'better': version 2 of 'policy' must not act"
    with pytest.raises(ValueError, match=f"{wanted}: it stands on dataset demo.*tainted.yaml"):
        planned(model, "second", **arms)
    assert not folder_of("second").exists()
    with pytest.raises(ValueError, match="no trial of 'before' begins"):
        rrf("trial", "serve", "before", "--page-only", "--port", "0")
    (model / taints.FILE).unlink()
    planned(model, "second", **arms)
    promotion.withdraw(NAME, "hits the table")
    reason = "'champion': version 1 of 'policy' was withdrawn .*: hits the table; .* --unrevoke"
    with pytest.raises(ValueError, match=reason):
        rrf("trial", "serve", "second", "--page-only", "--port", "0")


def test_evaluating_by_a_machine_is_refused(model):
    result = CliRunner().invoke(
        app, ["eval", f"{NAME}@champion", "--gate", "configs/gates/robot.yaml"]
    )
    assert "which people make and score" in str(result.exception)


@pytest.mark.slow
def test_results_are_shown_early_only_if_that_is_recorded(model, run_id):
    version(model, run_id, 2)
    planned(model, "second", champion=f"{NAME}/1", equal=f"{NAME}/2")
    with hold(folder_of("second")) as record:
        for number in range(5):
            answer(record, number, success=True)
    result = CliRunner().invoke(app, ["trial", "report", "second"])
    assert "goes on (5 of at most 160 trials)" in str(result.exception)
    said = rrf("trial", "report", "second", "--early")
    assert "looked at before it was over: after 5 trials" in said
    assert "equal (policy/2): 1.000" in said
    assert Record(folder_of("second")).lines[-1]["event"] == "look"


@pytest.mark.slow
def test_a_plan_is_signed_where_signatures_are_asked_for(model, run_id, request, monkeypatch):
    cfg = request.getfixturevalue("people")
    version(model, run_id, 2)
    end = promotion.ledger_of(NAME).end
    rules = ModelTrustCfg(allowed={"trial": ["alice"]}, believed_until={NAME: end})
    trust.save(cfg.replace(models={NAME: rules}))
    arms = {"champion": f"{NAME}/1", "better": f"{NAME}/2"}
    planned(model, "second", **arms)
    entry = promotion.ledger_of(NAME).entries[-1]
    assert (entry.action, entry.actor, bool(entry.signature)) == ("trial", "alice", True)
    monkeypatch.setenv(keys.NAME_VARIABLE, "bob")
    with pytest.raises(ValueError, match="signed by bob, who may not trial here"):
        planned(model, "third", **arms)
    monkeypatch.setenv(keys.NAME_VARIABLE, "alice")
    played("second")
    rrf("trial", "submit", "second")
    assert promotion.promote(NAME, "2").champion == "2"


@pytest.mark.slow
def test_a_killed_plan_is_completed_by_planning_it_again(model, run_id, monkeypatch):
    version(model, run_id, 2)
    arms = {"champion": f"{NAME}/1", "better": f"{NAME}/2"}

    def killed(plan):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trials, "register", killed)
        with pytest.raises((KeyboardInterrupt, AssertionError)):
            planned(model, "second", **arms)
    made = Plan.load(folder_of("second"))
    with pytest.raises(ValueError, match="is not in the ledger of 'policy'; write it there before"):
        trials.check_planned(made)
    assert planned(model, "second", **arms) == made
    trials.check_planned(made)
