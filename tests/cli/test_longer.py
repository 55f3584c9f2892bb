"""A run that is made longer, and why some cannot be."""

import torch
from safetensors.torch import load_file

from rrf.presets import resolve
from tests.cli.conftest import TINY_PPO, TINY_SAC

STEADY = (*TINY_PPO, "algorithm.schedule=fixed", "--run-dir")


def test_a_longer_run_goes_on_with_its_optimizer_as_if_it_had_been_that_long(rrf, home):
    short = rrf("train", *STEADY, "run")
    assert short.checkpoint.name == "global_step_4"
    longer = rrf("train", *STEADY, "run", "max_iterations=7")
    assert longer.lines[0].endswith("in run: resuming from global_step_4"), longer.err
    assert "trained cartpole-ppo" in longer.lines[-2]
    whole = rrf("train", *STEADY, "whole", "max_iterations=7")
    for name in ("model.safetensors", "trainer_state/optimizer.safetensors"):
        mine, other = (load_file(one.checkpoint / name) for one in (longer, whole))
        assert all(torch.equal(mine[key], other[key]) for key in other)
    again = rrf("train", *STEADY, "run", "max_iterations=7")
    assert again.lines[-2].startswith("reused")


def test_a_shorter_run_or_another_change_is_refused_as_before(rrf):
    rrf("train", *STEADY, "run")
    for words in (("max_iterations=3",), ("max_iterations=8", "algorithm.gamma=0.5")):
        said = rrf("train", *STEADY, "run", *words)
        assert said.code == 2
        assert "run holds a run with another config" in said.err
        assert rrf("train", *STEADY, "run").lines[-2].startswith("reused")


def test_a_run_whose_schedule_spreads_over_it_is_not_made_longer(rrf):
    words = (*TINY_PPO, "algorithm.schedule=linear", "--run-dir", "run")
    rrf("train", *words)
    said = rrf("train", *words, "max_iterations=8")
    assert said.code == 2
    assert said.err == (
        "error: run cannot be made longer by max_iterations=8: algorithm.schedule is linear, whose "
        "course is that of a run of 4. Train the longer one in another --run-dir, or go on from "
        "the weights with init_from=run\n"
    )


def test_off_policy_runs_can_be_made_longer(rrf):
    assert rrf("train", *TINY_SAC, "--run-dir", "run").checkpoint.name == "global_step_6"
    longer = rrf("train", *TINY_SAC, "--run-dir", "run", "max_iterations=8")
    assert longer.checkpoint.name == "global_step_8"


def test_resume_names_the_run_that_could_be_made_longer(rrf):
    first = rrf("train", *STEADY[:-1])
    said = rrf("train", *STEADY[:-1], "max_iterations=8", "--resume")
    where = first.checkpoint.parent
    assert f"to make that run longer, add --run-dir {where}" in said.err


def test_what_spreads_over_a_run():
    spread = {
        "compact-vla-sft": "schedule.kind is one_cycle",
        "metaworld-grpo-compact": "schedule.kind is cosine",
        "pendulum-ppo": "algorithm.schedule is linear",
        "pendulum-iql-online": "online_iterations is ",
        "metaworld-sac-residual": None,
        "pendulum-sac": None,
    }
    for preset, why in spread.items():
        found = resolve(preset, []).spread_over_run()
        assert (found or "").startswith(why or ""), preset
        assert bool(found) == bool(why), preset
