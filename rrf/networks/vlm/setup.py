"""Brings a published model to this machine: fetches it, checks it, and notes which one it is.

    .rrf/pretrained/NAME/
        source.json     repository, commit, and SHA-256 of each file
        download.json   the same as `rrf data download` writes it: what a repetition compares with
        ...             safetensors, JSON and tokenizer files; never a pickle

The commit is found out once. Every later setup of the name takes the commit that was noted, until
another revision is asked for.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from rrf import atomic
from rrf.data.transport.download import RECORD as DOWNLOAD
from rrf.data.transport.download import OnProgress, download, is_pickle, read_record
from rrf.data.transport.hub import HubModel
from rrf.networks.vlm.catalogue import RECORD, Published, entry_of, folder_of, record_of

KINDS = (
    "*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.md", "LICENSE*", "NOTICE*",
)  # fmt: skip
"""Files that are fetched."""


def setup(
    name: str,
    revision: str | None = None,
    say: Callable[[str], None] = lambda text: None,
    on_progress: OnProgress = lambda progress: None,
) -> dict:
    """Fetch a published model, or check the one that is here. An interrupted one is continued.

    Args:
        name: Its name in the catalogue.
        revision: Branch, tag or commit; by default the one of the first setup, or else main.
        say: Told what is about to happen.
        on_progress: Called as bytes arrive.

    Returns:
        Its record.

    Raises:
        ValueError: For an unknown name or revision, if it is gated or holds what cannot be fetched,
            or if a file differs from the record.
        OSError: If the hub cannot be reached or the disk is too small; what has arrived is kept.
    """
    entry, out = entry_of(name), folder_of(name)
    known = record_of(name)
    if known is not None and revision in (None, known["commit"]):
        check(name, known)
        return known
    if entry.pickles:
        raise ValueError(_pickles_only(name, entry))
    if out.is_dir() and not (out / DOWNLOAD).is_file():
        raise ValueError(f"{out} was given by --from; to fetch it instead, remove it first")
    remote = HubModel(entry.repository, revision or _interrupted_commit(out))
    wanted = [file for file in remote.files() if file.name != RECORD]
    size = sum(file.size for file in wanted if _is_fetched(file.name))
    free = shutil.disk_usage(next(p for p in (out, *out.parents) if p.exists())).free
    say(f"{entry.repository} at {remote.revision}: {size / 1e9:.2f} GB, {free / 1e9:.0f} GB free")
    left_out = [file.name for file in wanted if not _is_fetched(file.name)]
    download(remote, out, KINDS, [_pattern(name) for name in left_out], on_progress)
    return _record(out, entry.repository, remote.revision)


def adopt(name: str, folder: str | Path) -> dict:
    """Take over a directory with the files of a published model.

    Its files get a second name in `.rrf/pretrained` (a hard link) where the file system allows it,
    because copies of many gigabytes would fill the disk, and a symbolic link would break when the
    directory is moved. On another file system they are copied. What was there before stays if
    anything fails.

    Returns:
        Its record; the commit is unknown.

    Raises:
        ValueError: If it is no directory with all the safetensors files that its index names.
    """
    from rrf.networks.vlm.weights import weight_files  # it imports torch

    entry, folder, out = entry_of(name), Path(folder).absolute(), folder_of(name)
    weight_files(folder)
    with atomic.directory(out) as tree:
        for path in sorted(folder.rglob("*")):
            inner = path.relative_to(folder)
            is_own = inner.name in (RECORD, DOWNLOAD) or any(p.startswith(".") for p in inner.parts)
            is_part = any(inner.match(kind) for kind in entry.pickles)
            if path.is_file() and not is_own and (is_part or _is_fetched(inner.as_posix())):
                _placed(path.resolve(), tree / inner)
    return _record(out, entry.repository, None)


def check(name: str, record: Mapping) -> None:
    """Compare the files of a model with its record.

    Raises:
        ValueError: Naming the first file that is missing or differs.
    """
    out = folder_of(name)
    for file, digest in record["files"].items():
        path = atomic.inside(out, file, RECORD)
        if not path.is_file() or atomic.sha256(path) != digest:
            what = "differs from" if path.is_file() else "is missing although it stands in"
            raise ValueError(
                f"{path} {what} {RECORD}; remove {out} and type: rrf models setup {name}"
            )


def described(name: str, entry: Published) -> list[str]:
    """Licences, gate and use of a model, a line each."""
    lines = [
        f"{name}: {entry.repository}, {entry.what} in the layout of {entry.layout}, about "
        f"{entry.gigabytes} GB",
        f"licence of the code: {entry.code_licence}; of the weights: {entry.weights_licence}",
    ]
    if entry.gated:
        has_token = bool(os.environ.get("HF_TOKEN"))
        lines.append(
            f"gated: accept the terms on https://huggingface.co/{entry.repository}, then type hf "
            f"auth login or set HF_TOKEN ({'it is set' if has_token else 'it is not set'})"
        )
    lines.append(f"facts from: {entry.checked}")
    return lines


def _interrupted_commit(out: Path) -> str | None:
    """The commit of a download that was interrupted before its record was written."""
    record = read_record(out)
    return None if record is None else record["revision"]


def _record(out: Path, repository: str, commit: str | None) -> dict:
    bookkeeping = (RECORD, DOWNLOAD)
    paths = sorted(p for p in out.rglob("*") if p.is_file() and p.name not in bookkeeping)
    files = {path.relative_to(out).as_posix(): atomic.sha256(path) for path in paths}
    record = {"repository": repository, "commit": commit, "files": files}
    atomic.write_json(out / RECORD, record)
    return record


def _is_fetched(name: str) -> bool:
    return any(Path(name).match(kind) for kind in KINDS) and not is_pickle(name)


def _pattern(name: str) -> str:
    """A pattern that matches just this name."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _placed(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    try:
        to.hardlink_to(path)
    except OSError:
        shutil.copyfile(path, to)


def _pickles_only(name: str, entry: Published) -> str:
    kinds = " ".join(f"'{kind}'" for kind in (*KINDS, *entry.pickles))
    return (
        f"{entry.repository} publishes {' and '.join(entry.pickles)} as pickles only, which rrf "
        f"does not fetch; if you trust them, type: hf download {entry.repository} --include "
        f"{kinds} --local-dir DIR, then: rrf models setup {name} --from DIR (only the tensors in "
        "them are read)"
    )
