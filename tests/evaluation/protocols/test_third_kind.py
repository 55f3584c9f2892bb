"""A third kind of policy is a config and a class: the log of a real robot, evaluated by being read.

It is registered, judged by a gate and played by the commands that are there.
"""

import json
import sys

import pytest
import typer.testing

from rrf import atomic
from rrf.atomic import digest_of
from rrf.config import configclass, trust
from rrf.envs.vec_env import InitialState
from rrf.evaluation.protocols.base import BaseProtocolCfg, Protocol
from rrf.evaluation.protocols.files import PROTOCOLS
from rrf.evaluation.results import EpisodeResult, Evaluation


@configclass(builds="RobotLog")
class RobotLogCfg(BaseProtocolCfg):
    """Trials that a real robot made and somebody wrote down."""

    policy_kind = "robot-log"
    metrics = {"seconds": "s"}
    play_options = {"steps": 1}

    @property
    def max_episodes_per_task(self) -> int:
        return 100

    @property
    def hash(self) -> str:
        return digest_of([self.name, self.seed, self.episodes_per_task])

    def initial_states(self):
        return [InitialState("stack", self.seed, i) for i in range(self.episodes_per_task)]

    def is_about(self, config) -> bool:
        return config.get("robot") == "arm"


class RobotLog(Protocol[RobotLogCfg]):
    """Reads what was written down."""

    def evaluate(self, candidate, resources, on_episode=None, known=()):
        rows = json.loads((candidate.checkpoint / "log.json").read_text())
        episodes = [
            EpisodeResult(
                *("stack", self.cfg.seed, state.index, row["success"], 1, float(row["success"])),
                metrics={"seconds": row["seconds"]},
            )
            for state, row in zip(self.cfg.initial_states(), rows, strict=False)
        ]
        for number, episode in enumerate(episodes, start=1):
            on_episode(episode, number, len(episodes))
        timings = {"wall_s": 1.0, "cpu_s": 1.0, "episodes_per_s": 1.0}
        facts = (self.cfg.to_dict(), self.cfg.hash, candidate.checkpoint_digest)
        return Evaluation(*facts, episodes, timings, candidate.label)

    def film(self, candidate, report, limit, folder, resources):
        return []

    @classmethod
    def play(cls, candidate, video, seed, options, say):
        rows = json.loads((candidate.checkpoint / "log.json").read_text())
        for row in rows[: options["steps"]]:
            say(f"trial: {row}")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A repository with a protocol and a gate for it, and the log as a checkpoint."""
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(PROTOCOLS, "_targets", dict(PROTOCOLS._targets))
    PROTOCOLS.register("robot-log", f"{__name__}:RobotLogCfg")
    trust(__name__)
    for kind, text in (
        ("protocols", f"type: {__name__}:RobotLogCfg\nname: log\nseed: 1\nepisodes_per_task: 30\n"),
        ("gates", "name: log\nprotocol: log\noverall_lower_bound: 0.5\nlooks: [30]\n"
         "limits: {seconds: {max: 5}}\n"),
    ):  # fmt: skip
        (tmp_path / "configs" / kind).mkdir(parents=True)
        (tmp_path / "configs" / kind / "log.yaml").write_text(text)
    with atomic.directory(tmp_path / "run/global_step_1") as root:
        (root / "config.yaml").write_text("robot: arm\n")
        rows = [{"success": i % 10 > 0, "seconds": 4.0} for i in range(30)]
        (root / "log.json").write_text(json.dumps(rows))
        atomic.write_manifest(root, kind="robot-log", step=1, lineage={})
    return tmp_path


def rrf(*words) -> str:
    from rrf.cli import app

    assert sys.modules[__name__].RobotLogCfg is RobotLogCfg
    result = typer.testing.CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_it_is_evaluated_judged_and_reported(home):
    said = rrf("eval", home / "run", "--gate", "configs/gates/log.yaml")
    assert "success 0.900" in said
    assert "seconds 4 (s)" in said
    assert "gate log: pass" in said
    assert "reused" in rrf("eval", home / "run")  # the protocol that is about it is found
    page = (home / ".rrf/evaluations").glob("*/report.html")
    assert "seconds (s)" in next(page).read_text()


def test_it_is_played(home):
    assert rrf("play", home / "run", "--steps", 2).count("trial: ") == 2
    with pytest.raises(ValueError, match=r"--task: .* a policy of kind 'robot-log', which takes"):
        rrf("play", home / "run", "--task", "stack")


def test_protocols_of_other_kinds_refuse_it(home):
    (home / "configs/protocols/tiny.yaml").write_text(
        "name: tiny\ntasks: [drawer-open-v3]\nseed: 1\n"
    )
    with pytest.raises(ValueError, match=r"'tiny' is for a policy that sees images, .*'robot-log'"):
        rrf("eval", home / "run", "--protocol", "configs/protocols/tiny.yaml")
