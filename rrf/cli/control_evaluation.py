"""The part of `rrf eval` that is for state-based policies alone."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rrf.cli.control_training import with_task_source
from rrf.cli.evaluation_display import showing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rrf.components.actor_critic import ControlPolicy
    from rrf.envs.control_env import Interface
    from rrf.evaluation.control_protocol import ControlProtocolCfg
    from rrf.evaluation.results import EpisodeResult, EvaluationReport

_NUM_VIDEOS = 6


@dataclasses.dataclass
class LoadedControl:
    """A state-based policy ready to act, and what is known about it."""

    policy: "ControlPolicy"
    interface: "Interface"
    path: Path
    digest: str
    label: str
    config: dict
    lineage: dict
    source: str  # digest of the code and simulators

    def default_protocol(self, folder: Path) -> Path:
        """The file of `folder` about the task that the policy was trained in."""
        from rrf.envs.control_configs import ControlEnvCfg
        from rrf.evaluation.protocols import find_protocol

        return find_protocol(folder, ControlEnvCfg.from_dict(self.config["env"]))

    def source_under(self, cfg: "ControlProtocolCfg") -> str:
        """Digest of all code that evaluates it under `cfg`, a task of one's own among it."""
        return with_task_source(self.source, cfg.env.task)


def load(path: Path, label: str) -> LoadedControl:
    """The policy in a checkpoint."""
    from rrf import atomic
    from rrf.runners import checkpoint
    from rrf.runners.control_checkpoint import load_control_policy
    from rrf.runners.deployable import deployable_digest
    from rrf.tracking.lineage import simulator_versions, source_digest

    lineage = atomic.check_manifest(path).get("lineage") or {}
    policy, interface = load_control_policy(path)
    config, digest = checkpoint.load_config(path), deployable_digest(path)
    source = atomic.digest_of([source_digest(), simulator_versions()])
    return LoadedControl(policy, interface, path, digest, label, config, lineage, source)


def evaluate(
    loaded: LoadedControl,
    cfg: "ControlProtocolCfg",
    folder: Path,
    num_videos: int | None,
    known: "Sequence[EpisodeResult]",
) -> "EvaluationReport":
    """The episodes of the protocol, in evaluation.json of `folder` before some are filmed."""
    from rrf.evaluation.control_evaluate import evaluate_control
    from rrf.evaluation.results import FILE_NAME

    source = loaded.source_under(cfg)  # of the code as it is now; someone may edit it meanwhile
    with showing(f"evaluating {loaded.label}", len(cfg.initial_states())) as on_episode:
        report = evaluate_control(
            loaded.policy,
            loaded.interface,
            cfg,
            on_episode,
            checkpoint_digest=loaded.digest,
            label=loaded.label,
            known=known,
        )
    report.source_digest = source
    report.save(folder / FILE_NAME)
    report.videos = _videos(loaded, cfg, report, folder, num_videos)
    return report


def _videos(
    loaded: LoadedControl,
    cfg: "ControlProtocolCfg",
    report: "EvaluationReport",
    folder: Path,
    num_videos: int | None,
) -> list[dict]:
    """Videos of some episodes; none, and a warning, where nothing can be drawn."""
    from rrf.evaluation.control_videos import film_episodes
    from rrf.evaluation.videos import choose_for_video

    limit = _NUM_VIDEOS if num_videos is None else num_videos
    chosen = choose_for_video(report.episodes, limit)
    if not chosen:
        return []
    try:
        return film_episodes(loaded.policy, loaded.interface, cfg, chosen, folder)
    except (ValueError, OSError) as error:
        typer.echo(f"warning: no videos: {error}", err=True)
        return []
