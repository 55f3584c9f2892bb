"""`rrf record`, and `rrf play --robot`: robots of lerobot."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rrf.cli.data_display import shown
from rrf.cli.options import Imports, import_modules

if TYPE_CHECKING:
    from lerobot.robots import Robot
    from lerobot.teleoperators import Teleoperator

    from rrf.client import EpisodeLogger
    from rrf.data.schema import Schema
    from rrf.envs.robots.configs import RobotCfg
    from rrf.envs.robots.recording import Recording
    from rrf.envs.robots.session import Actor, Result, Witness

_FIRST_OF_SEED = 1000  # episodes of a simulated robot that belong to a seed

RobotOption = Annotated[
    str | None,
    typer.Option(help="A robot: NAME of a configs/robots/NAME.yaml, or the path of such a file."),
]


def record(
    robot: Annotated[
        str, typer.Option(help="The robot: NAME of a configs/robots/NAME.yaml, or a path.")
    ],
    name: Annotated[
        str | None, typer.Argument(help="Name of the dataset; by default the robot's.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Dotted overrides of the robot's config: robot.port=/dev/ttyACM1"),
    ] = None,
    episodes: Annotated[
        int, typer.Option(help="Episodes that the recording has in the end.", min=0)
    ] = 50,
    instruction: Annotated[
        str | None, typer.Option(help="What the robot is told, instead of the config's.")
    ] = None,
    imports: Imports = None,
) -> None:
    """Record episodes of a robot that a person moves by a teleoperator of lerobot.

    Each episode is on disk as soon as it is finished; the same command goes on where the recording
    ended. In the end there is a LeRobot dataset in datasets/raw/NAME, and a config for
    `rrf data convert NAME`.
    """
    from rrf.envs.robots.devices import make_robot
    from rrf.envs.robots.recording import Recording, write_dataset_cfg

    if name is not None and "=" in name:
        name, overrides = None, [name, *(overrides or [])]
    import_modules(imports)
    cfg = _robot_cfg(robot, overrides or [], instruction)
    leader = cfg.teleop["type"] if cfg.teleop else "no teleoperator"
    typer.echo(f"recording {cfg.name} ({cfg.robot['type']}, {leader}) at {cfg.fps:g} steps/s")
    device, (teleop, person) = make_robot(cfg), _person(cfg)
    with Recording(name or cfg.name, cfg, _schema(cfg, device)) as recording:
        done = recording.num_episodes
        typer.echo(
            f"{cfg.name}: {done} of {episodes} episodes are recorded, in {shown(recording.out)}"
        )
        try:
            if done < episodes:
                with _connected(teleop), _session(cfg, device, person, recording) as run:
                    run(episodes - done)
        finally:
            typer.echo(f"{recording.num_episodes} finished episodes are on disk")
        frames = recording.finish()
        if frames == 0:
            raise ValueError("no episode was recorded")
        typer.echo(f"{recording.num_episodes} episodes, {frames} frames: {shown(recording.out)}")
        if path := write_dataset_cfg(recording):
            typer.echo(f"wrote {shown(path)}")
        typer.echo(f"next: rrf data convert {recording.name}; rrf data validate {recording.name}")


def play_on_robot(
    robot: str,
    checkpoint: str,
    episodes: int,
    seed: int,
    is_dry: bool,
    log: str | None,
    execute: int | None,
    schedule: str | None,
    allow_withdrawn: bool,
    log_to: Path | None = None,
    has_operator: bool = False,
) -> None:
    """Let a policy drive a robot; see the options of `rrf play`."""
    from rrf.cli.policy_reference import locate_version
    from rrf.client import EpisodeLogger
    from rrf.envs.robots.devices import features_of, make_robot
    from rrf.envs.robots.recording import Recording, write_dataset_cfg
    from rrf.envs.robots.session import Actor
    from rrf.evaluation.intervals import clopper_pearson
    from rrf.evaluation.vla.robot import RobotPolicy, check_recordings
    from rrf.registry import origin
    from rrf.runners.checkpoints.deployable import deployable_digest

    if is_dry and (log or log_to):
        option = "--log" if log else "--log-to"
        raise ValueError(
            f"{option} keeps what a robot did, and --dry-run moves none; leave one out"
        )
    if has_operator and (log or is_dry):
        option = "--log keeps nothing of who acted" if log else "--dry-run moves no robot"
        raise ValueError(f"{option}, so --operator goes with --log-to FOLDER, or without")
    cfg = _robot_cfg(robot, [], None)
    path, label, version = locate_version(checkpoint)
    digest = deployable_digest(path)  # checks the files before one of them is read
    origin.check(path, allow_withdrawn, lambda line: typer.echo(line, err=True))
    typer.echo(f"loading {label} to drive {cfg.name}{': nothing is sent' if is_dry else ''}")
    device = make_robot(cfg)
    teleop, operator = _person(cfg) if has_operator else (None, None)
    features, schema = features_of(device), _schema(cfg, device)
    check_recordings(path, schema)
    policy = RobotPolicy(
        path,
        features.states,
        features.actions,
        list(features.cameras),
        cfg.instruction,
        execute,
        schedule or "receding",
    )
    with contextlib.ExitStack() as stack:
        stack.callback(policy.close)
        policy.warm_up()
        recording = stack.enter_context(Recording(log, cfg, schema)) if log else None
        actor = Actor(policy.act, policy.begin, is_person=False)
        witness = None
        if log_to is not None:
            logger = stack.enter_context(EpisodeLogger(log_to, cfg.name))
            witness = _witness(logger, cfg, schema, version or (label, ""), digest)
        if teleop is not None:
            stack.enter_context(_connected(teleop))
        with _session(cfg, device, actor, recording, is_dry, witness, operator) as run:
            results = run(episodes, seed * _FIRST_OF_SEED)
        if recording is not None:
            frames, where = recording.finish(), shown(recording.out)
            typer.echo(f"{recording.num_episodes} episodes, {frames} frames: {where}")
            if written := write_dataset_cfg(recording):
                typer.echo(f"wrote {shown(written)}")
    if is_dry:
        stopped = sum(result.how.startswith("stopped") for result in results)
        typer.echo(
            f"dry run of {label}: {len(results)} episodes, {stopped} would have been stopped; "
            "nothing was sent"
        )
    elif results:
        solved = sum(result.success and not result.operator_steps for result in results)
        helped = sum(result.success and result.operator_steps > 0 for result in results)
        low, high = clopper_pearson(solved, len(results))
        typer.echo(
            f"{label} on {cfg.name}: success {solved / len(results):.3f} [{low:.3f}, {high:.3f}] "
            f"({solved}/{len(results)})"
            + (f"; {helped} more were solved with the operator" if helped else "")
        )


def _person(cfg: "RobotCfg") -> "tuple[Teleoperator, Actor]":
    """The robot's teleoperator, and the person who holds it."""
    from rrf.envs.robots.devices import make_teleop, teleop_act
    from rrf.envs.robots.session import Actor

    teleop = make_teleop(cfg)
    begin: Callable[[int], None] = getattr(teleop, "begin_episode", lambda index: None)
    return teleop, Actor(teleop_act(cfg, teleop), begin, is_person=True)


@contextlib.contextmanager
def _connected(teleop: "Teleoperator") -> "Iterator[None]":
    """Before the robot is connected, which does not wait for it then."""
    teleop.connect()
    try:
        yield
    finally:
        teleop.disconnect()


def _witness(
    logger: "EpisodeLogger",
    cfg: "RobotCfg",
    schema: "Schema",
    version: tuple[str, str],
    digest: str,
) -> "Witness":
    """What logs the episodes of a policy."""
    from rrf.evaluation.vla.robot_log import RobotLog

    policy = {"name": version[0], "version": version[1], "digest": digest}
    return RobotLog(logger, schema, cfg.instruction, policy)


@contextlib.contextmanager
def _session(
    cfg: "RobotCfg",
    device: "Robot",
    actor: "Actor",
    recording: "Recording | None",
    is_dry: bool = False,
    witness: "Witness | None" = None,
    operator: "Actor | None" = None,
) -> "Iterator[Callable[..., list[Result]]]":
    """Connect a robot, and yield what runs episodes on it: run(number, first of its seed). The
    robot is left safe, whatever happens."""
    from rrf import ctrl_c
    from rrf.envs.robots.guard import Guard
    from rrf.envs.robots.recording import EventLog
    from rrf.envs.robots.session import KEYS, OPERATOR_KEY, Session, listening

    events, name = EventLog(cfg.name), recording.name if recording is not None else None

    def log(event: str, **facts) -> None:
        events(event, **facts)
        if event == "not_safe" or facts.get("why") in ("watchdog", "stop_key"):
            typer.echo(f"{event}: {facts['reason']}", err=True)

    with contextlib.ExitStack() as stack:
        stack.enter_context(ctrl_c.answered(_interrupted))
        guard = Guard(device, cfg, log, is_dry)
        stack.callback(guard.close)
        device.connect()
        keys = stack.enter_context(listening())
        if operator is not None and not keys.is_there:
            raise ValueError("--operator needs a keyboard, to say who acts; this terminal has none")
        help = f"{KEYS}, {OPERATOR_KEY}" if operator is not None else KEYS
        typer.echo(f"keys: {help}" if keys.is_there else "no keyboard: nobody is asked anything")
        log("began", policy=not actor.is_person, recording=name, dry_run=is_dry)

        def run(number: int, first: int | None = None) -> "list[Result]":
            start = first or 0
            if name is not None:
                of_seed = None if first is None else _FIRST_OF_SEED
                start = events.next_attempt(name, start, of_seed)
            session = Session(
                cfg,
                device,
                guard,
                actor,
                keys,
                typer.echo,
                log,
                recording,
                actor.is_person,
                witness,
                operator,
            )
            return session.run(number, start)

        yield run


def _schema(cfg: "RobotCfg", device: "Robot") -> "Schema":
    from rrf.envs.robots.devices import features_of

    features = features_of(device)
    if features.left_out:
        typer.echo(f"left out, neither a number nor RGB: {', '.join(features.left_out)}")
    return cfg.schema(features.states, features.actions, features.cameras)


def _interrupted(count: int) -> str:
    return "stopped by Ctrl-C: the robot is made safe; finished episodes are kept"


def _robot_cfg(name: str, overrides: Sequence[str], instruction: str | None) -> "RobotCfg":
    from rrf.config import parse_overrides
    from rrf.envs.robots.configs import load_robot_cfg

    changes = parse_overrides(overrides)
    if instruction is not None:
        changes["instruction"] = instruction
    return load_robot_cfg(name).changed(changes)
