"""`rrf record`, and `rrf play --robot`: robots of lerobot."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rrf.cli.options import Imports, import_modules

if TYPE_CHECKING:
    from rrf.envs.robots.configs import RobotCfg
    from rrf.envs.robots.recording import Recording
    from rrf.envs.robots.session import Actor, Result

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
    from rrf.envs.robots.devices import make_teleop, teleop_act
    from rrf.envs.robots.recording import write_dataset_cfg
    from rrf.envs.robots.session import Actor

    if name is not None and "=" in name:
        name, overrides = None, [name, *(overrides or [])]
    import_modules(imports)
    cfg = _robot_cfg(robot, overrides or [], instruction)
    teleop = make_teleop(cfg)
    act = teleop_act(cfg, teleop)
    begin: Callable[[int], None] = getattr(teleop, "begin_episode", lambda index: None)
    with _connected(cfg, lambda features: Actor(act, begin, True), name or cfg.name) as session:
        recording = session.recording
        assert recording is not None
        done = recording.num_episodes
        typer.echo(f"{cfg.name}: {done} of {episodes} episodes are recorded, in {recording.out}")
        try:
            if done < episodes:
                teleop.connect()
                session.run(episodes - done, True)
        finally:
            if teleop.is_connected:
                teleop.disconnect()
            typer.echo(f"{recording.num_episodes} finished episodes are on disk")
        frames = recording.finish()
        if frames == 0:
            raise ValueError("no episode was recorded")
        typer.echo(f"{recording.num_episodes} episodes, {frames} frames: {recording.out}")
        if path := write_dataset_cfg(recording):
            typer.echo(f"wrote {path}")
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
) -> None:
    """Let a policy drive a robot; see the options of `rrf play`."""
    from rrf.cli.policy_reference import locate
    from rrf.envs.robots.session import Actor
    from rrf.evaluation.intervals import clopper_pearson
    from rrf.evaluation.vla.robot import RobotPolicy, check_recordings
    from rrf.runners.checkpoints.deployable import deployable_digest

    if is_dry and log:
        raise ValueError("--log keeps what a robot did, and --dry-run moves none; leave one out")
    cfg = _robot_cfg(robot, [], None)
    path, label = locate(checkpoint)
    deployable_digest(path)  # checks the files before one of them is read
    policies: list[RobotPolicy] = []

    def actor(features) -> Actor:
        check_recordings(path, cfg.schema(features.states, features.actions, features.cameras))
        policy = RobotPolicy(
            path,
            features.states,
            features.actions,
            list(features.cameras),
            cfg.instruction,
            execute,
            schedule or "receding",
        )
        policies.append(policy)
        policy.warm_up()
        return Actor(policy.act, policy.begin, False)

    typer.echo(f"loading {label} to drive {cfg.name}{': nothing is sent' if is_dry else ''}")
    try:
        with _connected(cfg, actor, log, is_dry) as session:
            results = session.run(episodes, False, seed * _FIRST_OF_SEED)
            if session.recording is not None:
                frames = session.recording.finish()
                where = session.recording.out
                typer.echo(f"{session.recording.num_episodes} episodes, {frames} frames: {where}")
    finally:
        for policy in policies:
            policy.close()
    solved = sum(result.success for result in results)
    if results:
        low, high = clopper_pearson(solved, len(results))
        typer.echo(
            f"{label} on {cfg.name}: success {solved / len(results):.3f} [{low:.3f}, {high:.3f}] "
            f"({solved}/{len(results)})"
        )


class _Running:
    """A connected robot and what drives it."""

    def __init__(self, run: Callable, recording: "Recording | None"):
        self._run, self.recording = run, recording

    def run(self, num: int, is_demonstration: bool, first: int | None = None) -> "list[Result]":
        """`rrf.envs.robots.session.Session.run`."""
        return self._run(num, is_demonstration, first)


@contextlib.contextmanager
def _connected(
    cfg: "RobotCfg", make_actor: "Callable[..., Actor]", name: str | None, is_dry: bool = False
) -> Iterator[_Running]:
    """A robot behind its guard; it is left safe, whatever happens."""
    from rrf import ctrl_c
    from rrf.envs.robots.devices import features_of, make_robot
    from rrf.envs.robots.guard import Guard
    from rrf.envs.robots.recording import EventLog, Recording
    from rrf.envs.robots.session import KEYS, Session, listening

    device = make_robot(cfg)
    features = features_of(device)
    schema = cfg.schema(features.states, features.actions, features.cameras)
    if features.left_out:
        typer.echo(f"left out, neither a number nor RGB: {', '.join(features.left_out)}")
    events = EventLog(cfg.name)

    def log(event: str, **facts) -> None:
        events(event, **facts)
        if event == "not_safe" or facts.get("why") in ("watchdog", "stop_key"):
            typer.echo(f"{event}: {facts['reason']}", err=True)

    actor = make_actor(features)
    with contextlib.ExitStack() as stack:
        stack.enter_context(ctrl_c.answered(_interrupted))
        recording = stack.enter_context(Recording(name, cfg, schema)) if name else None
        device.connect()
        guard = Guard(device, cfg, log, is_dry)
        stack.callback(guard.close)
        keys = stack.enter_context(listening())
        typer.echo(f"keys: {KEYS}" if keys.is_there else "no keyboard: nobody is asked anything")
        log("began", policy=not actor.is_person, recording=name, dry_run=is_dry)

        def run(num: int, is_demonstration: bool, first: int | None) -> "list[Result]":
            start = first or 0
            if name is not None:
                block = None if first is None else _FIRST_OF_SEED
                start = events.next_attempt(name, start, block)
            session = Session(
                cfg, device, guard, actor, keys, typer.echo, log, recording, is_demonstration
            )
            return session.run(num, start)

        yield _Running(run, recording)


def _interrupted(count: int) -> str:
    return "stopped by Ctrl-C: the robot is made safe; finished episodes are kept"


def _robot_cfg(name: str, overrides: Sequence[str], instruction: str | None) -> "RobotCfg":
    from rrf.config import parse_overrides
    from rrf.envs.robots.configs import load_robot_cfg

    changes = parse_overrides(overrides)
    if instruction is not None:
        changes["instruction"] = instruction
    return load_robot_cfg(name).changed(changes)
