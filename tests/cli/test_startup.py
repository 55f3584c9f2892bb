"""What commands import, and what they say before they import it."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rrf.cli import quick_imports
from tests.cli.conftest import TINY_PPO

ROOT = Path(__file__).parents[2]
GAUSSIAN = ("pendulum-ppo", *TINY_PPO[1:], "max_iterations=2")


def output(home: Path, *words: str | Path, python: tuple[str, ...] = ()) -> str:
    """What `rrf WORDS` prints, stdout and stderr as they come."""
    done = subprocess.run(
        [sys.executable, *python, "-m", "rrf", *map(str, words)],
        cwd=home,
        env=os.environ | {"PYTHONPATH": str(ROOT), "RRF_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def imported(text: str) -> list[str]:
    """The modules that `python -X importtime` lists, in order."""
    return re.findall(r"^import time:.*\| +(\S+)$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("train", *GAUSSIAN, "max_iterations=3"), "training pendulum-ppo on cpu in {runs}"),
        pytest.param(
            ("eval", "run", "--out", "e"),
            "evaluating run/global_step_2 under p (3 episodes) on cpu",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ("play", "run", "--steps", "2"),
            "playing run/global_step_2 on cpu: no --video",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ("export", "run", "--onnx", "p.onnx"),
            "exporting run/global_step_2 on cpu to p.onnx",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["train", "eval", "play", "export"],
)
def test_the_first_line_says_what_runs_before_torch_is_imported(rrf, home, words, line):
    rrf("train", *GAUSSIAN, "--run-dir", "run")
    protocol = home / "configs/protocols/p.yaml"
    protocol.parent.mkdir(parents=True)
    protocol.write_text(
        "name: p\nseed: 1\nepisodes_per_task: 3\nmax_episode_steps: 5\n"
        "env: {type: 'rrf.envs.gymnasium.configs:GymnasiumEnvCfg', "
        "task: Pendulum-v1, num_envs: 2}\nsuccess: {return: {min: -200}}\n"
    )
    printed = output(home, *words, python=("-X", "importtime"))
    line = line.format(runs=home / ".rrf/runs/pendulum-ppo-")
    before, found, after = printed.partition(line)
    assert found, printed[-3000:]
    assert "torch" not in imported(before)
    assert "torch" in imported(after)
    heavy = {"mlflow", "torch._dynamo", "sympy", "pandas", "transformers"}
    assert not heavy & set(imported(printed))


def test_the_first_line_of_training_says_where_it_goes_on(rrf):
    assert rrf("train", *TINY_PPO, "--run-dir", "run").lines[0].endswith(" in run: starts anew")
    assert rrf("train", *TINY_PPO, "--run-dir", "run").lines[0].endswith(": finished before")
    Path("run/result.json").unlink()
    resumed = rrf("train", *TINY_PPO, "--run-dir", "run")
    assert resumed.lines[0] == ("training cartpole-ppo on cpu in run: resuming from global_step_4")
    again = rrf("train", *TINY_PPO, "--run-dir", "run", "--no-resume")
    assert again.lines[0].endswith(": starts anew")


@pytest.mark.slow
def test_the_compiler_of_torch_is_imported_with_all_marks_when_something_compiles():
    program = """
import sys
from rrf.cli import quick_imports
quick_imports.begin()
import inspect, torch, tensordict
layer = torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW(layer.parameters())
layer(torch.ones(2)).sum().backward()
optimizer.step(); optimizer.zero_grad()
inspect.getmodule(inspect.currentframe())
assert "sympy" not in sys.modules
add = torch.compile(lambda data: data["a"] + 1, backend="eager", fullgraph=True)
print(add(tensordict.TensorDict({"a": torch.ones(2)}, [2])).tolist())
import torch._dynamo.config
from torch._dynamo import trace_rules
assert "sympy" in sys.modules
print(id(tensordict.base._foreach_copy_) in trace_rules._allowed_callable_ids)
optimizer.step()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout.split("\n")[:2] == ["[2.0, 2.0]", "True"], done.stderr


def test_distributions_of_packages_are_those_that_python_finds():
    spec = importlib.util.find_spec("importlib.metadata")
    assert spec is not None
    assert spec.loader is not None
    metadata = importlib.util.module_from_spec(spec)  # as it is without our function
    spec.loader.exec_module(metadata)
    expected = metadata.packages_distributions()
    quick_imports.distributions_of_packages()["mlflow.gateway"] = ["mlflow"]  # as MLflow does
    names = quick_imports.distributions_of_packages()
    assert "mlflow.gateway" not in names
    gone = names.keys() - expected.keys()
    assert [package for package in gone if importlib.util.find_spec(package)] == []
    assert {package: set(names[package]) for package in expected} == {
        package: set(found) for package, found in expected.items()
    }
