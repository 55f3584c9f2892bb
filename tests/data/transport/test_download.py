"""Copies of remote recordings: what may be copied, and what stands at the destination when."""

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rrf import atomic
from rrf.data.transport.download import RemoteFile, download, is_pickle, read_record

ROOT = Path(__file__).parents[3]


class Shelf:
    """A remote whose files are held in memory."""

    revision = "first"

    def __init__(self, contents, url="shelf://one"):
        self.url, self.contents, self.fetched = url, contents, []

    def files(self):
        return [RemoteFile(name, len(one), one[:8].hex()) for name, one in self.contents.items()]

    def fetch(self, file, path, on_bytes):
        self.fetched.append(file.name)
        path.write_bytes(self.contents[file.name])
        on_bytes(file.size)


def test_a_copy_is_complete_and_says_where_it_came_from(tmp_path):
    shelf = Shelf({"meta/info.json": b"{}", "data/a.bin": b"aaa", "empty": b""})
    seen = []
    done = download(shelf, tmp_path / "raw/one", on_progress=seen.append)
    assert (done.files, done.bytes, done.fetched) == (3, 5, 3)
    assert (done.out / "data/a.bin").read_bytes() == b"aaa"
    assert json.loads((done.out / "download.json").read_text()) == {
        "source": "shelf://one",
        "revision": "first",
        "files": {
            "data/a.bin": {"size": 3, "version": "616161"},
            "empty": {"size": 0, "version": ""},
            "meta/info.json": {"size": 2, "version": "7b7d"},
        },
    }
    assert [path.name for path in (tmp_path / "raw").iterdir()] == ["one"]
    assert (seen[-1].bytes, seen[-1].total_bytes, seen[-1].files) == (5, 5, 3)


def test_a_second_download_fetches_what_is_new_or_lost_and_drops_what_is_gone(tmp_path):
    shelf = Shelf({"a": b"a", "b": b"b", "c": b"c"})
    out = download(shelf, tmp_path / "one").out
    shelf.fetched.clear()
    assert download(shelf, out).fetched == 0
    (out / "a").unlink()
    shelf.contents = {"a": b"a", "b": b"new", "d": b"d"}
    assert download(shelf, out).fetched == 3
    assert sorted(shelf.fetched) == ["a", "b", "d"]
    assert {path.name for path in out.iterdir()} == {"a", "b", "d", "download.json"}
    assert (out / "b").read_bytes() == b"new"


def test_what_was_not_downloaded_from_there_is_not_replaced(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"mine exists but is not a download; .* --out"):
        download(Shelf({"a": b"a"}), tmp_path / "mine")
    download(Shelf({"a": b"a"}), tmp_path / "one")
    other = Shelf({"a": b"a"}, "shelf://two")
    with pytest.raises(ValueError, match="was downloaded from shelf://one, not from shelf://two"):
        download(other, tmp_path / "one")
    (tmp_path / "one/download.json").write_text("{")
    with pytest.raises(ValueError, match=r"download\.json is damaged .* download again"):
        read_record(tmp_path / "one")


def test_pickles_are_refused_until_they_are_left_out(tmp_path):
    shelf = Shelf({"a.hdf5": b"a", "b/stats.pkl": b"b", "c.PICKLE": b"c", "w.pkl.gz": b"w"})
    with pytest.raises(ValueError, match=r"holds pickles \(b/stats.pkl, c.PICKLE, w.pkl.gz\)") as e:
        download(shelf, tmp_path / "one")
    assert "--exclude '*.PICKLE' --exclude '*.gz' --exclude '*.pkl'" in str(e.value)
    assert list(tmp_path.iterdir()) == []
    assert shelf.fetched == []
    out = download(shelf, tmp_path / "one", exclude=["*.pkl", "*.PICKLE", "*.gz"]).out
    assert {path.name for path in out.iterdir()} == {"a.hdf5", "download.json"}
    assert [is_pickle(name) for name in ("pkl", "a.pkl.txt", "a.pth", "a.parquet")] == [
        False, True, True, False,
    ]  # fmt: skip


def test_only_files_that_match_are_copied(tmp_path):
    shelf = Shelf({"data/0": b"0", "data/1": b"1", "videos/0": b"v", "download.json": b"theirs"})
    out = download(shelf, tmp_path / "one", include=["data/*"], exclude=["*1"]).out
    assert {path.name for path in out.rglob("*") if path.is_file()} == {"0", "download.json"}
    with pytest.raises(ValueError, match="shelf://one has no files of that kind"):
        download(shelf, tmp_path / "two", include=["audio/*"])
    with pytest.raises(ValueError, match=r"shelf://one has no files$"):
        download(Shelf({}), tmp_path / "two")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "../b"], r"the name '\.\./b' leads out of the copy"),
        (["/etc/passwd"], "the name '/etc/passwd' leads out of the copy"),
        (["a//b"], "the name 'a//b' leads out of the copy"),
        (["a\0b"], "leads out of the copy"),
        (["a", "a/b/c"], "'a' is a file, but also a directory with 'a/b/c'"),
    ],
)
def test_names_that_lead_out_of_the_copy_are_refused(tmp_path, names, message):
    shelf = Shelf(dict.fromkeys(names, b"x"))
    with pytest.raises(ValueError, match=message):
        download(shelf, tmp_path / "one")
    assert shelf.fetched == []
    assert list(tmp_path.iterdir()) == []


def test_two_downloads_to_the_same_place_do_not_mix(tmp_path):
    shelf = Shelf({"a": b"a"})
    message = r"another process is downloading to .*one at this moment"
    with (
        atomic.resumable(tmp_path / "one.download", "held"),
        pytest.raises(ValueError, match=message),
    ):
        download(shelf, tmp_path / "one")
    assert download(shelf, tmp_path / "one").fetched == 1


def test_an_error_of_one_file_keeps_the_others(tmp_path):
    class Torn(Shelf):
        def fetch(self, file, path, on_bytes):
            if file.name == "z":
                path.write_bytes(b"z")
                raise ConnectionError("shelf://one/z cannot be read: gone")
            super().fetch(file, path, on_bytes)

    contents = {"a": b"a", "b": b"b", "z": b"zz"}
    with pytest.raises(ConnectionError, match=r"gone; what has arrived is kept in .*one\.download"):
        download(Torn(contents), tmp_path / "one")
    assert not (tmp_path / "one").exists()
    kept = {path.read_bytes() for path in (tmp_path / "one.download").iterdir()}
    assert b"z" in kept
    whole = Shelf(contents)
    seen = []
    done = download(whole, tmp_path / "one", on_progress=seen.append)
    assert done.files == 3
    # What had arrived whole, but not been noted as such yet, may be asked for again.
    assert set(whole.fetched) >= {"z"} | ({"a", "b"} - {one.decode() for one in kept})
    assert seen[0].bytes >= 1  # the first byte of z had arrived
    assert not (tmp_path / "one.download").exists()


DISK_FULL = """
import sys
from pathlib import Path
from rrf.data.transport import download as module
from tests.data.transport.test_download import Shelf

class Written(Shelf):
    def fetch(self, file, path, on_bytes):
        with path.open("ab") as opened:
            opened.write(self.contents[file.name][opened.tell():])
        on_bytes(file.size)

disk = Path(sys.argv[1])
def attempt(num_bytes):
    try:
        module.download(Written({"big": bytes(num_bytes)}), disk / "one")
    except OSError as error:
        print(error.errno, error)
    print(sorted(path.name for path in disk.iterdir()))

attempt(900_000)   # announced before anything is fetched
free = module.shutil.disk_usage
module.shutil.disk_usage = lambda path: free("/")  # another process takes the space meanwhile
attempt(900_000)
module.shutil.disk_usage = free
(disk / "other").unlink()
attempt(900_000)
print((disk / "one/big").stat().st_size)
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare, of util-linux")
def test_a_full_disk_is_told_before_or_amid_and_leaves_nothing_half_written(tmp_path):
    script = textwrap.dedent(f"""
        mount -t tmpfs -o size=1m none {tmp_path} || exit 77
        head -c 500000 /dev/zero > {tmp_path}/other
        exec {sys.executable} - {tmp_path}
    """)
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        input=DISK_FULL, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr
    before, first, amid, second, third, size = done.stdout.splitlines()
    assert before.startswith("28 [Errno 28] no space left to download 900000 bytes: ")
    assert "nothing was fetched" in before
    assert first == "['other']"
    assert amid.startswith("28 [Errno 28] no space left: ")
    assert "run the same command again to continue" in amid
    assert second == "['one.download', 'other']"
    assert (third, size) == ("['one']", "900000")
