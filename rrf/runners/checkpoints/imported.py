"""What a checkpoint of a published policy says about where it comes from, and how it is written."""

import tempfile
import typing
from collections.abc import Mapping
from pathlib import Path

from rrf.lineage import Lineage
from rrf.networks.vlm.catalogue import CATALOGUE, record_of
from rrf.runners.checkpoints import checkpoint
from rrf.runners.supervised.configs import SupervisedRunnerCfg


def published_facts(name: str) -> dict[str, str | None]:
    """What a record says about a published policy: name, repository, commit."""
    record = record_of(name) if name in CATALOGUE else None
    facts = {"name": name}
    return facts | ({k: record[k] for k in ("repository", "commit")} if record else {})


def save_imported(
    name: str,
    cfg: SupervisedRunnerCfg,
    policy: typing.Any,
    stats: Mapping[str, Mapping],
    out: Path,
    more: Mapping[str, str] | None = None,
) -> Path:
    """Write a policy that was read from a published folder as a checkpoint.

    Args:
        name: A name in the catalogue, or a directory.
        cfg: The run config of the checkpoint.
        policy: The policy.
        stats: Its statistics.
        out: A directory that does not exist or is empty.
        more: What else its lineage says of where it comes from.
    """
    missing = ("the data of a published policy, which nothing here records",)
    lineage = Lineage(published=published_facts(name) | dict(more or {}), missing=missing)
    state = checkpoint.TrainerState({}, {})
    with tempfile.TemporaryDirectory(dir=_parent(out)) as scratch:
        made = checkpoint.save(
            scratch, 0, cfg, policy.state_dict(), stats, state, lineage, policy.assets()
        )
        return checkpoint.export(made, out)


def _parent(out: Path) -> Path:
    out.parent.mkdir(parents=True, exist_ok=True)
    return out.parent
