"""What ends a command although nobody expected it is a line and exit code 2 too."""

import sys

import numpy as np
import pytest

from rrf import cli
from rrf.envs.process.child import Child


class Careless:
    """Fails in each of the ways in which a child process can."""

    def die(self):
        sys.exit(3)

    def stumble(self):
        raise KeyError("gripper")


def said_by(action, monkeypatch, capsys) -> str:
    monkeypatch.setattr(cli, "app", action)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("method", ["die", "stumble"])
def test_a_child_process_that_dies_or_fails(method, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    child = Child(f"{__name__}:Careless", "worker 1 of 2", {}, timeout_s=60)

    def command():
        child.send(method)
        child.result()

    said = said_by(command, monkeypatch, capsys)
    child.close()
    assert said.startswith("error: worker 1 of 2 ")
    assert said.count("\n") == 1
    if method == "stumble":
        assert "KeyError: 'gripper'" in (tmp_path / ".rrf/logs/child-error.txt").read_text()
        assert ".rrf/logs/child-error.txt" in said


def test_too_little_memory(monkeypatch, capsys):
    said = said_by(lambda: np.empty(1 << 60, np.uint8), monkeypatch, capsys)
    assert said.startswith("error: out of memory (Unable to allocate 1.00 EiB")
    assert said.count("\n") == 1
