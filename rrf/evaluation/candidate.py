"""What is evaluated: the policy in a checkpoint, known before it is loaded."""

import dataclasses
import typing
from pathlib import Path

from rrf import atomic
from rrf.runners.checkpoints.deployable import deployable_digest, kind_of


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A policy of any kind; protocols load it when they run it."""

    path: Path
    label: str
    """Names it for people."""
    kind: str
    """One of `rrf.runners.checkpoints.deployable.KINDS`."""
    digest: str
    """Of the deployable files."""
    config: dict[str, typing.Any]
    """The resolved config of its training."""
    lineage: dict[str, typing.Any]
    policy: typing.Any = None
    """To act in place of what the checkpoint holds: a baseline."""


def candidate_at(path: Path, label: str) -> Candidate:
    """The candidate in a checkpoint.

    Raises:
        ValueError: If a file is missing, changed or unlisted.
    """
    from rrf.runners.checkpoints.checkpoint import load_config

    lineage = atomic.check_manifest(path).get("lineage") or {}
    return Candidate(
        path, label, kind_of(path), deployable_digest(path), load_config(path), lineage
    )
