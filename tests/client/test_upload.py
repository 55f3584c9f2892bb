"""Sending logged episodes: once, whatever is interrupted, and nothing is removed unseen."""

import json
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from rrf import atomic
from rrf.client import EpisodeLogger, Uploader, upload
from rrf.data import episode_log
from rrf.data.transport import episode_store
from rrf.data.transport.episode_store import EpisodeStore
from tests.client.logging import log_episode, logged
from tests.data.s3_server import s3  # noqa: F401 (a fixture)
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
WRITE = episode_store._write


@pytest.fixture(params=["folder", "s3"])
def store(request, tmp_path):
    if request.param == "folder":
        return EpisodeStore(tmp_path / "store")
    server = request.getfixturevalue("s3")
    server.put("s3://team/other.txt", b"not ours")
    return EpisodeStore("s3://team/logs")


def test_an_episode_is_sent_once_and_removed_when_it_is_there(tmp_path, store):
    logs = tmp_path / "logs"
    folder = logged(logs)
    content = {path.name: path.read_bytes() for path in folder.iterdir()}
    lines = []
    done = upload(logs, store, say=lines.append)
    assert (done.sent, done.known, done.problems) == (1, 0, [])
    assert lines == [f"sent {folder.name}: drawer-open, success, 6 steps"]
    assert not folder.exists()
    assert store.episodes() == [folder.name]
    store.get(folder.name, tmp_path / "back")
    back = tmp_path / "back" / folder.name
    assert {path.name: path.read_bytes() for path in back.iterdir()} == content
    assert upload(logs, store).sent == 0


def test_with_keep_the_second_time_sends_nothing(tmp_path, store):
    folder = logged(tmp_path / "logs")
    assert upload(folder.parent, store, keep=True).sent == 1
    done = upload(folder.parent, store, keep=True)
    assert (done.sent, done.known, folder.exists()) == (0, 1, True)


def test_an_interrupted_upload_goes_on_and_its_episode_is_not_there_before(
    tmp_path, store, monkeypatch
):
    monkeypatch.setattr(episode_log, "CHUNK_BYTES", 2_000)
    folder, place = logged(tmp_path / "logs", steps=40), "rrf.data.transport.episode_store._write"
    names = [path.name for path in episode_log.chunk_files(folder)]
    written = []

    def fails_at_third(path, content):
        if len(written) == 2:
            raise ConnectionError("the network is gone")
        written.append(path.name)
        WRITE(path, content)

    monkeypatch.setattr(place, fails_at_third)
    with pytest.raises(ConnectionError):
        upload(folder.parent, store)
    assert folder.exists()
    assert store.episodes() == []
    sent_later = []

    def sends(path, content):
        sent_later.append(path.name)
        WRITE(path, content)

    monkeypatch.setattr(place, sends)
    assert upload(folder.parent, store).sent == 1
    assert written == names[:2]
    assert sent_later == [*names[2:], atomic.MANIFEST]
    assert store.episodes() == [folder.name]


def test_what_the_store_holds_otherwise_than_it_was_sent_keeps_the_local_copy(
    tmp_path, store, monkeypatch
):
    folder = logged(tmp_path / "logs")
    spoiled = lambda path, content: WRITE(path, content[:-1] + bytes([content[-1] ^ 1]))  # noqa: E731
    monkeypatch.setattr("rrf.data.transport.episode_store._write", spoiled)
    with pytest.raises(OSError, match="is not what was sent"):
        upload(folder.parent, store)
    assert folder.exists()
    assert store.episodes() == []


def test_another_episode_of_the_same_id_is_refused_and_kept(tmp_path, store):
    with EpisodeLogger(tmp_path / "logs", "arm-1") as log:
        name = log_episode(log, episode="one-and-the-same")
    upload(tmp_path / "logs", store)
    with EpisodeLogger(tmp_path / "logs", "arm-1") as log:
        log_episode(log, first=100, episode=name)
    done = upload(tmp_path / "logs", store)
    assert done.sent == 0
    assert "has another episode one-and-the-same" in done.problems[0]
    assert (tmp_path / "logs" / name).exists()


def test_an_episode_that_is_written_is_left_and_a_killed_one_is_closed_and_sent(tmp_path):
    store, logs = EpisodeStore(tmp_path / "store"), tmp_path / "logs"
    killed = logged(logs, steps=5)
    (killed / atomic.MANIFEST).unlink()
    with (killed / "000000.rrflog").open("ab") as file:
        file.write(b"half")
    with EpisodeLogger(logs, "arm-1") as log:
        running = log_episode(log, outcome=None)
        log.flush()
        done = upload(logs, store)
        assert (done.sent, done.running) == (1, 1)
        assert (logs / running).exists()
    assert store.manifest(killed.name)["summary"]["steps"] == 5
    assert store.manifest(killed.name)["summary"]["outcome"] == "success"  # it had said so


def test_a_damaged_or_foreign_folder_is_named_and_the_others_are_sent(tmp_path):
    store, logs = EpisodeStore(tmp_path / "store"), tmp_path / "logs"
    bad, good = logged(logs), logged(logs, first=50)
    path = bad / "000000.rrflog"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (logs / "notes about the day").mkdir()
    renamed = logs / "another-name"
    logged(logs, first=90).rename(renamed)
    done = upload(logs, store)
    assert done.sent == 1
    assert store.episodes() == [good.name]
    assert [problem for problem in done.problems if "was changed after it was written" in problem]
    assert [problem for problem in done.problems if "is no id of an episode" in problem]
    assert [problem for problem in done.problems if "it was renamed" in problem]
    assert bad.exists()
    assert renamed.exists()


def test_two_processes_that_send_the_same_folder_send_each_episode_once(tmp_path):
    logs, store = tmp_path / "logs", tmp_path / "store"
    names = sorted(logged(logs, first=10 * number).name for number in range(12))
    program = f"""
        from rrf.client import upload
        from rrf.data.transport.episode_store import EpisodeStore
        print(upload({str(logs)!r}, EpisodeStore({str(store)!r})).sent)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    both = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = [int(process.communicate()[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    upload(logs, EpisodeStore(store))  # what one of them held when the other passed by
    assert sum(said) <= 12
    assert EpisodeStore(store).episodes() == names
    assert list(logs.iterdir()) == []


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_upload_loses_nothing_and_sends_nothing_twice(tmp_path, seed):
    logs, place = tmp_path / "logs", tmp_path / "store"
    rng = np.random.default_rng(seed)
    names = sorted(logged(logs, first=10 * number).name for number in range(6))
    digests = {name: episode_log.read_manifest(logs / name)["digest"] for name in names}
    program = f"""
        import os, signal
        from pathlib import Path
        from rrf.client import upload
        from rrf.data.transport import episode_store
        left = {int(rng.integers(0, 14))}  # writes and removals, of about as many
        def counted(call):
            def do(*words):
                global left
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
                return call(*words)
            return do
        episode_store._write = counted(episode_store._write)
        Path.unlink = counted(Path.unlink)
        upload({str(logs)!r}, episode_store.EpisodeStore({str(place)!r}))
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    killed = subprocess.run(command, cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    store = EpisodeStore(place)
    for name in store.episodes():  # what is there is whole
        store.get(name, tmp_path / "back")
    assert sorted({*store.episodes(), *(path.name for path in logs.glob("[!.]*"))}) == names
    upload(logs, store)
    assert {name: store.manifest(name)["digest"] for name in store.episodes()} == digests
    assert [path.name for path in logs.iterdir() if not path.name.startswith(".")] == []


def test_in_the_background_a_store_that_comes_later_gets_everything(tmp_path):
    logs, place = tmp_path / "logs", tmp_path / "store"
    place.write_text("a file stands where the store should be")
    name, lines = logged(logs).name, []
    with Uploader(logs, EpisodeStore(place), every_s=0.01, say=lines.append):
        wait_for(lambda: lines)
        place.unlink()
        wait_for(lambda: not list(logs.iterdir()))
        with EpisodeLogger(logs, "arm-1") as log:
            last = log_episode(log, first=30)
    assert EpisodeStore(place).episodes() == sorted([name, last])
    assert len(lines) == 1


def test_a_store_may_hold_what_is_no_episode_and_lies_of_manifests_are_seen(tmp_path):
    store, folder = EpisodeStore(tmp_path / "store"), logged(tmp_path / "logs")
    upload(folder.parent, store, keep=True)
    place = tmp_path / "store/episodes"
    (place / "no id").mkdir()
    (place / "no id" / atomic.MANIFEST).write_text("{}")
    shutil.copytree(folder, place / "a-second-name")
    assert store.episodes() == sorted([folder.name, "a-second-name"])
    with pytest.raises(ValueError, match="is the manifest of the episode"):
        store.get("a-second-name", tmp_path / "back")
    manifest = json.loads((place / folder.name / atomic.MANIFEST).read_text())
    manifest["summary"]["outcome"] = "failure"
    (place / folder.name / atomic.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="says outcome is 'failure', the records 'success'"):
        store.get(folder.name, tmp_path / "back")
    for broken in ("[]", "{", '{"episode": "x"}', '{"format_version": 99}', "[" * 100_000):
        (place / folder.name / atomic.MANIFEST).write_text(broken)
        with pytest.raises(ValueError, match=r"manifest\.json"):
            store.manifest(folder.name)
    assert list((tmp_path / "back").iterdir()) == []


def test_a_manifest_that_names_files_elsewhere_or_links_is_refused(tmp_path):
    store, folder = EpisodeStore(tmp_path / "store"), logged(tmp_path / "logs")
    upload(folder.parent, store, keep=True)
    place = tmp_path / "store/episodes" / folder.name
    secret = tmp_path / "secret"
    secret.write_bytes((place / "000000.rrflog").read_bytes())
    (place / "000000.rrflog").unlink()
    (place / "000000.rrflog").symlink_to(secret)
    with pytest.raises(ValueError, match="symbolic link"):
        store.get(folder.name, tmp_path / "back")
    manifest = json.loads((place / atomic.MANIFEST).read_text())
    manifest["files"] = {"../../../secret": atomic.sha256(secret)}
    manifest["digest"] = atomic.digest_of(manifest["files"])
    (place / atomic.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="do not agree"):
        store.get(folder.name, tmp_path / "back")
