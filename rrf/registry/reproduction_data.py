"""The data of a reproduction: brought by DVC from its cache, from a remote, or made once more."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from rrf import processes

Dvc = Callable[..., list[str]]
"""Runs `dvc WORDS` in the clone; returns what it printed, and raises CommandError."""


def bring(dataset: str, path: Path, md5: str, dvc: Dvc) -> None:
    """Put a dataset at `path` of the clone.

    DVC's cache and its remotes are asked first, the default one before the others; then it is made
    of its recordings by its pipeline.

    Raises:
        ValueError: If neither can be had.
    """
    others = [["--remote", line.split()[0]] for line in dvc("remote", "list") if line.strip()]
    for remote in [[], *others]:
        with contextlib.suppress(processes.CommandError):
            dvc("pull", *remote, str(path))
            return
    for remote in [[], *others]:
        with contextlib.suppress(processes.CommandError):
            dvc("pull", *remote, "datasets.dvc")
            break
    try:
        dvc("repro", f"publish@{path.name}")
    except processes.CommandError as error:
        raise ValueError(
            f"dataset {dataset} ({md5}) is neither in DVC's cache nor in a remote, and cannot be "
            f"made of its recordings; from where it is: rrf data share {path}\n{error}"
        ) from error
