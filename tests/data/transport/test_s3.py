"""Recordings below an s3:// prefix, from a server on this machine."""

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rrf.data.conversion.dataset_cfg import SourceCfg
from rrf.data.files import RemotePath
from rrf.data.transport import s3 as module
from rrf.data.transport.download import download, read_record
from rrf.data.transport.s3 import S3Prefix
from rrf.workspace import HOME_VARIABLE
from tests.data.conftest import make_cfg, run, write_raw
from tests.data.conversion.test_lerobot_writer import content
from tests.data.s3_server import s3  # noqa: F401
from tests.waiting import wait_for

ROOT = Path(__file__).parents[3]
URL = "s3://robots/pick"


def fill(server, sizes):
    """Objects of these sizes, no two alike; returns their contents."""
    contents = {name: hashlib.shake_128(name.encode()).digest(size) for name, size in sizes.items()}
    for name, one in contents.items():
        server.put(f"{URL}/{name}", one)
    return contents


def test_a_prefix_is_copied_and_its_versions_are_recorded(s3, tmp_path):  # noqa: F811
    contents = fill(s3, {"a.bin": 10, "deep/er/b.bin": 3000, "empty": 0})
    s3.put(f"{URL}/deep/", b"")  # how some tools mark directories
    s3.put("s3://robots/picked/other.bin", b"of another prefix")
    done = download(S3Prefix(f"{URL}/"), tmp_path / "raw")
    assert (done.files, done.fetched) == (3, 3)
    assert {name: (done.out / name).read_bytes() for name in contents} == contents
    record = read_record(done.out)
    assert record is not None
    assert record["source"] == URL
    md5 = hashlib.md5(contents["a.bin"]).hexdigest()
    assert record["files"]["a.bin"] == {"size": 10, "version": md5}
    assert list(record["files"]) == ["a.bin", "deep/er/b.bin", "empty"]
    s3.contents.clear()
    assert download(S3Prefix(URL), done.out).fetched == 0
    assert s3.contents == []
    s3.put(f"{URL}/a.bin", b"newer data")
    assert download(S3Prefix(URL), done.out).fetched == 1
    assert [name for name, _ in s3.contents] == ["robots/pick/a.bin"]
    assert (done.out / "a.bin").read_bytes() == b"newer data"


def test_a_remote_that_vanishes_midway_loses_nothing(s3, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(module, "_RANGE_BYTES", 1000)
    contents = fill(s3, {"a.bin": 5500, "b.bin": 4500})
    s3.vanishes_after = 6
    with pytest.raises(ConnectionError, match=r"cannot be read: .*kept in .*raw\.download; run th"):
        download(S3Prefix(URL), tmp_path / "raw")
    assert not (tmp_path / "raw").exists()
    arrived = sum(path.stat().st_size for path in (tmp_path / "raw.download").iterdir())
    assert 5000 <= arrived < 10_000
    s3.start()
    s3.contents.clear()
    done = download(S3Prefix(URL), tmp_path / "raw")
    assert s3.num_bytes_asked() == 10_000 - arrived
    assert {name: (done.out / name).read_bytes() for name in contents} == contents


@pytest.mark.slow
def test_a_killed_download_goes_on_where_it_was(s3, tmp_path):  # noqa: F811
    contents = fill(s3, {f"{n:02d}.bin": 2000 + n for n in range(24)})
    s3.holds_after = 12
    command = [sys.executable, "-m", "rrf.cli", "data", "download", URL, "--out", tmp_path / "raw"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "RRF_HOME": str(ROOT)}
    process = subprocess.Popen(
        [str(word) for word in command], env=environment, stdout=subprocess.DEVNULL
    )
    wait_for(lambda: len(s3.contents) > 12 or process.poll() is not None, timeout_s=300)
    process.send_signal(signal.SIGKILL)
    process.wait()
    s3.holds_after = None
    s3.released.set()
    assert not (tmp_path / "raw").exists()
    complete = [path for path in (tmp_path / "raw.download").iterdir() if not path.suffix]
    assert 1 <= len(complete) <= 12
    done = download(S3Prefix(URL), tmp_path / "raw")
    assert done.fetched == 24 - len(complete)
    assert {name: (done.out / name).read_bytes() for name in contents} == contents


def test_an_object_that_changes_amid_the_download_is_not_mixed(s3, tmp_path):  # noqa: F811
    fill(s3, {"a.bin": 100})
    remote = S3Prefix(URL)
    listed = remote.files()
    s3.put(f"{URL}/a.bin", b"b" * 100)
    with pytest.raises(ValueError, match=r"pick/a\.bin was replaced since it was listed"):
        remote.fetch(listed[0], tmp_path / "a.part", lambda number: None)


def test_what_arrived_is_checked_by_its_md5(s3, tmp_path):  # noqa: F811
    contents = fill(s3, {"a.bin": 100})
    (file,) = S3Prefix(URL).files()
    part = tmp_path / "a.part"
    part.write_bytes(b"?" * 60)
    with pytest.raises(ValueError, match=r"what arrived is not what is listed \(size or MD5"):
        S3Prefix(URL).fetch(file, part, lambda number: None)
    assert not part.exists()
    part.write_bytes(contents["a.bin"][:60])
    S3Prefix(URL).fetch(file, part, lambda number: None)
    assert part.read_bytes() == contents["a.bin"]


def test_an_etag_is_taken_for_an_md5_only_where_it_is_one(s3, tmp_path):  # noqa: F811
    s3.put(f"{URL}/plain", b"p")
    s3.put(f"{URL}/encrypted", b"e", ServerSideEncryption="aws:kms")
    s3.put_in_parts(f"{URL}/parts", [b"1" * (5 << 20), b"2" * 100])
    kinds = {name: RemotePath(f"{URL}/{name}").has_md5_etag() for name in ("plain", "encrypted")}
    assert kinds == {"plain": True, "encrypted": False}
    assert not RemotePath(f"{URL}/parts").has_md5_etag()
    out = download(S3Prefix(URL), tmp_path / "raw").out
    assert (out / "parts").read_bytes() == b"1" * (5 << 20) + b"2" * 100


def test_an_empty_prefix_and_an_unknown_bucket_are_named(s3, tmp_path):  # noqa: F811
    fill(s3, {"a.bin": 1})
    with pytest.raises(ValueError, match="there is nothing below s3://robots/pack/; look with"):
        download(S3Prefix("s3://robots/pack"), tmp_path / "raw")
    with pytest.raises(FileNotFoundError, match="there is no s3://nobody/pack"):
        download(S3Prefix("s3://nobody/pack"), tmp_path / "raw")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A repository with a dataset whose recordings lie in a bucket, and its twin from here."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    folder = tmp_path / "configs/datasets"
    folder.mkdir(parents=True)
    for name, path in (("toy", f"{URL}/toy"), ("twin", "datasets/raw/toy")):
        cfg = make_cfg(name=name, source=SourceCfg(path=path))
        (folder / f"{name}.yaml").write_text(cfg.to_yaml())
    write_raw(tmp_path / "datasets/raw/toy", {"pull": [8, 6], "push": [5]})
    return tmp_path


def test_recordings_in_a_bucket_convert_as_those_here_do(s3, home):  # noqa: F811
    s3.put_tree(home / "datasets/raw/toy", f"{URL}/toy")
    for name in ("toy", "twin"):
        code, output, error = run("convert", name, "--workers", 1)
        assert code == 0, error
        assert "19 frames in" in output
    converted = home / "datasets/converted"
    told = {name: content(converted / name) for name in ("toy", "twin")}
    for files in told.values():  # the name of the dataset, and where it is from, stand in these
        files.pop("meta/info.json")
        files.pop("meta/conversion.json", None)
    assert told["toy"] == told["twin"]
    s3.contents.clear()
    assert run("convert", "toy", "--workers", 1)[0] == 0
    assert s3.contents == []  # nothing had changed
    s3.stop()
    _, _, error = run("convert", "toy", "--workers", 1)
    assert isinstance(error, ConnectionError)
    assert content(converted / "toy") != {}


def test_the_command_downloads_what_a_dataset_or_an_address_names(s3, home):  # noqa: F811
    s3.put_tree(home / "datasets/raw/toy", f"{URL}/toy")
    copy = home / ".rrf/s3/robots%2Fpick%2Ftoy"
    code, output, _ = run("download", "toy")
    assert code == 0
    assert f"{URL}/toy: 2 files" in output
    assert sorted(path.name for path in copy.iterdir()) == [
        "download.json", "pull.hdf5", "push.hdf5",
    ]  # fmt: skip
    code, output, _ = run("download", f"{URL}/toy", "--out", home / "x", "--include", "pu?h*")
    assert code == 0
    assert sorted(path.name for path in (home / "x").iterdir()) == ["download.json", "push.hdf5"]
    assert "--revision is for REPO_ID" in str(run("download", "toy", "--revision", "v1")[2])
    assert "twin come from datasets/raw/toy, which is neither on" in str(run("download", "twin")[2])
