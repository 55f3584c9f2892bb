"""`rrf eval` and `rrf play`: a policy closed loop, as numbers or as a video."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rrf.evaluation.protocol import ProtocolCfg
    from rrf.evaluation.results import EpisodeResult, EvaluationReport

VIDEO_SIZE = 192
PolicyArgument = Annotated[
    str, typer.Argument(help="A checkpoint or run directory, NAME@champion, or models:/NAME@alias.")
]


@dataclasses.dataclass
class _Loaded:
    """A policy ready to act, and what is known about it."""

    policy: object
    digest: str
    label: str
    config: dict
    norm_stats: dict
    lineage: dict
    source: str  # digest of the code that evaluates it


def eval_(
    checkpoint: PolicyArgument,
    protocol: Annotated[Path, typer.Option(help="A file of configs/protocols/.")] = Path(
        "configs/protocols/metaworld-demo.yaml"
    ),
    out: Annotated[
        Path | None, typer.Option(help="Directory of the result; .rrf/evaluations/... by default.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes that simulate; 0 for none.")] = 2,
    slots: Annotated[
        int | None, typer.Option(help="Episodes side by side; the protocol's by default.")
    ] = None,
    num_videos: Annotated[int, typer.Option(help="Episodes shown in the report.")] = 12,
    extra_episodes: Annotated[
        int, typer.Option(help="More initial states per task than the protocol has.")
    ] = 0,
    baselines: Annotated[
        bool, typer.Option(help="Also run the random and the mean-action policy.")
    ] = False,
    renderer: Annotated[str, typer.Option(help="warp, egl, osmesa or auto.")] = "warp",
) -> None:
    """Evaluate a policy under a fixed protocol: evaluation.json, videos and report.html.

    An evaluation of the same checkpoint under the same protocol that is already at --out is reused.
    """
    from rrf import workspace
    from rrf.config import read_yaml
    from rrf.evaluation.protocol import ProtocolCfg
    from rrf.evaluation.report import FILE_NAME, write_report

    if not protocol.is_file() and not protocol.is_absolute():
        protocol = workspace.home() / protocol
    cfg = ProtocolCfg.from_dict(read_yaml(protocol)).extended(extra_episodes)
    cfg = cfg.replace(num_slots=slots or cfg.num_slots)
    loaded = _load(checkpoint)
    folder = out or _default_folder(loaded.digest, cfg)
    report = _finished(folder, loaded, cfg)
    is_shown = report is not None and (folder / FILE_NAME).is_file() and not baselines
    if report is None:
        known = _known(folder.parent, loaded, cfg)
        report = _evaluate(loaded, cfg, folder, workers, num_videos, renderer, known)
        report.save(folder / "evaluation.json")
        typer.echo(_summary(report))
    else:
        typer.echo(f"reused {_summary(report)}")
    if baselines:
        _run_baselines(loaded, cfg, folder, workers, renderer)
    if not is_shown:  # what is there may know more: the gate's verdict, training curves
        write_report(folder, loaded.lineage, config=loaded.config)
    typer.echo(f"report {folder / FILE_NAME}")


def play(
    checkpoint: PolicyArgument,
    task: Annotated[str, typer.Option(help="A task, e.g. drawer-open-v3.")],
    index: Annotated[int, typer.Option(help="Initial state, 0..49.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the initial states.")] = 4242,
    out: Annotated[Path, typer.Option(help="The video.")] = Path("episode.mp4"),
    size: Annotated[int, typer.Option(help="Side of the video in pixels.")] = VIDEO_SIZE,
    max_episode_steps: Annotated[int, typer.Option(help="Horizon in action steps.")] = 40,
    renderer: Annotated[str, typer.Option(help="warp, egl, osmesa or auto.")] = "warp",
) -> None:
    """Run one episode and render it to an mp4, larger than what the policy sees."""
    from rrf.envs.video import border, caption, write_video
    from rrf.evaluation.protocol import ProtocolCfg

    loaded = _load(checkpoint)
    cfg = ProtocolCfg(
        name="play",
        tasks=[task],
        seed=seed,
        first_index=index,
        episodes_per_task=1,
        max_episode_steps=max_episode_steps,
        execute_steps=loaded.config["policy"]["chunk_length"],
        image_size=loaded.config["policy"]["image_size"][0],
        cameras=loaded.config["policy"]["cameras"],
        used_seeds={},  # watching a policy where it was trained is fine
        num_slots=1,
    )
    report = _run(loaded, cfg, 0, renderer, None, ())
    episode = report.episodes[0]
    frames, fps = _frames(cfg, [episode], size, renderer)
    outcome = "solved" if episode.success else "not solved"
    shown = [
        caption(
            border(frame, episode.success if step == episode.steps else None),
            f"{task}  {index}  step {step}",
        )
        for step, frame in enumerate(frames[0])
    ]
    write_video(out, shown + shown[-1:] * fps, fps)
    typer.echo(f"{task}, initial state {index}: {outcome} after {episode.steps} steps; {out}")


def _load(reference: str) -> _Loaded:
    from rrf import atomic, workspace
    from rrf.runners import checkpoint
    from rrf.runners.deployable import deployable_digest
    from rrf.tracking.fetching import is_reference
    from rrf.tracking.lineage import source_digest

    if is_reference(reference):
        from rrf.tracking import registry

        version = registry.find(reference)
        label = f"{version.name} version {version.version}"
        path = workspace.state() / "fetched" / f"{version.name}-{version.version}"
        registry.fetch(f"{version.name}/{version.version}", path)
    else:
        path = checkpoint.find(reference)
        label = f"{path.resolve().parent.name}/{path.name}"
    manifest = atomic.check_manifest(path)
    return _Loaded(
        checkpoint.load_policy(path),
        deployable_digest(path),
        label,
        checkpoint.load_config(path),
        checkpoint.load_norm_stats(path),
        manifest.get("lineage") or {},
        source_digest(),
    )


def _evaluate(
    loaded: _Loaded,
    cfg: "ProtocolCfg",
    folder: Path,
    workers: int,
    num_videos: int,
    renderer: str,
    known: "list[EpisodeResult]",
) -> "EvaluationReport":
    from rrf.evaluation.videos import choose_for_video, save_videos

    with _display(f"evaluating {loaded.label}", len(cfg.initial_states())) as on_episode:
        report = _run(loaded, cfg, workers, renderer, on_episode, known)
    chosen = choose_for_video([e for e in report.episodes if e.actions is not None], num_videos)
    if chosen:
        frames, fps = _frames(cfg, chosen, VIDEO_SIZE, renderer)
        report.videos = save_videos(folder, chosen, frames, fps)
    return report


def _run(loaded, cfg, workers: int, renderer: str, on_episode, known) -> "EvaluationReport":
    from rrf.evaluation.evaluate import cpu_seconds, evaluate

    cpu = cpu_seconds()
    env = _environment(cfg, workers, renderer)
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


def _run_baselines(loaded: _Loaded, cfg, folder: Path, workers: int, renderer: str) -> None:
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
        with _display(f"evaluating {name}", len(cfg.initial_states())) as on_episode:
            report = _run(other, cfg, workers, renderer, on_episode, ())
        report.save(path)
        typer.echo(_summary(report))


def _environment(cfg: "ProtocolCfg", workers: int, renderer: str, **changes):
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


def _frames(cfg: "ProtocolCfg", episodes, size: int, renderer: str):
    from rrf.evaluation.videos import replay

    changes = {"num_envs": min(4, len(episodes)), "chunk_length": 1, "image_size": size}
    env = _environment(cfg, 0, renderer, **changes)
    try:
        return replay(env, episodes, cfg.cameras[0]), env.fps
    finally:
        env.close()


def _default_folder(digest: str, cfg: "ProtocolCfg") -> Path:
    from rrf import workspace

    return workspace.state() / "evaluations" / f"{digest[:12]}-{cfg.hash[:12]}"


def _finished(folder: Path, loaded: _Loaded, cfg: "ProtocolCfg") -> "EvaluationReport | None":
    """The evaluation at `folder` if it is the one asked for; one that cannot be read is not."""
    from rrf.evaluation.results import EvaluationReport

    try:
        report = EvaluationReport.load(folder)
    except (OSError, ValueError):
        return None  # `_known` says why
    found = (report.checkpoint_digest, report.protocol_hash, report.source_digest)
    return report if found == (loaded.digest, cfg.hash, loaded.source) else None


def _known(parent: Path, loaded: _Loaded, cfg: "ProtocolCfg") -> "list[EpisodeResult]":
    """Episodes of the same policy, by the same code and under the same conditions, in sibling
    evaluations, e.g. of an earlier look. One that this version cannot read is named and left out.
    """
    from rrf.config import first_error
    from rrf.evaluation.protocol import ProtocolCfg
    from rrf.evaluation.results import EvaluationReport

    wanted = (loaded.digest, cfg.replace(episodes_per_task=1).hash, loaded.source)
    found = {}
    for path in sorted(parent.glob("*/evaluation.json")):
        try:
            report = EvaluationReport.load(path)
            theirs = ProtocolCfg.from_dict(report.protocol).replace(episodes_per_task=1)
        except (OSError, ValueError) as error:
            problem = " ".join(first_error(error).split())
            typer.echo(f"not reusing the episodes of {path}: {problem}")
            continue
        if (report.checkpoint_digest, theirs.hash, report.source_digest) == wanted:
            found |= {e.initial_state: e for e in report.episodes}
    return list(found.values())


def _display(title: str, total: int):
    """A context manager that yields an `on_episode`: a live bar on a terminal, lines in a log."""
    import contextlib

    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    @contextlib.contextmanager
    def display():
        console = Console()
        counts = {"solved": 0, "done": 0}

        def count(episode) -> str:
            counts["solved"] += episode.success
            counts["done"] += 1
            return f"success {counts['solved'] / counts['done']:.1%}"

        if not console.is_terminal:
            every = max(1, total // 20)

            def line(episode, done: int, of: int) -> None:
                text = count(episode)
                if done % every == 0 or done == of:
                    typer.echo(f"episode {done}/{of} {text}")

            yield line
            return
        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[text]}"),
        )
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(title, total=total, text="")
            yield lambda episode, done, of: bar.update(task, completed=done, text=count(episode))

    return display()


def _summary(report: "EvaluationReport") -> str:
    timings = report.timings
    lines = [f"{report.policy}: success {report.overall}"]
    lines += [f"  {task}: {rate}" for task, rate in report.per_task.items()]
    lines.append(
        f"  {timings['wall_s']:.1f} s wall, {timings['cpu_s']:.1f} s CPU, "
        f"{timings['episodes_per_s']:.2f} episodes/s"
    )
    return "\n".join(lines)
