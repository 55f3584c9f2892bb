"""Files and directories that appear whole or not at all."""

import concurrent.futures
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from rrf import atomic


def test_a_file_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path):
    target = tmp_path / "deep" / "a.txt"
    atomic.write_text(target, "one")
    atomic.write_text(target, "two")
    assert target.read_text() == "two"
    assert [p.name for p in target.parent.iterdir()] == ["a.txt"]


def test_a_full_disk_is_explained_and_keeps_the_old_content(tmp_path, monkeypatch):
    target = tmp_path / "a.txt"
    atomic.write_text(target, "old")

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(OSError, match=r"no space left to write of 3 bytes: \d+ bytes free"):
        atomic.write_text(target, "new")
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_directory_appears_only_when_its_block_succeeds(tmp_path):
    target = tmp_path / "data"
    with pytest.raises(RuntimeError), atomic.directory(target) as partial:  # noqa: PT012
        (partial / "x").write_text("1")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with atomic.directory(target) as partial:
        (partial / "x").write_text("1")
        assert not target.exists()
    with atomic.directory(target) as partial:
        (partial / "y").write_text("2")
    assert [p.name for p in target.iterdir()] == ["y"]
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


def test_a_directory_is_there_at_every_moment_of_its_replacement(tmp_path, monkeypatch):
    target = tmp_path / "data"

    def write(name):
        with atomic.directory(target) as partial:
            (partial / name).write_text("")

    write("old")
    monkeypatch.setattr(atomic.Path, "rename", None)  # which would leave nothing for a moment
    write("new")
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == [
        "data", "data/new",
    ]  # fmt: skip


def test_a_directory_is_replaced_where_none_can_be_exchanged(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    for name in ("old", "new"):
        with atomic.directory(tmp_path / "data") as partial:
            (partial / name).write_text("")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_what_a_killed_writer_left_is_removed_by_the_next_one(tmp_path):
    script = textwrap.dedent("""
        import os, signal, sys
        from rrf import atomic
        with atomic.directory(sys.argv[1]) as partial:
            (partial / "x").write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    target = tmp_path / "data"
    killed = subprocess.run([sys.executable, "-c", script, str(target)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not target.exists()
    assert len(list(tmp_path.iterdir())) == 1
    with atomic.directory(target) as partial:
        (partial / "x").write_text("whole")
    assert [p.name for p in tmp_path.iterdir()] == ["data"]
    assert (target / "x").read_text() == "whole"


def test_what_a_killed_write_of_a_file_left_goes_with_the_next_one(tmp_path):
    mine = atomic.temporary(tmp_path / "data").name.rpartition("-")[0]
    (tmp_path / f"{mine}-{2**22 + 1}").write_text("half")  # above every pid of Linux
    (tmp_path / f"{mine}-1").write_text("still written")
    atomic.write_text(tmp_path / "data", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{mine}-1", "data"]


def test_threads_that_write_the_same_file_do_not_meet(tmp_path):
    def write(number):
        for _ in range(50):
            atomic.write_text(tmp_path / "data", f"by {number}")

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_what_another_node_writes_on_a_shared_file_system_is_left_to_it(tmp_path):
    """Its process has a number that no process has here; only what is a day old is a leftover."""
    target, mine = tmp_path / "data", atomic.temporary(tmp_path / "data")
    writer = f".tmp-data-node7.4026531836-{2**22 + 1}"  # above every pid of Linux
    others = [tmp_path / name for name in (writer, f"{writer}-old", ".tmp-data-4194305")]
    for other in others:
        (other / "sub").mkdir(parents=True)
        (other / "sub" / "x").write_text("half")
    with atomic.directory(target) as partial:
        assert partial == mine
    atomic.remove(target)
    assert sorted(tmp_path.iterdir()) == sorted(others)
    yesterday = time.time() - 86_401
    for other in others:
        for path in (other / "sub" / "x", other / "sub", other):
            os.utime(path, (yesterday, yesterday))
    (others[0] / "sub" / "x").write_text("more")  # it still writes there
    with atomic.directory(target):
        pass
    assert sorted(tmp_path.iterdir()) == sorted([target, others[0]])


def test_the_name_of_a_temporary_directory_has_host_and_process(tmp_path):
    name = atomic.temporary(tmp_path / "data").name
    assert name.startswith(f".tmp-data-{socket.gethostname()}.")
    assert name.endswith(f"-{os.getpid()}")


def test_a_directory_whose_removal_is_killed_is_not_there_with_half_of_its_files(tmp_path):
    script = textwrap.dedent("""
        import os, pathlib, shutil, signal, sys
        from rrf import atomic
        def half(path):
            next(pathlib.Path(path).iterdir()).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        shutil.rmtree = half
        with atomic.resumable(sys.argv[1], "busy"):
            pass
    """)
    for name in ("one", "two"):
        (tmp_path / "work" / name).mkdir(parents=True)
        (tmp_path / "work" / name / "x").write_text("")
        (tmp_path / "work" / name / "y").write_text("")
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path / "work")], check=False)
    assert killed.returncode == -signal.SIGKILL
    whole = [path for path in (tmp_path / "work").iterdir() if path.name in ("one", "two")]
    assert len(whole) == 1
    assert len(list(whole[0].iterdir())) == 2
    with atomic.resumable(tmp_path / "work", "busy"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_finds_changed_missing_and_unlisted_files(tmp_path):
    (tmp_path / "a").write_text("abc")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b").write_text("")
    manifest = atomic.write_manifest(tmp_path, step=3)
    # sha256("abc") and sha256("") as FIPS 180-4 prints them
    assert manifest["files"] == {
        "a": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "sub/b": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    }
    assert atomic.check_manifest(tmp_path)["step"] == 3
    (tmp_path / "a").write_text("abd")
    with pytest.raises(ValueError, match=r"a was changed after it was written"):
        atomic.check_manifest(tmp_path)
    (tmp_path / "a").unlink()
    with pytest.raises(ValueError, match=r"a is missing although"):
        atomic.check_manifest(tmp_path)
    (tmp_path / "a").write_text("abc")
    (tmp_path / "new").write_text("")
    with pytest.raises(ValueError, match=r"new is not listed"):
        atomic.check_manifest(tmp_path)


def test_a_manifest_that_is_nested_too_deeply_is_damaged(tmp_path):
    (tmp_path / "manifest.json").write_text("[" * 200_000)
    with pytest.raises(ValueError, match=r"manifest.json is damaged \(it is nested too deeply\)"):
        atomic.read_manifest(tmp_path)


def test_a_directory_without_or_with_a_damaged_manifest_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has no manifest\.json"):
        atomic.check_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        atomic.check_manifest(tmp_path)


def test_a_digest_does_not_depend_on_key_order():
    assert atomic.digest_of({"a": 1, "b": [2]}) == atomic.digest_of({"b": [2], "a": 1})
    assert atomic.digest_of({"a": 1}) != atomic.digest_of({"a": 2})


def test_a_directory_is_waited_for_as_long_as_said(tmp_path):
    held = contextlib.ExitStack()
    held.enter_context(atomic.alone(tmp_path / "run", "busy"))
    with pytest.raises(ValueError, match="busy"), atomic.alone(tmp_path / "run", "busy", 0.2):
        pass
    release = threading.Timer(0.3, held.close)
    release.start()
    with atomic.alone(tmp_path / "run", "busy", 20.0):
        assert (tmp_path / "run").is_dir()
    release.join()
