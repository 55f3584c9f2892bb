"""What `rrf` lists, completes and suggests."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rrf as package
from rrf.cli import app
from rrf.presets import PRESETS, resolve
from rrf.presets.rlinf import recipes

ROOT = Path(__file__).parents[2]


def commands(group, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The words of every command, from the groups above it."""
    found = []
    for name, command in group.commands.items():
        words = (*prefix, name)
        found += [words, *(commands(command, words) if hasattr(command, "commands") else [])]
    return found


def test_the_version_is_that_of_the_package(rrf):
    assert rrf("--version").lines == [f"rrf {package.__version__}"]


def test_every_command_has_help_by_h_and_by_help(rrf):
    from typer.main import get_command

    every = commands(get_command(app))
    assert ("data", "convert") in every
    for number, words in enumerate([(), *every]):
        shown = rrf(*words, ("-h", "--help")[number % 2])
        assert shown.code == 0, words
        assert "Usage: " in shown.out, words
        assert re.search(r"--help +-h ", shown.out), words
    for words in ((), ("data",), ("data", "convert")):
        assert rrf(*words, "-h").out == rrf(*words, "--help").out


def test_presets_are_listed_with_what_they_are(rrf):
    listed = {line.split()[0] for line in rrf("presets").lines}
    assert listed >= set(PRESETS) - set(recipes.names())
    assert not listed & {*recipes.names(), *PRESETS.aliases}
    assert "and 210 presets SIMULATOR-ALGORITHM-MODEL (libero10, " in rrf("presets").out
    pairs = {line.split()[0] for line in rrf("presets", "maniskill").lines}
    assert pairs >= {"maniskill-ppo-openvla", "maniskill_ppo_openvla", "maniskill-grpo-compact"}
    assert "another name for maniskill-ppo-openvla" in rrf("presets", "maniskill_ppo_openvla").out
    found = rrf("presets", "pendulum-iql")
    assert [line.split()[0] for line in found.lines[1:]] == ["pendulum-iql", "pendulum-iql-online"]
    assert (
        "error: no preset with 'pendulum-pppo'; did you mean" in rrf("presets", "pendulum-pppo").err
    )


def test_runs_are_listed_with_their_state(rrf, home):
    assert rrf("runs").lines == ["no runs; `rrf train PRESET` makes one"]
    for name, files in {"a-1": ("run.json", "result.json"), "b-2": ("run.json",)}.items():
        for file in (*files, "global_step_8/config.yaml", "global_step_12/config.yaml"):
            path = home / ".rrf/runs" / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{}")
    (home / ".rrf/runs/none").mkdir()
    lines = rrf("runs").lines[1:]
    assert [line.split()[:3] for line in sorted(lines)] == [
        ["a-1", "finished", "global_step_12"],
        ["b-2", "unfinished", "global_step_12"],
    ]
    assert len(rrf("runs", "b-").lines) == 2


COMPLETIONS = {
    "train pendulum-iq": {"pendulum-iql", "pendulum-iql-online"},
    "eval .rrf/runs/ti": {".rrf/runs/tiny-01ab"},
    "data validate de": {"demo"},
    "eval .rrf/runs/tiny-01ab --held-out de": {"demo"},
    "train pendulum-bc dataset=de": {"dataset=demo"},
    "train pendulum-bc max_iterations=3 dataset = de": {"demo"},
    "train pendulum-bc dataset =": {"demo"},
}


def test_the_shell_completes_names(home):
    """One process answers for all of them."""
    for mark in (".rrf/runs/tiny-01ab/run.json", "datasets/demo/meta/info.json"):
        (home / mark).parent.mkdir(parents=True, exist_ok=True)
        (home / mark).write_text(json.dumps({}))
    program = f"""
import os, sys
sys.argv = ["rrf"]
from rrf.__main__ import main
for words in {list(COMPLETIONS)}:
    os.environ |= {{"COMP_WORDS": "rrf " + words, "COMP_CWORD": str(len(words.split()))}}
    try:
        main()
    except SystemExit:
        print("---", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(ROOT), "_RRF_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
        check=False,
    )
    *found, rest = done.stdout.split("---")
    assert [set(each.split()) for each in found] == list(COMPLETIONS.values()), done.stderr
    assert rest == "\n"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("num_envs=3", "no config field 'num_envs'; did you mean 'env.num_envs'?"),
        ("env.gamma=1", "no config field 'env.gamma'; did you mean 'algorithm.gamma'?"),
        ("num_learning_epoch=1", "; did you mean 'algorithm.num_learning_epochs'?"),
        ("algorithm.gama=1", "no config field 'algorithm.gama'; did you mean 'gamma'?"),
    ],
)
def test_a_wrong_field_names_the_nearest_at_any_depth(word, hint):
    with pytest.raises(ValueError, match="no config field") as error:
        resolve("pendulum-ppo", [word])
    assert hint in str(error.value)


def test_a_wrong_field_in_yaml_names_the_nearest_at_any_depth(tmp_path):
    path = tmp_path / "t.yaml"
    path.write_text("preset: pendulum-ppo\noverrides: {num_envs: 3}\n")
    with pytest.raises(ValueError, match=r"did you mean 'env\.num_envs'"):
        resolve(str(path), [])
    path.write_text("preset: pendulum-ppo\nmax_iteration: 3\n")
    with pytest.raises(ValueError, match=r"below `overrides`: .* did you mean 'max_iterations'"):
        resolve(str(path), [])
    path.write_text("preset: pendulum-ppo\nmax_iterations: 3\n")
    with pytest.raises(ValueError, match=r"no key 'max_iterations'; it is a field of the config"):
        resolve(str(path), [])
    with pytest.raises(
        ValueError, match=r"has no field 'hidden_features'; did you mean '.*\.hidden"
    ):
        type(resolve("pendulum-ppo", [])).from_dict({"hidden_features": [8]})
