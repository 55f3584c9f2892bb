"""Datasets of the Hugging Face hub, from a server on this machine that speaks its language."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rrf.data.transport import fetch as fetch_module
from rrf.data.transport import hub as module
from rrf.data.transport.download import download, read_record
from rrf.data.transport.fetch import fetch
from rrf.data.transport.hub import HubDataset
from rrf.workspace import HOME_VARIABLE
from tests.data.hub_server import git_id, hub  # noqa: F401

ROOT = Path(__file__).parents[3]
REPO = "lab/pick"
FILES = {
    "README.md": b"# pick\n",
    "data/chunk-000/episode_000000.parquet": hashlib.shake_128(b"0").digest(7000),
    "meta/info.json": b'{"fps": 10}',
    "videos/with space/a#b.mp4": hashlib.shake_128(b"1").digest(5000),
}
LARGE = "data/chunk-000/episode_000000.parquet"


@pytest.fixture
def commit(hub):  # noqa: F811
    """A repository with one commit on main, tagged v1."""
    hub.large.add(LARGE)
    hub.add(REPO, "v1", FILES)
    return hub.add(REPO, "main", FILES)


def remote(server, revision=None, repo=REPO):
    return HubDataset(repo, revision, server.endpoint)


def copied(out):
    files = [path for path in out.rglob("*") if path.is_file() and path.name != "download.json"]
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in files}


def test_a_repository_is_copied_at_one_commit_which_is_recorded(hub, commit, tmp_path):  # noqa: F811
    done = download(remote(hub), tmp_path / "pick")
    assert copied(done.out) == FILES
    record = read_record(done.out)
    assert record is not None
    assert (record["source"], record["revision"]) == ("hf://lab/pick", commit)
    assert record["files"]["README.md"] == {"size": 7, "version": git_id(FILES["README.md"])}
    assert record["files"][LARGE]["version"] == hashlib.sha256(FILES[LARGE]).hexdigest()
    assert [path.name for path in tmp_path.iterdir()] == ["pick"]
    hub.contents.clear()
    assert download(remote(hub), done.out).fetched == 0
    assert hub.contents == []


def test_a_revision_stays_what_it_was_when_the_branch_goes_on(hub, commit, tmp_path):  # noqa: F811
    newer = hub.add(REPO, "main", FILES | {"README.md": b"# pick, better\n"})
    old = download(remote(hub, "v1"), tmp_path / "old")
    assert old.revision == commit != newer
    assert copied(old.out) == FILES
    hub.contents.clear()
    done = download(remote(hub), old.out)  # only what differs is fetched
    assert done.revision == newer
    assert [name for name, _ in hub.contents] == ["README.md"]
    assert copied(old.out)["README.md"] == b"# pick, better\n"


def test_a_hub_that_vanishes_midway_loses_nothing(hub, commit, tmp_path):  # noqa: F811
    hub.cuts[LARGE] = 4200
    with pytest.raises(
        ConnectionError, match=r"lab/pick cannot be reached: .* is kept in .* again to"
    ):
        download(remote(hub), tmp_path / "pick", include=[LARGE])
    assert not (tmp_path / "pick").exists()
    hub.start()
    hub.contents.clear()
    assert copied(download(remote(hub), tmp_path / "pick").out) == FILES
    assert (LARGE, "bytes=4000-6999") in hub.contents  # in whole blocks of 1000 bytes
    assert len(hub.contents) <= len(FILES)


def test_a_connection_that_breaks_is_taken_up_again(hub, commit, tmp_path):  # noqa: F811
    hub.breaks[LARGE] = 2500
    seen = []
    done = download(remote(hub), tmp_path / "pick", include=[LARGE], on_progress=seen.append)
    assert copied(done.out) == {LARGE: FILES[LARGE]}
    assert [asked for _, asked in hub.contents] == ["bytes=0-6999", "bytes=2000-6999"]
    assert [at.bytes for at in seen][-6:-1] == [3000, 4000, 5000, 6000, 7000]


def test_a_file_comes_in_ranges_each_from_a_new_address(hub, commit, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(module, "_RANGE_BYTES", 3000)
    assert (
        copied(download(remote(hub), tmp_path / "pick", include=[LARGE]).out)[LARGE]
        == (FILES[LARGE])
    )
    assert [asked for _, asked in hub.contents] == [
        "bytes=0-2999", "bytes=3000-5999", "bytes=6000-6999",
    ]  # fmt: skip


def test_a_hub_without_ranges_sends_the_whole_file_again(hub, commit, tmp_path):  # noqa: F811
    hub.knows_ranges, hub.cuts[LARGE] = False, 4200
    with pytest.raises(ConnectionError):
        download(remote(hub), tmp_path / "pick", include=[LARGE])
    hub.start()
    seen = []
    out = download(remote(hub), tmp_path / "pick", include=[LARGE], on_progress=seen.append).out
    assert copied(out) == {LARGE: FILES[LARGE]}
    assert (seen[0].bytes, seen[-1].bytes) == (4000, 7000)


def test_signed_addresses_are_not_told(hub, commit, tmp_path):  # noqa: F811
    hub.refused.add(LARGE)
    with pytest.raises(ValueError, match=r"pick: 403 Forbidden: .*/large/.*parquet Make") as e:
        download(remote(hub), tmp_path / "pick")
    assert "Signature" not in str(e.value)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("name", ["README.md", LARGE])
def test_what_is_not_what_the_hub_lists_is_refused(hub, commit, tmp_path, name):  # noqa: F811
    hub.damaged.add(name)
    with pytest.raises(ValueError, match=f"{name} is not what the hub lists"):
        download(remote(hub), tmp_path / "pick")
    assert not (tmp_path / "pick").exists()
    hub.damaged.clear()
    assert copied(download(remote(hub), tmp_path / "pick").out) == FILES


def test_pickles_of_a_repository_are_refused(hub, tmp_path):  # noqa: F811
    hub.add(REPO, "main", FILES | {"stats.pkl": b"p"})
    with pytest.raises(
        ValueError, match=r"hf://lab/pick holds pickles \(stats\.pkl\), which run c"
    ):
        download(remote(hub), tmp_path / "pick")
    assert copied(download(remote(hub), tmp_path / "pick", exclude=["*.pkl"]).out) == FILES


def test_every_refusal_says_why_and_what_to_do(hub, commit):  # noqa: F811
    with pytest.raises(
        ValueError, match=r"no dataset http.*/datasets/lab/pack, or it is private: ch"
    ):
        remote(hub, repo="lab/pack")
    with pytest.raises(ValueError, match=r"lab/pick has no revision 'v9'; see http.*/tree/main"):
        remote(hub, "v9")
    with pytest.raises(ValueError, match=r"'lab/pick/more' is not OWNER/NAME"):
        remote(hub, repo="lab/pick/more")
    hub.gated.add(REPO)
    with pytest.raises(ValueError, match=r"lab/pick is gated: accept its terms .* hf auth login"):
        remote(hub)
    hub.status = 503
    with pytest.raises(ConnectionError, match="lab/pick answers 503"):
        remote(hub)
    hub.stop()
    with pytest.raises(ConnectionError, match=r"lab/pick cannot be reached: "):
        remote(hub)


def test_a_commit_that_is_here_needs_no_network(hub, commit, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    monkeypatch.setattr(
        fetch_module, "HubDataset", lambda repo, revision: HubDataset(repo, revision, hub.endpoint)
    )
    out = fetch(f"hf://{REPO}@{commit}")
    assert out == tmp_path / f".rrf/hf/lab%2Fpick@{commit}"
    assert copied(out) == FILES
    hub.stop()
    assert fetch(f"hf://{REPO}@{commit}") == out
    with pytest.raises(ValueError, match="is not hf://OWNER/NAME@COMMIT with the 40 digits"):
        fetch(f"hf://{REPO}@main")


def test_the_command_ends_well_or_in_one_line(hub, commit, tmp_path):  # noqa: F811
    def rrf(*words):
        environment = os.environ | {
            "PYTHONPATH": str(ROOT), "HF_ENDPOINT": hub.endpoint, "RRF_HOME": str(tmp_path),
            "HF_HOME": str(tmp_path / "hf"),
        }  # fmt: skip
        return subprocess.run(
            [sys.executable, "-m", "rrf.cli", "data", "download", *words],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    done = rrf(REPO, "--revision", "v1")
    assert done.returncode == 0, done.stderr
    assert f"hf://lab/pick: 4 files, 0.0 MB, commit {commit}" in " ".join(done.stdout.split())
    assert copied(tmp_path / "recordings/pick") == FILES
    wrong = rrf("lab/pack")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: there is no dataset http://127.0.0.1:")
    assert len(wrong.stderr.strip().splitlines()) == 1
