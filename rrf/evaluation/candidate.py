"""The subject of an evaluation: the policy in a checkpoint, described before it is loaded."""

import dataclasses
import typing
from pathlib import Path

from rrf.runners.checkpoints.deployable import deployable_digest, kind_of


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A policy of any kind. It is loaded by the protocol that evaluates it."""

    path: Path
    label: str
    """Name shown to people."""
    kind: str
    """One of `rrf.runners.checkpoints.deployable.KINDS`."""
    digest: str
    """Digest of the deployable files."""
    config: dict[str, typing.Any]
    """The resolved config of the training run."""
    lineage: dict[str, typing.Any]
    policy: typing.Any = None
    """Policy to evaluate instead of the one in the checkpoint, e.g. a baseline."""


def candidate_at(path: Path, label: str) -> Candidate:
    """Describe the policy in a checkpoint as a candidate.

    Raises:
        ValueError: If a file of the checkpoint is missing, changed or not in its manifest.
    """
    from rrf.runners.checkpoints.checkpoint import load_config, load_lineage

    digest = deployable_digest(path)  # checks the files, before one of them is read
    return Candidate(path, label, kind_of(path), digest, load_config(path), load_lineage(path))
