"""A training whose environment raises ends in one line, and its run directory stays usable."""

import re
import sys

import pytest
from mlflow import MlflowClient

from rrf import workspace
from rrf.envs.two_goals.configs import TwoGoalsEnvCfg
from rrf.envs.wrappers.wrapper import ControlEnvWrapper
from rrf.runners import OnPolicyRunnerCfg
from tests.cli.test_bad_input import one_line

CRASHING = """
import gymnasium, numpy as np
from pathlib import Path

class Crashing(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))
    made = 0

    def __init__(self, where="", at=1):
        self.where, self.at, self.calls = where, at, 0
        self.is_second = Crashing.made % 3 == 2  # one is made to see its spaces, then two
        Crashing.made += 1
        if where == "__init__":
            self.count(where)

    def count(self, where):
        if where == self.where and self.is_second:
            self.calls += 1
            if self.calls >= self.at and Path("broken").exists():
                raise ZeroDivisionError("the motor\\nis gone")

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.count("reset")
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.count("step")
        return np.zeros(3, np.float32), 1.0, False, False, {}

    def close(self):
        if self.is_second and Path("broken").exists():
            raise RuntimeError("nor can it be closed")

gymnasium.register(id="Crash-v0", entry_point=Crashing, max_episode_steps=4)
"""
PPO = (
    *("max_iterations=3", "num_steps_per_env=4", "env.num_envs=2", "save_interval=1"),
    *("algorithm.num_mini_batches=1", "trackers=[]"),
)
SAC = (
    *("--algorithm", "sac", "max_iterations=3", "num_steps_per_env=4", "env.num_envs=2"),
    *("save_interval=1", "trackers=[]", "replay_size=500", "algorithm.warmup_steps=30"),
)


def words(*more: str, where: str = "step", at: int = 1) -> tuple[str, ...]:
    return (
        *("train", "--task", "Crash-v0", "--import", "crashing_tasks", "--run-dir", "run", *more),
        f"env.kwargs={{where: {where}, at: {at}}}",
    )


@pytest.fixture
def broken(home, monkeypatch):
    """The file that makes the environment raise."""
    monkeypatch.delitem(sys.modules, "crashing_tasks", raising=False)
    (home / "crashing_tasks.py").write_text(CRASHING)
    (home / "broken").touch()
    return home / "broken"


@pytest.mark.parametrize("more", [PPO, SAC], ids=["on-policy", "off-policy"])
@pytest.mark.parametrize(("where", "at"), [("step", 6), ("reset", 3)])
def test_a_failure_is_one_line_and_the_run_goes_on(rrf, home, broken, more, where, at):
    # an episode and an iteration have 4 steps: step 6 and the third reset are in iteration 2
    said = rrf(*words(*more, where=where, at=at))
    assert re.fullmatch(
        rf"error: {where} of Crash-v0, environment 1, raised ZeroDivisionError: the motor is gone "
        r"\(crashing_tasks.py, line 21\), in iteration 2 of 3. The traceback is in "
        r"run/env_error.txt; the last checkpoint is run/global_step_1. If the failure does not "
        r"repeat itself, the same command continues from there; after a change of the "
        r"environment's code, start a new run from its weights: rrf train ... "
        r"init_from=run/global_step_1",
        one_line(said),
    )
    assert "warning: close of Crash-v0 raised RuntimeError: nor can it be closed" in said.err
    trace = (home / "run/env_error.txt").read_text()
    assert "self.count(" in trace
    assert "ZeroDivisionError: the motor" in trace
    broken.unlink()
    said = rrf(*words(*more, where=where, at=at))
    assert said.checkpoint.name == "global_step_3"
    assert not [line for line in said.lines if line.startswith("iteration 1/3")]
    assert rrf("play", "run", "--import", "crashing_tasks", "--steps", "3").code == 0


@pytest.mark.parametrize("where", ["__init__", "reset"])
def test_a_failure_at_the_start_is_one_line_and_the_directory_may_be_used_again(
    rrf, home, broken, where
):
    error = one_line(rrf(*words(*PPO, where=where)))
    of = "constructor" if where == "__init__" else "reset"
    assert re.search(rf"{of} of Crash-v0.* raised ZeroDivisionError: the motor is gone", error)
    assert "while the environments were made" in error
    assert "no checkpoint was saved yet, so the same command begins anew" in error
    assert "ZeroDivisionError" in (home / "run/env_error.txt").read_text()
    broken.unlink()
    assert rrf(*words(*PPO, where=where)).checkpoint.name == "global_step_3"


@pytest.mark.slow
def test_the_record_of_the_run_says_that_it_failed(rrf, broken):
    more = (*PPO[:-1], "trackers=[mlflow]")
    one_line(rrf(*words(*more, at=6)))
    client = MlflowClient(workspace.tracking_uri())
    experiment = client.get_experiment_by_name("crash-v0-ppo")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FAILED"
    assert "rollout/return" in run.data.metrics
    broken.unlink()
    assert rrf(*words(*more, at=6)).code == 0
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"


class Batch(ControlEnvWrapper):
    """Steps in a batch, like mjlab's; raises in its seventh step."""

    num_steps = 0

    def step(self, actions):
        self.num_steps += 1
        if self.num_steps == 7:
            raise KeyError("foot")
        return self.env.step(actions)


def test_an_environment_that_steps_in_a_batch_is_told_like_any_other(tmp_path):
    cfg = OnPolicyRunnerCfg(env=TwoGoalsEnvCfg(num_envs=8), num_steps_per_env=3, save_interval=1)
    env = Batch(cfg.env.build())
    runner = cfg.build(tmp_path, env=env)
    with pytest.raises(ValueError, match=r"step of TwoGoals raised KeyError: 'foot' \(test_env_f"):
        runner.run()
    assert 'raise KeyError("foot")' in (tmp_path / "env_error.txt").read_text()
    assert {path.name for path in tmp_path.glob("global_step_*")} == {
        "global_step_1",
        "global_step_2",
    }
