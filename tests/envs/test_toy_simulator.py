"""A simulator of one's own, in a folder of its own, goes the whole way by the commands that a user
types: imitation, reinforcement in worker processes, evaluation, gate, play. Nothing of rrf is
changed for it; `tests/toy_simulator/__init__.py` holds its registry lines.
"""

import shutil
import sys
from pathlib import Path

import pytest
import typer.testing

from rrf.envs import ENVS
from rrf.evaluation.results import Evaluation
from rrf.presets import PRESETS

FOLDER = Path(__file__).parents[1] / "toy_simulator"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A user's repository: the simulator's folder, its protocol and gate, demonstrations."""
    home = tmp_path_factory.mktemp("home")
    shutil.copytree(FOLDER, home / "toy_simulator", ignore=shutil.ignore_patterns("__pycache__"))
    for kind in ("protocols", "gates"):
        shutil.copytree(FOLDER / kind, home / "configs" / kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RRF_HOME", str(home))
        patch.chdir(home)
        patch.syspath_prepend(home)
        for registry in (ENVS, PRESETS):  # other tests look at all there are
            patch.setattr(registry, "_targets", dict(registry._targets))
        yield home
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy_simulator"]:
        del sys.modules[name]


def rrf(*words) -> str:
    """What a command prints."""
    from rrf.cli import app

    words = [*map(str, words), "--import", "toy_simulator"]
    result = typer.testing.CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def imitated(home) -> str:
    """The checkpoint of a policy that imitated a few demonstrations."""
    from toy_simulator.demonstrations import demonstrate

    demonstrate(home / "datasets/toy", episodes_per_task=20)
    return rrf("train", "toy-sft").splitlines()[-1].removeprefix("checkpoint ")


@pytest.mark.slow
def test_it_trains_improves_and_passes_its_gate(home, imitated):
    gate = ("--gate", "configs/gates/toy.yaml")
    said = rrf("eval", imitated, *gate, "--num-videos", 0)
    before = report_of(said)
    assert "gate toy: pass" not in said
    trained = rrf("train", "toy-grpo", f"init_from={imitated}")
    checkpoint = trained.splitlines()[-1].removeprefix("checkpoint ")
    said = rrf("eval", checkpoint, *gate, "--num-videos", 2)
    after = report_of(said)
    assert after.overall.rate > before.overall.rate
    assert "gate toy: pass" in said
    assert len(after.videos) == 2
    assert "reused" in rrf("eval", checkpoint)  # without --protocol: the simulator's usual one


def report_of(said: str) -> Evaluation:
    """The evaluation that `rrf eval` wrote."""
    return Evaluation.load(Path(said.splitlines()[-1].removeprefix("report ")).parent)


def test_its_presets_are_shown(home):
    assert "type: toy_simulator.configs:ToyCfg" in rrf("show", "toy-grpo", "env.num_envs=4")


def test_it_is_played(home, imitated):
    said = rrf("play", imitated, "--env", "toy", "--task", "reach-red", "--video", "toy.mp4")
    assert said.splitlines()[1].startswith("reach-red, initial state 0: ")
    assert (home / "toy.mp4").stat().st_size > 1000


def test_what_it_does_not_have_is_said_in_its_name(home, imitated):
    with pytest.raises(ValueError, match="no toy task 'reach-rde'; did you mean 'reach-red'"):
        rrf("play", imitated, "--env", "toy", "--task", "reach-rde")
