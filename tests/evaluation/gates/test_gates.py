"""Verdicts worked by hand: pass, hold, fail, against the champion, over several looks."""

import dataclasses
import json

import pytest
import yaml

from rrf.evaluation.gates.decision import Rival, decide, share_of
from rrf.evaluation.gates.gate import GateCfg, load_gate
from rrf.evaluation.gates.verdicts import Check, Verdict
from rrf.evaluation.results import EpisodeResult, Evaluation
from rrf.evaluation.vla.configs import ProtocolCfg
from tests.evaluation.trials.studies import GATE as ROBOT
from tests.evaluation.trials.studies import write_configs

PROTOCOL = ProtocolCfg(name="p", tasks=["a", "b"], seed=1, episodes_per_task=20)


def report(
    *solved: set[int] | int, digest: str = "candidate", episodes: int = 20, **changes
) -> Evaluation:
    """One argument per task: which indices are solved, or how many of the first ones."""
    protocol = PROTOCOL.replace(episodes_per_task=episodes).replace(**changes)
    results = []
    for task, which in zip(protocol.tasks, solved, strict=True):
        indices = set(range(which)) if isinstance(which, int) else which
        results += [EpisodeResult(task, 1, i, i in indices, 10, 1.0) for i in range(episodes)]
    return Evaluation(protocol.to_dict(), protocol.hash, digest, results, {})


def gate(**changes) -> GateCfg:
    return GateCfg(
        name="g", protocol=PROTOCOL, overall_lower_bound=0.5, looks=[20, 35, 50]
    ).replace(**changes)


def test_a_name_that_cannot_be_part_of_a_file_name_is_refused():
    with pytest.raises(ValueError, match=r"gate name 'a/b' becomes part of a file name; it may"):
        gate(name="a/b")


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [
        # The first attempt has 6 / pi^2 of .05, and three looks share that: level .010132.
        # The exact lower bound of k/40 reaches .5 when P(X >= k) <= .010132, X ~ Bin(40, 1/2):
        # P(X >= 28) = .0083, P(X >= 27) = .0192
        (14, 14, "pass"),
        (14, 13, "hold"),
        # and by symmetry the upper bound is below .5 when k <= 12
        (7, 6, "hold"),
        (6, 6, "fail"),
    ],
)
def test_overall_bounds_decide_pass_hold_and_fail(first, second, outcome):
    assert decide(report(first, second), gate()).outcome == outcome


def test_a_single_look_pays_nothing_for_others():
    # level .030396: P(X >= 27) = .0192, P(X >= 26) = .0403
    single = gate(looks=[20])
    assert decide(report(14, 13), single).outcome == "pass"
    assert decide(report(13, 13), single).outcome == "fail"  # a hold at the last look


def test_later_attempts_need_more_evidence_and_all_together_have_the_error_of_one():
    # attempt 2 of a single look: level .05 * 6 / (2 pi)^2 = .0076; P(X >= 28) = .0083
    single = gate(looks=[20])
    assert decide(report(14, 14), single, attempt=1).outcome == "pass"
    assert decide(report(14, 14), single, attempt=2).outcome == "fail"
    assert decide(report(15, 14), single, attempt=2).outcome == "pass"  # P(X >= 29) = .0032
    assert sum(share_of(attempt) for attempt in range(1, 100_000)) == pytest.approx(1, abs=1e-4)
    with pytest.raises(ValueError, match="attempts are counted from 1"):
        decide(report(14, 14), single, attempt=0)


def test_a_gate_that_asks_for_a_trial_passes_only_with_its_verdict():
    asks, solved = gate(looks=[20], trial=ROBOT), report(18, 18)
    alone = decide(solved, asks)
    assert (alone.outcome, alone.more_episodes_per_task) == ("hold", 0)
    assert "rrf trial new configs/trials/FILE.yaml" in alone.reasons[0]
    assert decide(report(2, 2), asks).outcome == "fail"  # no trial would help
    tried = Verdict(
        "pass", "robot", ROBOT.hash, "", "candidate", "digest of trials", None, None, 0, 1, 0.97,
        {}, (Check("overall", "pass", "overall: 9/9 solved"),),
    )  # fmt: skip
    both = decide(solved, asks, trial=tried)
    assert (both.outcome, both.trial_evaluation) == ("pass", "digest of trials")
    assert "pass: trial: overall: 9/9 solved" in both.reasons
    assert Verdict.from_dict(both.to_dict()) == both
    for outcome in ("hold", "fail"):
        lost = dataclasses.replace(tried, checks=(Check("overall", outcome, ""),))
        assert decide(solved, asks, trial=lost).outcome == outcome
    with pytest.raises(ValueError, match=r"on checkpoint candidate, not by gate 'robot' of this"):
        decide(report(18, 18, digest="another"), asks, trial=tried)
    # verdicts without trials have the digest that they had before there were any
    assert "trial_evaluation" not in decide(solved, gate(looks=[20])).to_dict()


def test_a_gate_names_its_trial_by_a_file_and_no_trial_names_another(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    write_configs(tmp_path)
    gates = tmp_path / "configs/gates"
    shipped = load_gate("configs/gates/tiny.yaml")
    data = {k: v for k, v in shipped.to_dict().items() if k != "type"} | {"trial": "robot"}
    (gates / "both.yaml").write_text(yaml.safe_dump(data))
    assert load_gate(gates / "both.yaml") == shipped.replace(trial=ROBOT)
    (gates / "loop.yaml").write_text(yaml.safe_dump(data | {"trial": "loop"}))
    with pytest.raises(ValueError, match=r"loop\.yaml: trial: loop asks for a trial itself"):
        load_gate(gates / "loop.yaml")
    (gates / "wrong.yaml").write_text(yaml.safe_dump(data | {"trial": "tiny"}))
    with pytest.raises(ValueError, match=r"not 'tiny' beside 'tiny'"):
        load_gate(gates / "wrong.yaml")


def test_one_forgotten_task_fails_however_good_the_other_is():
    found = decide(report(20, 8), gate(task_lower_bound=0.7, overall_lower_bound=0.1))
    assert found.outcome == "fail"
    assert found.reasons[0].startswith("fail: b: 8/20 solved")
    assert "below 0.700" in found.reasons[0]


def test_reasons_carry_the_numbers():
    # The bounds are quantiles of Beta(28, 13) and Beta(29, 12) at .010132.
    found = decide(report(14, 14), gate())
    assert found.reasons[0] == (
        "pass: overall: 28/40 solved, exact 99.0 % bounds 0.506 to 0.853; the lower reaches 0.500"
    )
    held = decide(report(14, 13), gate())
    assert "27/40 solved" in held.reasons[0]
    # z = 2.3212, n = 5.3880 * .25 / .175^2 = 43.98
    assert held.reasons[0].endswith("0.500 lies between, about 44 would tell")


def test_a_hold_asks_for_the_episodes_of_the_next_look():
    assert decide(report(14, 13), gate()).more_episodes_per_task == 15
    second = decide(report(21, 21, episodes=35), gate(), round=1)
    assert (second.outcome, second.more_episodes_per_task) == ("hold", 15)


def test_too_few_episodes_are_a_hold_without_a_look_at_the_outcomes():
    found = decide(report(12, 12, episodes=12), gate())
    assert (found.outcome, found.more_episodes_per_task) == ("hold", 8)
    assert found.reasons == ["hold: 12 episodes per task, look 1 of 3 needs 20"]


def test_a_look_judges_its_own_number_of_episodes_however_many_there_are():
    # as after 20 episodes per task, whatever the other 5 say
    for solved, outcome in ((14, "pass"), (13, "hold")):
        for later in ({*range(20, 25)}, set()):
            longer = report({*range(14)} | later, {*range(solved)} | later, episodes=25)
            found = decide(longer, gate(), champion(20 - solved, 0, episodes=25))
            same = decide(report(14, solved), gate(), champion(20 - solved, 0))
            assert (found.outcome, found.reasons) == (outcome, same.reasons)
            assert found.success == same.success
            assert found.evaluation_digest == longer.digest
            assert found.more_episodes_per_task == (10 if outcome == "hold" else 0)
    beyond = report(14, 13, episodes=25)
    assert (
        decide(beyond, gate(looks=[20])).reasons == decide(report(14, 13), gate(looks=[20])).reasons
    )


def test_a_hold_at_the_last_look_is_a_fail():
    found = decide(report(28, 28, episodes=50), gate(), round=2)
    assert found.outcome == "fail"
    assert found.more_episodes_per_task == 0
    assert found.reasons[0].endswith("undecided after the last of 3 looks")


def test_rounds_beyond_the_last_look_do_not_exist():
    with pytest.raises(ValueError, match=r"rounds 0\.\.2, but not round 3"):
        decide(report(20, 20), gate(), round=3)


def champion(*solved: set[int] | int, **options) -> Rival:
    return Rival(report(*solved, digest="champion", **options), "3")


def test_equal_policies_pass_against_the_champion_when_little_can_be_lost():
    # A loss of .12 or more shows in none of 40 pairs with probability .88^40 = .0060 at most, one
    # of .1 with .9^40 = .0148. (Where wins make up for losses, it is less.)
    found = decide(report(18, 18), gate(champion_margin=0.15), champion(18, 18))
    assert found.outcome == "pass"
    assert (found.champion_digest, found.champion_version) == ("champion", "3")
    assert decide(report(18, 18), gate(champion_margin=0.1), champion(18, 18)).outcome == "hold"


def test_a_regression_against_the_champion_fails_although_the_threshold_is_met():
    # 8 losses, 0 wins: p = 2^-8 = .0039 <= .010132
    found = decide(report(16, 16), gate(), champion(20, 20))
    assert found.outcome == "fail"
    assert "0 won, 8 lost of 40 pairs, difference -0.200" in found.reasons[0]
    assert "p(not worse) 0.0039" in found.reasons[0]


def test_pairs_count_not_totals():
    # the same totals, 18 and 18 of 20 per task, solved on other initial states: 4 wins, 4 losses,
    # no evidence
    candidate = report(set(range(2, 20)), set(range(2, 20)))
    found = decide(candidate, gate(), champion(18, 18))
    check = next(c for c in found.checks if c.name == "champion")
    assert "4 won, 4 lost of 40 pairs, difference +0.000" in check.reason
    assert check.outcome == "hold"


def test_a_task_the_champion_solves_and_the_candidate_unlearned_fails():
    # on b 8 losses: p = 2^-8 = .0039 <= .010132 / 2; on a 8 wins make up for it overall
    found = decide(report(20, 12), gate(champion_margin=0.5), champion(12, 20))
    assert [c.name for c in found.checks if c.outcome == "fail"] == ["champion on b"]
    assert "0 won, 8 lost of 20 pairs" in found.reasons[0]


def test_a_task_that_may_have_lost_too_much_is_held_although_all_tasks_together_are_better():
    # 92 % to 60 % on b is not proved to be worse, and not proved to be harmless either
    found = decide(report(20, {*range(12)}), gate(champion_margin=0.5), champion(12, 18))
    check = next(c for c in found.checks if c.name == "champion on b")
    assert (found.outcome, check.outcome) == ("hold", "hold")
    assert "a loss of 0.300 is possible" in check.reason
    tolerant = gate(champion_margin=0.5, task_margin=1.0)
    assert decide(report(20, {*range(12)}), tolerant, champion(12, 18)).outcome == "pass"


def test_the_best_champion_so_far_counts_as_much_as_the_champion():
    wide = gate(champion_margin=0.3, task_margin=1.0)
    candidate, best = report(15, 15), Rival(report(20, 20, digest="best"), "1")
    assert decide(candidate, wide, champion(16, 16)).outcome == "pass"
    found = decide(candidate, wide, champion(16, 16), best)
    assert (found.outcome, found.best_version) == ("fail", "1")
    assert found.reasons[0].startswith("fail: best champion: 0 won, 10 lost of 40 pairs")


def test_margin_zero_demands_evidence_of_being_better():
    better = gate(champion_margin=0.0)
    assert decide(report(10, 10), better, champion(10, 10)).outcome == "hold"
    assert decide(report(19, 19), better, champion(10, 10)).outcome == "pass"


def test_the_champion_itself_passes():
    same = Rival(report(18, 18, digest="same"))
    found = decide(report(18, 18, digest="same"), gate(champion_margin=0.0), same)
    assert found.outcome == "pass"


def test_evaluations_under_another_protocol_are_refused():
    with pytest.raises(ValueError, match="but gate 'g' needs protocol 'p'"):
        decide(report(20, 20, max_episode_steps=400), gate())
    longer = champion(20, 20, episodes=35)
    with pytest.raises(ValueError, match="different initial states"):
        decide(report(20, 20), gate(), longer)


def test_a_simulator_of_another_version_is_another_protocol():
    old = champion(12, 12)  # on record, from before versions were a part of protocols
    new = report(14, 14, simulator_versions={"mujoco": "3.3.2"})
    assert decide(report(14, 14), gate(), old).outcome == "pass"
    assert decide(new, gate()).outcome == "pass"
    with pytest.raises(ValueError, match="another protocol") as error:
        decide(new, gate(), old)
    assert str(error.value) == (
        "the candidate was evaluated with mujoco 3.3.2, the champion with unrecorded versions; "
        "a simulator of another version is another protocol: evaluate both again"
    )
    pinned = gate(protocol=PROTOCOL.replace(simulator_versions={"mujoco": "3.3.2"}))
    assert decide(new, pinned).outcome == "pass"
    for versions, words in (({"mujoco": "3.3.7"}, "mujoco 3.3.7"), ({}, "unrecorded versions")):
        with pytest.raises(ValueError, match=f"evaluated with {words}.*needs mujoco 3.3.2"):
            decide(report(14, 14, simulator_versions=versions), pinned)


def test_left_out_episodes_are_noticed():
    trimmed = report(19, 19)
    trimmed.episodes = [e for e in trimmed.episodes if e.success]
    with pytest.raises(
        ValueError, match="38 episodes, which are not the 40 episodes of its protocol"
    ):
        decide(trimmed, gate())
    renamed = report(20, 20)
    renamed.protocol = {**renamed.protocol, "seed": 2}
    with pytest.raises(ValueError, match="does not match its protocol_hash"):
        decide(renamed, gate())


def test_a_verdict_survives_the_disk_and_notices_edits(tmp_path):
    found = decide(report(7, 6), gate(), champion(18, 18), attempt=2)
    found.save(tmp_path / "verdict.json")
    assert Verdict.load(tmp_path / "verdict.json") == found
    data = json.loads((tmp_path / "verdict.json").read_text())
    assert data["outcome"] == "fail"
    data["outcome"] = "pass"
    (tmp_path / "verdict.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match="edited after the gate wrote it"):
        Verdict.load(tmp_path / "verdict.json")
    (tmp_path / "verdict.json").write_text("[]")
    with pytest.raises(ValueError, match=r"verdict\.json holds a list, not a verdict"):
        Verdict.load(tmp_path / "verdict.json")


def test_verdict_depends_on_its_arguments_alone():
    arguments = (report(14, 13), gate(), champion(12, 12))
    assert decide(*arguments).digest == decide(*arguments).digest


def test_every_field_changes_the_hash():
    assert gate().hash == gate().hash
    assert gate(task_margin=0.2).hash != gate().hash
    assert gate(forbid_git_dirty=True).hash != gate().hash


def test_bad_gates_are_refused_with_their_file(tmp_path):
    (tmp_path / "gates").mkdir()
    (tmp_path / "protocols").mkdir()
    (tmp_path / "protocols/p.yaml").write_text("{name: p, tasks: [a], seed: 1}")
    bad = tmp_path / "gates/bad.yaml"
    bad.write_text("{name: bad, protocol: p, overall_lower_bound: 1.5}")
    with pytest.raises(ValueError, match=r"bad\.yaml.*overall_lower_bound is 1\.5"):
        load_gate(bad)
    bad.write_text("{name: bad, protocol: p, overall_lower_bound: 0.5, looks: [20, 10]}")
    with pytest.raises(ValueError, match="must be increasing numbers"):
        load_gate(bad)
    bad.write_text("{name: bad, protocol: q, overall_lower_bound: 0.5}")
    with pytest.raises(ValueError, match=r"no file .*q\.yaml"):
        load_gate(bad)
    bad.write_text("{name: bad, protocol: p, overall_lower: 0.5}")
    with pytest.raises(ValueError, match="did you mean 'overall_lower_bound'"):
        load_gate(bad)


def test_the_worst_group_of_tasks_counts():
    grouped = PROTOCOL.replace(groups={"as trained": ["a"], "in the dark": ["b"]})
    lenient = gate(protocol=grouped, overall_lower_bound=0.3)
    strict = lenient.replace(group_lower_bound=0.3)
    # Two tasks of 20 each: the exact bound of 9/20 at level .010132 is .193, that of 13/20 is .371.
    found = decide(report(20, 9, groups=grouped.groups), strict)
    assert decide(report(20, 9, groups=grouped.groups), lenient).outcome == "pass"
    assert found.outcome == "hold"
    assert found.reasons[0].startswith("hold: group in the dark: 9/20 solved")
    assert decide(report(20, 13), strict).outcome == "pass"  # groups are the gate's, not a report's
    assert decide(report(20, 1), strict).outcome == "fail"


def test_a_rule_of_groups_needs_groups_and_changes_no_gate_without_it():
    with pytest.raises(ValueError, match=r"group_lower_bound is 0\.3, but protocol 'p' has no gro"):
        gate(group_lower_bound=0.3)
    assert "group_lower_bound" not in gate().to_dict()


@pytest.mark.parametrize(
    ("asked", "first", "second", "outcome"),
    [
        # One of two: each may err with half of the level, .005066. P(X >= 17) = .0013 and
        # P(X >= 16) = .0059 for X ~ Bin(20, 1/2), so 17 reach .5, whatever the other task says.
        (1, 17, 0, "pass"),
        (1, 0, 17, "pass"),
        (1, 16, 16, "hold"),
        (1, 3, 4, "hold"),
        (1, 3, 3, "fail"),
        # Both: the whole level, .010132; P(X >= 15) = .0207.
        (2, 16, 16, "pass"),
        (2, 20, 15, "hold"),
        (2, 20, 3, "fail"),
    ],
)
def test_some_of_the_tasks_may_be_asked_to_be_good(asked, first, second, outcome):
    some = gate(overall_lower_bound=0.0, good_tasks=asked, good_task_lower_bound=0.5)
    assert decide(report(first, second), some).outcome == outcome


def test_a_rule_of_good_tasks_is_whole_and_changes_no_gate_without_it():
    assert "good_tasks" not in gate().to_dict()
    with pytest.raises(ValueError, match=r"good_task_lower_bound is 0\.0; give both or neither"):
        gate(good_tasks=1)
    with pytest.raises(ValueError, match="good_tasks is 3, allowed: 0 to 2, the tasks of the"):
        gate(good_tasks=3, good_task_lower_bound=0.5)
    reason = "good tasks: 1 of 2 tasks reach 0.500 with their exact 99.49 % lower bounds (a), asked"
    some = gate(good_tasks=1, good_task_lower_bound=0.5, overall_lower_bound=0.0)
    assert any(reason in told for told in decide(report(18, 2), some).reasons)
