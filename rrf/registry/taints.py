"""Data that turned out to be wrong: `configs/tainted.yaml` of the workspace.

    data:
    - dataset: metaworld-demo
      md5: 3f0a…            # the beginning of a version; "": all versions
      episodes: [3, 17]     # which are wrong; empty: all
      reason: the gripper was loose
      date: 2026-11-29

A version that was trained on such data, also as a part of a merged dataset, or that was trained
from, taught by or joined from a checkpoint that was, is not promoted. A champion that stands on it
is flagged, and a canary is stopped (`rrf.registry.releases`). Episodes are for people: whoever
removes them makes another version of the dataset. The file is committed; what is taken out of it
holds no more.
"""

import datetime
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rrf import atomic, workspace
from rrf.config import Cfg, configclass, first_error, read_yaml
from rrf.registry import lineage_graph
from rrf.registry.lineage_graph import Training
from rrf.registry.versions import Version, versions_of

if TYPE_CHECKING:
    from mlflow import MlflowClient

FILE = Path(workspace.CONFIGS) / "tainted.yaml"
_HEADER = "# Data that turned out to be wrong. `rrf models taint` writes this file; commit it.\n"


@configclass
class TaintCfg(Cfg):
    """A version of a dataset that must not be stood on."""

    dataset: str
    """Name of the dataset."""
    md5: str = ""
    """The beginning of its version; "": all versions."""
    episodes: list[int] = []
    """Which episodes are wrong; empty: all."""
    reason: str
    """Why."""
    date: str
    """The day, as YYYY-MM-DD."""


@configclass
class TaintsCfg(Cfg):
    """All of them."""

    data: list[TaintCfg] = []
    """Tainted data."""


def load() -> TaintsCfg:
    """What this workspace knows to be wrong. Raises ValueError for a damaged file."""
    file = workspace.home() / FILE
    if not file.is_file():
        return TaintsCfg()
    try:
        return TaintsCfg.from_dict(read_yaml(file) or {})
    except ValueError as error:
        raise ValueError(f"{file}: {first_error(error)}") from error


def add(dataset: str, md5: str, episodes: list[int], reason: str) -> TaintCfg:
    """Write down that data is wrong. Raises ValueError without a reason."""
    if not reason.strip():
        raise ValueError("a taint needs a reason; give one with --reason '...'")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    taint = TaintCfg(dataset=dataset, md5=md5, episodes=episodes, reason=reason, date=today)
    cfg = load()
    text = cfg.replace(data=[*cfg.data, taint]).to_yaml()
    atomic.write_text(workspace.home() / FILE, _HEADER + text)
    return taint


def problem(client: "MlflowClient", version: Version) -> str:
    """Why a version stands on tainted data, or ""."""
    others = versions_of(client, version.name)
    return problem_in(lineage_graph.trainings_of(client, version, others))


def problem_in(trainings: Iterable[tuple[Training, str]]) -> str:
    """The same for a version of which these are the `trainings_of`."""
    data = load().data
    if not data:
        return ""
    for (facts, digest), way in trainings:
        for taint in data:
            if why := lineage_graph.stands(facts, digest, taint.dataset, taint.md5, "", ""):
                return (
                    f"it stands on {why}{way}, which is tainted since {taint.date}: {taint.reason}"
                )
    return ""
