"""A version is trained and evaluated once more, from its commit, and compared stage by stage."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer.testing
import yaml

from rrf.cli import app
from rrf.evaluation.results import EpisodeResult, Evaluation
from rrf.mlflow_store import store
from rrf.mlflow_store.dvc_dataset import directory_md5
from rrf.registry import listing, reproduction, reproduction_data
from tests.registry.conftest import copy_of
from tests.waiting import wait_for

MODEL = "balance"
SMALL = ("max_iterations=2", "num_steps_per_env=16", "env.num_envs=2", "save_interval=1")
PROTOCOL = {
    "name": "short",
    "env": {
        "type": "rrf.envs.gymnasium.configs:GymnasiumEnvCfg",
        "task": "CartPole-v1",
        "num_envs": 4,
    },
    "seed": 4242,
    "episodes_per_task": 4,
    "max_episode_steps": 60,
    "success": {"return": {"min": 8}},
}
GATE = {"name": "short", "protocol": "short", "overall_lower_bound": 0.0, "looks": [4]}


def rrf(*words, code: int = 0) -> str:
    result = typer.testing.CliRunner().invoke(app, [str(word) for word in words])
    shown = f"{result.output}\n{result.exception}"
    assert isinstance(result.exception, ValueError) or result.exit_code == code, shown
    return shown


def commit(home: Path) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for words in (["add", "-A"], [*identity, "commit", "-q", "-m", "configs"]):
        subprocess.run(["git", *words], cwd=home, check=True)
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=home, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture(scope="module")
def made(tmp_path_factory, empty_store):
    """A workspace with a champion: one training, and a second one that starts from it."""
    root = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        home = copy_of(empty_store.parents[1], root, patch)
        for kind, name, data in (("protocols", "short", PROTOCOL), ("gates", "short", GATE)):
            (home / f"configs/{kind}/{name}.yaml").write_text(yaml.safe_dump(data))
        commit(home)
        patch.chdir(home)
        rrf("train", "cartpole-ppo", *SMALL, "--run-dir", home / ".rrf/runs/first")
        again = ("init_from=.rrf/runs/first", "seed=3")
        rrf("train", "cartpole-ppo", *SMALL, *again, "--run-dir", home / ".rrf/runs/second")
        words = ("--gate", "configs/gates/short.yaml", "--register", MODEL, "--num-videos", "0")
        shown = rrf("eval", ".rrf/runs/second", *words)
        assert f"{MODEL} version 1 is @candidate" in shown
    return root


@pytest.fixture
def home(made, tmp_path, monkeypatch) -> Path:
    home = copy_of(made, tmp_path / "home", monkeypatch)
    monkeypatch.chdir(home)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    return home


def tag_run(number: int, key: str, value: str) -> None:
    """Change a fact of the lineage of the first run or the second."""
    client = store.connect()
    experiments = [each.experiment_id for each in client.search_experiments()]
    runs = client.search_runs(experiments, "tags.checkpoint_digest != ''")
    runs.sort(key=lambda run: run.info.start_time)
    client.set_tag(runs[number - 1].info.run_id, key, value)


@pytest.mark.slow
def test_a_chain_of_trainings_is_reproduced_to_the_bit_although_its_first_run_is_gone(home):
    shutil.rmtree(home / ".rrf/runs")  # of the first training only the digest and config are left
    shown = rrf("models", "reproduce", f"{MODEL}@candidate")
    assert "training 1 (cartpole-ppo), weights: same" in shown
    assert "training 2 (cartpole-ppo), weights: same" in shown
    assert "evaluation short: same, 4 episodes, to the last digit" in shown
    assert f"{MODEL} version 1 is bit-identical: 5 stages are the same" in shown
    record = json.loads((home / f".rrf/reproduced/{MODEL}-1/reproduction.json").read_text())
    assert record["verdict"] == "bit-identical"
    assert [v.version for v in listing.versions(MODEL)] == ["1"]  # nothing was registered


@pytest.mark.slow
def test_the_first_stage_that_differs_is_named_and_what_may_be_the_cause(home):
    tag_run(1, "lineage.source_digest", "0" * 64)
    tag_run(1, "lineage.git_dirty", "true")
    words = ("models", "reproduce", f"{MODEL}/1", "--dirty")
    shown = rrf(*words, "--set", "2.seed=4", "--bound", "1")
    assert "note: it was trained with changes beside commit" in shown
    assert "the code of rrf at commit" in shown
    assert "training 1 (cartpole-ppo), weights: same" in shown
    assert "training 2 (cartpole-ppo), config: differs, seed: 3 -> 4" in shown
    assert "training 2 (cartpole-ppo), weights: differs, model.safetensors" in shown
    assert "is within the bound: the first stage that differs is training 2" in shown
    assert "holds the reproduction of balance version 1, or one with another --set" in rrf(*words)
    strict = ("--set", "2.seed=4", "--bound", "0.05")
    shown = rrf(*words, *strict, code=1)  # nothing is trained again
    assert "finished before" in shown
    assert "is different" in shown
    assert "more than 0.05 is not ruled out" in shown


@pytest.mark.slow
def test_a_reproduction_that_was_killed_goes_on_where_it_stopped(home):
    command = [sys.executable, "-m", "rrf.cli", "models", "reproduce", f"{MODEL}/1"]
    log = home / "killed.log"
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=home, stdout=file, stderr=subprocess.STDOUT)
    run = home / f".rrf/reproduced/{MODEL}-1/training-2"
    wait_for(run.is_dir, 300, log.read_text)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = (run.parent / "training-1/result.json").stat().st_mtime_ns
    shown = rrf("models", "reproduce", f"{MODEL}/1")
    assert "is bit-identical" in shown
    assert "/training-1: finished before" in shown
    assert (run.parent / "training-1/result.json").stat().st_mtime_ns == before


def test_what_cannot_be_reproduced_is_refused_by_name(home):
    reproduce = ("models", "reproduce", f"{MODEL}/1")
    assert "has no @champion; it has 1, @candidate" in rrf("models", "reproduce", MODEL)
    refused = rrf(*reproduce, "--set", "3.seed=1")
    assert "--set 3.…: 'balance' version 1 has the trainings 1 to 2" in refused
    assert "begin with the number of a training" in rrf(*reproduce, "--set", "seed=1")
    (home / "mine").mkdir()
    (home / "mine/notes.txt").write_text("mine")
    assert "holds something else" in rrf(*reproduce, "--into", home / "mine")
    tag_run(1, "lineage.git_dirty", "true")
    refused = rrf(*reproduce)
    assert "changes beside commit" in refused
    assert "to try it without them: --dirty" in refused
    tag_run(1, "lineage.git_revision", "f" * 40)
    refused = rrf(*reproduce, "--dirty")
    assert "commit ffffffffffff of cartpole-ppo is not in the repository" in refused
    assert f"git fetch REMOTE {'f' * 40}" in refused


@pytest.mark.slow
def test_a_stage_that_fails_says_so_and_nothing_is_lost(home):
    refused = rrf("models", "reproduce", f"{MODEL}/1", "--set", "1.env.task=Nope-v0")
    assert "`" in refused
    assert "Nope-v0" in refused
    assert "the same command goes on from here once that is put right" in refused
    assert (home / f".rrf/reproduced/{MODEL}-1/logs/training-1.log").is_file()


def test_a_parent_that_nobody_has_is_refused(home):
    shutil.rmtree(home / ".rrf/runs")
    tag_run(1, "checkpoint_digest", "0" * 64)
    refused = rrf("models", "reproduce", f"{MODEL}/1")
    assert "which no run of this store made and which is not here" in refused


def evaluation(solved: int, of: int) -> Evaluation:
    episodes = [EpisodeResult("a", 1, i, i < solved, 10, 1.0) for i in range(of)]
    return Evaluation({"name": "p"}, "0", "1", episodes, {})


@pytest.mark.parametrize(
    ("then", "now", "of", "bound", "is_within"),
    [(90, 90, 100, 0.05, True), (90, 80, 100, 0.05, False), (9, 9, 10, 0.05, False)],
    ids=["equal", "ten lost", "too few episodes to tell"],
)
def test_within_the_bound_is_what_can_be_ruled_out(then, now, of, bound, is_within):
    found, how = reproduction.compared(evaluation(then, of), evaluation(now, of), bound)
    assert found is is_within
    assert f"on {of} initial states" in how


def test_packages_are_compared_with_the_lock():
    import numpy

    lock = f"numpy=={numpy.__version__}\nnope==1.0\npywin32==3 ; sys_platform == 'win32'\n# a\n"
    assert reproduction.packages_unlike(lock) == ["nope absent, locked 1.0"]
    assert reproduction.packages_unlike("numpy==0.1\n") == [
        f"numpy {numpy.__version__}, locked 0.1"
    ]


@pytest.mark.slow
def test_data_in_no_remote_is_refused_and_a_changed_byte_changes_its_md5(tmp_path):
    def dvc(*words: str) -> list[str]:
        from rrf import processes

        lines: list[str] = []
        command = [sys.executable, "-m", "dvc", *words]
        processes.run(command, on_line=lines.append, cwd=tmp_path)
        return lines

    data = tmp_path / "datasets/mine"
    (data / "meta").mkdir(parents=True)
    for number in range(3):
        (data / f"{number}.bin").write_bytes(bytes([number]) * 100)
    (data / "meta/info.json").write_text("{}")
    dvc("init", "--no-scm", "--quiet")
    dvc("add", "--quiet", "datasets/mine")
    [out] = yaml.safe_load((tmp_path / "datasets/mine.dvc").read_text())["outs"]
    assert directory_md5(data) == out["md5"]
    shutil.rmtree(data)
    reproduction_data.bring("mine", Path("datasets/mine"), out["md5"], dvc)
    assert directory_md5(data) == out["md5"]
    (data / "1.bin").write_bytes(b"\2" + b"\1" * 99)
    assert directory_md5(data) != out["md5"]
    shutil.rmtree(data)
    shutil.rmtree(tmp_path / ".dvc/cache")
    with pytest.raises(ValueError, match="neither in DVC's cache nor in a remote"):
        reproduction_data.bring("mine", Path("datasets/mine"), out["md5"], dvc)
