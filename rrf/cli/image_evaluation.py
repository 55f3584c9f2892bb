"""The part of `rrf eval` and `rrf play` that is for policies that see images alone."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rrf.cli.evaluation_display import showing, summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rrf.evaluation.evaluate import OnEpisode
    from rrf.evaluation.protocol import ProtocolCfg
    from rrf.evaluation.results import EpisodeResult, EvaluationReport

VIDEO_SIZE = 192
_NUM_VIDEOS = 12
_DEFAULT_PROTOCOL = "metaworld-demo.yaml"


@dataclasses.dataclass
class LoadedImagePolicy:
    """A policy ready to act, and what is known about it."""

    policy: object
    path: Path
    digest: str
    label: str
    config: dict
    norm_stats: dict
    lineage: dict
    source: str  # digest of the code that evaluates it

    def default_protocol(self, folder: Path) -> Path:
        """The file of `folder` that policies are held to unless told otherwise."""
        return folder / _DEFAULT_PROTOCOL

    def source_under(self, _cfg: "ProtocolCfg") -> str:
        """Digest of all code that evaluates it."""
        return self.source


def load(path: Path, label: str) -> LoadedImagePolicy:
    """The policy in a checkpoint."""
    from rrf import atomic
    from rrf.runners import checkpoint
    from rrf.runners.deployable import deployable_digest
    from rrf.tracking.lineage import source_digest

    manifest = atomic.check_manifest(path)
    return LoadedImagePolicy(
        checkpoint.load_policy(path),
        path,
        deployable_digest(path),
        label,
        checkpoint.load_config(path),
        checkpoint.load_norm_stats(path),
        manifest.get("lineage") or {},
        source_digest(),
    )


def run(
    loaded: LoadedImagePolicy,
    cfg: "ProtocolCfg",
    workers: int,
    renderer: str,
    on_episode: "OnEpisode | None" = None,
    known: "Sequence[EpisodeResult]" = (),
) -> "EvaluationReport":
    """The episodes of the protocol."""
    from rrf.evaluation.evaluate import cpu_seconds, evaluate

    cpu = cpu_seconds()
    env = environment(cfg, workers, renderer)
    try:
        report = evaluate(
            loaded.policy,
            env,
            cfg,
            on_episode,
            checkpoint_digest=loaded.digest,
            label=loaded.label,
            known=known,
        )
    finally:
        env.close()
    report.source_digest = loaded.source
    report.timings["cpu_s"] = round(cpu_seconds() - cpu, 2)  # with starting the simulators
    return report


def evaluate(
    loaded: LoadedImagePolicy,
    cfg: "ProtocolCfg",
    folder: Path,
    num_videos: int | None,
    known: "Sequence[EpisodeResult]",
    workers: int,
    renderer: str,
) -> "EvaluationReport":
    """The episodes of the protocol, in evaluation.json of `folder` before videos are made of some
    that ran now."""
    from rrf.evaluation.results import FILE_NAME
    from rrf.evaluation.videos import choose_for_video, save_videos

    with showing(f"evaluating {loaded.label}", len(cfg.initial_states())) as on_episode:
        report = run(loaded, cfg, workers, renderer, on_episode, known)
    report.save(folder / FILE_NAME)
    limit = _NUM_VIDEOS if num_videos is None else num_videos
    chosen = choose_for_video([e for e in report.episodes if e.actions is not None], limit)
    if chosen:
        pictures, fps = frames(cfg, chosen, VIDEO_SIZE, renderer)
        report.videos = save_videos(folder, chosen, pictures, fps)
    return report


def run_baselines(
    loaded: LoadedImagePolicy, cfg: "ProtocolCfg", folder: Path, workers: int, renderer: str
) -> None:
    """The random and the mean-action policy under the same protocol, in files of their own."""
    import numpy as np

    from rrf.data.schema import ACTION
    from rrf.evaluation.baselines import MeanActionPolicy, RandomPolicy

    chunk = loaded.config["policy"]["chunk_length"]
    mean = np.asarray(loaded.norm_stats[ACTION]["mean"], np.float32)
    for name, baseline in (
        ("random", RandomPolicy(chunk, len(mean))),
        ("mean-action", MeanActionPolicy(chunk, mean)),
    ):
        path = folder / f"baseline-{name}.json"
        if path.is_file():
            continue
        other = dataclasses.replace(loaded, policy=baseline, digest=f"baseline:{name}", label=name)
        with showing(f"evaluating {name}", len(cfg.initial_states())) as on_episode:
            report = run(other, cfg, workers, renderer, on_episode)
        report.save(path)
        typer.echo(summary(report))


def environment(cfg: "ProtocolCfg", workers: int, renderer: str, **changes):
    """The environment that the protocol asks for, in `workers` processes."""
    from rrf.envs import ENVS
    from rrf.envs.workers import WorkerVecEnv

    env_cfg = ENVS.get(cfg.env)(
        **{
            "num_envs": min(cfg.num_slots, len(cfg.initial_states())),
            "chunk_length": cfg.execute_steps,
            "action_repeat": cfg.action_repeat,
            "max_episode_steps": cfg.max_episode_steps,
            "image_size": cfg.image_size,
            "cameras": cfg.cameras,
            "renderer": renderer,
        }
        | changes
    )
    return WorkerVecEnv(env_cfg, workers) if workers > 0 else env_cfg.build()


def frames(cfg: "ProtocolCfg", episodes, size: int, renderer: str):
    """Pictures of recorded episodes, `size` pixels square, and how many there are per second."""
    from rrf.evaluation.videos import replay

    changes = {"num_envs": min(4, len(episodes)), "chunk_length": 1, "image_size": size}
    env = environment(cfg, 0, renderer, **changes)
    try:
        return replay(env, episodes, cfg.cameras[0]), env.fps
    finally:
        env.close()
