"""`rrf train` with a teacher."""

import json

import pytest

from tests.cli.conftest import TINY_PPO
from tests.cli.test_bad_input import one_line

TINY = (
    *("pendulum-hidden-distill", "trackers=[]", "max_iterations=2", "num_steps_per_env=15"),
    *("env.num_envs=2", "policy.actor_cfg.memory.hidden_size=4"),
)


def test_a_student_is_trained_and_its_run_depends_on_its_teacher(rrf, tmp_path):
    first, second = (
        rrf("train", "pendulum-ppo", *TINY_PPO[1:], f"seed={seed}").checkpoint for seed in (0, 1)
    )
    said = rrf("train", *TINY, f"teacher={first}", "--run-dir", tmp_path / "run")
    assert "after 2 iterations, 60 steps" in said.out
    manifest = json.loads((said.checkpoint / "manifest.json").read_text())
    assert len(manifest["lineage"]["teacher_checkpoint"]) == 64
    assert "3 steps" in rrf("play", said.checkpoint, "--steps", "3").out
    other = rrf("train", *TINY, f"teacher={second}", "--run-dir", tmp_path / "run")
    assert "holds a run with another teacher" in one_line(other)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "teacher is not given; train one in the same task and name its checkpoint"),
        (("teacher=nowhere",), "'nowhere' is neither a checkpoint"),
    ],
)
def test_a_teacher_that_is_not_there_is_one_line(rrf, words, message):
    assert message in one_line(rrf("train", *TINY, *words))
