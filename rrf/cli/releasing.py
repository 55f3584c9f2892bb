"""`rrf models release`, `releases`: let a version act beside the champion, and see what happens."""

from typing import TYPE_CHECKING, Annotated

import typer

from rrf.cli.options import Imports, import_modules
from rrf.cli.result_file import with_result_file

if TYPE_CHECKING:
    from rrf.registry.releases import Status

_Model = Annotated[str, typer.Argument(help="Name of a registered model.")]


@with_result_file
def release(
    name: _Model,
    version: Annotated[
        str | None, typer.Argument(help="The version to release beside the champion.")
    ] = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Let it compute in all episodes and act in none.")
    ] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="End the release that runs; a canary is revoked.")
    ] = False,
    decide: Annotated[
        bool,
        typer.Option(
            "--decide", help="Do what the rules say about the stored outcomes, as servers do."
        ),
    ] = False,
    unrevoke: Annotated[
        bool, typer.Option("--unrevoke", help="Allow a version that is revoked, or one like it.")
    ] = False,
    reason: Annotated[
        str, typer.Option(help="Why it is stopped, or allowed again; kept in the ledger.")
    ] = "",
    imports: Imports = None,
) -> dict:
    """Let a version act in a share of the episodes of `rrf serve NAME`, until its outcomes say.

    What it may do by itself stands in configs/releases/NAME.yaml. The model's gate must pass it.
    """
    from rrf.registry import releases

    import_modules(imports)
    if sum((version is not None, stop, decide)) != 1:
        raise ValueError("give a version, --stop or --decide: rrf models release NAME VERSION")
    if unrevoke and not reason.strip():
        raise ValueError("--unrevoke needs a reason; give one with --reason '...'")
    if version is not None:
        entry = releases.begin(name, version, shadow, reason if unrevoke else None)
        typer.echo(f"{name} version {version}: {entry.reason}; see: rrf models releases {name}")
        return {"model": name, "version": version, "release": entry.hash}
    if stop:
        entry = releases.stop(name, reason)
        after = ", and the version is revoked" if (entry.conclusion or {})["revokes"] else ""
        typer.echo(f"the release of {name} version {entry.version} is over{after}")
        return {"model": name, "version": entry.version}
    from rrf.registry.served import ServedModel

    status = ServedModel(name).conclude()
    if status is None:
        raise ValueError(f"'{name}' had no release; begin one: rrf models release {name} VERSION")
    _show(status)
    return {"model": name, "version": status.release.version}


@with_result_file
def releases(name: _Model) -> dict:
    """Show the releases of a model: who acts, what the outcomes say, what it waits for.

    Evidence of releases that are over is read and judged again.
    """
    from rrf.registry.releases import statuses

    found = statuses(name)
    for status in found:
        _show(status)
    if not found:
        typer.echo(f"no release yet; begin one: rrf models release {name} VERSION")
    return {"model": name, "releases": [_outcome(status) for status in found]}


def _outcome(status: "Status") -> str:
    if status.conclusion:
        return str((status.conclusion.conclusion or {})["outcome"])
    return "superseded" if status.is_superseded else "running"


def _show(status: "Status") -> None:
    release, decision = status.release, status.decision
    what = "shadow" if release.facts.shadow else "canary"
    rules = release.facts.file or "the default rules"
    typer.echo(
        f"version {release.version}, {what} beside version {release.facts.champion} since "
        f"{release.entry.time} ({rules}): {_outcome(status)}"
    )
    if decision:
        for role, arm in (("canary", decision.canary), ("champion", decision.champion)):
            rate = f"{arm.solved} of {arm.ended} solved" if arm.ended else "no episode ended"
            typer.echo(f"  {role}: {rate}, {arm.running} running")
        typer.echo(f"  {decision.text}")
    if status.advice:
        typer.echo(f"  {status.advice}")
    if status.conclusion and (status.conclusion.conclusion or {})["outcome"] == "stopped":
        typer.echo(f"  stopped: {status.conclusion.reason}")
    for problem in status.stored.problems if status.stored else ():
        typer.secho(f"  warning: {problem}", fg="red")
