"""`rrf play`: show a policy at work, as a video, as numbers or in a window, or on a robot."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rrf.cli.hierarchy import ServerOption, TokenFile
from rrf.cli.options import Imports, PolicyArgument, flags
from rrf.cli.robots import RobotOption

if TYPE_CHECKING:
    from rrf.evaluation.candidate import Candidate

_NOT_OF_A_KIND = ("checkpoint", "video", "seed", "imports", "result_file")
_OF_A_COMBINATION = ("task", "index", "seconds", "real_time", "log", "server", "token_file")
_ON_A_ROBOT = (
    *(
        "robot",
        "episodes",
        "dry_run",
        "log",
        "log_to",
        "operator",
        "execute",
        "schedule",
        "allow_withdrawn",
    ),
)


def play(
    context: typer.Context,
    checkpoint: PolicyArgument,
    task: Annotated[
        str | None,
        typer.Option(help="VLA, required without --protocol: the task, e.g. drawer-open-v3."),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(help="VLA: the simulator, if the policy was trained on recordings only."),
    ] = None,
    protocol: Annotated[
        Path | None,
        typer.Option(
            help="VLA: play as this protocol evaluates, e.g. with its rule of execution; without "
            "it, whole chunks are executed.",
            dir_okay=False,
            exists=True,
        ),
    ] = None,
    index: Annotated[
        int | None, typer.Option(help="VLA: index of the initial state; by default 0.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the initial states.")] = 4242,
    video: Annotated[
        Path | None,
        typer.Option(
            "--video",
            "--out",
            help="Video file to write, e.g. a.mp4; for a VLA policy by default episode.mp4.",
            dir_okay=False,
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(help="VLA: height and width of the video in pixels; by default 192."),
    ] = None,
    max_episode_steps: Annotated[
        int | None,
        typer.Option(help="VLA: horizon in action steps; by default the protocol's, or 40."),
    ] = None,
    renderer: Annotated[
        str | None, typer.Option(help="VLA: renderer: warp (the default), egl, osmesa or auto.")
    ] = None,
    num_envs: Annotated[
        int | None,
        typer.Option(help="Control: number of environments side by side; by default 4.", min=1),
    ] = None,
    viewer: Annotated[
        bool | None, typer.Option("--viewer", help="Control: show MuJoCo's window.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Control: number of steps; by default 20 simulated seconds.", min=1),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="Control, or combination: seconds, instead of --steps; by default 15."),
    ] = None,
    robot: RobotOption = None,
    episodes: Annotated[
        int | None, typer.Option(help="Robot: number of episodes; by default 1.", min=1)
    ] = None,
    dry_run: Annotated[
        bool | None,
        typer.Option("--dry-run", help="Robot: observe and choose actions, but send none."),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(
            help="Robot: keep the episodes as recordings of this name. Combination: a file to "
            "which events are appended, as JSON lines."
        ),
    ] = None,
    log_to: Annotated[
        Path | None,
        typer.Option(help="Robot: log the episodes there, for `rrf logs upload`.", file_okay=False),
    ] = None,
    real_time: Annotated[
        bool | None,
        typer.Option(
            "--real-time",
            help="Combination: three processes and a real clock, instead of a simulated one.",
        ),
    ] = None,
    server: ServerOption = None,
    token_file: TokenFile = None,
    operator: Annotated[
        bool | None,
        typer.Option(
            "--operator", help="Robot: the key o lets a person at its teleoperator take over."
        ),
    ] = None,
    execute: Annotated[
        int | None,
        typer.Option(
            help="Robot: actions of a chunk that are executed before the next one.", min=1
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help="Robot: receding (the default), ensemble or real-time chunking."),
    ] = None,
    allow_withdrawn: Annotated[
        bool | None,
        typer.Option(
            "--allow-withdrawn", help="Robot: play a version that was withdrawn or rolled back."
        ),
    ] = None,
    imports: Imports = None,
) -> None:
    """Watch a policy at work.

    A VLA policy plays one episode, which is written as a video. A state-based policy plays in the
    environment it was trained in, and is shown as numbers, as a video or in a window. A combination
    of three systems runs them on one clock, each at its rate, and films their signals; with
    --protocol it is played like any VLA policy. With --robot, a VLA policy drives a robot of
    lerobot within the limits of its config.
    """
    from rrf.cli.options import check_output, check_renderer, import_modules
    from rrf.cli.policy_reference import locate
    from rrf.evaluation.candidate import candidate_at
    from rrf.evaluation.protocols.files import PROTOCOLS
    from rrf.runners.checkpoints.deployable import SYSTEM0, described

    if robot is not None:
        _play_on_robot(context, robot, checkpoint, seed, imports)
        return
    if video is not None and video.suffix.lower() != ".mp4":
        raise ValueError(
            f"--video {video}: videos are written as MP4; give a name that ends in .mp4"
        )
    check_renderer(renderer)
    import_modules(imports)
    candidate = candidate_at(*locate(checkpoint))
    owner = PROTOCOLS.get(candidate.kind)
    names = [p.name for p in context.command.params if p.name not in (None, *_NOT_OF_A_KIND)]
    given = {n: context.params[n] for n in names if n and context.params.get(n) is not None}
    if (candidate.checkpoint / SYSTEM0).is_dir() and protocol is None:
        _play_combination(context, candidate, video, seed, given)
        return
    if real_time or server:
        alone = "--server" if server else "--real-time"
        raise ValueError(f"{alone}: only of a combination, and {candidate.label} is none")
    if lost := [name for name in given if name in _ON_A_ROBOT]:
        raise ValueError(f"{flags(context, lost)}: only with --robot NAME")
    if others := [name for name in given if name not in owner.play_options]:
        raise ValueError(
            f"{flags(context, others)}: {candidate.label} is {described(candidate.kind)}, which "
            f"takes --video, --seed, {flags(context, owner.play_options)} instead"
        )
    if viewer and not video:
        from rrf.envs.rendering.viewer import require_display

        require_display()
    out = video or owner.default_video
    if out:
        check_output(Path(out))
    typer.echo(f"playing {candidate.label} on cpu: {f'writes {out}' if out else 'no --video'}")
    owner.runs_it().play(candidate, video, seed, {**owner.play_options, **given}, typer.echo)


def _play_combination(
    context: typer.Context,
    candidate: "Candidate",
    video: Path | None,
    seed: int,
    given: Mapping[str, Any],
) -> None:
    from rrf.cli.hierarchy import play_on_clock
    from rrf.cli.options import check_output
    from rrf.hierarchy.combination import hierarchy_of

    if others := [name for name in given if name not in _OF_A_COMBINATION]:
        raise ValueError(
            f"{flags(context, others)}: {candidate.label} is a combination of three systems, which "
            f"takes --video, --seed, {flags(context, _OF_A_COMBINATION)}; with --protocol it is "
            "played as it is evaluated"
        )
    if "task" not in given:
        raise ValueError(f"{candidate.label} is a combination of three systems; name its --task")
    real_time, log = bool(given.get("real_time") or given.get("server")), given.get("log")
    out = video or (None if real_time else Path("episode.mp4"))  # to film takes time of the clock
    for file in filter(None, (out, log)):
        check_output(Path(file))
    play_on_clock(
        hierarchy_of(candidate.checkpoint),
        given["task"],
        given.get("index", 0),
        seed,
        given.get("seconds", 15.0),
        real_time,
        out,
        Path(log) if log else None,
        given.get("server"),
        given.get("token_file"),
    )


def _play_on_robot(
    context: typer.Context, robot: str, checkpoint: str, seed: int, imports: list[str] | None
) -> None:
    from rrf.cli.options import import_modules
    from rrf.cli.robots import play_on_robot

    names = [p.name for p in context.command.params if p.name and p.name not in _ON_A_ROBOT]
    wrong = [
        name
        for name in names
        if name not in _NOT_OF_A_KIND or name == "video"
        if context.params.get(name) is not None
    ]
    if wrong:
        raise ValueError(f"{flags(context, wrong)}: not with --robot")
    import_modules(imports)
    asked = context.params
    play_on_robot(
        robot,
        checkpoint,
        asked["episodes"] or 1,
        seed,
        bool(asked["dry_run"]),
        asked["log"],
        asked["execute"],
        asked["schedule"],
        bool(asked["allow_withdrawn"]),
        asked["log_to"],
        bool(asked["operator"]),
    )
