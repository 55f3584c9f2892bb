"""Bring the logged episodes of deployed policies into the workspace, as recordings of a dataset.

    recordings/NAME/EPISODE/       as it was logged, compared with its manifest and its own records
    configs/datasets/NAME.yaml     the dataset, written with the first episodes
    dvc.yaml                       an entry for it

From there on they are recordings like all others: `dvc repro publish@NAME` converts, validates and
publishes them. An episode whose policy the registry does not know is not brought.
"""

import contextlib
import dataclasses
import re
from collections.abc import Collection
from pathlib import Path

from rrf import atomic, workspace
from rrf.data import episode_log
from rrf.data.conversion.checks_cfg import ChecksCfg
from rrf.data.conversion.dataset_cfg import (
    DatasetCfg,
    SourceCfg,
    check_dataset_name,
    load_dataset_cfg,
)
from rrf.data.conversion.vector_cfg import VectorCfg
from rrf.data.formats import deployment
from rrf.data.schema import IMAGE_PREFIX, STATE
from rrf.data.transport.episode_store import EpisodeStore
from rrf.registry import listing


@dataclasses.dataclass
class Brought:
    """What became of the episodes of a store."""

    new: list[dict] = dataclasses.field(default_factory=list)
    """Summaries of the episodes that were brought."""
    known: int = 0
    """They were here already."""
    refused: list[str] = dataclasses.field(default_factory=list)
    """Why episodes were not brought, a line each."""


def recordings(name: str) -> Path:
    """Where the episodes of a deployment dataset lie."""
    check_dataset_name(name, "the dataset")
    if not atomic.is_plain_name(name) or "/" in name:
        raise ValueError(f"the name of the dataset is '{name}', which is not a plain name")
    return workspace.home() / "recordings" / name


def summaries_here(name: str) -> list[dict]:
    """The summaries of the episodes that were brought for a dataset, oldest first."""
    folders = recordings(name).glob(f"*/{atomic.MANIFEST}")
    manifests = [episode_log.read_manifest(path.parent) for path in folders]
    return sorted(
        (manifest["summary"] for manifest in manifests), key=lambda s: s["began_unix_s"] or 0.0
    )


def waiting(store: EpisodeStore, name: str) -> list[dict]:
    """The summaries of the episodes in the store that can be brought and were not yet; the others
    are what `bring` refuses."""
    here = {folder.name for folder in recordings(name).glob("[!.]*")}
    known, found = _known(), []
    for episode in store.episodes():
        if episode in here:
            continue
        with contextlib.suppress(ValueError):
            manifest = store.manifest(episode)
            if manifest is not None:
                _check_policy(manifest["summary"], known, ())
                found.append(manifest["summary"])
    return found


def _known() -> set[str]:
    """The digests of all registered policies."""
    return {version.checkpoint_digest for version in listing.versions()} - {""}


def bring(store: EpisodeStore, name: str, allowed: Collection[str] = ()) -> Brought:
    """Bring the new episodes of a store; each is brought once.

    Args:
        store: Where robots have sent them.
        name: Name of the dataset.
        allowed: Policies that need not be in the registry, by name or digest.

    Raises:
        ValueError: If another process does the same.
        OSError: If the store cannot be reached.
    """
    out, done = recordings(name), Brought()
    known = _known()
    with atomic.alone(out, f"another process is bringing episodes to {out}; wait for it"):
        for episode in store.episodes():
            if (out / episode).exists():
                done.known += 1
                continue
            try:
                manifest = store.manifest(episode)
                if manifest is None:
                    continue
                _check_policy(manifest["summary"], known, allowed)
                done.new.append(store.get(episode, out)["summary"])
            except ValueError as error:
                done.refused.append(f"{episode}: {error}")
    return done


def _check_policy(summary: dict, known: Collection[str], allowed: Collection[str]) -> None:
    policy = summary.get("policy") or {}
    name, digest = deployment.policy_name(policy), str(policy.get("digest"))
    if digest in known or {name, str(policy.get("name")), digest} & set(allowed):
        return
    raise ValueError(
        f"the policy '{name}' (digest {digest[:12]}) is not in the registry; register it, or "
        f"take its episodes all the same: --allow '{name}'"
    )


def write_dataset_cfg(name: str, like: str | None = None) -> Path | None:
    """Write `configs/datasets/NAME.yaml` for the episodes that are here, unless there is one.

    Args:
        name: Name of the dataset.
        like: A dataset of the same robot, whose names, units and cameras it takes, so that both can
            be mixed in training.

    Raises:
        ValueError: If the episodes do not say what is needed, or do not fit `like`.
    """
    path = workspace.home() / "configs" / "datasets" / f"{name}.yaml"
    if path.exists():
        return None
    source = SourceCfg(format="episode_log", path=f"recordings/{name}")
    keys = source.reader(recordings(name)).keys()
    folder = min(recordings(name).glob(f"*/{atomic.MANIFEST}")).parent
    begin = next(episode_log.records_of(folder))
    same = load_dataset_cfg(like) if like else None
    cameras = {key.removeprefix(IMAGE_PREFIX): key for key in keys if key.startswith(IMAGE_PREFIX)}
    if same is not None and sorted(same.cameras) != sorted(cameras):
        raise ValueError(
            f"the episodes have the cameras {', '.join(sorted(cameras)) or 'none'}, and {like} "
            f"{', '.join(sorted(same.cameras)) or 'none'}"
        )
    sizes = [keys[key] for key in cameras.values()]
    size = [int(n) for n in re.findall(r"\d+", sizes[0])] if sizes else None
    cfg = DatasetCfg(
        name=name,
        source=source,
        fps=begin["fps"],
        storage=same.storage if same else "image",
        image_size=list(same.image_size) if same and same.image_size else size,
        cameras=cameras,
        state=_vector(_state_key(keys, path), "state", keys, begin, same),
        action=_vector(deployment.ACTION, "action", keys, begin, same),
        extra={
            key: VectorCfg(keys=[key], names=[key], unit="0 or 1")
            for key in (deployment.BY_OPERATOR, deployment.BY_POLICY)
        },
        success=deployment.SUCCESS,
        robot_type=same.robot_type if same else str(begin["robot"]),
        licence=same.licence if same else "LicenseRef-own",
        provenance="Logged by robots that were driven by a policy, and by who corrected it.",
        checks=ChecksCfg(severity={"constant_dimensions": "warn", "ends_in_success": "off"}),
    )
    atomic.write_text(path, cfg.to_yaml())
    return path


def _state_key(keys: dict, path: Path) -> str:
    """What the episodes call the state: `observation.state`, or else the only observation that is
    no image, as of a policy of states, whose groups have names of their own."""
    if STATE in keys:
        return STATE
    known = (deployment.ACTION, *deployment.FLAGS)
    found = [k for k, what in keys.items() if k not in known and not what.startswith("image")]
    if len(found) != 1:
        raise ValueError(
            f"the episodes have no {STATE}, and {', '.join(found) or 'nothing'} in its place; let "
            f"robots log the state as {STATE}, or write {path}, with state: {{keys: [...]}}"
        )
    return found[0]


def _vector(key: str, kind: str, keys: dict, begin: dict, same: DatasetCfg | None) -> VectorCfg:
    if key not in keys:
        raise ValueError(f"the episodes have no {key}; they have: {', '.join(keys)}")
    width = int(keys[key].partition("[")[2].rstrip("]") or 1)
    names = begin.get(f"{kind}_names") or [f"{kind}_{number}" for number in range(width)]
    unit, low, high = "unknown", None, None
    if same is not None:
        known: VectorCfg = getattr(same, kind)
        names, unit, low, high = known.names, known.unit, known.low, known.high
    if len(names) != width:
        raise ValueError(
            f"{key} of the episodes has {width} numbers, but the names are {', '.join(names)}"
        )
    return VectorCfg(keys=[key], names=list(names), unit=unit, low=low, high=high)


def add_to_pipeline(name: str) -> bool:
    """Add the dataset to dvc.yaml, unless it is there.

    Raises:
        ValueError: If dvc.yaml has no list of datasets; the message has the line to write.
    """
    path = workspace.home() / "dvc.yaml"
    text = path.read_text() if path.is_file() else ""
    if re.search(rf"^ +{re.escape(name)}:", text, re.MULTILINE):
        return False
    first = re.search(r"^vars:\n(?:.*\n)*?( *)- datasets:\n(?: *#.*\n)*( +)\S", text, re.MULTILINE)
    depends_on = re.search(r"^[^#\n]*\bwith: ([^,}\s]+)", text, re.MULTILINE)
    if first is None or depends_on is None:
        raise ValueError(
            f"{path} has no list of datasets under vars; write there: "
            f"{name}: {{raw: recordings/{name}, with: requirements.lock}}"
        )
    line = f"{first[2]}{name}: {{raw: recordings/{name}, with: {depends_on[1]}}}\n"
    place = first.end() - len(first[2]) - 1
    atomic.write_text(path, text[:place] + line + text[place:])
    return True
