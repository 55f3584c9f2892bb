"""The command line: fast help, one-line errors, no tracebacks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rrf.cli.doctor import _cores
from tests.cli.conftest import Rrf
from tests.repository.test_layers import HEAVY

ROOT = Path(__file__).parents[2]


@pytest.fixture
def here(rrf, monkeypatch) -> Rrf:
    """Runs `rrf WORDS` in this checkout."""
    monkeypatch.setenv("RRF_HOME", str(ROOT))
    monkeypatch.chdir(ROOT)
    return rrf


def test_cores_are_counted_where_the_system_does_not_tell_which_are_ours(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 10)
    assert _cores()[2].startswith("10, load ")


def test_help_lists_every_command_and_loads_little():
    """About 340 modules, a quarter of a second of CPU; with torch or MLflow it would be 2,000."""
    command = [sys.executable, "-X", "importtime", "-m", "rrf.cli", "--help"]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    lines = [line for line in found.stderr.splitlines() if line.startswith("import time:")]
    loaded = {line.rpartition("|")[2].strip() for line in lines}
    assert "rrf.cli" in loaded
    assert loaded.isdisjoint({*HEAVY, "numpy"})
    assert len(loaded) < 450
    names = "data train eval play export import models gc nightly show doctor"
    for command in names.split():
        assert command in found.stdout


@pytest.mark.parametrize(
    ("group", "commands"),
    [
        ("data", ("collect", "convert", "validate", "stats", "show", "report", "diff", "card")),
        (
            "models",
            ("list", "fetch", "register", "promote", "rollback", "gate", "repair", "ledger"),
        ),
        ("nightly", ("status", "ack")),
    ],
)
def test_each_group_lists_its_commands(here, group, commands):
    found = here(group, "--help")
    assert found.code == 0
    for command in commands:
        assert command in found.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "compact-vla-stf"), "did you mean 'compact-vla-sft'"),
        (("show", "compact-vla-sft", "optimiser.lr=1"), "no config field 'optimiser"),
        (("show", "compact-vla-sft", "seed"), "'seed' is not of the form path=value"),
        (("show", "configs/train/nothing.yaml"), "no file 'configs/train/nothing.yaml'"),
        (("data", "show", "metaworld-dmo"), "did you mean"),
    ],
)
def test_a_mistake_ends_in_one_line_and_exit_code_2(here, words, message):
    found = here(*words)
    assert found.code == 2
    (line,) = found.err.splitlines()
    assert message in line


def test_show_prints_a_preset_that_reads_back_equal():
    from rrf.presets import resolve

    command = [sys.executable, "-m", "rrf.cli", "show", "compact-vla-sft", "seed=7"]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    resolved = resolve("compact-vla-sft", ["seed=7"])
    assert resolved.seed == 7
    assert type(resolved).from_yaml(found.stdout) == resolved
