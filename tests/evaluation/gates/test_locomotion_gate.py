"""Gates of state-based control: limits on means beside bounds of success, by hand."""

from pathlib import Path

import pytest

from rrf.envs.mjlab.configs import MjlabEnvCfg
from rrf.evaluation.control.configs import ControlProtocolCfg
from rrf.evaluation.gates.decision import Rival, decide
from rrf.evaluation.gates.gate import GateCfg, load_gate
from rrf.evaluation.gates.verdicts import Verdict, verdict_file
from rrf.evaluation.judging import judge
from rrf.evaluation.protocols.limits import LimitCfg, MeanLimitCfg
from rrf.evaluation.reports.report import write_report
from rrf.evaluation.results import EpisodeResult, Evaluation
from rrf.lineage import EnvironmentLineage, Lineage

GATES = Path(__file__).parents[3] / "configs/gates"
LOCOMOTION = load_gate(GATES / "locomotion.yaml")
PROTOCOL = ControlProtocolCfg(
    name="walk",
    seed=1,
    episodes_per_task=2,
    env=MjlabEnvCfg(num_envs=4, backend="native"),
    commands={"stand": [0, 0, 0], "go": [1, 0, 0]},
    max_episode_steps=100,
    success={"fall": LimitCfg(max=0)},
)
GATE = GateCfg(
    name="g",
    protocol=PROTOCOL,
    overall_lower_bound=0.0,
    limits={"tracking_error_xy": MeanLimitCfg(max=0.2), "fall": MeanLimitCfg(max=0)},
    looks=[2],
)


def report(
    errors: list[float | None], digest: str = "candidate", cfg: ControlProtocolCfg = PROTOCOL
) -> Evaluation:
    """An episode per error in the order of the protocol; None fell and has none."""
    episodes = []
    for state, error in zip(cfg.initial_states(), errors, strict=True):
        found = {"fall": 1.0} if error is None else {"fall": 0.0, "tracking_error_xy": error}
        episodes.append(
            EpisodeResult(state.task, state.seed, state.index, error is not None, 9, 1.0, found)
        )
    return Evaluation(cfg.to_dict(), cfg.hash, digest, episodes, {})


def reasons(found: Verdict) -> str:
    return "\n".join(found.reasons)


def test_a_mean_at_its_limit_passes_and_one_above_fails():
    assert decide(report([0.1, 0.1, 0.3, 0.3]), GATE).outcome == "pass"
    found = decide(report([0.1, 0.1, 0.3, 0.31]), GATE)
    assert found.outcome == "fail"
    # a sum of 0.81 over four
    assert found.reasons[0] == (
        "fail: tracking_error_xy: mean 0.2025 over 4 episodes, asked is at most 0.2"
    )


def test_one_fall_in_all_episodes_is_one_too_many():
    found = decide(report([0.1, 0.1, 0.1, None]), GATE)
    assert found.outcome == "fail"
    assert "fail: fall: mean 0.25 over 4 episodes, asked is at most 0" in reasons(found)


def test_a_limit_is_not_met_by_the_few_episodes_that_have_the_metric():
    found = decide(report([0.1, 0.1, 0.1, None]), GATE)
    assert "fail: tracking_error_xy: 3 of 4 episodes have it, needed are 4" in reasons(found)
    enough = {"tracking_error_xy": MeanLimitCfg(max=0.2, min_episodes=3)}
    found = decide(report([0.1, 0.1, 0.1, None]), GATE.replace(limits=enough))
    assert "pass: tracking_error_xy: mean 0.1 over 3 episodes" in reasons(found)
    found = decide(report([None] * 4), GATE)
    assert "fail: tracking_error_xy: 0 of 4 episodes have it, needed are 4" in reasons(found)
    with pytest.raises(ValueError, match="min_episodes is 0, allowed: 1 or more"):
        MeanLimitCfg(max=1, min_episodes=0)


def test_bounds_and_the_champion_are_judged_as_for_any_policy():
    strict = GATE.replace(overall_lower_bound=0.9, limits={})
    # all of 4 solved at level .0304: the exact lower bound is .0304^(1/4) = 0.418
    found = decide(report([0.1] * 4), strict)
    assert (found.outcome, "bounds 0.418 to 1.000" in found.reasons[0]) == ("fail", True)
    champion = Rival(report([0.1] * 4, digest="champion"))
    worse = decide(report([0.1, None, None, None]), GATE, champion)
    assert "champion: 0 won, 3 lost of 4 pairs" in reasons(worse)


def test_the_locomotion_gate_needs_a_hundred_episodes_without_a_fall():
    cfg = LOCOMOTION.protocol
    assert isinstance(cfg, ControlProtocolCfg)
    assert (cfg.env.task, len(cfg.initial_states())) == ("Mjlab-Velocity-Flat-Unitree-Go1", 100)
    assert cfg.max_episode_steps == 1000  # 20 s of 0.02 s
    only = LOCOMOTION.replace(
        limits={k: LOCOMOTION.limits[k] for k in ("tracking_error_xy", "fall")}
    )
    assert decide(report([0.15] * 100, cfg=cfg), only).outcome == "pass"
    assert decide(report([0.15] * 99 + [None], cfg=cfg), only).outcome == "fail"
    assert decide(report([0.21] * 100, cfg=cfg), only).outcome == "fail"
    assert {"power", "smoothness"} <= set(LOCOMOTION.limits)


@pytest.mark.parametrize("path", sorted(GATES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_gate_of_ours_loads_and_can_be_passed(path):
    gate = load_gate(path)
    assert gate.name == path.stem
    if not isinstance(gate.protocol, ControlProtocolCfg):
        return
    cfg = gate.protocol.replace(episodes_per_task=gate.looks[0])
    good = {
        name: limit.max if limit.min is None else limit.min for name, limit in gate.limits.items()
    }
    episodes = [
        EpisodeResult(s.task, s.seed, s.index, True, 9, 1.0, good) for s in cfg.initial_states()
    ]
    perfect = Evaluation(cfg.to_dict(), cfg.hash, "candidate", episodes, {})
    assert decide(perfect, gate).outcome == "pass"


def test_the_look_follows_from_the_number_of_episodes():
    gate = GATE.replace(looks=[2, 4, 9])
    assert [gate.round_of(episodes) for episodes in (1, 2, 3, 4, 8, 9, 50)] == [
        0,
        0,
        0,
        1,
        1,
        2,
        2,
    ]


def test_limits_are_checked_where_the_gate_is_made():
    with pytest.raises(
        ValueError, match=r"no metric 'tracking_eror'.*did you mean 'tracking_error"
    ):
        GATE.replace(limits={"tracking_eror": MeanLimitCfg(max=1)})
    images = load_gate(GATES / "tiny.yaml")
    with pytest.raises(ValueError, match="protocol 'tiny' measures only success"):
        images.replace(limits={"fall": MeanLimitCfg(max=0)})


def test_an_evaluation_survives_the_disk_and_metrics_belong_to_its_digest(tmp_path):
    first = report([0.1, 0.1, 0.3, 0.3])
    first.save(tmp_path / "evaluation.json")
    again = Evaluation.load(tmp_path)
    assert again.episodes == first.episodes
    assert again.digest == first.digest
    assert report([0.1, 0.1, 0.3, 0.2]).digest != first.digest


def test_the_digest_of_an_evaluation_is_that_of_its_results():
    episodes = [EpisodeResult("a", 1, 0, True, 10, 1.5)]
    found = Evaluation({}, "p", "c", episodes, {})
    # sha256 of {"checkpoint_digest":"c","episodes":[{"index":0,"metrics":{},"return":1.5,"seed":1,
    # "steps":10,"success":true,"task":"a"}],"protocol_hash":"p"}
    assert found.digest == "361887ae836131ae1cf020e929bad9062889830724615ac8955741df774c7311"


def test_judging_writes_the_verdict_and_the_report_with_its_table(tmp_path):
    report([0.1, 0.1, 0.3, 0.3]).save(tmp_path / "evaluation.json")
    write_report(tmp_path)
    found = judge(tmp_path, GATE, lineage=Lineage(environment=EnvironmentLineage("Go1")))
    assert Verdict.load(verdict_file(tmp_path, GATE.name)) == found
    page = (tmp_path / "report.html").read_text()
    assert "tracking error xy (m/s)" in page
    # the means of stand and go, and of both
    for mean in ("0.1", "0.3", "0.2"):
        assert f'<td class="n">{mean}</td>' in page
    assert "An episode succeeds with fall at most 0." in page
