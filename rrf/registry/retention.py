"""How long `rrf gc` keeps what, by `configs/retention.yaml` of the workspace.

    days: {run: 30, evaluation: 60, night: 7}
    keep_versions: 20
    version_days: 90
    video_days: 30

Versions that a rollback, a revocation or another version needs stay whatever the file says.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rrf import atomic, workspace
from rrf.config import Cfg, configclass, did_you_mean, first_error, read_yaml
from rrf.lineage import SYSTEMS, TAG
from rrf.registry import ledger as ledgers
from rrf.registry import listing
from rrf.registry.versions import Version

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from rrf.registry.ledger import Ledger

FILE = Path(workspace.CONFIGS) / "retention.yaml"
DAYS = 14.0
"""For which everything is kept that no file says anything about."""
KINDS = (
    *("run", "evaluation", "fetched copy", "dataset copy", "night", "download"),
    *("logged model", "deleted run"),
)
"""What `rrf gc` lists when nothing refers to it (`rrf.registry.garbage`)."""
ORIGINS = tuple(f"{TAG}{name}" for name in ("parent_checkpoint", "teacher_checkpoint", *SYSTEMS))
"""Tags of a version with digests of checkpoints that it was made from."""


@configclass
class RetentionCfg(Cfg):
    """How long is kept what."""

    days: dict[str, float] = {}
    """Kind of what nothing refers to -> days for which it is kept; others are kept 14 days."""
    keep_versions: int | None = None
    """So many of the newest versions of each model are kept; None keeps all."""
    version_days: float = 90.0
    """A version younger than so many days is kept, too."""
    video_days: float | None = None
    """Videos of runs and evaluations are kept so many days, those of champions always; None keeps
    all."""

    def __post_init__(self):
        for kind, days in self.days.items():
            if kind not in KINDS:
                raise ValueError(f"days: there is no kind '{kind}'{did_you_mean(kind, KINDS)}")
            if days < 0:
                raise ValueError(f"days: {kind}: {days:g} is negative")
        if self.keep_versions is not None and self.keep_versions < 1:
            raise ValueError(f"keep_versions is {self.keep_versions}, allowed: 1 and more")
        for name in ("version_days", "video_days"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(f"{name} is {getattr(self, name):g}, which is negative")

    def days_of(self, kind: str) -> float:
        """For how many days a kind is kept."""
        return self.days.get(kind, DAYS)


def load() -> RetentionCfg:
    """What the workspace says. Raises ValueError for a damaged file."""
    file = workspace.home() / FILE
    if not file.is_file():
        return RetentionCfg()
    try:
        return RetentionCfg.from_dict(read_yaml(file) or {})
    except ValueError as error:
        raise ValueError(f"{file}: {first_error(error)}") from error


def dispensable(
    ledger: "Ledger", versions: Sequence[Version], keep: int, before: float
) -> list[Version]:
    """The versions of a model that may be deleted.

    Kept are the newest ones, each that was ever champion, is revoked, waits for approvals, is in a
    release that runs or in a trial against the champion, or has an alias, and what one of these was
    made from.

    Args:
        ledger: The ledger of the model.
        versions: All versions of all models, newest first; what those of others were made from is
            kept, too.
        keep: How many of the newest are kept.
        before: Those made since are kept; in seconds since 1970.
    """
    own = [version for version in versions if version.name == ledger.name]
    needed = ledger.promoted | set(ledger.revoked)
    needed |= {entry.version for entry in (ledger.staged, ledger.release) if entry}
    trials = [entry.trial for entry in ledger.entries if entry.trial]
    digests = {
        digest
        for trial in trials
        if trial["against"] == (ledger.champion or "")
        for digest in trial["checkpoints"]
    }
    others = (version for version in versions if version.name != ledger.name)
    digests |= {v.tags[key] for v in others for key in ORIGINS if key in v.tags}
    kept = [
        version
        for place, version in enumerate(own)
        if place < keep
        or version.version in needed
        or version.checkpoint_digest in digests
        or version.aliases
        or version.created_ms >= 1000 * before
    ]
    ahead = [*kept]
    while ahead:
        tags = ahead.pop().tags
        origins = [tags[key] for key in ORIGINS if key in tags]
        more = [v for v in own if v.checkpoint_digest in origins and v not in kept]
        kept += more
        ahead += more
    return [version for version in own if version not in kept]


def delete(client: "MlflowClient", version: Version, keep: int, before: float) -> None:
    """Delete a version in MLflow, unless something needs it by now.

    Raises:
        ValueError: If something does.
    """
    ledger = ledgers.read(client, version.name)
    still = dispensable(ledger, listing.versions(), keep, before)
    if version.version not in {one.version for one in still}:
        raise ValueError("something needs it by now")
    client.delete_model_version(version.name, version.version)


def videos(before: float) -> Iterator[tuple[Path, Path]]:
    """The folders of videos in which nothing was written since `before` (seconds since 1970), each
    with the run or evaluation that it is of.
    """
    for kind in ("runs", "evaluations"):
        for owner in sorted((workspace.state() / kind).glob("*")):
            folder = owner / "videos"
            if owner.is_symlink() or folder.is_symlink() or not folder.is_dir():
                continue
            written = max(path.lstat().st_mtime for path in [folder, *folder.rglob("*")])
            if written < before:
                yield folder, owner


def remove_videos(folder: Path) -> None:
    """Remove a folder of videos, unless its run is being trained."""
    with atomic.alone(folder.parent, f"{folder.parent} is being used by another process"):
        atomic.remove(folder)
