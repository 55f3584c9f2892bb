"""Verdicts worked by hand: pass, hold, fail, against the champion, over several looks."""

import json

import pytest

from rrf.evaluation.gates.gate import GateCfg, load_gate, verdict
from rrf.evaluation.gates.verdicts import Verdict
from rrf.evaluation.results import EpisodeResult, EvaluationReport
from rrf.evaluation.vla.protocol import ProtocolCfg

PROTOCOL = ProtocolCfg(name="p", tasks=["a", "b"], seed=1, episodes_per_task=20)


def report(
    *solved: set[int] | int, digest: str = "candidate", episodes: int = 20, **changes
) -> EvaluationReport:
    """One argument per task: which indices are solved, or how many of the first ones."""
    protocol = PROTOCOL.replace(episodes_per_task=episodes).replace(**changes)
    results = []
    for task, which in zip(protocol.tasks, solved, strict=True):
        indices = set(range(which)) if isinstance(which, int) else which
        results += [EpisodeResult(task, 1, i, i in indices, 10, 1.0) for i in range(episodes)]
    return EvaluationReport(protocol.to_dict(), protocol.hash, digest, results, {})


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
        # three looks share .05: one-sided level .016667, z = 2.1280, z^2 = 4.5285.
        # lower bound of k/40 reaches .5 when (k/40 - .5)^2 >= 4.5285 * .25 / 40 = .028303: k >=
        # 26.73
        (14, 13, "pass"),
        (13, 13, "hold"),
        # upper bound below .5 when k <= 13.27
        (7, 7, "hold"),
        (7, 6, "fail"),
    ],
)
def test_overall_bounds_decide_pass_hold_and_fail(first, second, outcome):
    assert verdict(report(first, second), gate()).outcome == outcome


def test_a_single_look_pays_nothing_for_others():
    # z = 1.6449: (k/40 - .5)^2 >= 2.7055 * .25 / 40 = .016910: k >= 25.2
    single = gate(looks=[20])
    assert verdict(report(13, 13), single).outcome == "pass"
    assert verdict(report(13, 12), single).outcome == "fail"  # a hold at the last look


def test_one_forgotten_task_fails_however_good_the_other_is():
    found = verdict(report(20, 8), gate(task_lower_bound=0.7, overall_lower_bound=0.1))
    assert found.outcome == "fail"
    assert found.reasons[0].startswith("fail: b: 8/20 solved")
    assert "below 0.700" in found.reasons[0]


def test_reasons_carry_the_numbers():
    # 27/40 at 96.7 % two-sided: center (.675 + .056607)/1.113213, half 2.1280 sqrt(.005484 +
    # .000708)/1.113213
    found = verdict(report(14, 13), gate())
    assert found.reasons[0] == (
        "pass: overall: 27/40 solved, 98.3 % bounds 0.507 to 0.808; the lower reaches 0.500"
    )
    held = verdict(report(13, 13), gate())
    assert "26/40 solved" in held.reasons[0]
    # n = 4.5285 * .25 / .15^2 = 50.3
    assert held.reasons[0].endswith("0.500 lies between, 51 would tell")


def test_a_hold_asks_for_the_episodes_of_the_next_look():
    assert verdict(report(13, 13), gate()).more_episodes_per_task == 15
    second = verdict(report(21, 21, episodes=35), gate(), round=1)
    assert (second.outcome, second.more_episodes_per_task) == ("hold", 15)


def test_too_few_episodes_are_a_hold_without_a_look_at_the_outcomes():
    found = verdict(report(12, 12, episodes=12), gate())
    assert (found.outcome, found.more_episodes_per_task) == ("hold", 8)
    assert found.reasons == ["hold: 12 episodes per task, look 1 of 3 needs 20"]


def test_a_hold_at_the_last_look_is_a_fail():
    found = verdict(report(28, 28, episodes=50), gate(), round=2)
    assert found.outcome == "fail"
    assert found.more_episodes_per_task == 0
    assert found.reasons[0].endswith("undecided after the last of 3 looks")


def test_rounds_beyond_the_last_look_do_not_exist():
    with pytest.raises(ValueError, match=r"rounds 0\.\.2, but not round 3"):
        verdict(report(20, 20), gate(), round=3)


def test_equal_policies_pass_against_the_champion_when_little_can_be_lost():
    # 0 wins, 0 losses of 40: rates 1/42 each, half = 2.1280 sqrt(.047619/42) = .0717
    champion = report(18, 18, digest="champion")
    found = verdict(report(18, 18), gate(), champion, champion_version="3")
    assert found.outcome == "pass"
    assert (found.champion_digest, found.champion_version) == ("champion", "3")
    assert verdict(report(18, 18), gate(champion_margin=0.07), champion).outcome == "hold"
    assert verdict(report(18, 18), gate(champion_margin=0.08), champion).outcome == "pass"


def test_a_regression_against_the_champion_fails_although_the_threshold_is_met():
    # 8 losses, 0 wins: p = 2^-8 = .0039 <= .016667
    found = verdict(report(16, 16), gate(), report(20, 20, digest="champion"))
    assert found.outcome == "fail"
    assert "0 won, 8 lost of 40 pairs, difference -0.200" in found.reasons[0]
    assert "p(not worse) 0.0039" in found.reasons[0]


def test_pairs_count_not_totals():
    # the same totals, 18 and 18 of 20 per task, solved on other initial states: 4 wins, 4 losses,
    # no evidence
    candidate = report(set(range(2, 20)), set(range(2, 20)))
    found = verdict(candidate, gate(), report(18, 18, digest="champion"))
    check = next(c for c in found.checks if c.name == "champion")
    assert "4 won, 4 lost of 40 pairs, difference +0.000" in check.reason
    assert check.outcome == "hold"


def test_a_task_the_champion_solves_and_the_candidate_unlearned_fails():
    # on b 7 losses: p = 2^-7 = .0078 <= .016667 / 2; on a 7 wins make up for it overall
    candidate = report(20, 13)
    champion = report(13, 20, digest="champion")
    found = verdict(candidate, gate(champion_margin=0.5), champion)
    assert [c.name for c in found.checks if c.outcome == "fail"] == ["champion on b"]
    assert "0 won, 7 lost, p(not worse) 0.00781" in found.reasons[0]


def test_margin_zero_demands_evidence_of_being_better():
    better = gate(champion_margin=0.0)
    champion = report(10, 10, digest="champion")
    assert verdict(report(10, 10), better, champion).outcome == "hold"
    assert verdict(report(19, 19), better, champion).outcome == "pass"


def test_the_champion_itself_passes():
    champion = report(18, 18, digest="same")
    found = verdict(report(18, 18, digest="same"), gate(champion_margin=0.0), champion)
    assert found.outcome == "pass"


def test_evaluations_under_another_protocol_are_refused():
    with pytest.raises(ValueError, match="but gate 'g' needs protocol 'p'"):
        verdict(report(20, 20, max_episode_steps=400), gate())
    longer = report(20, 20, episodes=35, digest="champion")
    with pytest.raises(ValueError, match="different initial states"):
        verdict(report(20, 20), gate(), longer)


def test_left_out_episodes_are_noticed():
    trimmed = report(19, 19)
    trimmed.episodes = [e for e in trimmed.episodes if e.success]
    with pytest.raises(
        ValueError, match="38 episodes, which are not the 40 episodes of its protocol"
    ):
        verdict(trimmed, gate())
    renamed = report(20, 20)
    renamed.protocol = {**renamed.protocol, "seed": 2}
    with pytest.raises(ValueError, match="does not match its protocol_hash"):
        verdict(renamed, gate())


def test_a_verdict_survives_the_disk_and_notices_edits(tmp_path):
    found = verdict(report(7, 6), gate(), report(18, 18, digest="champion"), champion_version="2")
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
    arguments = (report(14, 13), gate(), report(12, 12, digest="champion"))
    assert verdict(*arguments).digest == verdict(*arguments).digest


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
