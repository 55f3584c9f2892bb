"""`rrf hierarchy`, and `rrf play` of a combination: three systems on one clock, at the table of the
simulated G1.
"""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rrf.hierarchy.configs import HierarchyCfg


ServerOption = Annotated[
    str | None,
    typer.Option(
        help="Combination: ws://HOST:PORT of a server of it (rrf serve), which Systems 2 and 1 "
        "are asked at; System 0 and a real clock run here.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        help="File with the token of --server; by default the environment variable "
        "RRF_SERVE_TOKEN.",
        dir_okay=False,
    ),
]


def hierarchy(
    policy: Annotated[
        str,
        typer.Argument(
            help="A combination that `rrf models join --system0` wrote, NAME@champion, or a YAML "
            "file of a HierarchyCfg."
        ),
    ],
    task: Annotated[str, typer.Option(help="A task of g1-table.")] = "pick-red-cube",
    index: Annotated[int, typer.Option(help="Number of the initial state.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the initial states.")] = 4242,
    seconds: Annotated[float, typer.Option(help="How long to play.")] = 15.0,
    real_time: Annotated[
        bool,
        typer.Option(help="Three processes and a real clock, instead of a simulated one."),
    ] = False,
    video: Annotated[
        Path | None, typer.Option(help="Video file to write, with the three signals beside.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="File to which events are appended, as JSON lines.")
    ] = None,
    server: ServerOption = None,
    token_file: TokenFile = None,
) -> None:
    """Play three systems on one clock at the table of the simulated G1.

    Counts ticks that began late, questions that found the last one unanswered, and the age of the
    oldest features. A system that dies or is late beyond its limits ends in a safe stop.
    """
    from rrf.cli.policy_reference import locate
    from rrf.config import read_yaml
    from rrf.hierarchy.combination import hierarchy_of
    from rrf.hierarchy.configs import HierarchyCfg

    if policy.endswith((".yaml", ".yml")):
        cfg = HierarchyCfg.from_dict(read_yaml(Path(policy)))
        cfg = cfg.replace(
            **{
                name: system.replace(policy=str(locate(system.policy)[0]))
                for name in ("system2", "system1", "system0")
                for system in [getattr(cfg, name)]
            }
        )
    else:
        cfg = hierarchy_of(locate(policy)[0])
    play_on_clock(cfg, task, index, seed, seconds, real_time, video, log, server, token_file)


def play_on_clock(
    cfg: "HierarchyCfg",
    task: str,
    index: int,
    seed: int,
    seconds: float,
    real_time: bool,
    video: Path | None,
    log: Path | None,
    server: str | None,
    token_file: Path | None,
) -> None:
    """Play three systems at the table, and say what happened.

    Raises:
        ValueError: If they do not fit each other or the robot, or there is no such initial state.
    """
    from rrf.envs.humanoid import scene
    from rrf.envs.humanoid.configs import HumanoidCfg
    from rrf.envs.vec_env import InitialState
    from rrf.hierarchy.film import Film
    from rrf.hierarchy.play import JsonLog, check, play, play_simulated
    from rrf.hierarchy.served import Served
    from rrf.serving.access import read_token

    policy, start = check(cfg, scene.JOINTS), InitialState(task, seed, index)
    env_cfg = HumanoidCfg(
        num_envs=1,
        chunk_length=1,
        action_repeat=cfg.ticks("chunk_hz"),
        cameras=policy.cameras,
        image_size=policy.image_size[0],
        system0=str(Path(cfg.system0.policy).resolve()),
    )
    env_cfg.check_initial_state(start)
    with contextlib.ExitStack() as stack:
        served = None
        if server:
            served = Served(server, cfg, policy, read_token(token_file), task)
            stack.callback(served.close)
        env = env_cfg.build()
        stack.callback(env.close)
        env.reset([start], [0])
        robot, events = env.robot(0), stack.enter_context(JsonLog(log)) if log else None
        film = Film(env, robot, video)
        where = f", Systems 2 and 1 at {server}" if server else ""
        typer.echo(f"playing {task}, initial state {index}, for {seconds:g} s{where}")
        if server or real_time:
            played = play(cfg, robot, seconds, events, on_tick=film.look, served=served)
        else:
            played = play_simulated(cfg, robot, seconds, events, on_tick=film.look)
        film.close()
        solved = robot.solved_at
        if served:
            served.end(solved is not None, played.stopped.reason if played.stopped else "")
    ending = f"solved after {solved / cfg.system0.hz:.1f} s" if solved else "not solved"
    if played.stopped:
        ending += f"; stopped at {played.stopped.tick / cfg.system0.hz:.1f} s: "
        ending += played.stopped.reason
    typer.echo(
        f"{ending}; {played.ticks} ticks, {played.late_ticks} late, "
        f"{sum(played.late_requests.values())} late questions, oldest features "
        f"{played.oldest_features_s:.2f} s; a tick took {played.timing.p50_ms:.1f} ms, the 99th "
        f"percentile {played.timing.p99_ms:.1f} ms"
    )
    if video:
        typer.echo(f"video {video}")
