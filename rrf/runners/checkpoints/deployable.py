"""The part of a checkpoint that is deployed: everything but the trainer's state. Handled without
loading weights.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

from rrf import atomic

TRAINER_STATE = "trainer_state"
INTERFACE = "interface.json"  # what a state-based policy must know of its environment
KIND = "kind"  # in the manifest
VLA, CONTROL = "vla", "control"
KINDS = {VLA: "a policy that sees images", CONTROL: "a state-based policy"}
"""The kinds of policies in checkpoints, and what messages call them."""


def kind_of(path: str | Path) -> str:
    """Which kind of policy a checkpoint holds, one of `KINDS` or a plugin's.

    The manifest says so: a file that got lost must not make another policy of it. Manifests written
    before kinds had names tell a state-based policy by its interface.json.

    Raises:
        ValueError: If the manifest is missing or cannot be read.
    """
    manifest = atomic.read_manifest(path)
    return manifest.get(KIND) or (CONTROL if INTERFACE in manifest["files"] else VLA)


def described(kind: str) -> str:
    """What messages call a kind of policy."""
    return KINDS.get(kind, f"a policy of kind '{kind}'")


def deployable_digest(checkpoint: str | Path) -> str:
    """A digest of what gets deployed, equal for a checkpoint and its copy. The files are checked
    first.

    Raises:
        ValueError: If a file is missing, changed or unlisted.
    """
    return atomic.digest_of(_deployable(atomic.check_manifest(checkpoint)))


def copy_deployable(checkpoint: str | Path, out: Path) -> None:
    """Copy the deployable part into the empty directory `out`, with a manifest of its own.

    Raises:
        ValueError: If a file is missing, changed or unlisted.
    """
    manifest = atomic.check_manifest(checkpoint)
    for name in _deployable(manifest):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(checkpoint) / name, out / name)
    atomic.write_manifest(out, **{key: value for key, value in manifest.items() if key != "files"})


def _deployable(manifest: Mapping) -> dict[str, str]:
    files = manifest["files"].items()
    return {name: digest for name, digest in files if not name.startswith(f"{TRAINER_STATE}/")}
