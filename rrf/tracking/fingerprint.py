"""The digests by which the registry knows the files of a policy, and the check of files with them.

They are tags of the model version and of its logged model:

checkpoint_digest   digest of the deployable files, on both (`rrf.runners.checkpoints.deployable`)
manifest_digest     SHA-256 of manifest.json, on the logged model; it covers the kind of policy, the
                    step and the lineage

Files are copied to a place where nobody else writes, and the copy is checked. So files that are
exchanged in the store at that moment cannot get past the check.
"""

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING

from rrf import atomic
from rrf.runners.checkpoints.deployable import copy_deployable
from rrf.tracking import standing

if TYPE_CHECKING:
    from mlflow import MlflowClient

CHECKPOINT_DIGEST, MANIFEST_DIGEST = "checkpoint_digest", "manifest_digest"
_OF_LOGGED_MODEL = re.compile(r"/models/(m-\w+)/artifacts")  # MLflow's database keeps no other link


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """What the files of a policy must be."""

    of: str
    """Name of the policy in messages."""
    checkpoint: str
    manifest: str | None = None
    """None if it is not known."""

    def checked_copy(self, checkpoint: Path, out: Path) -> None:
        """Copy a deployable checkpoint into the empty directory `out` and check the copy.

        No file is interpreted before its digest has been compared, except the manifest, which lists
        the digests.

        Raises:
            ValueError: If the files are not those that the registry knows.
        """
        found = copy_deployable(checkpoint, out)
        if found != self.checkpoint:
            raise ValueError(
                f"{self.of} was registered as checkpoint {self.checkpoint[:12]}, but its artifacts "
                f"are {found[:12]}; they were replaced, do not use them"
            )
        if self.manifest and atomic.sha256(out / atomic.MANIFEST) != self.manifest:
            raise ValueError(
                f"{self.of}: the lineage, the step or the kind of policy in {atomic.MANIFEST} was "
                "changed after the model was registered; do not use it"
            )


def logged_model_in(source: str) -> str | None:
    """The id of the logged model from which a version was made, by the source of the version."""
    found = _OF_LOGGED_MODEL.search(source)
    return found[1] if found else None


def of_version(client: "MlflowClient", name: str, version: str) -> Fingerprint:
    """The fingerprint of a registered version.

    Raises:
        ValueError: If the registry holds no digest for it, or two different ones.
    """
    from mlflow.exceptions import MlflowException

    what = f"{name} version {version}"
    try:
        made = client.get_model_version(name, version)
        within = logged_model_in(made.source or "")
        logged = of_logged_model(client, within) if within else None
    except MlflowException as error:
        raise ValueError(f"the registry cannot say what {what} is: {error}") from error
    digest = made.tags.get(CHECKPOINT_DIGEST)
    if not digest:
        raise ValueError(
            f"{what} has no tag {CHECKPOINT_DIGEST}, so it was not registered by rrf; register its "
            "checkpoint with: rrf models register CHECKPOINT NAME"
        )
    standing.check_digest(client, name, version, digest)
    if logged and logged.checkpoint != digest:
        raise ValueError(
            f"the registry contradicts itself: {what} is checkpoint {digest[:12]}, but its "
            f"{logged.of} is {logged.checkpoint[:12]}; somebody edited the tag {CHECKPOINT_DIGEST}"
        )
    return Fingerprint(what, digest, logged.manifest if logged else None)


def of_logged_model(client: "MlflowClient", model_id: str) -> Fingerprint:
    """The fingerprint of a logged model.

    Raises:
        ValueError: If it lacks one of the digests.
        MlflowException: If there is no such model.
    """
    tags = client.get_logged_model(model_id).tags
    for name in (CHECKPOINT_DIGEST, MANIFEST_DIGEST):
        if name not in tags:
            raise ValueError(f"logged model {model_id} has no tag {name}; rrf did not make it")
    return Fingerprint(f"logged model {model_id}", tags[CHECKPOINT_DIGEST], tags[MANIFEST_DIGEST])
