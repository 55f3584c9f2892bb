"""Falls at the table: counted in worker processes, limited by a gate, shown beside each other."""

import dataclasses

import pytest
import torch

from rrf.cli.evaluation import summary
from rrf.envs.humanoid import scene
from rrf.envs.humanoid.configs import HumanoidCfg
from rrf.evaluation.candidate import Candidate
from rrf.evaluation.gates.decision import decide
from rrf.evaluation.gates.gate import GateCfg
from rrf.evaluation.protocols.base import Resources
from rrf.evaluation.protocols.files import load_protocol
from rrf.evaluation.protocols.limits import MeanLimitCfg
from rrf.evaluation.reports.report import write_report
from rrf.evaluation.results import EpisodeResult, Evaluation
from rrf.evaluation.vla.baselines import MeanActionPolicy
from rrf.lineage import Lineage
from rrf.registry import comparison, comparison_page
from tests.hierarchy.conftest import written_system0
from tests.repository.structure import ROOT

UNIT = "fall (1 if the robot fell)"


@pytest.fixture(scope="module")
def clumsy(tmp_path_factory):
    """A System 0 of random weights that bends everything, in a workspace that has it instead of the
    one that comes with rrf."""
    home = tmp_path_factory.mktemp("home")
    saved = written_system0(
        home / "run",
        lambda weights, biases: torch.nn.init.constant_(biases, 4.0),  # of 0.25 rad each
    )
    own = home / HumanoidCfg.system0
    own.parent.mkdir(parents=True)
    own.symlink_to(saved)
    return home


@pytest.fixture(scope="module")
def fallen(clumsy):
    """Two episodes of each of two tasks, in two workers, of a policy that asks for nothing."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RRF_HOME", str(clumsy))
        patched.chdir(clumsy)
        protocol = load_protocol(ROOT / "configs/protocols/g1-table.yaml").replace(
            name="two-of-each",
            tasks=["walk-to-table", "pick-red-cube"],
            episodes_per_task=2,
            cameras=[],
        )
        policy = MeanActionPolicy(protocol.execute_steps, scene.World().resting)
        still = Candidate(clumsy, "still", "vla", "0" * 64, {}, Lineage(), policy)
        return protocol.build().evaluate(still, Resources(workers=2))


@pytest.mark.slow
def test_a_fall_ends_the_episode_and_is_counted_per_task(fallen):
    assert [episode.metrics for episode in fallen.episodes] == [{"fall": 1.0}] * 4
    assert max(episode.steps for episode in fallen.episodes) < HumanoidCfg().max_episode_steps / 2
    assert fallen.mean_metrics("pick-red-cube") == {"fall": 1.0}
    assert "  fall 1 (1 if the robot fell)" in summary(fallen)


def test_a_gate_limits_falls():
    protocol = load_protocol(ROOT / "configs/protocols/g1-table.yaml").replace(episodes_per_task=1)
    given = {"name": "upright", "protocol": protocol, "overall_lower_bound": 0.0, "looks": [1]}
    gate = GateCfg(**given, limits={"fall": MeanLimitCfg(max=0.0)})
    states = protocol.initial_states()
    episodes = [EpisodeResult(s.task, s.seed, s.index, True, 9, 1.0, {"fall": 0.0}) for s in states]
    upright = Evaluation(protocol.to_dict(), protocol.hash, "0" * 64, episodes, {})
    assert decide(upright, gate).passed
    episodes[3] = dataclasses.replace(episodes[3], success=False, metrics={"fall": 1.0})
    verdict = decide(upright, gate)
    assert verdict.outcome == "fail"
    assert verdict.reasons[0] == "fail: fall: mean 0.1 over 10 episodes, asked is at most 0"
    with pytest.raises(ValueError, match="no metric 'falls'; did you mean 'fall'"):
        GateCfg(**given, limits={"falls": MeanLimitCfg(max=0.0)})


@pytest.mark.slow
def test_pages_and_comparisons_show_falls(fallen, tmp_path):
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
        fallen.save(folder / "evaluation.json")
    page = write_report(folders[0]).read_text()
    assert UNIT in page
    assert "mean steps to success" in page  # episodes still end when they succeed
    both = comparison.compare([comparison.subject(str(folder)) for folder in folders])
    assert f"  {UNIT}: 1 | 1" in comparison.text(both)
    assert UNIT in comparison_page.page(both)
