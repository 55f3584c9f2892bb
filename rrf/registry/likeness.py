"""Whether a version is revoked, or too much like one that is.

A version that was rolled back, withdrawn or stopped as a canary is not promoted again, and neither
is what comes from it (`rrf.registry.standing`), nor one of the same model whose weights are nearly
its weights. Somebody can allow such a version, or the revoked one itself, with a reason.
"""

import math
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rrf.registry import loading
from rrf.registry.ledger import Ledger
from rrf.registry.lineage_graph import Training
from rrf.registry.standing import how, inherited
from rrf.registry.versions import Version

if TYPE_CHECKING:
    from mlflow import MlflowClient

SAME_WEIGHTS = 0.01
"""Relative distance of weights up to which two policies are taken for the same."""


def revocation(
    client: "MlflowClient",
    ledger: Ledger,
    versions: Sequence[Version],
    candidate: Version,
    trainings: Iterable[tuple[Training, str]],
) -> str:
    """Why a version is not promoted unless somebody says why it may be, or "".

    Args:
        client: A client of the store.
        ledger: The ledger of its model.
        versions: All versions of its model.
        candidate: The version.
        trainings: What it was trained from (`lineage_graph.trainings_of`).
    """
    if why := inherited(client, ledger, candidate, trainings):
        return why
    with tempfile.TemporaryDirectory() as scratch:
        for version in versions:
            entry = ledger.revoked.get(version.version)
            if entry and not ledger.allows(candidate.version, entry):
                distance = _distance(candidate, version, Path(scratch))
                if distance <= SAME_WEIGHTS:
                    return (
                        f"its weights are those of version {version.version}, which {how(entry)}, "
                        f"but for a relative distance of {distance:.1e} (up to {SAME_WEIGHTS} they "
                        "are taken for the same)"
                    )
    return ""


def _distance(version: Version, other: Version, scratch: Path) -> float:
    """|a - b| / |b| over all weights of two versions; infinite if they have different tensors, or
    the files of the second are gone. The first stays in `scratch` for the next comparison.
    """
    own = scratch / version.version
    if not own.is_dir():
        loading.fetch(f"{version.name}/{version.version}", own)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        try:
            loading.fetch(f"{other.name}/{other.version}", folder)
        except OSError:
            return math.inf
        return weight_distance(own, Path(folder))


def weight_distance(checkpoint: Path, other: Path) -> float:
    """|a - b| / |b| over all tensors of two checkpoint directories; infinite if their names or
    shapes differ. Of policies with a part in a folder of its own, such as a System 0, the largest
    distance of a part counts: another small part below the same large one is another policy.
    """
    files = [
        sorted(p.relative_to(c) for p in c.rglob("*.safetensors")) for c in (checkpoint, other)
    ]
    if files[0] != files[1]:
        return math.inf
    folders = dict.fromkeys(file.parent for file in files[0])
    parts = [[file for file in files[0] if file.parent == folder] for folder in folders]
    return max((_part_distance(checkpoint, other, part) for part in parts), default=0.0)


def _part_distance(checkpoint: Path, other: Path, files: Sequence[Path]) -> float:
    from safetensors import safe_open

    difference = norm = 0.0
    for file in files:
        with safe_open(checkpoint / file, "pt") as a, safe_open(other / file, "pt") as b:
            if set(a.keys()) != set(b.keys()):
                return math.inf
            for name in sorted(a.keys()):
                weights, others = a.get_tensor(name), b.get_tensor(name)
                if weights.shape != others.shape:
                    return math.inf
                difference += float((weights.double() - others.double()).square().sum())
                norm += float(others.double().square().sum())
    if difference == 0:
        return 0.0
    return math.sqrt(difference / norm) if norm else math.inf
