"""Files that may lie in object storage, read as far as they are asked for."""

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rrf.data.files import (
    RemotePath,
    content_digest,
    open_dataset_root,
    version_of,
    versions_below,
)
from tests.data.s3_server import s3  # noqa: F401


def test_an_address_names_its_parts_and_nothing_else_is_one():
    path = open_dataset_root("s3://robots/pick/") / "data/chunk-000/file-001.parquet"
    assert str(path) == "s3://robots/pick/data/chunk-000/file-001.parquet"
    assert (path.name, path.stem, path.suffix) == ("file-001.parquet", "file-001", ".parquet")
    assert str(path.parent) == "s3://robots/pick/data/chunk-000"
    assert pickle.loads(pickle.dumps(path)) == path
    assert open_dataset_root(path) is path
    assert open_dataset_root("datasets/pick") == Path("datasets/pick")
    for wrong in ("s3://", "s3:///pick", "s3://robots/../pick"):
        with pytest.raises(ValueError, match="is not s3://bucket/prefix"):
            open_dataset_root(wrong)


def test_files_below_are_found_as_pathlib_finds_them(s3, tmp_path):  # noqa: F811
    names = ["info.json", "meta/a/one.parquet", "meta/b/two.parquet", "meta/b/two.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
        s3.put(f"s3://robots/pick/{name}", name.encode())
    s3.put("s3://robots/pick/meta/", b"")  # how some tools mark directories
    s3.put("s3://robots/picked/other.parquet", b"of another dataset")
    remote = open_dataset_root("s3://robots/pick")

    def relative(paths):
        return [str(path).removeprefix("s3://robots/pick/") for path in paths]

    for pattern in ("meta/*/*.parquet", "*", "*/*", "*.json"):
        local = sorted(path for path in tmp_path.glob(pattern) if path.is_file())
        expected = [path.relative_to(tmp_path).as_posix() for path in local]
        assert relative(remote.glob(pattern)) == expected
    assert relative(remote.rglob("*.parquet")) == names[1:3]
    assert list(versions_below(remote)) == names == list(versions_below(tmp_path))
    kinds = [("info.json", True, False), ("meta", False, True), ("none", False, False)]
    assert [(name, (remote / name).is_file(), (remote / name).is_dir()) for name, *_ in kinds] == (
        kinds
    )
    assert (remote / "info.json").read_text() == "info.json"


def test_of_a_large_file_only_what_is_asked_for_is_fetched(s3):  # noqa: F811
    table = pa.table({f"c{n}": np.random.default_rng(n).random(20_000) for n in range(8)})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=2_000)
    content = sink.getvalue().to_pybytes()
    s3.put("s3://robots/big.parquet", content)
    with RemotePath("s3://robots/big.parquet").open(block_bytes=4096, num_blocks=16) as file:
        read = pq.ParquetFile(file).read_row_group(3, columns=["c5"])
        assert read["c5"].to_pylist() == table["c5"][6_000:8_000].to_pylist()
        asked = s3.num_bytes_asked()
        assert asked < len(content) / 10
        file.seek(100)
        assert file.read(50) == content[100:150]
        num_requests = len(s3.contents)
        file.seek(120)
        assert file.read(50) == content[120:170]
        assert len(s3.contents) == num_requests  # from the block that is kept
        file.seek(-4, 2)
        assert file.read() == b"PAR1"


def test_a_replaced_file_has_another_version_and_is_not_read_on(s3):  # noqa: F811
    path = RemotePath("s3://robots/a.bin")
    s3.put(str(path), b"a" * 3000)
    before = version_of(path)
    file = path.open(block_bytes=1000)
    assert file.read(1000) == b"a" * 1000
    s3.put(str(path), b"b" * 3000)
    assert version_of(path) != before
    with pytest.raises(ConnectionError, match=r"s3://robots/a\.bin cannot be read"):
        file.read(1000)


def test_what_is_not_there_or_out_of_reach_is_named(s3, monkeypatch):  # noqa: F811
    s3.put("s3://robots/a.bin", b"a")
    for missing in ("s3://robots/b.bin", "s3://nobody/a.bin"):
        with pytest.raises(FileNotFoundError, match=f"there is no {missing}"):
            RemotePath(missing).open()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    s3.stop()
    s3._port = 0
    s3.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    with pytest.raises(ValueError, match=r"Unable to locate credentials; export AWS_ACCESS_KEY_ID"):
        RemotePath("s3://robots/a.bin").read_bytes()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with pytest.raises(ConnectionError, match=r"s3://robots/a\.bin cannot be read: .*127.0.0.1:9"):
        RemotePath("s3://robots/a.bin").read_bytes()


def test_the_digest_of_a_dataset_changes_with_what_its_files_hold(s3, tmp_path):  # noqa: F811
    for name in ("meta/info.json", "README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
        s3.put(f"s3://robots/pick/{name}", name.encode())
    digests = []
    for place in (tmp_path, "s3://robots/pick"):
        whole, part = content_digest(place), content_digest(place, without=("README.md",))
        assert whole == content_digest(place) != part
        digests.append(part)
    (tmp_path / "README.md").write_text("new")
    s3.put("s3://robots/pick/README.md", b"new")
    for place, part in zip((tmp_path, "s3://robots/pick"), digests, strict=True):
        assert content_digest(place, without=("README.md",)) == part
    (tmp_path / "meta/info.json").write_text("new")
    s3.put("s3://robots/pick/meta/info.json", b"meta/info.jsoN")  # as long as before
    for place, part in zip((tmp_path, "s3://robots/pick"), digests, strict=True):
        assert content_digest(place, without=("README.md",)) != part
