"""Several processes that torchrun or accelerate started: they learn as one would, and leave one
run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.runners.control.distributed_learning import learned

ROOT = Path(__file__).parents[3]


TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m")
ACCELERATE = (
    *("accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--num_machines=1"),
    *("--mixed_precision=no", "--dynamo_backend=no", "--main_process_port=0", "--module"),
)


def torchrun(cwd: Path, *words: str, launcher=TORCHRUN) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", *launcher]
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "RRF_HOME": str(cwd)}
    return subprocess.run(
        [*command, *words],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.fixture(scope="module")
def left(tmp_path_factory) -> Path:
    """What two processes left of everything in `distributed`."""
    root = tmp_path_factory.mktemp("left")
    done = torchrun(root, "tests.runners.control.distributed", str(root))
    assert done.returncode == 0, done.stderr
    return root


@pytest.mark.slow
def test_two_processes_learn_what_one_learns_from_the_same_experience(left):
    first, second = (load_file(left / f"learning/{rank}.safetensors") for rank in range(2))
    alone = learned(0, 1).state_dict()
    assert not torch.equal(alone["actor.backbone.layers.0.weight"], torch.zeros(16, 3))
    for name, expected in alone.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], expected, atol=1e-5, rtol=0, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [TORCHRUN, ACCELERATE], ids=["torchrun", "accelerate"])
def test_the_command_under_a_launcher_leaves_one_run(tmp_path, launcher):
    words = (
        *("rrf", "train", "pendulum-ppo", "trackers=[tensorboard]", "env.num_envs=2"),
        *("num_steps_per_env=8", "max_iterations=3", "save_interval=1", "--run-dir", "run"),
    )
    done = torchrun(tmp_path, *words, launcher=launcher)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    assert lines[-1] == "checkpoint run/global_step_3"
    assert len([line for line in lines if line.startswith("trained pendulum-ppo")]) == 1
    assert len([line for line in lines if line.startswith("iteration ")]) == 3
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["num_steps"] == 2 * 2 * 8 * 3  # processes, environments, steps, iterations


@pytest.mark.slow
def test_the_command_under_torchrun_starts_over_when_told_to_and_else_reuses_the_run(tmp_path):
    words = (
        *("rrf", "train", "pendulum-ppo", "trackers=[]", "env.num_envs=2"),
        *("num_steps_per_env=8", "max_iterations=1", "--run-dir", "run"),
    )
    for option, outcome in ((), "trained"), (("--no-resume",), "trained"), ((), "reused"):
        done = torchrun(tmp_path, *words, *option)
        assert done.returncode == 0, done.stderr
        assert f"{outcome} pendulum-ppo" in done.stdout


NOISY = """
import sys, warnings

print("a library says hello")
print("a library complains", file=sys.stderr)
warnings.warn("a library warns")
"""


def test_only_the_first_process_prints_but_each_says_why_it_ends(tmp_path):
    (tmp_path / "noisy.py").write_text(NOISY)
    words = [sys.executable, "-m", "rrf", "train", "pendulum-ppo", "--import", "noisy"]
    texts = {}
    for rank in ("0", "1"):
        environment = {"RANK": rank, "PYTHONPATH": str(ROOT), "RRF_HOME": str(tmp_path)}
        done = subprocess.run(
            [*words, "no_such_field=1"],
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        texts[rank] = (done.stdout, done.stderr)
    assert texts["0"][0] == "a library says hello\n"
    assert "a library complains\n" in texts["0"][1]
    assert "UserWarning: a library warns" in texts["0"][1]
    assert texts["1"][0] == ""
    (line,) = texts["1"][1].splitlines()
    assert line.startswith("error: no config field 'no_such_field'")


@pytest.mark.slow
def test_fitness_that_both_processes_load_counts_once(left):
    for rank in range(2):
        assert json.loads((left / f"fitness/{rank}.json").read_text()) == [[6.0] * 5] * 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["reward", "value"])
def test_where_one_process_meets_nan_both_go_back(left, kind):
    first, second = (json.loads((left / f"{kind}/{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first[:2] == [6, 1]
    assert first[2] == pytest.approx(5e-4)
    assert (left / kind / "run/not_finite_4_rank_1").is_dir()


ON_ONE_RANK = """
import gymnasium, os
from gymnasium.envs.classic_control import PendulumEnv

class Crashing(PendulumEnv):
    def step(self, action):
        if os.environ["RANK"] == "1":
            raise ZeroDivisionError("the motor is gone")
        return super().step(action)

gymnasium.register(id="Crash-v0", entry_point=Crashing, max_episode_steps=20)
"""


@pytest.mark.slow
def test_an_environment_that_fails_in_one_process_ends_all_in_a_line_each(tmp_path):
    (tmp_path / "crashing_tasks.py").write_text(ON_ONE_RANK)
    words = ("rrf", "train", "--task", "Crash-v0", "--import", "crashing_tasks")
    done = torchrun(tmp_path, *words, "trackers=[]", "env.num_envs=2", "--run-dir", "run")
    assert done.returncode != 0
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert any("an environment of another process failed, in iteration 1" in e for e in errors)
    own = [error for error in errors if "ZeroDivisionError: the motor is gone" in error]
    assert "The traceback is in run/env_error_rank_1.txt" in own[0]
    assert "ZeroDivisionError" in (tmp_path / "run/env_error_rank_1.txt").read_text()


@pytest.mark.parametrize(
    ("name", "value", "setting"),
    [
        ("ACCELERATE_MIXED_PRECISION", "bf16", "precision=bf16"),
        ("ACCELERATE_USE_FSDP", "true", "sharding={}"),
        ("ACCELERATE_USE_DEEPSPEED", "true", "sharding={}"),
    ],
)
def test_what_accelerate_is_told_beyond_processes_is_refused(monkeypatch, name, value, setting):
    from rrf.runners.process_group import join

    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"{name}={value}, .*: {setting}; set it there"):
        join("cpu")
