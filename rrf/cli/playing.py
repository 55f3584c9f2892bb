"""`rrf play`: a policy at work, as a video, as numbers or in a window."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rrf.cli.evaluation import PolicyArgument
from rrf.cli.image_evaluation import VIDEO_SIZE
from rrf.cli.options import is_given

_VLA = ("task", "index", "size", "max_episode_steps", "renderer")
_CONTROL = ("num_envs", "viewer", "steps", "seconds", "imports")


def play(
    context: typer.Context,
    checkpoint: PolicyArgument,
    task: Annotated[
        str | None, typer.Option(help="VLA: the task, e.g. drawer-open-v3; it must be given.")
    ] = None,
    index: Annotated[int, typer.Option(help="VLA: initial state, 0..49.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the initial states.")] = 4242,
    video: Annotated[
        Path | None,
        typer.Option(
            "--video",
            "--out",
            help="Write a video, e.g. a.mp4; of a VLA policy episode.mp4 by default.",
            dir_okay=False,
        ),
    ] = None,
    size: Annotated[int, typer.Option(help="VLA: side of the video in pixels.")] = VIDEO_SIZE,
    max_episode_steps: Annotated[int, typer.Option(help="VLA: horizon in action steps.")] = 40,
    renderer: Annotated[str, typer.Option(help="VLA: warp, egl, osmesa or auto.")] = "warp",
    num_envs: Annotated[int, typer.Option(help="Control: environments side by side.", min=1)] = 4,
    viewer: Annotated[bool, typer.Option(help="Control: show MuJoCo's window.")] = False,
    steps: Annotated[
        int | None, typer.Option(help="Control: steps to play; 20 seconds by default.", min=1)
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Control: simulated time instead.")] = None,
    imports: Annotated[
        list[str] | None,
        typer.Option("--import", help="Control: a module that registers its task."),
    ] = None,
) -> None:
    """Watch a policy: one episode of a VLA policy as a video; a state-based policy, in the
    environment it was trained in, as numbers, as a video or in a window.
    """
    from rrf.cli import control_play, control_training
    from rrf.cli.policy_reference import locate
    from rrf.runners.deployable import is_control_checkpoint

    if video is not None and video.suffix.lower() != ".mp4":
        raise ValueError(f"--video {video}: the video is an MP4; give a name that ends in .mp4")
    path, label = locate(checkpoint)
    if is_control_checkpoint(path):
        _refuse(context, _VLA, f"{label} is a state-based policy, which takes", _CONTROL)
        control_training.import_modules(imports or [])
        control_play.play(path, label, num_envs, steps, seconds, video, viewer, seed)
        return
    _refuse(context, _CONTROL, f"{label} is a VLA policy, which takes", _VLA)
    if task is None:
        raise ValueError(f"{label} is a VLA policy; say what it shall do: --task drawer-open-v3")
    video = video or Path("episode.mp4")
    _play_episode(path, label, task, index, seed, video, size, max_episode_steps, renderer)


def _refuse(
    context: typer.Context, others: Sequence[str], policy_takes: str, own: Sequence[str]
) -> None:
    """Raise ValueError for an option of the other kind of policy, which would go unheard."""
    flags = {option.name: option.opts[0] for option in context.command.params}
    given = [name for name in others if is_given(context, name)]
    if given:
        wrong, right = (", ".join(flags[name] for name in names) for names in (given, own))
        raise ValueError(f"{wrong}: {policy_takes} --video, --seed, {right} instead")


def _play_episode(
    path: Path,
    label: str,
    task: str,
    index: int,
    seed: int,
    out: Path,
    size: int,
    max_episode_steps: int,
    renderer: str,
) -> None:
    from rrf.cli import image_evaluation
    from rrf.envs.video import border, caption, write_video
    from rrf.evaluation.protocol import ProtocolCfg

    loaded = image_evaluation.load(path, label)
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
    report = image_evaluation.run(loaded, cfg, 0, renderer)
    episode = report.episodes[0]
    frames, fps = image_evaluation.frames(cfg, [episode], size, renderer)
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
