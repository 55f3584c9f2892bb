"""Releases in a real store: who may act, what the outcomes say, and what the ledger holds."""

import collections
import dataclasses
import json
import re

import pytest

from rrf.evaluation.gates.release import EpisodeRow, is_canary
from rrf.identity import trust
from rrf.identity.trust import ModelTrustCfg
from rrf.mlflow_store import store
from rrf.registry import outcomes, promotion, releases, standing, taints
from rrf.registry.approvals import AwaitingApprovalError, sign
from rrf.registry.ledger import DamagedError
from rrf.registry.lineage_sources import collect_lineage
from rrf.registry.releases import running_in
from rrf.registry.rules import NotPromotedError
from rrf.registry.served import ServedModel
from rrf.registry.versions import find
from tests.people import no_keys, people  # noqa: F401 (fixtures)
from tests.registry.conftest import NAME, aliases, copy_of, decisions, new_run, register

RULES = "share: 0.5\nmargin: 0.2\nmax_episodes: 400\non_better: promote\n"


@pytest.fixture(scope="module")
def two_versions(tmp_path_factory, empty_store):
    """A repository with a champion, version 1, and version 2, which the gate passes."""
    with pytest.MonkeyPatch.context() as patch:
        root = copy_of(empty_store.parents[1], tmp_path_factory.mktemp("two"), patch)
        run_id = new_run(store.connect())
        for seed in (1, 2):
            register(root, NAME, run_id, seed, solved=18)
        promotion.promote(NAME, "1")
    return root


@pytest.fixture
def home(tmp_path, monkeypatch, two_versions):
    from mlflow.tracking._tracking_service import utils

    # MLflow remembers for each run where its artifacts are, and the copies have the same run.
    monkeypatch.setattr(utils, "_artifact_repos_cache", collections.OrderedDict())
    return copy_of(two_versions, tmp_path, monkeypatch)


@pytest.fixture
def pair(home):
    """The repository, with rules by which releases are quick."""
    rules(home)
    return home


def rules(home, text=RULES):
    file = home / "configs/releases/policy.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def rows(canary, champion, number=400, book="b1"):
    """Episodes of the release that runs, as a server has them: in each arm, of any number in a row
    this share is solved. (Which episodes an arm gets differs each time.)"""
    ledger = promotion.ledger_of(NAME)
    release = running_in(ledger)
    found, numbers = [], [0, 0]
    for k in range(number):
        id = f"{book}-{k}"
        mine = is_canary(id, release.hash, release.rules.share)
        digest = ledger.checkpoint_of(release.version if mine else release.facts.champion)
        rate, before = (canary if mine else champion), numbers[mine]
        numbers[mine] += 1
        success = int((before + 1) * rate + 1e-9) > int(before * rate + 1e-9)
        found.append(EpisodeRow(id, "", k, 100.0 + k, digest, "", True, success))
    return [
        {key: value for key, value in dataclasses.asdict(row).items() if key != "book"}
        for row in found
    ]


def report(found, book="b1"):
    release = running_in(promotion.ledger_of(NAME))
    ServedModel(NAME).report(release.hash, release.version, book, found)


def test_a_worse_canary_is_pulled_by_itself_and_revoked(pair):
    entry = releases.begin(NAME, "2")
    assert (entry.action, entry.version, entry.champion) == ("release", "2", "1")
    assert releases.begin(NAME, "2") == entry  # again changes nothing
    state = ServedModel(NAME).state()
    assert (state.champion, state.release.version, state.release.champion) == ("1", "2", "1")
    report(rows(0.2, 0.9, 60))
    assert running_in(promotion.ledger_of(NAME)) is None
    conclusion = decisions()[-1].conclusion
    assert (conclusion["outcome"], conclusion["revokes"]) == ("bad", True)
    assert conclusion["release"] == entry.hash
    state = ServedModel(NAME).state()
    assert (state.champion, state.release) == ("1", None)
    assert "version 2 of 'policy' was stopped as a canary at 20" in state.revoked["2"]
    assert "was stopped as a canary" in standing.standing_of(NAME, "2")
    (status,) = releases.statuses(NAME)
    assert status.decision.verdict == "bad"
    assert status.conclusion.conclusion["digest"]
    for again, command in ((promotion.promote, "promote"), (releases.begin, "release")):
        refused = rf"is not {command}d: it was stopped as a canary.*rrf models {command} {NAME} 2 "
        with pytest.raises(NotPromotedError, match=refused):
            again(NAME, "2")
    assert releases.begin(NAME, "2", unrevoke="the gripper was loose").action == "release"


def test_no_rollback_returns_to_a_former_champion_that_was_stopped_as_a_canary(pair):
    promotion.promote(NAME, "2")
    releases.begin(NAME, "1")
    report(rows(0.2, 0.9, 60))
    assert "was stopped as a canary" in standing.standing_of(NAME, "1")
    assert aliases()["champion"] == "2"
    assert "previous" not in aliases()
    with pytest.raises(ValueError, match="no previous champion to roll back to"):
        promotion.rollback(NAME, "drops the cup")


def test_a_good_canary_becomes_the_champion_if_the_rules_say_so(pair):
    releases.begin(NAME, "2")
    report(rows(0.95, 0.9))
    assert aliases()["champion"] == "2"
    assert [entry.action for entry in decisions()[-3:]] == ["release", "conclude", "promote"]
    assert decisions()[-2].conclusion["outcome"] == "good"
    assert ServedModel(NAME).conclude().is_superseded  # nothing more happens
    assert decisions()[-1].action == "promote"


def test_by_default_people_promote_what_the_outcomes_speak_for(pair, caplog):
    rules(pair, RULES.replace("promote", "tell"))
    releases.begin(NAME, "2")
    report(rows(0.95, 0.9))
    assert aliases()["champion"] == "1"
    (status,) = releases.statuses(NAME)
    assert (status.decision.verdict, status.conclusion) == ("good", None)
    assert status.advice == f"to make it the champion: rrf models promote {NAME} 2"
    assert f"(e reached 20 in block 21); {status.advice}" in re.sub(r"k \d+", "k 21", caplog.text)
    promotion.promote(NAME, "2")
    (status,) = releases.statuses(NAME)
    assert (status.is_superseded, status.advice) == (True, "")


def test_the_rules_are_those_of_the_time_when_it_began(pair):
    entry = releases.begin(NAME, "2")
    rules(pair, "share: 0.1\non_worse: tell\n")
    assert entry.release["config"]["share"] == 0.5
    report(rows(0.1, 0.9, 60))
    assert decisions()[-1].conclusion["outcome"] == "bad"


def test_undecided_ends_without_revoking(pair):
    rules(pair, RULES.replace("400", "40"))
    releases.begin(NAME, "2")
    report(rows(0.9, 0.9, 60))
    conclusion = decisions()[-1].conclusion
    assert (conclusion["outcome"], conclusion["episodes"]) == ("undecided", 40)
    assert ServedModel(NAME).state().revoked == {}


def test_somebody_stops_it_with_a_reason(pair):
    releases.begin(NAME, "2")
    with pytest.raises(ValueError, match="needs a reason"):
        releases.stop(NAME, " ")
    assert releases.stop(NAME, "it jitters").conclusion["outcome"] == "stopped"
    assert ": it jitters" in ServedModel(NAME).state().revoked["2"]
    with pytest.raises(ValueError, match="no release of 'policy' runs"):
        releases.stop(NAME, "again")


def test_a_shadow_needs_no_verdict_and_revokes_nothing(pair, add):
    add(3, solved=4)
    with pytest.raises(NotPromotedError, match="gate g says"):
        releases.begin(NAME, "3")
    releases.begin(NAME, "3", shadow=True)
    state = ServedModel(NAME).state()
    assert (state.release.version, state.release.shadow) == ("3", True)
    assert not any(state.release.is_canary(f"e{k}") for k in range(100))
    with pytest.raises(ValueError, match="a release of 'policy' version 3 runs; end it first"):
        releases.begin(NAME, "2")
    releases.stop(NAME, "seen enough")
    assert ServedModel(NAME).state().revoked == {}
    assert releases.statuses(NAME)[0].decision is None


def test_a_canary_whose_data_is_tainted_stops_acting_at_the_next_look(pair, caplog):
    releases.begin(NAME, "2")
    server = ServedModel(NAME)
    assert server.state().release.version == "2"
    taints.add("demo", "", [], "a loose gripper")
    state = server.state()  # it acts no more before anything is written, also without a key
    assert (state.champion, state.release, state.is_unfinished) == ("1", None, True)
    assert "version 2 of 'policy' must not act: it stands on dataset demo" in state.revoked["2"]
    assert set(state.revoked) == {"2"}  # the champion goes on, and is flagged
    assert "the champion 'policy' version 1: it stands on" in standing.flagged(NAME)[NAME]
    server.conclude()
    ended = decisions()[-1]
    assert (ended.action, ended.version, ended.champion) == ("conclude", "2", "1")
    assert ended.reason.endswith(": a loose gripper")
    assert (ended.conclusion["outcome"], ended.conclusion["revokes"]) == ("stopped", True)
    state = server.state()
    assert (state.release, state.is_unfinished) == (None, False)
    assert "was stopped as a canary" in state.revoked["2"]
    assert caplog.text.count("it must not go on: it stands on dataset demo") == 1  # told once


def test_a_canary_stops_when_what_it_was_trained_from_is_revoked_under_another_name(
    pair, add, run_id
):
    for seed in (4, 5):
        register(pair, "base", run_id, seed, 18)
        promotion.promote("base", str(seed - 3))
    parent = find("base/2").checkpoint_digest
    add(3, lineage=collect_lineage("demo").replace(parent_checkpoint=parent))
    for shadow in (True, False):
        releases.begin(NAME, "3", shadow=shadow)
        assert ServedModel(NAME).state().release.shadow == shadow
        if shadow:
            releases.stop(NAME, "seen enough")
    report(rows(0.9, 0.9, 8))
    promotion.rollback("base", "drops the cup")
    report(rows(0.9, 0.9, 9))  # a server that has not looked yet
    assert "'base' version 2, which was rolled back (drops the cup)" in decisions()[-1].reason
    assert ServedModel(NAME).state().release is None
    with pytest.raises(NotPromotedError, match="'base' version 2, which was rolled back"):
        releases.begin(NAME, "3", shadow=True)


def test_a_shadow_on_tainted_data_ends_and_is_not_revoked(pair):
    releases.begin(NAME, "2", shadow=True)
    taints.add("demo", "", [], "a loose gripper")
    server = ServedModel(NAME)
    assert server.state().release is None
    server.conclude()
    assert (decisions()[-1].action, server.state().revoked) == ("conclude", {})
    with pytest.raises(NotPromotedError, match="a loose gripper"):
        releases.begin(NAME, "2", shadow=True)


def test_a_list_of_taints_that_cannot_be_read_keeps_nothing_else_from_being_followed(pair, caplog):
    releases.begin(NAME, "2")
    (pair / taints.FILE).write_text("data: 3\n")
    server = ServedModel(NAME)
    assert server.state().release.version == "2"
    assert server.state().release.version == "2"
    assert caplog.text.count("tainted.yaml") == 1
    promotion.withdraw(NAME, "falls")
    assert server.state().champion is None


def test_another_champion_ends_it(pair, add):
    releases.begin(NAME, "2")
    add(3)
    promotion.promote(NAME, "3")
    assert ServedModel(NAME).state().release is None
    assert releases.statuses(NAME)[0].is_superseded
    releases.begin(NAME, "2")
    promotion.rollback(NAME, "falls")
    assert ServedModel(NAME).state().release is None


def test_without_a_champion_or_with_itself_there_is_no_release(home, run_id):
    register(home, "other", run_id, 1, 18)
    with pytest.raises(ValueError, match="needs another version as champion, which is missing"):
        releases.begin("other", "1")
    with pytest.raises(ValueError, match="which is version 1 itself"):
        releases.begin(NAME, "1")
    with pytest.raises(ValueError, match="has no version 7"):
        releases.begin(NAME, "7")


def test_several_servers_are_one_sequence_and_no_episode_counts_twice(pair):
    releases.begin(NAME, "2")
    part = rows(0.2, 0.9, 8)
    report(part, "b1")
    report(part, "b2")  # a robot that told two servers
    (status,) = releases.statuses(NAME)
    assert status.decision.canary.ended + status.decision.champion.ended == 8
    report(rows(0.2, 0.9, 60, "b3"), "b3")
    assert decisions()[-1].conclusion["outcome"] == "bad"
    kept = outcomes.kept(
        store.connect(),
        find("policy/2"),
        decisions()[-2].hash,
        decisions()[-1].conclusion["digest"],
    )
    assert set(kept["books"]) == {"b1", "b2", "b3"}


def artifact(home, pattern):
    (file,) = (home / ".rrf/mlartifacts").rglob(pattern)
    return file


def test_evidence_that_was_replaced_is_noticed(pair):
    releases.begin(NAME, "2")
    report(rows(0.2, 0.9, 60))
    digest = decisions()[-1].conclusion["digest"]
    file = artifact(pair, f"{digest[:12]}.json")
    content = json.loads(file.read_text())
    content["episodes"][0]["success"] = not content["episodes"][0]["success"]
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="is not what the ledger names"):
        releases.statuses(NAME)
    file.unlink()
    with pytest.raises(OSError, match="is gone, by which the release of"):
        releases.statuses(NAME)
    assert "stopped as a canary" in ServedModel(NAME).state().revoked["2"]


@pytest.mark.parametrize("damage", ["junk", "other book", "torn", "a list", "NaN", "huge"])
def test_a_stored_file_that_does_not_fit_is_left_out_and_named(pair, damage):
    releases.begin(NAME, "2")
    report(rows(0.9, 0.9, 8), "b1")
    file = artifact(pair, "b1.json")
    text = file.read_text()
    other = {
        "junk": '{"a": 1}',
        "other book": text.replace('"book": "b1"', '"book": "b2"'),
        "torn": text[:100],
        "a list": "[]",
        "NaN": text.replace("{", '{"more": NaN, ', 1),
        "huge": re.sub('"begun": [0-9.]+', '"begun": 1' + "0" * 400, text, count=1),
    }
    file.write_text(other[damage])
    (status,) = releases.statuses(NAME)
    assert status.decision.canary.ended == 0
    assert "books/b1.json of run" in status.stored.problems[0]
    report(rows(0.2, 0.9, 60, "b2"), "b2")  # it does not keep a bad canary acting
    assert decisions()[-1].conclusion["outcome"] == "bad"


def test_a_book_with_an_episode_of_another_checkpoint_does_not_count(pair):
    releases.begin(NAME, "2")
    found = rows(0.9, 0.9, 4)
    found[0]["digest"] = "f" * 64
    report(found)
    (status,) = releases.statuses(NAME)
    assert "book b1 is left out: episode 'b1-0' of book b1" in status.stored.problems[0]
    assert status.decision.canary.ended + status.decision.champion.ended == 0
    report(rows(0.2, 0.9, 60, "b2"), "b2")  # it does not keep a bad canary acting
    assert decisions()[-1].conclusion["outcome"] == "bad"


def test_a_promotion_that_was_killed_after_the_conclusion_is_finished(pair, monkeypatch):
    releases.begin(NAME, "2")

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(promotion, "promote", killed)
        with pytest.raises(KeyboardInterrupt):
            report(rows(0.95, 0.9))
    assert aliases()["champion"] == "1"
    assert ServedModel(NAME).state().is_unfinished
    promote = f"to make it the champion: rrf models promote {NAME} 2"
    assert [status.advice for status in releases.statuses(NAME)] == [promote]
    assert ServedModel(NAME).conclude().advice == ""
    assert aliases()["champion"] == "2"
    assert not ServedModel(NAME).state().is_unfinished


@pytest.fixture
def ruled(pair, people):  # noqa: F811
    """Alice's and bob's keys are trusted, and the ledger so far is believed."""
    end = promotion.ledger_of(NAME).end

    def rule(**changes):
        policy = ModelTrustCfg(believed_until={NAME: end}, **changes)
        trust.save(people.replace(models={"policy": policy}))

    rule()
    return rule


def test_entries_and_outcomes_are_signed(ruled, pair, monkeypatch):
    entry = releases.begin(NAME, "2")
    assert entry.signature
    report(rows(0.9, 0.9, 8), "b1")
    file = artifact(pair, "b1.json")
    content = json.loads(file.read_text())
    content["episodes"][0]["success"] = None
    file.write_text(json.dumps(content))
    (status,) = releases.statuses(NAME)
    assert "a signature that alice's key did not make" in status.stored.problems[0]
    del content["key"], content["signature"]
    file.write_text(json.dumps(content))
    assert "it is not signed" in releases.statuses(NAME)[0].stored.problems[0]
    file.write_text(json.dumps(content | {"format_version": 999}))
    assert "it is not signed" in releases.statuses(NAME)[0].stored.problems[0]
    ruled(allowed={"outcome": ["bob"], "release": ["alice"]})
    report(rows(0.9, 0.9, 8), "b1")
    assert "signed by alice, whose outcomes do not" in releases.statuses(NAME)[0].stored.problems[0]
    monkeypatch.setenv("RRF_KEY", "bob")
    report(rows(0.9, 0.9, 8), "b1")
    assert releases.statuses(NAME)[0].stored.problems == []


def test_who_may_not_release_or_conclude_does_neither(ruled):
    ruled(allowed={"release": ["bob"]})
    with pytest.raises(ValueError, match="alice, who may not release here"):
        releases.begin(NAME, "2")
    ruled(allowed={"conclude": ["bob"]})
    releases.begin(NAME, "2")
    with pytest.raises(ValueError, match="alice, who may not conclude here"):
        releases.stop(NAME, "because")


def test_a_canary_needs_the_approvals_of_a_promotion_and_a_shadow_none(ruled, monkeypatch):
    ruled(approvals=1)
    releases.begin(NAME, "2", shadow=True)
    releases.stop(NAME, "seen")
    with pytest.raises(AwaitingApprovalError, match="waits for 1 of 1 approvals"):
        releases.begin(NAME, "2")
    assert ServedModel(NAME).state().release is None
    monkeypatch.setenv("RRF_KEY", "bob")
    promotion.approve(sign(promotion.ledger_of(NAME), "2", "seen its videos"))
    monkeypatch.setenv("RRF_KEY", "alice")
    releases.begin(NAME, "2")
    report(rows(0.95, 0.9))
    assert aliases()["champion"] == "2"  # the same approvals hold for the promotion


def test_approvals_from_before_a_canary_was_stopped_do_not_hold_after_it(ruled, monkeypatch):
    ruled(approvals=1)
    with pytest.raises(AwaitingApprovalError):
        releases.begin(NAME, "2")
    monkeypatch.setenv("RRF_KEY", "bob")
    promotion.approve(sign(promotion.ledger_of(NAME), "2", "seen its videos"))
    monkeypatch.setenv("RRF_KEY", "alice")
    releases.begin(NAME, "2")
    report(rows(0.2, 0.9, 60))
    assert "staging" not in aliases()
    with pytest.raises(AwaitingApprovalError, match="waits for 1 of 1 approvals"):
        promotion.promote(NAME, "2", unrevoke="bad luck")
    assert aliases()["champion"] == "1"


def test_a_forged_conclusion_is_refused(ruled, client):
    releases.begin(NAME, "2")
    key = f"ledger.{len(promotion.ledger_of(NAME).entries):06d}"
    text = json.loads(client.get_registered_model(NAME).tags[key])
    text["release"]["config"]["on_worse"] = "tell"
    client.set_registered_model_tag(NAME, key, json.dumps(text))
    with pytest.raises(DamagedError, match="was edited"):
        ServedModel(NAME).state()


def test_people_are_told_once(pair, caplog):
    releases.begin(NAME, "2")
    release = running_in(promotion.ledger_of(NAME))
    server = ServedModel(NAME)
    server.report(release.hash, "2", "b1", rows(0.2, 0.9, 60))
    server.conclude()
    assert caplog.text.count("release of policy version 2: it is worse than the champion") == 1


def test_the_commands(pair, capsys):
    import typer.testing

    from rrf.cli import app

    def rrf(*words):
        result = typer.testing.CliRunner().invoke(app, ["models", *words])
        return result.output + str(result.exception or "")

    assert "no release yet" in rrf("releases", NAME)
    assert "give a version, --stop or --decide" in rrf("release", NAME)
    assert "policy version 2: 50 % of the episodes beside version 1" in rrf("release", NAME, "2")
    report(rows(0.9, 0.9, 8))
    shown = rrf("releases", NAME)
    assert "canary beside version 1 since 20" in shown
    assert "it waits for more episodes (e = " in shown
    assert "running" in rrf("release", NAME, "--decide")
    assert "and the version is revoked" in rrf("release", NAME, "--stop", "--reason", "jitters")
    assert "stopped: jitters" in rrf("releases", NAME)
    rules(pair, "share: 0.5\nmargin: 0.2\non_worse: tell\n")
    rrf("release", NAME, "2", "--unrevoke", "--reason", "tightened")
    report(rows(0.2, 0.9, 60))
    assert f"to end its release: rrf models release {NAME} --stop" in rrf("releases", NAME)
    rrf("release", NAME, "--stop", "--reason", "jitters")
    assert "release of version 2 ended: stopped" in " ".join(rrf("ledger", NAME).split())
    text = store.connect().get_model_version(NAME, "2").description
    assert text.startswith("Stopped as a canary: ")
    assert "- Acts as a canary since 20" in text
    assert "of the ledger): jitters" in text
    assert "It was stopped as a canary on 20" in rrf("card", f"{NAME}/2")
