"""Three systems at the table of the simulated G1, by the command that users type."""

import json

import pytest
from typer.testing import CliRunner

from rrf.cli import app
from rrf.envs.humanoid import command
from rrf.envs.humanoid.configs import HumanoidCfg
from rrf.hierarchy.combination import combine, hierarchy_of
from tests.hierarchy.conftest import written


@pytest.fixture(scope="module")
def combined(system0, tmp_path_factory):
    upper = written(
        tmp_path_factory.mktemp("upper"),
        cameras=["ego"],
        image_size=(64, 64),
        state_dim=HumanoidCfg().state_dim,
        action_dim=len(command.NAMES),
        action_names=list(command.NAMES),
        action_units=[signal.unit for signal in command.COMMAND],
        fast_view=None,
        feature_period=2,
    )
    return combine(upper, system0, tmp_path_factory.mktemp("all") / "combined")


def test_a_combination_is_played_at_the_rates_of_its_evaluation(combined):
    cfg = hierarchy_of(combined)
    assert (cfg.system2.hz, cfg.system1.hz, cfg.system0.hz, cfg.chunk_hz) == (1.0, 2.0, 50.0, 10.0)
    assert cfg.system0.policy == str(combined / "system0")


@pytest.mark.slow
@pytest.mark.parametrize("clock", ["--no-real-time", "--real-time"])
def test_the_command_plays_logs_and_films(combined, tmp_path, clock):
    video, log = tmp_path / "walk.mp4", tmp_path / "log.jsonl"
    words = ["hierarchy", str(combined), "--task", "walk-to-table", "--seconds", "1", clock]
    words += ["--video", str(video), "--log", str(log)]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert "50 ticks" in done.output
    assert video.stat().st_size > 1000
    assert json.loads(log.read_text().splitlines()[0])["event"] == "begin"


def test_an_unknown_task_is_named(combined, tmp_path):
    done = CliRunner().invoke(app, ["hierarchy", str(combined), "--task", "pick-red-cub"])
    assert done.exit_code != 0
    assert "pick-red-cube" in str(done.exception)
