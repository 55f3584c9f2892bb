"""Commands that never outlive us, stop gently, and say what went wrong; all with real processes."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rrf import processes

# Counts in a file; on SIGTERM it writes what it has and ends, as training does with its checkpoint.
SAVER = """
import signal, sys, time
def save(*_):
    open(sys.argv[1], "w").write("saved")
    print("checkpoint saved", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(60)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(60)
"""
# Starts a grandchild, prints its pid and waits.
PARENT = """
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid, flush=True)
time.sleep(60)
"""


def python(code: str, *arguments) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition, timeout_s: float = 20.0):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {timeout_s} s")


def test_each_line_is_passed_on_and_logged(tmp_path):
    lines = []
    code = r"import sys; print('one'); sys.stdout.write('10%\r20%\r\n\x1b[1mbold\x1b[0m\n');"
    code += "sys.stdout.flush(); sys.stderr.write('last')"
    assert processes.run(python(code), log=tmp_path / "deep" / "run.log", on_line=lines.append) == 0
    assert lines == ["one", "10%", "20%", "bold", "last"]
    assert (
        tmp_path / "deep" / "run.log"
    ).read_bytes() == b"one\n10%\r20%\r\n\x1b[1mbold\x1b[0m\nlast"


def test_a_failure_carries_exit_code_last_lines_and_log(tmp_path):
    code = "print('loading'); raise SystemExit('no such dataset')"
    with pytest.raises(
        processes.CommandError, match="exit 1; last lines:\nloading\nno such dataset"
    ) as caught:
        processes.run(python(code), log=tmp_path / "run.log")
    assert caught.value.exit_code == 1
    assert str(tmp_path / "run.log") in str(caught.value)


def test_only_the_last_twenty_lines_of_a_failure_are_kept():
    with pytest.raises(processes.CommandError) as caught:
        processes.run(python("[print(i) for i in range(1000)]; raise SystemExit(3)"))
    assert caught.value.tail == [str(i) for i in range(980, 1000)]


def test_death_by_signal_is_named():
    with pytest.raises(processes.CommandError, match="SIGABRT") as caught:
        processes.run(python("import os; os.abort()"))
    assert caught.value.exit_code == -6


def test_an_unknown_program_is_a_clear_error():
    with pytest.raises(FileNotFoundError, match="no program 'rrf-of-tomorrow'"):
        processes.run(["rrf-of-tomorrow"])


def test_an_error_while_waiting_stops_the_command_gently(tmp_path):
    def interrupt(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        processes.run(python(SAVER, tmp_path / "saved"), log=tmp_path / "log", on_line=interrupt)
    assert (tmp_path / "saved").read_text() == "saved"
    assert (tmp_path / "log").read_text() == "ready\ncheckpoint saved\n"


def test_a_command_deaf_to_sigterm_is_killed_after_the_grace_period():
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="ran longer than 1 s"):
        processes.run(python(STUBBORN), timeout_s=1, grace_s=1)
    assert 2 <= time.monotonic() - began < 8


def test_stopping_reaches_grandchildren(tmp_path):
    pids = []

    def interrupt(line):
        pids.append(int(line))
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        processes.run(python(PARENT), on_line=interrupt)
    wait_for(lambda: not is_running(pids[0]))


def test_a_grandchild_holding_the_pipe_does_not_hold_the_result():
    code = "import subprocess as s; s.Popen(['sleep', '25'], start_new_session=True); print('done')"
    lines, began = [], time.monotonic()
    assert processes.run(python(code), on_line=lines.append) == 0
    assert lines == ["done"]
    assert time.monotonic() - began < 20


def test_variables_are_added_to_our_own(monkeypatch):
    monkeypatch.setenv("RRF_OURS", "kept")
    lines = []
    code = "import os; print(os.environ['RRF_OURS'], os.environ['RRF_NEW'])"
    processes.run(python(code), on_line=lines.append, env={"RRF_NEW": "added"})
    assert lines == ["kept added"]


@pytest.mark.parametrize("from_thread", [False, True], ids=["main thread", "worker thread"])
def test_killing_the_parent_ends_the_command_gently(tmp_path, from_thread):
    parent = f"""
import threading
from rrf import processes
def work():
    processes.run({python(SAVER, tmp_path / "saved")!r}, log={str(tmp_path / "log")!r})
if {from_thread}:
    thread = threading.Thread(target=work); thread.start(); thread.join()
else:
    work()
"""
    with subprocess.Popen(python(parent)) as process:
        wait_for(lambda: (tmp_path / "log").exists() and "ready" in (tmp_path / "log").read_text())
        process.send_signal(signal.SIGKILL)
    wait_for((tmp_path / "saved").exists)


def test_a_command_survives_the_thread_that_started_it(tmp_path):
    """The kernel ties the parent-death signal to the parent thread: a naive prctl would kill it."""
    started = []

    def begin():
        with (tmp_path / "log").open("wb") as log:
            started.append(
                processes.start(python("import time; time.sleep(1); print('survived')"), stdout=log)
            )

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    assert started[0].wait(20) == 0
    assert (tmp_path / "log").read_text() == "survived\n"


def test_a_command_whose_parent_is_already_gone_does_not_start(tmp_path):
    mark = tmp_path / "mark"
    code = f"open({str(mark)!r}, 'w')"
    gone = subprocess.Popen(["true"])
    gone.wait()
    launcher = [sys.executable, "-I", "-S", processes.__file__, str(gone.pid), *python(code)]
    assert subprocess.run(launcher, check=False).returncode == 143
    assert not mark.exists()


def test_commands_start_after_a_fork(tmp_path):
    """A forked child has none of our threads, so the starting thread must be made anew."""
    processes.run(["true"])
    child = os.fork()
    if child == 0:
        os._exit(processes.run(["true"], timeout_s=10))
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            assert status == 0
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the forked child hangs")
