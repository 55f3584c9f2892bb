"""Demonstrations of scripted experts, recorded through a System 0 and published as a dataset.

    recordings/NAME/               what the experts did, one file per task
    configs/datasets/NAME.yaml     the dataset, described like another one of the same robot
    dvc.yaml                       an entry for it

The name has a digest of everything that the recordings depend on. So the same demonstrations are
recorded once, and those through another System 0 are another dataset.
"""

from pathlib import Path

from flows import commands, names
from flows.ingest import describe, reproduce
from flows.steps import step
from rrf import atomic, workspace
from rrf.data.conversion.dataset_cfg import DatasetCfg, load_dataset_cfg
from rrf.evaluation.vla.configs import ProtocolCfg
from rrf.lineage import Lineage
from rrf.registry import deployments
from rrf.runners.checkpoints.deployable import deployable_digest

_NOISE = ("0", "0.02")
"""Standard deviations of the noise on the arms, in turn: what is recorded shows how to recover."""
_SHOWN = 8


def publish(
    like: str, system0: Path, protocol: ProtocolCfg, tasks: list[str], episodes: int
) -> tuple[str, Lineage]:
    """Record demonstrations as a protocol plays its episodes, and publish them.

    Args:
        like: A dataset of the same robot, whose names and units the new one takes.
        system0: Checkpoint of the System 0 that carries the robot.
        protocol: Cameras, rates and horizon.
        tasks: The tasks.
        episodes: Demonstrations of each.

    Returns:
        The name and the lineage of the dataset.
    """
    digest = deployable_digest(system0)
    facts = [digest, like, protocol.base_hash, tasks, episodes, _NOISE]
    name = f"{like}-{atomic.digest_of(facts)[:_SHOWN]}"
    record(name, str(system0), protocol.to_dict(), tasks, episodes)
    _describe_recordings(name, like, digest)
    reproduce(name)
    return name, describe([name])


@step(name="record", task_run_name=names.of_task("record {dataset} through {system0}", "system0"))
def record(dataset: str, system0: str, protocol: dict, tasks: list[str], episodes: int) -> None:
    """Let the experts show tasks; what was recorded already is kept."""
    cfg = ProtocolCfg.from_dict(protocol)
    words = {
        "env": cfg.env,
        "tasks": ",".join(tasks),
        "episodes": episodes,
        "max-steps": cfg.max_episode_steps,
        "action-repeat": cfg.action_repeat,
        "image-size": cfg.image_size,
        "cameras": ",".join(cfg.cameras),
        "out": deployments.recordings(dataset),
    }
    options = [word for name, value in words.items() for word in (f"--{name}", str(value))]
    options += [word for noise in _NOISE for word in ("--noise", noise)]
    carried = workspace.relative(Path(system0))
    parts = [f"{field}={carried}" for field in cfg.environment_cfg().in_checkpoint]
    commands.rrf("record", "data", "collect", *options, *parts)


def _describe_recordings(name: str, like: str, system0: str) -> None:
    """Write the dataset's config and its entry in dvc.yaml, unless they are there."""
    path = workspace.home() / "configs" / "datasets" / f"{name}.yaml"
    if not path.is_file():
        cfg = load_dataset_cfg(like)
        assert isinstance(cfg, DatasetCfg)
        cfg = cfg.replace(
            name=name,
            source=cfg.source.replace(path=f"recordings/{name}"),
            provenance=f"{cfg.provenance} Through System 0 {system0}.",
        )
        atomic.write_text(path, cfg.to_yaml())
    deployments.add_to_pipeline(name)
