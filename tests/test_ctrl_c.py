"""Ctrl-C in real processes, at every moment: what is said, what is saved, and how they end."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rrf.runners.checkpoints import checkpoint
from tests.runners.supervised.conftest import (
    dataset,  # noqa: F401 (a fixture)
    tiny_run_cfg,
)

ROOT = Path(__file__).parents[1]
CONTROL = """
from rrf import __main__
print("up", flush=True)
__main__.main()
"""
SUPERVISED = """
import pathlib
from rrf import ctrl_c
with ctrl_c.listening():
    from rrf.cli.training_run import run_training
    from rrf.runners import SupervisedRunnerCfg
    cfg = SupervisedRunnerCfg.from_yaml(pathlib.Path("cfg.yaml").read_text())
    run_training(cfg, pathlib.Path("run"))
"""
VLA_RL = """
import contextlib, pathlib
from rrf import ctrl_c
with ctrl_c.listening():
    from rrf.cli import training_run, trainings
    from rrf.lineage import Lineage
    from tests.runners.vla_rl.conftest import build, runner_cfg

    class Toy(trainings.Training):
        def depends_on(self, parent, digest):
            return Lineage(), {}

        def runner(self, run_dir, lineage):
            return build(self.cfg, run_dir)

        @contextlib.contextmanager
        def shown(self):
            yield lambda progress: print(f"round {progress.round}/", flush=True)

    training_run.training_of = Toy
    cfg = runner_cfg(max_rounds=1000, save_interval=100, validation_interval=2000)
    training_run.run_training(cfg, pathlib.Path("run"))
"""
SLOW_DISK = """
import time
from rrf import atomic
sync = atomic._fsync_tree
atomic._fsync_tree = lambda path: print("saving", flush=True) or time.sleep(1.5) or sync(path)
"""
WORDS = [
    *("train", "pendulum-ppo", "trackers=[]", "max_iterations=100000", "num_steps_per_env=100"),
    *("save_interval=100000", "--run-dir", "run"),
]


class Process:
    """A training whose output is read line by line."""

    def __init__(self, home: Path, script: str, *words: str):
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-c", script, *words],
            cwd=home,
            env=os.environ | {"PYTHONPATH": str(ROOT), "RRF_HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_for(self, pattern: str) -> str:
        """Read until a line matches; returns it."""
        assert self._process.stdout
        for line in self._process.stdout:
            self.lines.append(line.rstrip())
            if re.search(pattern, line):
                return self.lines[-1]
        raise AssertionError(f"no '{pattern}' in:\n" + "\n".join(self.lines))

    def interrupt(self, signum: int = signal.SIGINT) -> float:
        self._process.send_signal(signum)
        return time.monotonic()

    def end(self) -> int:
        """Read the rest; returns the exit code."""
        out, _ = self._process.communicate(timeout=120)
        self.lines += out.splitlines()
        assert "Traceback" not in out, out
        return self._process.returncode


@pytest.fixture
def home(tmp_path):
    for name in ("dvc.yaml", "configs", "pyproject.toml"):
        (tmp_path / name).touch()
    return tmp_path


def newest(home: Path) -> int | None:
    return next(reversed(checkpoint.steps(home / "run")), None)


@pytest.mark.parametrize("seconds", [0.05, 0.3, 1.0, 2.0])
def test_before_the_first_iteration_there_is_nothing_to_save(home, seconds):
    process = Process(home, CONTROL, *WORDS)
    process.wait_for("up" if seconds < 1 else "starts anew")
    time.sleep(seconds % 1)  # imports of the command, or of torch
    process.interrupt()
    assert process.end() == 130
    [line] = [line for line in process.lines if "Ctrl-C" in line]
    assert line.startswith("stopped by Ctrl-C")
    assert newest(home) is None


@pytest.mark.slow
def test_a_run_that_goes_on_names_the_checkpoint_it_goes_on_from(home):
    first = Process(home, CONTROL, *WORDS)
    first.wait_for("iteration 2/")
    first.interrupt()
    assert first.end() == 130
    again = Process(home, CONTROL, *WORDS)
    again.wait_for(f"resuming from global_step_{newest(home)}")
    again.interrupt()
    line = again.wait_for("Ctrl-C")
    assert line == (
        "stopped by Ctrl-C: nothing new to save; the same command goes on from "
        f"global_step_{newest(home)}"
    )
    assert again.end() == 130


@pytest.mark.parametrize(
    ("script", "unit", "saved", "answer"),
    [
        (
            CONTROL,
            "iteration",
            0,
            r"Ctrl-C: finishes iteration (\d+) of 100000, saves it and stops",
        ),
        pytest.param(
            SUPERVISED,
            "step",
            0,
            r"Ctrl-C: finishes step (\d+) of 100000, saves it and stops",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            VLA_RL,
            "round",
            1,
            r"Ctrl-C: breaks off round (\d+) of 1000, saves the rest and stops",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["control", "supervised", "vla-rl"],
)
def test_the_first_one_saves_and_the_second_one_says_what_is_lost(
    home,
    dataset,  # noqa: F811
    script,
    unit,
    saved,
    answer,
):
    cfg = tiny_run_cfg(dataset, max_steps=100000, save_interval=100000, log_interval=1)
    (home / "cfg.yaml").write_text(cfg.replace(validation_interval=100000).to_yaml())
    process = Process(home, script, *WORDS)
    process.wait_for(f"^{unit} 5/")
    process.interrupt()
    line = process.wait_for("Ctrl-C")
    found = re.match(answer, line)
    assert found, line
    at = int(found[1])
    assert line.endswith(f"; once more stops at once and loses {unit}s {saved + 1} to {at}")
    assert process.end() == 130
    saved = newest(home)
    assert saved is not None
    assert at - 1 <= saved <= at + 1
    assert f"stopped by SIGINT; saved run/global_step_{saved}; the same command" in (
        "\n".join(process.lines)
    )


@pytest.mark.parametrize(
    "script", [CONTROL, *(pytest.param(s, marks=pytest.mark.slow) for s in (SUPERVISED, VLA_RL))]
)
def test_two_at_once_stop_at_once_and_say_what_is_lost(home, dataset, script):  # noqa: F811
    cfg = tiny_run_cfg(dataset, max_steps=100000, save_interval=100000, log_interval=1)
    (home / "cfg.yaml").write_text(cfg.replace(validation_interval=100000).to_yaml())
    process = Process(home, SLOW_DISK + script, *WORDS)
    process.wait_for(r"^(iteration|step|round) 5/")
    process.interrupt()
    process.wait_for("saving")  # of what the first one asked for
    told = process.interrupt()
    line = process.wait_for("Ctrl-C again")
    saved = newest(home)  # reinforcement learning saves round 0, and maybe what the first one ended
    after = "starts anew" if saved is None else f"goes on from global_step_{saved}"
    lost = rf"\w+s {(saved or 0) + 1} to \d+ lost"
    assert re.search(f"stopped at once, {lost}; the same command {after}$", line), line
    assert process.end() == 130
    assert time.monotonic() - told < 10
    assert (newest(home) or 0) < 5  # what it was asked to save is lost


def test_a_process_that_cannot_listen_answers_and_ends_all_the_same():
    """The main thread is in C for minutes, as in an import or a step of torch."""
    script = """
from rrf import ctrl_c
import hashlib, threading, time

def tell():
    clock = time.pthread_getcpuclockid(threading.main_thread().ident)
    at_start = time.clock_gettime(clock)
    while time.clock_gettime(clock) < at_start + 0.2:
        time.sleep(0.01)
    print("busy", flush=True)

with ctrl_c.listening(lambda count: f"heard {count}"):
    threading.Thread(target=tell, daemon=True).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)
"""
    process = Process(Path.cwd(), script)
    process.wait_for("busy")
    process.interrupt()
    process.wait_for("heard 1")
    told = process.interrupt()
    process.wait_for("heard 2")
    assert process.end() == 130
    assert time.monotonic() - told < 10


def test_a_forked_child_does_not_count():
    script = """
import os, signal, time, warnings
from rrf import ctrl_c
warnings.simplefilter("ignore")  # of forks of threads
with ctrl_c.listening(lambda count: f"heard {count}"):
    child = os.fork()
    if child == 0:
        try:
            print("forked", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            os._exit(7)
    time.sleep(0.5)
    os.kill(child, signal.SIGINT)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), ctrl_c.count(), flush=True)
"""
    process = Process(Path.cwd(), script)
    assert process.end() == 0
    assert process.lines == ["forked", "7 0"]


@pytest.mark.slow
def test_a_background_job_of_a_shell_goes_on(home):
    deaf = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    process = Process(home, deaf + CONTROL, *WORDS)
    process.wait_for("iteration 2/")
    process.interrupt()
    process.wait_for("iteration 4/")
    process.interrupt(signal.SIGTERM)
    assert process.end() == 128 + signal.SIGTERM
    assert not [line for line in process.lines if "Ctrl-C" in line]
