"""The gate of a model: who may change it, what a promotion believes, and what it counts."""

import dataclasses
import json
import types

import pytest

from rrf import atomic
from rrf.evaluation.protocols.files import parse_protocol
from rrf.evaluation.results import Evaluation
from rrf.registry import changes, promotion, registration, rules, versions
from rrf.registry.entries import ModelGate
from rrf.registry.lineage_sources import collect_lineage
from tests.registry.conftest import GATE, make_checkpoint, make_evaluation, register, write_gate

NAME = "policy"


@pytest.fixture
def add(home, run_id):
    """Register checkpoint number `seed`, of which `solved` episodes of 20 succeeded."""

    def _add(
        seed: int,
        solved: int = 20,
        gate: str = "g",
        git_dirty: bool = False,
        data_pushed: bool | None = None,
    ) -> str:
        lineage = collect_lineage("demo")
        [dataset] = lineage.datasets
        lineage = lineage.replace(
            datasets=(dataclasses.replace(dataset, pushed=data_pushed),), git_dirty=git_dirty
        )
        version, _ = register(home, NAME, run_id, seed, solved, lineage, gate)
        return version

    return _add


def test_the_first_candidate_brings_the_gate_and_later_ones_do_not_change_it(home, add):
    easy = write_gate(home / "configs/gates/easy.yaml", overall_lower_bound=0.0)
    add(1, solved=19)
    promotion.promote(NAME, "1")
    weak = add(2, solved=3, gate="easy")
    with pytest.raises(promotion.NotPromotedError, match="gate g says fail"):
        promotion.promote(NAME, weak)
    found = promotion.gate_of(NAME)
    assert found is not None
    assert found.file == "configs/gates/g.yaml"
    assert f"not by {easy}" in promotion.other_gate(NAME, easy)
    assert promotion.other_gate(NAME, home / "configs/gates/g.yaml") == ""


def test_a_gate_is_changed_by_a_recorded_command_with_a_reason(home, add):
    lenient = {"overall_lower_bound": 0.0, "champion_margin": 1.0}
    easy = write_gate(home / "configs/gates/easy.yaml", **lenient)
    add(1, solved=19)
    with pytest.raises(ValueError, match="a change of gate needs a reason"):
        promotion.rule(NAME, easy, " ")
    entry = promotion.rule(NAME, easy, "a first look at the robot")
    assert (entry.action, entry.reason) == ("gate", "a first look at the robot")
    assert entry.gate is not None
    assert entry.gate["file"] == "configs/gates/easy.yaml"
    assert promotion.rule(NAME, easy, "again") == entry
    assert promotion.promote(NAME, add(2, solved=3)).champion == "2"


def test_a_gate_outside_the_workspace_is_not_recorded_by_any_way(home, add, tmp_path_factory):
    outside = write_gate(tmp_path_factory.mktemp("elsewhere") / "gates/g.yaml")
    refused = rf"{outside} lies outside the workspace {home}, .* copy it to configs/gates/"
    for record in (
        lambda: promotion.check_recordable(NAME, outside),
        lambda: promotion.check_recordable("new", outside),
        lambda: add(1, gate=f"../../../{outside.parents[1].name}/gates/g"),
    ):
        with pytest.raises(ValueError, match=refused):
            record()
    add(1)
    with pytest.raises(ValueError, match=refused):
        promotion.rule(NAME, outside, "a first look")
    # It may judge: it is the gate that rules the model, by its content.
    promotion.check_recordable(NAME, outside)
    assert promotion.other_gate(NAME, outside) == ""


@pytest.mark.slow
def test_of_several_evaluations_the_worst_counts_for_a_candidate_and_the_best_for_a_champion(
    home, add
):
    add(1, solved=20)
    promotion.promote(NAME, "1")
    for seed, solved in ((1, 8), (2, 3), (2, 19)):
        add(seed, solved=solved)
    with pytest.raises(promotion.NotPromotedError) as refusal:
        promotion.promote(NAME, "2")
    assert "overall: 3/20 solved" in str(refusal.value)
    assert "champion: 0 won, 17 lost of 20 pairs" in str(refusal.value)


def test_editing_the_file_of_the_gate_changes_nothing(home, add):
    version = add(1, solved=8)
    write_gate(home / "configs/gates/g.yaml", overall_lower_bound=0.0)
    with pytest.raises(promotion.NotPromotedError, match=r"8/20 solved.*below 0.500|0.500 lies"):
        promotion.promote(NAME, version)


def test_a_model_without_a_gate_promotes_nothing(home, run_id):
    checkpoint = make_checkpoint(home / "checkpoints/1", 1)
    make_evaluation(home / "evaluation", checkpoint, 20)
    lineage = collect_lineage("demo")
    version = registration.register(checkpoint, NAME, run_id, lineage, home / "evaluation")
    with pytest.raises(ValueError, match=r"no gate rules 'policy' yet.*rrf models gate policy"):
        promotion.promote(NAME, version)


def test_a_forged_verdict_in_the_tags_promotes_nothing(client, add):
    version = add(1, solved=3)
    client.set_model_version_tag(NAME, version, "gate.outcome", "pass")
    with pytest.raises(promotion.NotPromotedError, match="3/20 solved"):
        promotion.promote(NAME, version)


def test_an_evaluation_replaced_in_the_store_is_not_believed(home, client, run_id, add):
    version = add(1, solved=3)
    report = Evaluation.load(home / "checkpoints/evaluation-1")
    for episode in report.episodes:
        episode.success = True
    report.save(home / "forged/evaluation.json")
    digest = Evaluation.load(home / "checkpoints/evaluation-1").digest
    client.log_artifact(run_id, str(home / "forged/evaluation.json"), f"evaluation/{digest[:12]}")
    with pytest.raises(ValueError, match=r"was registered as .* it was replaced"):
        promotion.promote(NAME, version)


def test_an_evaluation_that_the_ledger_calls_longer_than_it_is_promotes_nobody(client, add):
    version = add(1)
    ledger = promotion.ledger_of(NAME)
    (stored,) = ledger.evaluations(version)
    longer = dataclasses.asdict(stored) | {"episodes_per_task": stored.episodes_per_task + 1}
    changes.append(
        client, ledger, action="evaluate", version=version, evaluation=longer, reason="lucky"
    )
    with pytest.raises(ValueError, match=r"has episodes_per_task \d+, but its evaluation"):
        promotion.promote(NAME, version)


def test_an_evaluation_under_another_protocol_overwrites_no_figures(home, run_id, add):
    version = add(1, solved=19)
    before = versions.find(f"{NAME}/1").tags
    checkpoint = home / "checkpoints/1"
    report = Evaluation.load(home / "checkpoints/evaluation-1")
    protocol = report.protocol | {"name": "easy", "seed": 99}
    report.protocol, report.protocol_hash = protocol, parse_protocol(protocol).hash
    for episode in report.episodes:
        episode.seed, episode.success = 99, True
    report.save(home / "easy/evaluation.json")
    lineage = collect_lineage("demo")
    assert registration.register(checkpoint, NAME, run_id, lineage, home / "easy") == version
    after = versions.find(f"{NAME}/1").tags
    figures = [key for key in before if key.startswith("evaluation.")]
    assert {k: after[k] for k in figures} == {k: before[k] for k in figures}
    assert len(promotion.ledger_of(NAME).evaluations("1")) == 2
    assert promotion.promote(NAME, version).champion == "1"


@pytest.mark.slow
def test_small_steps_down_are_stopped_by_the_best_champion_so_far(home, add):
    write_gate(home / "configs/gates/g.yaml", overall_lower_bound=0.0, champion_margin=0.45)
    for seed, solved in enumerate((20, 16, 13), start=1):
        add(seed, solved=solved)
    promotion.promote(NAME, "1")
    promotion.promote(NAME, "2")
    assert {role: v.version for role, v in promotion.rivals(NAME).items()} == {
        "champion": "2",
        "best": "1",
    }
    with pytest.raises(promotion.NotPromotedError) as refusal:
        promotion.promote(NAME, "3")
    assert "best champion: 0 won, 7 lost of 20 pairs" in str(refusal.value)
    assert "fail: champion:" not in str(refusal.value)


def test_each_further_candidate_against_a_champion_needs_more_evidence(home, add):
    write_gate(home / "configs/gates/g.yaml", champion_margin=0.05)
    add(1, solved=20)
    promotion.promote(NAME, "1")
    for seed in (2, 3, 4):
        add(seed, solved=20 - seed)
    assert promotion.attempt_of(NAME, "a checkpoint that is not registered") == 4
    for version in ("4", "3", "2"):
        with pytest.raises(promotion.NotPromotedError):
            promotion.promote(NAME, version)
        verdict = json.loads(versions.find(f"{NAME}/{version}").tags["gate.verdict"])
        assert verdict["attempt"] == int(version) - 1
        # .05 * 6 / (pi k)^2, one look
        assert verdict["confidence"] == pytest.approx(1 - 0.0303964 / verdict["attempt"] ** 2)


def test_what_was_rolled_back_stays_back_until_somebody_says_why_not(add):
    for seed in (1, 2):
        add(seed)
    promotion.promote(NAME, "1")
    promotion.promote(NAME, "2")
    promotion.rollback(NAME, "drops the cup")
    assert promotion.ledger_of(NAME).revoked["2"].reason == "drops the cup"
    add(2)  # the same flow again
    with pytest.raises(promotion.NotPromotedError, match=r"rolled back \(drops the cup\)"):
        promotion.promote(NAME, "2")
    assert promotion.promote(NAME, "2", unrevoke="the gripper was loose").champion == "2"
    actions = [(e.action, e.reason) for e in promotion.ledger_of(NAME).entries][-2:]
    assert actions[0] == ("unrevoke", "the gripper was loose")
    assert promotion.ledger_of(NAME).revoked == {}


def test_a_gate_can_forbid_uncommitted_code_and_unpushed_data(home, add):
    write_gate(home / "configs/gates/g.yaml", forbid_git_dirty=True, forbid_unpushed_data=True)
    version = add(1, git_dirty=True, data_pushed=True)
    with pytest.raises(promotion.NotPromotedError, match="forbid_git_dirty"):
        promotion.promote(NAME, version)
    add(1, git_dirty=False, data_pushed=False)
    with pytest.raises(promotion.NotPromotedError, match="forbid_unpushed_data"):
        promotion.promote(NAME, version)
    add(1, git_dirty=False, data_pushed=True)
    assert promotion.promote(NAME, version).champion == version


def test_a_gate_that_rrf_ships_is_recorded_by_the_name_that_every_workspace_knows(home):
    promotion.check_recordable("new", "configs/gates/pendulum.yaml")
    gate = rules.model_gate("configs/gates/pendulum.yaml")
    assert gate.file == "configs/gates/pendulum.yaml"
    assert not (home / gate.file).exists()


def test_a_gate_whose_simulator_is_not_imported_says_so_in_one_line():
    config = GATE.to_dict()
    config["protocol"]["env"] = "of-mine"
    recorded = ModelGate("configs/gates/g.yaml", atomic.digest_of(config), config)
    with pytest.raises(ValueError, match=r"no environment 'of-mine'.*; if it has to be") as error:
        rules.gate_of(types.SimpleNamespace(name=NAME, gate=recorded))
    assert "one of your own: --import MODULE" in str(error.value)
    assert "\n" not in str(error.value)
