"""The part of a checkpoint that is deployed: everything except the trainer state, and what a
registry has put beside it when the checkpoint was fetched.

These functions do not load any weights.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

from rrf import atomic, formats
from rrf.lineage import Lineage

TRAINER_STATE = "trainer_state"
REGISTRY = "registry"
"""Folder of a fetched checkpoint: which version it is, its card and its bill of materials."""
SYSTEM0 = "system0"
"""Folder of a combination (`rrf.hierarchy.combination`): the checkpoint of its System 0."""
INTERFACE = "interface.json"  # the environment's interface, for state-based policies
KIND = "kind"  # key in the manifest
VLA, CONTROL = "vla", "control"
KINDS = {VLA: "a policy that sees images", CONTROL: "a state-based policy"}
"""The kinds of policies in checkpoints, and their names in messages."""


def manifest_of(path: str | Path) -> dict:
    """The manifest of a checkpoint; the files it lists are not checked.

    Raises:
        ValueError: If there is no manifest, or it cannot be read.
    """
    return formats.CHECKPOINT.read(atomic.read_manifest(path), path)


def load_lineage(checkpoint: str | Path | None) -> Lineage:
    """The lineage of a checkpoint, from its manifest; empty if `checkpoint` is None."""
    if checkpoint is None:
        return Lineage()
    where = f"the lineage in {Path(checkpoint) / atomic.MANIFEST}"
    return Lineage.from_dict(manifest_of(checkpoint).get("lineage") or {}, where)


def kind_of(path: str | Path) -> str:
    """The kind of policy that a checkpoint holds: one of `KINDS`, or the kind of a plugin.

    It is read from the manifest, so that a lost file cannot change the kind.

    Raises:
        ValueError: If the manifest is missing, cannot be read, or names no kind.
    """
    manifest = manifest_of(path)
    if not manifest.get(KIND):
        raise ValueError(
            f"{Path(path) / atomic.MANIFEST} names no '{KIND}' of policy, so this is no checkpoint "
            "of rrf; give one that `rrf train` wrote"
        )
    return manifest[KIND]


def described(kind: str) -> str:
    """The name of a kind of policy in messages."""
    return KINDS.get(kind, f"a policy of kind '{kind}'")


def deployable_digest(checkpoint: str | Path) -> str:
    """A digest of the deployable part; equal for a checkpoint and for its deployable copy.

    The files are checked against the manifest first.

    Raises:
        ValueError: If a file is missing, changed or unlisted.
    """
    return atomic.digest_of(_deployable(atomic.check_manifest(checkpoint)))


def copy_deployable(checkpoint: str | Path, out: Path) -> str:
    """Copy the deployable part into the empty directory `out` and write a manifest for the copy.

    Returns:
        The digest of the copy, computed from the copied files.

    Raises:
        ValueError: If a file is missing, changed or unlisted.
    """
    manifest = atomic.check_manifest(checkpoint)
    for name in _deployable(manifest):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(checkpoint) / name, out / name)
    facts = {key: value for key, value in manifest.items() if key != "files"}
    return atomic.digest_of(_deployable(atomic.write_manifest(out, **facts)))


def _deployable(manifest: Mapping) -> dict[str, str]:
    files = manifest["files"].items()
    others = (f"{TRAINER_STATE}/", f"{REGISTRY}/")
    return {name: digest for name, digest in files if not name.startswith(others)}
