"""The subject of an evaluation: the policy in a checkpoint, described before it is loaded."""

import dataclasses
import typing
from pathlib import Path

from rrf.lineage import Lineage
from rrf.runners.checkpoints.deployable import deployable_digest, kind_of, load_lineage


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A policy of any kind. It is loaded by the protocol that evaluates it."""

    checkpoint: Path
    label: str
    """Name shown to people."""
    kind: str
    """One of `rrf.runners.checkpoints.deployable.KINDS`."""
    checkpoint_digest: str
    """Digest of the deployable files."""
    config: dict[str, typing.Any]
    """The resolved config of the training run."""
    lineage: Lineage
    policy: typing.Any = None
    """Policy to evaluate instead of the one in the checkpoint, e.g. a baseline."""


def candidate_at(checkpoint: Path, label: str) -> Candidate:
    """Describe the policy in a checkpoint as a candidate.

    Raises:
        ValueError: If a file of the checkpoint is missing, changed or not in its manifest.
    """
    from rrf.runners.checkpoints.checkpoint import load_config

    digest = deployable_digest(checkpoint)  # checks the files, before one of them is read
    config, lineage = load_config(checkpoint), load_lineage(checkpoint)
    return Candidate(checkpoint, label, kind_of(checkpoint), digest, config, lineage)
