"""Commands that flows run: what they hand over, and what DVC's errors become."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from prefect.exceptions import ParameterTypeError

from flows import commands, progress
from flows.evaluate import evaluate
from flows.ingest import is_busy
from flows.ingest_deployment import ingest_deployment
from flows.retrain_on_new_data import retrain_on_new_data
from flows.train_hierarchy import train_hierarchy
from flows.train_locomotion import train_locomotion
from flows.train_offline import train_offline
from flows.train_vla import train_vla
from rrf import processes
from rrf.outcome import Outcome

ROOT = str(Path(commands.__file__).parents[1])
TINY = (
    *("train", "pendulum-ppo", "trackers=[]", "max_iterations=1", "num_steps_per_env=4"),
    *("env.num_envs=2", "--run-dir", "run"),
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A repository whose commands say good-bye when they have ended."""
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, sys\n"
        "if 'rrf.cli' in sys.orig_argv:\n"
        "    atexit.register(print, 'checkpoint of nothing', flush=True)\n"
    )
    monkeypatch.setattr(commands, "_environment", lambda: {"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    with progress.listening(lambda step, line: None):
        yield tmp_path


def run(home, *words) -> Outcome:
    path = home / "result.json"
    command = [sys.executable, "-m", "rrf", *words, "--result-file", str(path)]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    outcome = Outcome.read(path)
    assert outcome.exit_code == done.returncode
    return outcome


@pytest.mark.slow
def test_what_is_printed_at_exit_does_not_make_a_good_run_fail(home):
    lines = []
    with progress.listening(lambda step, line: lines.append(line)):
        result = commands.rrf("train", *TINY)
    assert "checkpoint of nothing" in lines
    assert result["checkpoint"] == "run/global_step_1"
    assert result["reused"] is False
    assert commands.rrf("train", *TINY)["reused"] is True


def test_a_failed_command_leaves_its_error(home):
    outcome = run(home, *TINY, "num_envs=3")
    assert (outcome.exit_code, outcome.result) == (2, {})
    hint = "did you mean 'env.num_envs'?; all fields: rrf show pendulum-ppo"
    assert outcome.error == f"no config field 'num_envs'; {hint}"
    with pytest.raises(processes.CommandError, match="did you mean"):
        commands.rrf("train", *TINY, "num_envs=3")


def test_a_result_file_that_cannot_be_written_is_refused_before_the_work(home):
    (home / "file").touch()
    command = [sys.executable, "-m", "rrf", *TINY, "--result-file", "file/result.json"]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    [line] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert line.startswith("error: --result-file file/result.json cannot be written: ")
    assert not (home / "run").exists()


def test_a_command_that_was_killed_has_no_result(tmp_path):
    path = tmp_path / "r.json"
    with pytest.raises(ValueError, match="no result in"):
        Outcome.read(path)
    path.write_text(json.dumps({"exit_code": None, "error": "not finished", "result": {}}))
    assert Outcome.read(path).error == "not finished"


def dvc(home, *words) -> None:
    subprocess.run([sys.executable, "-m", "dvc", *words], cwd=home, check=True, capture_output=True)


@pytest.mark.slow
def test_what_a_killed_dvc_left_half_written_is_removed_and_a_file_of_the_user_is_not(home):
    subprocess.run(["git", "init", "-q"], cwd=home, check=True)
    dvc(home, "init", "-q")
    raw, left = home / "raw", ".122qcK3yzHFRFFI_r66NDQ.tmp"
    raw.mkdir()
    (raw / "one.txt").write_text("one")
    dvc(home, "add", "-q", "raw")
    (raw / "one.txt").unlink()
    for name in (left, left.replace("1", "2")):
        (raw / name).write_text("o")
    commands.dvc("checkout", "checkout", "raw.dvc")
    assert [path.name for path in raw.iterdir()] == ["one.txt"]
    (raw / left).write_text("o")
    (raw / "mine.tmp").write_text("mine")
    with pytest.raises(ValueError, match="holds recordings that DVC does not know"):
        commands.dvc("checkout", "checkout", "raw.dvc")
    assert (raw / "mine.tmp").read_text() == "mine"


@pytest.mark.slow
def test_a_bucket_that_asks_who_reads_it_is_answered_with_what_to_set(home, monkeypatch):
    subprocess.run(["git", "init", "-q"], cwd=home, check=True)
    dvc(home, "init", "-q")
    (home / "dvc.yaml").write_text('stages: {a: {cmd: "true", deps: ["s3://bucket/recordings"]}}')
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / "none"))
    with pytest.raises(ValueError, match=r"asks who you are: .*export AWS_ACCESS_KEY_ID"):
        commands.dvc("repro", "repro")


@pytest.mark.slow
def test_errors_of_dvc_are_known_by_their_class(home):
    subprocess.run(["git", "init", "-q"], cwd=home, check=True)
    dvc(home, "init", "-q")
    (home / "raw.txt").write_text("one")
    dvc(home, "add", "-q", "raw.txt")
    commands.dvc("checkout", "checkout")
    (home / "raw.txt").unlink()
    for cached in (home / ".dvc/cache").rglob("*"):
        if cached.is_file():
            cached.unlink()
    with pytest.raises(ValueError, match=r"lacks recordings .* `rrf data share datasets.dvc`"):
        commands.dvc("checkout", "checkout", "raw.txt")
    dvc(home, "remote", "add", "demo", str(home / "infra/dvc-demo"))
    with pytest.raises(ValueError, match=r"remote lacks recordings .* infra/dvc-demo`"):
        commands.dvc("checkout", "checkout", "raw.txt")
    with pytest.raises(processes.CommandError):
        commands.dvc("nothing", "pull", "no-such-target")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER], cwd=home, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout
    holder.stdout.readline()
    try:
        with pytest.raises(commands.DvcBusyError) as busy:
            commands.dvc("checkout", "checkout")
    finally:
        holder.kill()
        holder.wait()

    class State:
        def result(self, raise_on_failure):
            return busy.value

    assert is_busy(None, None, State())


HOLDER = """
import time
from dvc.repo import Repo
repo = Repo()
with repo.lock:
    print("locked", flush=True)
    time.sleep(120)
"""


@pytest.mark.parametrize(
    ("run", "parameters"),
    [
        (train_locomotion, {"preset": "--import=evil"}),
        (train_locomotion, {"gate": "--import=evil"}),
        (train_locomotion, {"overrides": {"--import": "evil"}}),
        (train_offline, {"preset": "--import=evil"}),
        (train_hierarchy, {"system0": "--import=evil"}),
        (train_hierarchy, {"tasks": ["--import=evil"]}),
        (train_hierarchy, {"like": "../evil"}),
        (train_vla, {"sft": "-x"}),
        (train_vla, {"overrides": {"sft.--import": "evil"}}),
        (ingest_deployment, {"store": "--help"}),
        (ingest_deployment, {"like": "-x"}),
        (retrain_on_new_data, {"sft": "--import=evil"}),
        (retrain_on_new_data, {"overrides": {"--import": "evil"}}),
        (evaluate, {"policy": "--import=evil"}),
        (evaluate, {"policy": "example@champion", "protocol": "-x"}),
    ],
)
def test_parameters_of_a_run_become_no_options_of_its_commands(run, parameters):
    with pytest.raises(ParameterTypeError, match="should match pattern"):
        run.validate_parameters(parameters)
    assert train_vla.validate_parameters({"overrides": {"rl.env.max_episode_steps": 3}})
