"""`rrf trial`: compare policies on a real robot, blinded, and let the model's gate judge."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rrf.cli.options import DeviceOption, Imports, check_device, import_modules
from rrf.cli.result_file import with_result_file

if TYPE_CHECKING:
    from rrf.evaluation.trials.configs import TrialCfg
    from rrf.evaluation.trials.plan import Arm, Plan
    from rrf.serving.player import Player
    from rrf.serving.standing import Standing
    from rrf.serving.trials import Session

app = typer.Typer(
    help="Compare policies on a real robot: planned before, blinded, scored on a tablet.",
    no_args_is_help=True,
)
_Study = Annotated[str, typer.Argument(help="Name of a study (rrf trial new).")]


@app.command()
@with_result_file
def new(
    file: Annotated[Path, typer.Argument(help="A file below configs/trials/ with the study.")],
    imports: Imports = None,
) -> dict:
    """Plan a study: write its plan, with the digests of its policies, to the ledger of its model.

    From here on the plan cannot be changed. Nothing has been played yet.
    """
    from rrf.evaluation.trials import plan as plans
    from rrf.registry import trials

    import_modules(imports)
    cfg = _study_in(file)
    folder = plans.folder_of(cfg.name)
    drawn = _planned(cfg)
    if (folder / plans.PLAN).exists():
        plan = plans.Plan.load(folder)
        if changed := plan.same_study(drawn[0]):
            raise ValueError(
                f"study '{cfg.name}' was planned already, with other {', '.join(changed)}; a plan "
                "is not changed after it was made: give the changed study another name"
            )
    else:
        plan = drawn[0]
        _asked(plan)
        plan.save(folder, drawn[1])
    where = f"{folder}"
    if plan.model:
        entry = trials.register(plan)
        where = f"entry {entry.index} of the ledger of {plan.model} and {folder}"
    arms = ", ".join(f"{arm.name} = {arm.reference}" for arm in plan.arms)
    typer.echo(
        f"planned {plan.name}: {arms}; at most {plan.num_trials} trials in "
        f"{plan.num_blocks} blocks, attempt {plan.attempt}"
    )
    typer.echo(f"plan {plan.digest[:12]} is in {where}; play it: rrf trial serve {plan.name}")
    return {"study": plan.name, "plan": plan.digest, "attempt": plan.attempt}


def _study_in(file: Path) -> "TrialCfg":
    from rrf import workspace
    from rrf.config import first_error, read_yaml
    from rrf.evaluation.trials.configs import TrialCfg

    path = workspace.find(file)
    try:
        return TrialCfg.from_dict(read_yaml(path))
    except ValueError as error:
        raise ValueError(f"{path}: {first_error(error)}") from error


def _planned(cfg: "TrialCfg") -> "tuple[Plan, str]":
    """The plan of a study as it would be made now, and the secret of its order."""
    import datetime

    from rrf import workspace
    from rrf.evaluation.gates.gate import load_gate
    from rrf.evaluation.trials import order
    from rrf.evaluation.trials.plan import Plan
    from rrf.registry import trials

    known = workspace.configs("gates")
    gate = load_gate(known.get(cfg.gate, Path(cfg.gate)))
    if gate.of_trials is None:
        raise ValueError(
            f"gate '{gate.name}' has protocol '{gate.protocol.name}', which is played in simulation"
            ", and names no `trial`; a study needs a gate whose protocol has type: "
            "rrf.evaluation.trials.configs:TrialProtocolCfg"
        )
    gate = gate.of_trials
    arms = [_arm(name, reference, cfg.model) for name, reference in cfg.arms.items()]
    attempt, best = 1, ""
    if cfg.model:
        attempt, best = trials.attempt(cfg.model, gate.hash, [arm.digest for arm in arms])
    arms = _with_roles(arms, best)
    secret = order.new_secret()
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    commitment = order.commitment(secret)
    facts = (cfg.name, cfg.model, cfg.gate, gate.to_dict(), tuple(arms), attempt, cfg.notes)
    return Plan(*facts, commitment, created), secret


def _arm(name: str, reference: str, model: str) -> "Arm":
    from rrf.cli.policy_reference import locate_version
    from rrf.evaluation.trials.plan import Arm
    from rrf.runners.checkpoints.deployable import deployable_digest

    path, _, version = locate_version(reference)
    number = version[1] if version and version[0] == model else ""
    pinned = f"{version[0]}/{version[1]}" if version else str(path.resolve())
    if model and not number:
        raise ValueError(
            f"arm '{name}' is {reference}, which is no version of '{model}', so its results could "
            f"not be stored there; register it: rrf models register CHECKPOINT {model}"
        )
    return Arm(name, pinned, deployable_digest(path), number)


def _with_roles(arms: "list[Arm]", best: str) -> "list[Arm]":
    """The first arm, the best champion so far, then the candidates. A single arm is a candidate."""
    import dataclasses

    if len(arms) == 1:
        return arms
    first = dataclasses.replace(arms[0], role="first")
    others = [
        dataclasses.replace(arm, role="best" if arm.digest == best else "candidate")
        for arm in arms[1:]
    ]
    return [first, *sorted(others, key=lambda arm: arm.role == "candidate")]


@app.command()
def serve(
    study: _Study,
    host: Annotated[
        str, typer.Option(help="Address of the operator's page and of the policy server.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port of the operator's page; 0 for any free one.")
    ] = 8090,
    policy_port: Annotated[
        int, typer.Option(help="Port of the policy server for the robot; 0 for any free one.")
    ] = 8000,
    page_only: Annotated[
        bool,
        typer.Option(
            "--page-only",
            help="Serve no policies: somebody else starts the right one, who then is not blind.",
        ),
    ] = False,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A further name or address that tablets reach this machine by."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the robot's token; by default $RRF_SERVE_TOKEN.", dir_okay=False
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve policies to other machines without a token.")
    ] = False,
    certificate: Annotated[
        str | None, typer.Option(help="Certificate in PEM form, for TLS of both.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Private key of the certificate.")] = None,
    instruction: Annotated[
        str | None, typer.Option(help="The instruction of requests that bring none.")
    ] = None,
    device: DeviceOption = "cpu",
    imports: Imports = None,
) -> None:
    """Play a study: the operator's page, and the policies for the robot behind one address.

    Stop it at any time, also by kill -9; it goes on where it was.
    """
    from rrf import workspace
    from rrf.evaluation.trials import plan as plans
    from rrf.evaluation.trials.record import hold
    from rrf.registry import trials
    from rrf.serving.access import check_exposure, check_place, read_token
    from rrf.serving.configs import ServingCfg
    from rrf.serving.trial_page import Page, PageServer, token_in
    from rrf.serving.trials import Session

    cfg = ServingCfg(
        host=host, port=policy_port, insecure=insecure, certificate=certificate, key=key,
        instruction=instruction,
    )  # fmt: skip
    robot_token = read_token(token_file)
    if not page_only:
        check_exposure(cfg, robot_token)
        check_place(cfg)
    check_device(device)
    import_modules(imports)
    folder = plans.folder_of(study)
    with hold(folder) as record:
        trials.check_planned(record.plan)
        session = Session(record, serves=not page_only)
        if session.is_over:
            raise ValueError(f"study '{study}' is over; see: rrf trial report {study}")
        session.asked = _asked(record.plan)
        players = {} if page_only else _players(record.plan, cfg, device)
        token = token_in(workspace.state() / "trials" / f"{study}.token")
        tls = (certificate, key) if certificate and key else None
        with PageServer(Page(session, token), host, port, name or [], tls) as page:
            typer.echo(f"operator's page: {page.url}#{token}")
            if cfg.is_public and not tls:
                typer.echo(
                    "warning: without TLS, everybody on the way can read the token; give "
                    "--certificate and --key",
                    err=True,
                )
            if page_only:
                _wait(session)
            else:
                _serve_policies(players, session, cfg, robot_token, study)
        is_over = session.is_over
    then = f"the study is over: rrf trial report {study}"
    typer.echo(then if is_over else f"stopped; go on with: rrf trial serve {study}")


def _players(plan: "Plan", cfg: object, device: str) -> "dict[str, Player]":
    """The policies of the arms, loaded and warmed up."""
    from rrf.cli.policy_reference import locate_version
    from rrf.serving.model import loaded

    players = {}
    for arm in plan.arms:
        path, label, _ = locate_version(arm.reference)
        player = loaded(path, label, cfg, device)  # type: ignore[arg-type]
        if player.digest != arm.digest:
            raise ValueError(
                f"arm '{arm.name}' ({arm.reference}) is checkpoint {player.digest[:12]}, but the "
                f"plan says {arm.digest[:12]}; bring the planned one back"
            )
        player.drift = None  # its numbers would tell the arms apart
        players[arm.name] = player
    return players


def _serve_policies(
    players: "dict[str, Player]", session: "Session", cfg, token: str | None, study: str
) -> None:
    import asyncio

    from rrf.serving.book import open_book
    from rrf.serving.server import stop_on_signals
    from rrf.serving.trials import serve_arms

    async def run() -> None:
        stop = asyncio.Event()
        stop_on_signals(stop)
        with open_book(f"trial-{study}") as book:
            await serve_arms(
                players, session, cfg, token, book, stop,
                lambda url, _: typer.echo(f"policies for the robot: {url}"),
            )  # fmt: skip

    asyncio.run(run())


def _asked(plan: "Plan") -> "Standing":
    """Whether the arms of a study may act, as the registry says now. Raises ValueError if not."""
    import asyncio

    from rrf.registry import trials
    from rrf.serving.configs import ServingCfg
    from rrf.serving.standing import Standing

    every_s = ServingCfg().registry_s
    standing = Standing(plan.name, "", every_s, lambda *_: trials.refusal(plan))
    asyncio.run(standing.look())
    if standing.revoked:
        raise ValueError(standing.revoked)
    return standing


def _wait(session: "Session") -> None:
    """Until SIGTERM or Ctrl-C."""
    import asyncio

    from rrf.serving.server import stop_on_signals

    async def run() -> None:
        stop = asyncio.Event()
        stop_on_signals(stop)
        assert session.asked
        watch = asyncio.create_task(session.asked.watch())
        await stop.wait()
        watch.cancel()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())


@app.command()
@with_result_file
def report(
    study: _Study,
    early: Annotated[
        bool,
        typer.Option("--early", help="Show results before the study is over; that is recorded."),
    ] = False,
) -> dict:
    """Show what a study says: success by arm and condition, partial credit, the gate's verdict."""
    from rrf.evaluation.trials.report import text

    record, folder = _read(study, early)
    typer.echo(text(record), nl=False)
    from rrf.registry import trials

    folders = trials.write(record, record.plan.secret(folder), folder / "results")
    for place in folders.values():
        typer.echo(f"report {place / 'report.html'}")
    return {"study": study, "evaluations": {arm: str(place) for arm, place in folders.items()}}


@app.command()
@with_result_file
def submit(
    study: _Study,
    early: Annotated[
        bool,
        typer.Option("--early", help="Before the study is over; its gate may say hold."),
    ] = False,
) -> dict:
    """Store a study's results with the versions of its model, where a promotion looks for them."""
    from rrf.evaluation.trials.report import text
    from rrf.evaluation.trials.results import standing
    from rrf.registry import trials

    record, folder = _read(study, early)
    plan = record.plan
    if not plan.model:
        raise ValueError(f"study '{study}' has no model, so there is no ledger for its results")
    typer.echo(text(record), nl=False)
    verdicts = standing(record).verdicts
    trials.submit(record, plan.secret(folder), folder / "results")
    typer.echo(f"the results are with the versions of {plan.model}")
    for arm in plan.candidates:
        if verdicts[arm.name].passed:
            typer.echo(f"to promote {arm.name}: rrf models promote {plan.model} {arm.version}")
    return {"study": study, "model": plan.model}


def _read(study: str, early: bool):
    """The record of a study whose results may be seen, and its folder."""
    from rrf.evaluation.trials import plan as plans
    from rrf.evaluation.trials.record import Record, hold
    from rrf.evaluation.trials.results import standing

    folder = plans.folder_of(study)
    record = Record(folder)
    if standing(record).is_over:
        return record, folder
    done = f"{len(record.state.trials)} of at most {record.plan.num_trials} trials"
    if not early:
        raise ValueError(
            f"study '{study}' goes on ({done}); its results are not shown, so that nobody expects "
            f"them. Go on: rrf trial serve {study}; or look, which is recorded: --early"
        )
    with hold(folder) as held:
        held.look()
        return held, folder


@app.command("list")
def list_() -> None:
    """List the studies of this workspace."""
    from rrf.evaluation.trials import plan as plans
    from rrf.evaluation.trials.record import Record
    from rrf.evaluation.trials.results import standing

    for name in plans.names():
        record = Record(plans.folder_of(name))
        state = "over" if standing(record).is_over else "goes on"
        typer.echo(
            f"{name}: {state}, {len(record.state.trials)} of at most {record.plan.num_trials} "
            f"trials, planned {record.plan.created}"
        )


_Format = Annotated[
    str, typer.Option("--format", help="fieldtrial, robostats, vla-eval or lerobot.")
]
_ArmOption = Annotated[
    str, typer.Option(help="The policy, for formats with one in a file that they do not name.")
]


@app.command("import")
@with_result_file
def import_(
    file: Annotated[Path, typer.Argument(help="A result of another project.", exists=True)],
    format: _Format,
    arm: _ArmOption = "",
    out: Annotated[
        Path | None, typer.Option(help="Write the trials as a table, which export reads.")
    ] = None,
) -> dict:
    """Show trials of another project: success by arm and condition, and every pair of arms.

    They promote nobody, because nobody here knows what was planned before them.
    """
    from rrf.evaluation.trials.outcomes import text

    table = _exchange(format).read(file, arm)
    typer.echo(text(table), nl=False)
    if out:
        table.save(out)
        typer.echo(f"table {out}")
    return {"trials": len(table.outcomes), "arms": table.arms()}


@app.command()
def export(
    source: Annotated[str, typer.Argument(help="A study that is over, or a table of import.")],
    file: Annotated[Path, typer.Argument(help="The file to write.")],
    format: _Format,
    arm: _ArmOption = "",
    valid_only: Annotated[
        bool, typer.Option("--valid-only", help="Leave out invalid trials.")
    ] = False,
) -> None:
    """Write trials in the format of another project."""
    import dataclasses

    from rrf.cli.options import check_output
    from rrf.evaluation.trials.outcomes import Table, table_of

    exchange = _exchange(format)
    check_output(file)
    if Path(source).is_file():
        table = Table.load(Path(source))
    else:
        table = table_of(_read(source, early=False)[0])
    if valid_only:
        valid = tuple(outcome for outcome in table.outcomes if not outcome.invalid)
        table = dataclasses.replace(table, outcomes=valid)
    exchange.write(table, file, arm)
    typer.echo(f"wrote {file} ({format})")


def _exchange(name: str):
    from rrf.config import did_you_mean
    from rrf.evaluation.trials.foreign import FORMATS

    if name not in FORMATS:
        near = did_you_mean(name, FORMATS)
        raise ValueError(f"--format {name}: there is no such format{near}; {', '.join(FORMATS)}")
    return FORMATS[name]
