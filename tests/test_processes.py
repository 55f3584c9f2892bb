"""Commands that never outlive us, stop gently, and say what went wrong; all with real processes."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from rrf import processes
from tests.waiting import has_exited, is_running, wait_for

# Counts in a file; on SIGTERM it writes what it has and ends, as training does with its checkpoint.
SAVER = """
import signal, sys, time
def save(*_):
    open(sys.argv[1], "w").write("saved")
    print("checkpoint saved", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(600)
"""
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(600)
"""
# Starts a grandchild, prints its pid and waits.
PARENT = """
import subprocess, time
print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
time.sleep(600)
"""


def python(code: str, *arguments) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


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


def test_what_a_command_wrote_before_it_ended_is_logged_although_nobody_waited_for_it(tmp_path):
    os.mkfifo(tmp_path / "go")
    code = "import os, sys; print(os.getpid()); open(sys.argv[1]).read(); print('last words')"

    def let_it_end_and_fail(pid):
        (tmp_path / "go").write_text("")
        wait_for(lambda: not is_running(int(pid)))
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        processes.run(
            python(code, tmp_path / "go"), log=tmp_path / "log", on_line=let_it_end_and_fail
        )
    assert (tmp_path / "log").read_text().endswith("\nlast words\n")


def test_a_command_deaf_to_sigterm_is_killed_after_the_grace_period():
    heard = []

    def interrupt(line):
        heard.extend([int(line), time.monotonic()])
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        processes.run(python(STUBBORN), on_line=interrupt, grace_s=1)
    pid, began = heard
    assert time.monotonic() - began >= 1
    assert not is_running(pid)


def test_a_command_that_takes_too_long_is_stopped():
    with pytest.raises(TimeoutError, match=r"`sleep 600` ran longer than 0\.5 s and was stopped"):
        processes.run(["sleep", "600"], timeout_s=0.5)


def test_stopping_reaches_grandchildren(tmp_path):
    pids = []

    def interrupt(line):
        pids.append(int(line))
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        processes.run(python(PARENT), on_line=interrupt)
    wait_for(lambda: not is_running(pids[0]))


def test_a_grandchild_holding_the_pipe_does_not_hold_the_result():
    code = (
        "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"
    )
    lines = []
    assert processes.run(python(code), on_line=lines.append) == 0
    [pid] = map(int, lines)
    assert is_running(pid)
    os.kill(pid, signal.SIGKILL)


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
    os.mkfifo(tmp_path / "go")
    code = "import sys; print('ready'); open(sys.argv[1]).read(); print('survived')"
    started = []

    def begin():
        with (tmp_path / "log").open("wb") as log:
            started.append(processes.start(python(code, tmp_path / "go"), stdout=log))
        wait_for(lambda: (tmp_path / "log").read_text() == "ready\n")

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    wait_for(lambda: has_exited(thread.native_id))
    (tmp_path / "go").write_text("")
    assert started[0].wait(120) == 0
    assert (tmp_path / "log").read_text() == "ready\nsurvived\n"


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
        os._exit(processes.run(["true"], timeout_s=100))
    try:
        ended, status = wait_for(lambda: (found := os.waitpid(child, os.WNOHANG))[0] and found)
    except AssertionError:
        os.kill(child, signal.SIGKILL)
        raise AssertionError("the forked child hangs") from None
    assert (ended, status) == (child, 0)
