"""A backup that is cut off, changed or made by somebody else is refused before anything is used."""

import io
import json
import os
import tarfile
from collections.abc import Callable

import pytest

from rrf import formats
from rrf.backup import archive


@pytest.fixture
def whole(tmp_path):
    """A backup of two files."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"content of {name}")
    path = tmp_path / "whole.tar"
    writer = archive.Writer(path)
    writer.add("state/a", tmp_path / "a")
    writer.add("state/deep/b", tmp_path / "b")
    writer.close(created="now")
    return path


Entry = tuple[tarfile.TarInfo, bytes]


def rewritten(whole, change: Callable[[list[Entry]], object]):
    """A copy of a backup, changed by somebody who may write it."""
    with tarfile.open(whole) as tar:
        entries = [(m, getattr(tar.extractfile(m), "read", bytes)()) for m in tar]
    change(entries)
    path = whole.with_name("changed.tar")
    with tarfile.open(path, "w") as tar:
        for member, content in entries:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def named(name: str, **facts) -> Entry:
    member = tarfile.TarInfo(name)
    for key, value in facts.items():
        setattr(member, key, value)
    return member, b""


def with_manifest(entries: list[Entry], **changes) -> None:
    manifest = json.loads(entries[-1][1]) | changes
    entries[-1] = (entries[-1][0], json.dumps(manifest).encode())


def test_only_its_owner_reads_what_may_hold_the_login(whole):
    assert whole.stat().st_mode & 0o777 == 0o600


def test_files_come_back_with_content_and_time(whole, tmp_path):
    manifest = archive.unpack(whole, tmp_path / "out")
    assert manifest["created"] == "now"
    assert (tmp_path / "out/state/deep/b").read_text() == "content of b"
    times = [(folder / "a").stat().st_mtime for folder in (tmp_path, tmp_path / "out/state")]
    assert times[0] == pytest.approx(times[1], abs=1e-3)


CHANGES = {
    "a changed file": (
        lambda entries: entries.__setitem__(0, (entries[0][0], b"content of c")),
        "state/a was changed; do not use this file",
    ),
    "a file too many": (
        lambda entries: entries.insert(0, named("state/more")),
        r"state/more is not in its manifest\.json",
    ),
    "a file too few": (lambda entries: entries.pop(0), r"lacks state/a, which its manifest\.json"),
    "a file twice": (lambda entries: entries.insert(1, entries[0]), "holds state/a twice"),
    "no manifest": (lambda entries: entries.pop(), r"has no manifest\.json: no backup, or cut off"),
    "more after the manifest": (lambda entries: entries.append(named("x")), "goes on after its"),
    "a name that leads out": (
        lambda entries: entries.insert(0, named("../../etc/cron.d/x")),
        "'../../etc/cron.d/x', which is not the plain name of a plain file",
    ),
    "an absolute name": (
        lambda entries: entries.insert(0, named("/etc/cron.d/x")),
        "'/etc/cron.d/x', which is not the plain name",
    ),
    "a symbolic link": (
        lambda entries: entries.insert(0, named("state/x", type=tarfile.SYMTYPE, linkname="/etc")),
        "'state/x', which is not the plain name of a plain file",
    ),
    "a hard link": (
        lambda entries: entries.insert(1, named("x", type=tarfile.LNKTYPE, linkname="state/a")),
        "'x', which is not the plain name of a plain file",
    ),
    "a device": (lambda entries: entries.insert(0, named("x", type=tarfile.CHRTYPE)), "plain file"),
    "a manifest without files": (
        lambda entries: with_manifest(entries, files=None),
        "is damaged \\(it lists no files\\)",
    ),
    "a newer version": (
        lambda entries: with_manifest(entries, format_version=formats.BACKUP.version + 1),
        "was written by a newer rrf",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_was_changed_is_refused_and_says_why(whole, tmp_path, what):
    change, message = CHANGES[what]
    path = rewritten(whole, change)
    for target in (None, tmp_path / "out"):
        with pytest.raises(ValueError, match=message):
            archive.unpack(path, target)
    assert not (tmp_path / "etc").exists()


def test_a_file_cut_off_anywhere_is_refused(whole, tmp_path):
    content = whole.read_bytes()
    end = content.rindex(b'"files"') + 40  # the rest is padding
    for size in range(0, end, 97):
        path = tmp_path / "cut.tar"
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"cut\.tar (has no manifest|is no whole backup)|of /"):
            archive.unpack(path, None)


def test_what_grows_while_it_is_copied_is_copied_as_it_was(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"x" * 100_000)
    writer = archive.Writer(tmp_path / "one.tar")
    with log.open("ab") as file:
        file.write(b"y" * 50)
        writer.add("log", log)
        file.flush()
    writer.close()
    archive.unpack(tmp_path / "one.tar", tmp_path / "out")
    assert (tmp_path / "out/log").read_bytes() == b"x" * 100_000


def test_what_becomes_shorter_while_it_is_copied_is_named(tmp_path, monkeypatch):
    log = tmp_path / "log"
    log.write_bytes(b"x" * 100)
    writer = archive.Writer(tmp_path / "one.tar")
    sizes = os.stat_result((0o644, *[0] * 5, 200, 0, 0, 0))  # as it was before
    monkeypatch.setattr(archive.os, "fstat", lambda _: sizes)
    with pytest.raises(OSError, match="log was cut off while it was copied; try again"):
        writer.add("log", log)
