"""A training run in words for people: its name, its description, and the tags that describe the
training of a version.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rrf import workspace
from rrf.config import read_yaml
from rrf.lineage import Lineage
from rrf.mlflow_store.flow_run import FlowRun
from rrf.runners.checkpoints.deployable import kind_of

_KEY_LENGTH = 8
_PACKAGES = "environment.packages."
_DATASET = {
    "dataset_md5": "DVC md5 {}",
    "num_episodes": "{} episodes",
    "num_frames": "{} frames",
    "validation": "validation {}",
}


def run_name(config: Mapping, key: str) -> str:
    """The name of a run: its experiment, its seed, and the beginning of its key.

    The key distinguishes runs of the same experiment and seed. The run directory is named after it
    too.
    """
    return f"{config['experiment_name']}, seed {config['seed']}, {key[:_KEY_LENGTH]}"


def run_notes(
    config: Mapping, lineage: Lineage, run_dir: Path, command: str | None, flow_run: FlowRun | None
) -> str:
    """The description of a run, in markdown.

    Args:
        config: The resolved config.
        lineage: What it is trained on.
        run_dir: The directory of its checkpoints.
        command: The command line that started it.
        flow_run: The Prefect flow run that started it, if any.
    """
    facts = training_of(config)
    lines = [f"Trains a policy: {in_words(facts)}.", ""]
    lines += [f"- {line}" for line in foundations(lineage.facts())]
    lines.append(f"- Checkpoints: `{workspace.relative(run_dir)}`")
    if flow_run:
        lines.append(f"- Prefect flow run: {flow_run}")
    if command:
        lines += ["", "This command reuses the run, or resumes it if it was interrupted:", ""]
        lines += ["```", command, "```"]
    return "\n".join(lines)


def training_tags(checkpoint: str | Path) -> dict[str, str]:
    """Tags that describe the training of a version: policy kind, experiment, seed, algorithm,
    parent.
    """
    facts = training_of(read_yaml(Path(checkpoint) / "config.yaml"))
    tags = {f"training.{key}": value for key, value in facts.items()}
    return tags | {"policy.kind": kind_of(checkpoint)}


def training_of(config: Mapping) -> dict[str, str]:
    """The facts by which people recognise a training, from its resolved config; absent ones are
    left out.
    """
    algorithm = (config.get("algorithm") or {}).get("type", "").rpartition(":")[2]
    parent = config.get("init_from")
    facts = {
        "experiment": config.get("experiment_name"),
        "seed": config.get("seed"),
        "algorithm": algorithm.removesuffix("Cfg"),
        "parent": "/".join(Path(parent).parts[-2:]) if parent else None,
    }
    return {key: str(value) for key, value in facts.items() if value not in (None, "")}


def in_words(facts: Mapping[str, str]) -> str:
    """The facts of `training_of` as a few words of markdown."""
    words = [f"`{facts['experiment']}`"] if "experiment" in facts else []
    words += [f"seed {facts['seed']}"] if "seed" in facts else []
    words += [f"with {facts['algorithm']}"] if "algorithm" in facts else []
    words += [f"starting from `{facts['parent']}`"] if "parent" in facts else []
    return ", ".join(words) or "not recorded"


def foundations(lineage: Mapping[str, Any]) -> list[str]:
    """The dataset, the environment and the code of a policy, as one line of markdown each.

    Args:
        lineage: `Lineage.facts`, or the facts in the tags of a version.
    """
    lines = []
    if "dataset" in lineage:
        lines.append(f"Dataset: `{lineage['dataset']}`{_details(lineage, _DATASET)}")
    if "environment.task" in lineage:
        packages = [key for key in lineage if key.startswith(_PACKAGES)]
        used = _details(lineage, {key: f"{key.removeprefix(_PACKAGES)} {{}}" for key in packages})
        lines.append(f"Environment: `{lineage['environment.task']}`{used}")
    if "git_revision" in lineage:
        is_dirty = str(lineage.get("git_dirty")).lower() == "true"
        changed = ", with changes that were not committed" if is_dirty else ""
        lines.append(f"Code: git `{str(lineage['git_revision'])[:12]}`{changed}")
    return lines


def _details(lineage: Mapping, texts: Mapping[str, str]) -> str:
    """Fill in the texts for which the lineage has a value, e.g. " (DVC md5 01ab, 40 episodes)"."""
    details = [text.format(lineage[key]) for key, text in texts.items() if key in lineage]
    return f" ({', '.join(details)})" if details else ""
