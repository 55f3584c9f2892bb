"""What a user types when files of a dataset or of recordings are missing, damaged or only names."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from rrf import workspace
from rrf.config import NOT_YAML, did_you_mean

_POINTERS = {
    b"version https://git-lfs.github.com/spec/": "Git LFS",
    b"/annex/objects/": "git-annex",
}
_FETCH = {"Git LFS": "git lfs pull", "git-annex": "git annex get ."}
_LONGEST_POINTER = 1024  # bytes
_MOST_FILES = 20_000  # that are looked at


def again(path: object, otherwise: str = "make it again where it came from") -> str:
    """How the dataset that `path` is, or belongs to, is made or brought again: "run: ...".

    Args:
        path: A dataset's directory, one of its reports, or a file within.
        otherwise: What to do if it is no dataset of the workspace.
    """
    if not isinstance(path, Path):
        return "upload it again, or try later"
    if (pointer := pointer_of(path)) is not None:
        return pointer
    datasets = workspace.home() / "datasets"
    full = path.absolute()
    if not full.is_relative_to(datasets) or full == datasets:
        return otherwise
    place, *below = full.relative_to(datasets).parts
    name = below[0] if place in ("converted", "reports") and below else place
    if name in _staged():
        return f"run: dvc repro --pull publish@{name}"
    known = workspace.configs("datasets")
    if name in known:
        words = " && ".join(f"rrf data {step} {name}" for step in ("convert", "validate", "stats"))
        return f"run: {words}"
    hint = did_you_mean(name, known)
    return f"there is no configs/datasets/{name}.yaml that says how it is made{hint}"


def bring(path: Path) -> str:
    """How recordings that are not at `path` are brought: "run: ...", or what to look at."""
    full, home = path.absolute(), workspace.home()
    for folder in (full, *full.parents):
        for file in sorted(folder.glob("*.dvc")) if folder.is_relative_to(home) else ():
            try:
                outs = [folder / out["path"] for out in yaml.safe_load(file.read_text())["outs"]]
            except (OSError, *NOT_YAML):
                continue
            for out in filter(full.is_relative_to, outs):
                pull = f"run: dvc pull {file.relative_to(home)}"
                if out in (full, full.parent if full.suffix else full):
                    return pull
                return f"{pull}; what it does not bring is recorded as the dataset's config says"
    return (
        "see source.path in the dataset's config; recordings are brought by rrf data download, and "
        "made by rrf data collect"
    )


@contextlib.contextmanager
def naming_pointers(folder: Path) -> Iterator[None]:
    """Say of a ValueError within the block that files in `folder` are pointers, if some are."""
    try:
        yield
    except ValueError as error:
        files = itertools.islice(folder.rglob("*"), _MOST_FILES) if folder.is_dir() else [folder]
        check_pointers(files, folder, error)
        raise


def check_pointers(files: Iterable[Path], folder: Path, cause: BaseException | None = None) -> None:
    """Raise ValueError if files are pointers, with how many there are and what brings them."""
    found = [(file, text) for file in files if (text := pointer_of(file)) is not None]
    if found:
        file, text = found[0]
        others = f", and {len(found) - 1} more in {folder}" if len(found) > 1 else ""
        raise ValueError(f"{file}{others}: {text}") from cause


def pointer_of(path: Path) -> str | None:
    """What brings the content of a file that only names it (Git LFS); None for other files."""
    try:
        if path.is_symlink() and not path.exists():
            start = str(path.readlink()).encode()
        elif not path.is_file() or path.stat().st_size > _LONGEST_POINTER:
            return None
        else:
            start = path.read_bytes()
    except OSError:
        return None
    for mark, tool in _POINTERS.items():
        if mark in start:
            return f"it is a pointer of {tool} and not the file itself; run: {_FETCH[tool]}"
    return None


def _staged() -> set[str]:
    """The datasets for which the workspace's dvc.yaml has stages."""
    file = workspace.home() / "dvc.yaml"
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        entries = [entry["datasets"] for entry in content["vars"] if "datasets" in entry]
    except (OSError, *NOT_YAML):
        return set()
    return {str(name) for datasets in entries if isinstance(datasets, dict) for name in datasets}
