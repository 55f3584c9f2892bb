"""`rrf train` of state-based policies: reused, stopped, killed, filmed, registered by others."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from safetensors.torch import load_file

import rrf as package
from rrf import atomic, presets
from rrf.mlflow_store import store
from rrf.runners.checkpoints import checkpoint
from tests.cli.conftest import TINY_PPO, TINY_SAC
from tests.registry.conftest import empty_store  # noqa: F401

PLUGIN = """
import gymnasium
from gymnasium.envs.classic_control import PendulumEnv
from rrf import configclass
from rrf.networks import plain_mlp
from rrf.runners import OnPolicyRunnerCfg

class Swing(PendulumEnv):
    pass

@configclass
class SwingCfg(OnPolicyRunnerCfg):
    experiment_name = "swing"
    trackers = []
    num_steps_per_env = 8
    max_iterations = 2

gymnasium.register(
    id="Swing-v0",
    entry_point=Swing,
    max_episode_steps=20,
    kwargs={"RoboRenForce_entry_point": SwingCfg},
)
"""


def weights(path: Path) -> dict[str, torch.Tensor]:
    return load_file(path / "model.safetensors")


def assert_equal(mine: Path, other: Path) -> None:
    ours, theirs = weights(mine), weights(other)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name


def test_a_run_ends_with_its_outcome_and_the_checkpoint_in_the_last_line(rrf, home):
    said = rrf("train", *TINY_PPO)
    assert said.checkpoint.parent.parent == home / ".rrf/runs"
    assert said.checkpoint.name == "global_step_4"
    # 4 iterations of 4 environments with 8 steps each
    assert said.lines[-2].startswith("trained cartpole-ppo: return ")
    assert " after 4 iterations, 128 steps, " in said.lines[-2]
    assert " steps/s, " in said.lines[-2]
    progress = [line for line in said.lines if line.startswith("iteration ")]
    assert [line.split()[1:4] for line in progress] == [
        ["1/4", "32", "steps"],
        ["2/4", "64", "steps"],
        ["3/4", "96", "steps"],
        ["4/4", "128", "steps"],
    ]


def test_the_checkpoint_tells_what_it_depends_on(rrf):
    path = rrf("train", *TINY_PPO).checkpoint
    lineage = json.loads((path / "manifest.json").read_text())["lineage"]
    assert lineage["environment"]["task"] == "CartPole-v1"
    assert set(lineage["environment"]["packages"]) >= {"gymnasium", "mujoco"}
    assert len(lineage["environment"]["config_digest"]) == 64
    assert len(lineage["source_digest"]) == 64
    assert "datasets" not in lineage
    interface = json.loads((path / "interface.json").read_text())
    assert interface["observation_dims"] == {"policy": 4}
    assert interface["num_choices"] == 2


@pytest.mark.parametrize("words", [TINY_PPO, TINY_SAC], ids=["ppo", "sac"])
def test_the_same_seed_twice_gives_equal_weights_and_another_seed_others(rrf, words):
    first = rrf("train", *words, "--run-dir", "first").checkpoint
    second = rrf("train", *words, "--run-dir", "second").checkpoint
    assert_equal(first, second)
    other = rrf("train", *words, "seed=1", "--run-dir", "third").checkpoint
    assert any(not torch.equal(v, weights(other)[k]) for k, v in weights(first).items())


def test_a_finished_run_is_reused_until_told_otherwise(rrf):
    first = rrf("train", *TINY_PPO)
    free = ("save_interval=3", "log_interval=2", "guard.on_nan=rollback")  # these decide nothing
    again = rrf("train", *TINY_PPO, *free)
    assert again.checkpoint == first.checkpoint
    assert again.lines[-2].startswith("reused cartpole-ppo: return ")
    anew = rrf("train", *TINY_PPO, "--no-resume")
    assert anew.lines[-2].startswith("trained cartpole-ppo")
    assert anew.checkpoint == first.checkpoint
    moved = first.checkpoint.parent.rename(first.checkpoint.parent.with_name("moved"))
    found = rrf("train", *TINY_PPO, "--run-dir", str(moved))
    assert found.lines[-2].startswith("reused")
    assert found.checkpoint == moved / "global_step_4"
    other = rrf("train", *TINY_PPO, "algorithm.gamma=0.5")
    assert other.checkpoint.parent != first.checkpoint.parent


def test_no_resume_sends_what_waits_to_be_sent_before_it_replaces_the_run(
    rrf,
    home,
    empty_store,  # noqa: F811
    monkeypatch,
):
    run_dir = rrf("train", *TINY_PPO).checkpoint.parent
    record = {"kind": "metric", "key": "loss", "value": 3.0, "timestamp": 1, "step": 5}
    atomic.write_json(run_dir / "mlflow_unsent.json", [record])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    refused = rrf("train", *TINY_PPO, "--no-resume")
    assert refused.code == 2
    assert "--no-resume would delete them; repeat the command when the store is" in refused.err
    assert (run_dir / "mlflow_unsent.json").is_file()
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    shutil.copy(empty_store, home / ".rrf/mlflow.db")
    rrf("train", *TINY_PPO, "--no-resume")
    assert not (run_dir / "mlflow_unsent.json").exists()
    client = store.connect()
    experiment = client.get_experiment_by_name("cartpole-ppo")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.metrics == {"loss": 3.0}


@pytest.mark.parametrize(
    ("words", "steps_per_iteration"),
    [
        pytest.param(TINY_PPO, 4 * 8, id="ppo"),
        pytest.param((*TINY_SAC, "num_steps_per_env=3"), 3, id="sac"),
    ],
)
@pytest.mark.slow
def test_a_run_interrupted_and_then_killed_ends_with_the_weights_of_an_undisturbed_one(
    rrf, home, words, steps_per_iteration
):
    shutil.copytree(Path(package.__file__).parent, home / "frozen" / "rrf")
    words = [*words, "max_iterations=140", "save_interval=10"]
    stopped = start(home, *words, "--run-dir", "run")
    reported(stopped, 15)
    stopped.send_signal(signal.SIGINT)
    _, errors = stopped.communicate(timeout=300)
    assert stopped.returncode == 130
    assert b"stopped by SIGINT; saved run/global_step_" in errors
    at_stop = newest(home)
    assert 15 <= at_stop < 140

    killed = start(home, *words, "--run-dir", "run")
    first = reported(killed, at_stop + 15)
    killed.kill()
    killed.wait()
    assert first == at_stop + 1
    assert at_stop < newest(home) < 140
    assert not (home / "run/result.json").exists()

    output, errors = start(home, *words, "--run-dir", "run").communicate(timeout=300)
    assert output.splitlines()[-1] == b"checkpoint run/global_step_140", errors
    undisturbed = rrf("train", *words, "--run-dir", "undisturbed").checkpoint
    assert_equal(home / "run/global_step_140", undisturbed)
    facts = [
        json.loads((home / name / "global_step_140/trainer_state/state.json").read_text())
        for name in ("run", "undisturbed")
    ]
    assert facts[0]["num_steps"] == facts[1]["num_steps"] == 140 * steps_per_iteration
    assert facts[0]["episodes"] == facts[1]["episodes"]


def start(home: Path, *words: str) -> subprocess.Popen:
    """The command, which cannot get far ahead of who reads what it prints: its pipe holds a page,
    that is about 40 iterations, and is read byte by byte."""
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(home / "frozen")}
    return subprocess.Popen(
        [sys.executable, "-m", "rrf", "train", *words],
        cwd=home,
        env=os.environ | environment | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        pipesize=4096,
    )


def reported(process: subprocess.Popen, iteration: int) -> int:
    """Reads until the process has reported an iteration; the first one it reported."""
    first = None
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(b"iteration "):
            number = int(line.split()[1].split(b"/")[0])
            first = first or number
            if number >= iteration:
                return first
    raise AssertionError(f"the process ended early: {process.stderr.read().decode()}")


def newest(home: Path) -> int:
    path = checkpoint.latest(home / "run")
    assert path is not None
    return int(path.name.removeprefix("global_step_"))


@pytest.mark.slow
def test_a_video_is_made_at_the_end_and_also_of_a_run_that_was_finished_without(rrf):
    first = rrf("train", *TINY_PPO)
    assert not [line for line in first.lines if line.startswith("video ")]
    filmed = rrf("train", *TINY_PPO, "--video")
    assert filmed.lines[-3].startswith("reused ")
    video = Path(filmed.lines[-2].removeprefix("video "))
    assert video == filmed.checkpoint.parent / "videos/iteration_4.mp4"
    assert video.stat().st_size > 1000
    anew = rrf("train", *TINY_PPO, "--video", "--no-resume", "video_interval=2")
    names = sorted(path.name for path in video.parent.iterdir())
    assert names == ["iteration_2.mp4", "iteration_4.mp4"]
    assert anew.lines[-2] == f"video {video}"


def test_a_video_that_cannot_be_written_ends_no_training(rrf, monkeypatch):
    def fail(*_, **__):
        raise PermissionError(13, "Permission denied", "/home/me/.cache/warp")

    monkeypatch.setattr("rrf.runners.control.video.film", fail)
    trained = rrf("train", *TINY_PPO, "--video", "video_interval=2")
    assert trained.checkpoint.name == "global_step_4"
    assert "warning: no video: [Errno 13] Permission denied: '/home/me/.cache/warp'" in trained.err
    reused = rrf("train", *TINY_PPO, "--video", "video_interval=2")
    assert reused.checkpoint == trained.checkpoint
    assert "warning: no video: [Errno 13]" in reused.err


@pytest.mark.slow
def test_the_video_reaches_the_trackers(rrf):
    words = [word for word in TINY_PPO if not word.startswith("trackers")]
    said = rrf("train", *words, "trackers=[mlflow]", "--video")
    run = json.loads((said.checkpoint.parent / "run.json").read_text())
    from mlflow import MlflowClient

    from rrf import workspace

    client = MlflowClient(workspace.tracking_uri())
    (video,) = client.list_artifacts(run["run_id"], "videos")
    assert video.path == "videos/iteration_4.mp4"
    logged = client.get_run(run["run_id"])
    assert logged.data.tags["lineage.environment.task"] == "CartPole-v1"
    assert "rollout/return" in logged.data.metrics
    assert logged.info.status == "FINISHED"


def test_a_task_registered_with_its_config_trains_by_its_id(rrf, home):
    (home / "swing_tasks.py").write_text(PLUGIN)
    said = rrf("train", "--task", "Swing-v0", "--import", "swing_tasks", "env.num_envs=3", "seed=5")
    assert said.lines[-2].startswith("trained swing: ")
    config = yaml.safe_load((said.checkpoint / "config.yaml").read_text())
    assert config["env"]["task"] == "Swing-v0"
    assert (config["env"]["num_envs"], config["seed"]) == (3, 5)
    played = rrf("play", said.checkpoint, "--import", "swing_tasks", "--steps", "40")
    # 40 steps are two episodes of 20 in each of 4 environments
    assert "8 episodes ended" in played.out


def test_a_task_that_was_edited_is_trained_anew(rrf, home):
    module = home / "edited_tasks.py"
    module.write_text(PLUGIN.replace("Swing-v0", "Edited-v0"))
    words = ("train", "--task", "Edited-v0", "--import", "edited_tasks", "env.num_envs=3")
    assert rrf(*words).lines[-2].startswith("trained ")
    assert rrf(*words).lines[-2].startswith("reused ")
    module.write_text(module.read_text() + "# another reward\n")
    assert rrf(*words).lines[-2].startswith("trained ")


def test_the_module_before_the_id_of_a_task_is_as_good_as_an_import(rrf, home, monkeypatch):
    monkeypatch.syspath_prepend(home)
    env = '    env = RegisteredEnvCfg(task="Named-v0", num_envs=3)\n    trackers'
    text = PLUGIN.replace("Swing-v0", "Named-v0").replace("    trackers", env)
    first = "from rrf.envs.gymnasium.configs import RegisteredEnvCfg\n"
    (home / "named_tasks.py").write_text(first + text)
    said = rrf("train", "--task", "named_tasks:Named-v0")
    config = yaml.safe_load((said.checkpoint / "config.yaml").read_text())
    assert config["env"]["task"] == "named_tasks:Named-v0"


def test_a_preset_of_a_plugin_is_shown(rrf, monkeypatch):
    def register():
        presets.PRESETS.register("plugin-ppo", presets.PRESETS._targets["cartpole-ppo"])

    point = SimpleNamespace(load=lambda: register, module="plugin", name="plugin")
    monkeypatch.setattr("rrf.lookup.entry_points", lambda group: [point])
    monkeypatch.setattr(presets.PRESETS, "_targets", dict(presets.PRESETS._targets))
    assert "task: CartPole-v1" in rrf("show", "plugin-ppo").out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("pendulum-bc", "dataset=nope"), "nope"),
        (("pendulum-gail", "dataset=nope"), "nope"),
        (("compact-vla-sft", "dataset=nope"), "nope"),
        (
            ("pendulum-ppo", "device=cuda"),
            "device is 'cuda', but torch sees no GPU; use device=cpu",
        ),
        (("pendulum-ppo", "device=gpu"), "device is 'gpu', allowed: cpu, cuda, cuda:1, ..."),
        (("pendulum-hidden-distill",), "teacher=PATH"),
        (("pendulum-ppo", "init_from=nope"), "'nope' is neither a checkpoint"),
    ],
)
def test_what_a_run_needs_is_checked_before_it_says_or_makes_anything(rrf, home, words, error):
    if torch.cuda.is_available() and "device=cuda" in words:
        pytest.skip("there is a GPU here")
    said = rrf("train", *words)
    assert (said.code, said.out) == (2, "")
    (line,) = said.err.splitlines()
    assert line.startswith("error: ")
    assert error in line
    assert not (home / ".rrf/runs").exists()


def test_a_plugin_that_fails_is_named_and_hinders_nothing_else(rrf, monkeypatch, caplog):
    def fails():
        raise RuntimeError("no licence for the simulator")

    def register():
        presets.PRESETS.register("plugin-ppo", "a_module_that_is_not_here:ppo")

    points = [
        SimpleNamespace(load=fails, module="one", name="one", value="one:register"),
        SimpleNamespace(load=lambda: register, module="two", name="two", value="two:register"),
    ]
    monkeypatch.setattr("rrf.lookup.entry_points", lambda group: points)
    monkeypatch.setattr(presets.PRESETS, "_targets", dict(presets.PRESETS._targets))
    assert rrf("show", "cartpole-ppo").code == 0
    assert "the plugin 'one' (one:register): RuntimeError: no licence for" in caplog.text
    listed = rrf("presets")
    assert listed.code == 0
    assert "plugin-ppo" in listed.out
    assert "cannot be loaded: " in " ".join(listed.out.split())
    shown = rrf("show", "--task", "Acrobot-v1", "--algorithm", "ppo")
    assert shown.code == 0, shown.err


def test_a_child_starts_from_the_weights_of_its_parent(rrf):
    parent = rrf("train", *TINY_PPO).checkpoint
    frozen = ("max_iterations=1", "algorithm.schedule=fixed", "algorithm.learning_rate=1e-30")
    child = rrf("train", *TINY_PPO, *frozen, f"init_from={parent}").checkpoint
    assert_equal(parent, child)
    lineage = json.loads((child / "manifest.json").read_text())["lineage"]
    assert len(lineage["parent_checkpoint"]) == 64
