"""What runs are called and described as, in every tracker, from the command that starts them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rrf.lineage import DatasetLineage, Lineage
from rrf.mlflow_store import store
from rrf.mlflow_store.flow_run import FlowRun
from rrf.registry.training_facts import run_name, run_notes
from rrf.tracking.base import remembered
from rrf.tracking.mlflow_run import MLflowTracker
from rrf.tracking.runs import open_trackers

ROOT = Path(__file__).parents[2]
CONFIG = {
    "experiment_name": "reach-grpo",
    "seed": 3,
    "algorithm": {"type": "rrf.algorithms.vla.configs:GRPOCfg"},
    "init_from": "/home/me/.rrf/runs/reach-sft-0123456789ab/global_step_40",
}
FLOW_RUN = FlowRun("11-22", "train-vla reach: demo", "http://127.0.0.1:4200/runs/flow-run/11-22")


@pytest.fixture
def run_dir(home):
    (home / ".rrf/runs/reach-grpo-0a1b2c3d4e5f").mkdir(parents=True)
    return home / ".rrf/runs/reach-grpo-0a1b2c3d4e5f"


def notes_of(run_id: str | None) -> str:
    assert run_id is not None
    return store.connect().get_run(run_id).data.tags["mlflow.note.content"]


def test_a_run_is_named_by_experiment_seed_and_the_begin_of_its_key():
    assert run_name(CONFIG, "0a1b2c3d4e5f6789") == "reach-grpo, seed 3, 0a1b2c3d"


def test_the_notes_say_what_is_trained_from_what_and_how_to_do_it_again():
    lineage = Lineage((DatasetLineage("demo", "77.dir"),), git_revision="ab" * 20)
    command = "rrf train reach-grpo seed=3"
    parent = "reach-sft-0123456789ab/global_step_40"
    assert run_notes(CONFIG, lineage, Path("/runs/r"), command, FLOW_RUN).splitlines() == [
        f"Trains a policy: `reach-grpo`, seed 3, with GRPO, starting from `{parent}`.",
        "",
        "- Dataset: `demo` (DVC md5 77.dir)",
        "- Code: git `abababababab`",
        "- Checkpoints: `/runs/r`",
        f"- Prefect flow run: [train-vla reach: demo]({FLOW_RUN.url})",
        "",
        "This command reuses the run, or resumes it if it was interrupted:",
        "",
        "```",
        command,
        "```",
    ]


def test_a_resumed_run_keeps_its_name_and_gets_the_notes_of_today(run_dir):
    first = MLflowTracker("reach-grpo", "first", run_dir, notes="begun in flow run 1")
    first.log_metrics({"loss": 1.0}, 1)
    first.close("KILLED")
    second = MLflowTracker("reach-grpo", "second", run_dir, first.run_id, "resumed in flow run 2")
    second.close("FINISHED")
    run = store.connect().get_run(first.run_id)
    assert run.info.run_name == "first"
    assert notes_of(first.run_id).startswith("resumed in flow run 2\n")


def test_notes_that_a_person_wrote_stay_when_the_run_is_resumed(run_dir):
    first = MLflowTracker("reach-grpo", "first", run_dir, notes="begun")
    first.log_metrics({"loss": 1.0}, 1)
    first.close("KILLED")
    store.connect().set_tag(first.run_id, "mlflow.note.content", "The one for the paper.")
    MLflowTracker("reach-grpo", "first", run_dir, first.run_id, "resumed").close("FINISHED")
    assert notes_of(first.run_id) == "The one for the paper."


def test_trackers_that_go_on_by_id_keep_the_first_name(run_dir):
    first = remembered(run_dir, "wandb", "reach-grpo, seed 3, 0a1b2c3d")
    assert first[1:] == ("reach-grpo, seed 3, 0a1b2c3d", True)
    assert remembered(run_dir, "wandb", "another") == (first[0], first[1], False)


def test_tensorboard_shows_name_and_notes(run_dir):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracker = open_trackers(["tensorboard"], "reach-grpo", "the name", run_dir, notes="the notes")
    tracker.close("FINISHED")
    tensors = EventAccumulator(str(run_dir / "tensorboard")).Reload().Tensors("run")
    assert b"the name" in tensors[0].tensor_proto.string_val[0]
    assert b"the notes" in tensors[0].tensor_proto.string_val[0]


@pytest.mark.slow
def test_a_training_that_a_flow_starts_names_the_flow_run_and_the_command(home):
    words = ["train", "cartpole-ppo", "max_iterations=1", "num_steps_per_env=4", "env.num_envs=2"]
    done = subprocess.run(
        [sys.executable, "-m", "rrf.cli", *words, "trackers=[mlflow]"],
        cwd=home,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | FLOW_RUN.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [facts] = (home / ".rrf/runs").glob("cartpole-ppo-*/run.json")
    run = store.connect().get_run(json.loads(facts.read_text())["run_id"])
    key = facts.parent.name.rpartition("-")[2]
    assert run.info.run_name == f"cartpole-ppo, seed 0, {key[:8]}"
    assert run.data.tags["run_key"].startswith(key)
    assert run.data.tags["prefect.flow_run_id"] == "11-22"
    assert run.data.tags["prefect.flow_run_url"] == FLOW_RUN.url
    notes = notes_of(run.info.run_id)
    assert notes.startswith("Trains a policy: `cartpole-ppo`, seed 0, with PPO.\n")
    assert "- Environment: `CartPole-v1` (" in notes
    assert f"[train-vla reach: demo]({FLOW_RUN.url})" in notes
    command = "rrf train cartpole-ppo max_iterations=1 num_steps_per_env=4 env.num_envs=2"
    assert f"```\n{command} 'trackers=[mlflow]'\n```" in notes
