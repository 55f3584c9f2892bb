"""What a workspace and its store keep although no version, champion or dataset refers to it.

kind          is kept if
run           a version was trained in it, has a checkpoint of it, or was joined from one of its
              checkpoints, or a run that is kept was trained from it or taught by it
evaluation    a version has the checkpoint that was evaluated, or a champion had it
fetched copy  the version exists
dataset copy  a version was trained on that MD5
night         never: what is in .rrf/nightly is a copy of what MLflow has
download      a file in configs/datasets names it as its source
logged model  it is the model of a version, or a champion had its checkpoint; only models that rrf
              has logged are looked at
deleted run   a version was trained in it; only runs that somebody has deleted in MLflow

By `configs/retention.yaml` (`rrf.registry.retention`), old versions that nothing needs, and old
videos, are let go of as well:

version       it is one of the newest, was ever champion, is revoked, waits for approvals, is in a
              release that runs or in a trial against the champion, has an alias, or one that is
              kept was trained from, taught by or joined from it
videos        a champion had the checkpoint that they show, or the run that they are of

Whatever is younger than a given age is kept too, since it may be about to be registered, and so are
runs that are being trained. The numbers of runs in MLflow are history and stay. DVC's cache has a
garbage collector of its own, `dvc gc`.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rrf import atomic, workspace
from rrf.config import readable
from rrf.data.conversion.dataset_cfg import read_any_cfg
from rrf.data.formats.source_path import is_remote, local_path
from rrf.evaluation.results import FILE_NAME as EVALUATION
from rrf.evaluation.results import Evaluation
from rrf.mlflow_store import artifacts
from rrf.registry import ledger as ledgers
from rrf.registry import listing, packaging, retention
from rrf.registry.client import connect
from rrf.registry.retention import ORIGINS, RetentionCfg
from rrf.registry.versions import CHECKPOINT_DIGEST, Version, versions_of
from rrf.run_directory import RUN, UNSENT, read_facts
from rrf.runners.checkpoints.deployable import deployable_digest

if TYPE_CHECKING:
    from mlflow import MlflowClient

_DAY_S = 86_400.0
_BUSY = "{} is being used by another process"


@dataclasses.dataclass(frozen=True)
class Leftover:
    """Something that nothing refers to."""

    kind: str
    name: str
    """Its path relative to the workspace, or its id in MLflow."""
    size: int
    """In bytes."""
    remove: Callable[[], None]


def find(older_than_s: float | None = None, policy: RetentionCfg | None = None) -> list[Leftover]:
    """Everything that `rrf gc` would remove, by kind and name.

    Args:
        older_than_s: Nothing is listed that was written in the last so many seconds; by default
            the policy says so for each kind.
        policy: How long is kept what; by default what nothing refers to is kept 14 days.

    A file that cannot be read is left out with a warning, and nothing is listed that it may name.

    Raises:
        OSError: If the store cannot be read. Then nothing is known to be unused.
        ValueError: If a ledger is damaged.
    """
    policy, now = policy or RetentionCfg(), time.time()

    def before(kind: str) -> float:
        return now - (policy.days_of(kind) * _DAY_S if older_than_s is None else older_than_s)

    client, names = connect(), listing.models()
    kept = [version for name in names for version in versions_of(client, name)]
    read = {name: ledgers.read(client, name) for name in names}
    changes = [entry for ledger in read.values() for entry in ledger.entries]
    champions = {entry.checkpoint_digest or "" for entry in changes} - {""}
    digests = champions | {version.checkpoint_digest for version in kept} - {""}
    digests |= {v.tags[key] for v in kept for key in ORIGINS if key in v.tags}
    run_ids = {version.run_id for version in kept}
    leftovers = [
        *_runs(run_ids, digests, before("run")),
        *_evaluations(digests, before("evaluation")),
        *_copies(kept, before),
        *_nights(before("night")),
        *_downloads(before("download")),
        *_logged_models(client, names, digests, before("logged model")),
        *_deleted_runs(client, run_ids, before("deleted run")),
    ]
    gone = {leftover.name for leftover in leftovers}
    leftovers += _versions(client, read, kept, policy, now)
    if policy.video_days is not None:
        videos = _videos(champions, now - policy.video_days * _DAY_S)
        leftovers += [one for one in videos if str(Path(one.name).parent) not in gone]
    return sorted(leftovers, key=lambda leftover: (leftover.kind, leftover.name))


def _versions(
    client: "MlflowClient",
    read: dict[str, ledgers.Ledger],
    versions: list[Version],
    policy: RetentionCfg,
    now: float,
) -> Iterator[Leftover]:
    """Versions that the policy lets go of."""
    keep, before = policy.keep_versions, now - policy.version_days * _DAY_S
    if keep is None:
        return
    for name, ledger in read.items():
        for version in retention.dispensable(ledger, versions, keep, before):
            remove = functools.partial(retention.delete, client, version, keep, before)
            # Its files are those of a logged model, which is listed when no version has it.
            yield Leftover("version", f"{name}/{version.version}", 0, remove)


def _videos(champions: set[str], before: float) -> Iterator[Leftover]:
    """Old videos of anything but champions."""
    for folder, owner in retention.videos(before):
        if (owner / EVALUATION).is_file():
            try:
                is_of_champion = Evaluation.load(owner).checkpoint_digest in champions
            except ValueError:
                continue  # damaged: for a person to look at
        else:
            is_of_champion = bool(_checkpoints(owner) & champions)
        if not is_of_champion:
            remove = functools.partial(retention.remove_videos, folder)
            name = str(folder.relative_to(workspace.home()))
            yield Leftover("videos", name, _size(folder), remove)


def _runs(run_ids: set[str], digests: set[str], before: float) -> Iterator[Leftover]:
    root = workspace.state() / "runs"
    files = [path / RUN for path in _folders(root) if (path / RUN).is_file()]
    facts = {file.parent.name: run for file, run in readable(files, read_facts).items()}
    unknown = [file.parent for file in files if file.parent.name not in facts]
    if any(_checkpoints(path) & digests for path in unknown):  # from which runs it was trained
        return
    kept = {name for name, run in facts.items() if run.get("run_id") in run_ids}
    others = facts.keys() - kept
    kept |= {name for name in others if _checkpoints(root / name) & digests}
    ahead = list(kept)
    while ahead:  # the runs that those were trained from
        config = facts[ahead.pop()].get("config", {})
        parents = [config[key] for key in ("init_from", "teacher") if config.get(key)]
        names = {part for parent in parents for part in Path(parent).parts}  # a run, or in one
        ahead += names & facts.keys() - kept
        kept |= names & facts.keys()
    for name in facts.keys() - kept:
        if (root / name / UNSENT).is_file():  # the only place of what MLflow did not get
            continue
        if leftover := _folder("run", root / name, before):
            yield leftover


def _checkpoints(run_dir: Path) -> set[str]:
    """The digests of the checkpoints of a run that can be read."""
    digests = set()
    for manifest in run_dir.glob(f"*/{atomic.MANIFEST}"):
        try:
            digests.add(deployable_digest(manifest.parent))
        except (OSError, ValueError):
            continue
    return digests


def _evaluations(digests: set[str], before: float) -> Iterator[Leftover]:
    for path in _folders(workspace.state() / "evaluations"):
        if (path / EVALUATION).is_file():  # otherwise it was interrupted
            try:
                is_known = Evaluation.load(path).checkpoint_digest in digests
            except ValueError:
                continue  # damaged: for a person to look at
            if is_known:
                continue
        if leftover := _folder("evaluation", path, before):
            yield leftover


def _copies(kept: list[Version], before: Callable[[str], float]) -> Iterator[Leftover]:
    """Fetched policies and datasets."""
    names = {f"{version.name}-{version.version}" for version in kept}
    md5s = {md5 for v in kept for md5 in v.tags.get("lineage.dataset_md5", "").split(", ")}
    folders = ("fetched copy", "fetched", names), ("dataset copy", "datasets", md5s)
    for kind, folder, known in folders:
        for path in _folders(workspace.state() / folder):
            if path.name not in known and (leftover := _folder(kind, path, before(kind))):
                yield leftover


def _nights(before: float) -> Iterator[Leftover]:
    for model in _folders(workspace.state() / "nightly"):
        for path in _folders(model):
            if leftover := _folder("night", path, before):
                yield leftover


def _downloads(before: float) -> Iterator[Leftover]:
    named = set()
    files = workspace.configs("datasets").values()
    cfgs = readable(files, read_any_cfg)
    if len(cfgs) < len(files):  # the others may name any download
        return
    for cfg in cfgs.values():
        source = getattr(cfg, "source", None)
        if source is not None and is_remote(source.path):
            named.add(local_path(source.path))
    for scheme in ("s3", "hf"):
        for path in _folders(workspace.state() / scheme):
            if path not in named and (leftover := _folder("download", path, before)):
                yield leftover


def _logged_models(
    client: "MlflowClient", names: list[str], digests: set[str], before: float
) -> Iterator[Leftover]:
    experiments = [e.experiment_id for e in client.search_experiments()]
    sources = (
        version.source or ""
        for name in names
        for version in client.search_model_versions(f"name = '{name}'", max_results=10_000)
    )
    used = {packaging.logged_model_in(source) for source in sources}
    for model in _pages(client.search_logged_models, experiments):
        digest = model.tags.get(CHECKPOINT_DIGEST)
        is_old = (model.last_updated_timestamp or 0) < 1000 * before
        if digest and is_old and model.model_id not in used and digest not in digests:
            # It is marked first. If it were emptied first, a registration could still choose it.
            mark = functools.partial(client.delete_logged_model, model.model_id)
            yield _in_store("logged model", model.model_id, model.artifact_location, mark)


def _deleted_runs(client: "MlflowClient", run_ids: set[str], before: float) -> Iterator[Leftover]:
    from mlflow.entities import ViewType

    experiments = [e.experiment_id for e in client.search_experiments(ViewType.ALL)]
    search = functools.partial(client.search_runs, run_view_type=ViewType.DELETED_ONLY)
    for run in _pages(search, experiments):
        info = run.info
        is_old = max(info.end_time or 0, info.start_time or 0) < 1000 * before
        if is_old and info.run_id not in run_ids:
            leftover = _in_store("deleted run", info.run_id, info.artifact_uri or "")
            if leftover.size:  # the entry itself stays in the database
                yield leftover


def _pages(search: Callable, experiments: list[str]) -> Iterator:
    token = ""
    while token is not None and experiments:
        page = search(experiments, page_token=token or None)
        yield from page
        token = page.token or None


def _in_store(kind: str, id: str, uri: str, mark: Callable[[], None] = lambda: None) -> Leftover:
    """Artifacts in the store, wherever it keeps them."""
    repository = artifacts.repository(uri, workspace.tracking_uri())

    def sizes(folder: str | None = None) -> Iterator[int]:
        for entry in repository.list_artifacts(folder):
            yield from sizes(entry.path) if entry.is_dir else [entry.file_size or 0]

    def remove() -> None:
        from mlflow.exceptions import MlflowException

        mark()
        try:
            repository.delete_artifacts()
        except MlflowException as error:
            raise OSError(f"its artifacts at {uri} cannot be removed: {error}") from error

    return Leftover(kind, id, sum(sizes()), remove)


def _folder(kind: str, path: Path, before: float) -> Leftover | None:
    """A folder of this workspace, if nothing in it was written since `before`."""
    files = [path, *path.rglob("*")]
    if max(file.lstat().st_mtime for file in files) >= before:
        return None

    def remove() -> None:
        with atomic.alone(path, _BUSY.format(path)):
            atomic.remove(path)

    return Leftover(kind, str(path.relative_to(workspace.home())), _size(path), remove)


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.glob("*") if path.is_dir() and not path.is_symlink())


def _size(path: Path) -> int:
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
