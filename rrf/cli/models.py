"""`rrf models`: show and change the model registry."""

from pathlib import Path
from typing import Annotated

import typer

from rrf.cli import model_documents, model_lineage, parts, published, releasing
from rrf.cli.options import Imports, import_modules
from rrf.cli.result_file import with_result_file
from rrf.cli.tables import print_table, success
from rrf.lineage import Lineage

app = typer.Typer(
    help="The model registry: list, fetch, promote, release, roll back, withdraw, repair. "
    "Published models: setup, import, export. Models of several robots: extract. "
    "Of two parts: split, join.",
    no_args_is_help=True,
)
app.command()(published.setup)
app.command("import")(published.import_)
app.command()(published.export)
app.command()(published.extract)
app.command()(parts.split)
app.command()(parts.join)
app.command()(model_lineage.lineage)
app.command("standing-on")(model_lineage.standing_on)
app.command()(model_lineage.taint)
app.command()(with_result_file(model_lineage.reproduce))
app.command()(model_documents.card)
app.command()(model_documents.bom)
app.command()(releasing.release)
app.command()(releasing.releases)
Model = Annotated[str, typer.Argument(help="Name of a registered model.")]
_OUTCOMES = {"pass": "green", "hold": "yellow", "fail": "red"}


@app.command("list")
def list_(
    name: Annotated[str | None, typer.Argument(help="A model; by default all models.")] = None,
) -> None:
    """List versions with their aliases, success, gate and data."""
    from rich.table import Table

    from rrf.registry import descriptions, listing, standing

    versions = listing.versions(name)
    if not versions:
        typer.echo(
            "no models yet; `rrf models register` or `rrf eval --register` adds a checkpoint"
        )
        return
    table = Table(box=None, header_style="bold")
    for column in (
        "model",
        "version",
        "aliases",
        "success [95 %]",
        "gate",
        "checkpoint",
        "stands on",
    ):
        table.add_column(column)
    are_served = any("evaluation.served_on" in version.tags for version in versions)
    if are_served:
        table.add_column("served")
    for version in versions:
        tags = version.tags
        outcome = tags.get("gate.outcome", "")
        table.add_row(
            version.name,
            version.version,
            " ".join(f"@{alias}" for alias in version.aliases),
            _success(tags),
            f"[{_OUTCOMES[outcome]}]{outcome}[/]" if outcome else "-",
            version.checkpoint_digest[:12],
            _trained_on(tags),
            *([descriptions.served(tags) or "-"] if are_served else []),
        )
    print_table(table)
    for problem in [*listing.problems(name), *standing.flagged(name).values()]:
        typer.secho(f"warning: {problem}", fg="red")


@app.command()
@with_result_file
def fetch(
    reference: Annotated[
        str, typer.Argument(help="NAME@champion, NAME/3 or models:/NAME@champion.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Directory to create; by default ./NAME-VERSION.")
    ] = None,
    documents: Annotated[
        bool, typer.Option(help="Whether its card and bill of materials come, too.")
    ] = True,
) -> None:
    """Download a deployable checkpoint and check it against its manifest and the registry.

    Its card and bill of materials are in the folder registry/ of it.
    """
    from rrf.cli.policy_reference import warn_unless_allowed
    from rrf.registry import cards, loading, versions

    version = versions.find(reference)
    warn_unless_allowed(version.name, version.version)
    out = out or Path(f"{version.name}-{version.version}")
    beside = cards.fetched(version) if documents else {}
    loading.fetch(f"{version.name}/{version.version}", out, beside)
    typer.echo(f"{version.name} version {version.version} is at {out}")


@app.command()
@with_result_file
def register(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint or run directory.")],
    name: Model,
    run_id: Annotated[
        str | None,
        typer.Option(help="MLflow run that trained it; by default the one of the run directory."),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Dataset for the lineage; by default all it was trained on."),
    ] = None,
    evaluation: Annotated[
        Path | None, typer.Option(help="Directory written by `rrf eval`.")
    ] = None,
    imports: Imports = None,
) -> dict:
    """Add a checkpoint as a version and make it @candidate."""
    from rrf.registry import registration
    from rrf.runners.checkpoints.checkpoint import find

    import_modules(imports)
    checkpoint = find(checkpoint)
    lineage = lineage_behind(checkpoint, dataset)
    version = registration.register(
        checkpoint, name, run_id or run_of(checkpoint), lineage, evaluation
    )
    tell_standing(name, version)
    for problem in lineage.missing:
        typer.echo(f"lineage lacks {problem}")
    return {"model": name, "version": version}


@app.command()
@with_result_file
def promote(
    name: Model,
    version: Annotated[str, typer.Argument(help="The version to make @champion.")],
    unrevoke: Annotated[
        bool,
        typer.Option(
            "--unrevoke", help="Allow a version that was rolled back or withdrawn, or one like it."
        ),
    ] = False,
    reason: Annotated[
        str, typer.Option(help="Why it may be champion again; kept in the ledger.")
    ] = "",
    imports: Imports = None,
) -> dict:
    """Make a version the champion, if the model's gate passes it.

    The gate judges it again by the evaluations that the registry stores.
    """
    from rrf.registry import promotion

    import_modules(imports)
    if unrevoke and not reason.strip():
        raise ValueError("--unrevoke needs a reason; give one with --reason '...'")
    entry = promotion.promote(name, version, reason if unrevoke else None)
    typer.echo(f"{name} version {entry.champion} is @champion ({entry.reason})")
    return {"model": name, "version": entry.champion}


@app.command()
@with_result_file
def approve(
    name: Model,
    version: Annotated[str, typer.Argument(help="The version that waits for approvals.")],
    reason: Annotated[str, typer.Option(help="Why it may be @champion; kept in the ledger.")],
    only_print: Annotated[
        bool,
        typer.Option(
            "--print",
            help="Print it as one line instead of writing it to the ledger: for somebody else, or "
            "for the page of the flow run that waits.",
        ),
    ] = False,
) -> dict:
    """Approve a version for which `rrf models promote`, or a flow, has asked.

    It is signed with your key. Who asked cannot approve.
    """
    import dataclasses
    import json

    from rrf.registry import approvals, promotion

    approval = approvals.sign(promotion.ledger_of(name), version, reason)
    if only_print:
        typer.echo(json.dumps(dataclasses.asdict(approval)))
        return {}
    promotion.approve(approval)
    missing = approvals.missing(promotion.ledger_of(name))
    if missing:
        after = f"{missing} more needed"
    else:
        after = f"next: rrf models promote {name} {version}"
        if waits := approvals.waiting_flow_run(name, version):
            from rrf.prefect_plugin import resume

            after = f"flow run {waits} goes on" if resume(waits) else after
    typer.echo(f"{name} version {version} is approved; {after}")
    return {"model": name, "version": version, "missing": missing}


@app.command()
@with_result_file
def rollback(
    name: Model,
    reason: Annotated[str, typer.Option(help="Reason for the rollback; kept in the ledger.")],
    version: Annotated[
        str | None,
        typer.Option(
            "--from", help="The champion to leave; with it, a second run changes nothing."
        ),
    ] = None,
) -> None:
    """Return to the previous champion. The version that is left is not promoted again.

    To allow it again later: rrf models promote NAME VERSION --unrevoke --reason '...'
    """
    from rrf.notifications import Event, tell
    from rrf.registry import promotion

    entry = promotion.rollback(name, reason, version)
    done = f"{name} version {entry.champion} is @champion again, {entry.version} is not: {reason}"
    typer.echo(done)
    tell(Event("withdrawn", done, "", name, entry.version or ""))


@app.command()
@with_result_file
def withdraw(
    name: Model,
    reason: Annotated[str, typer.Option(help="Reason for the withdrawal; kept in the ledger.")],
) -> None:
    """Leave a model without a champion: fetch, serve and play refuse it with the reason.

    The version is not promoted again. To allow it again later: rrf models promote NAME VERSION
    --unrevoke --reason '...'
    """
    from rrf.notifications import Event, tell
    from rrf.registry import promotion

    entry = promotion.withdraw(name, reason)
    done = f"{name} has no champion: version {entry.version} was withdrawn ({entry.reason})"
    typer.echo(done)
    tell(Event("withdrawn", done, "", name, entry.version or ""))


@app.command()
def gate(
    name: Model,
    file: Annotated[
        Path | None, typer.Argument(help="A file in configs/gates/; without it, show the gate.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Reason for the change; kept in the ledger.")] = "",
    imports: Imports = None,
) -> None:
    """Show or change the gate that rules a model: what a version must show to become champion.

    The first candidate of a new model brings its gate; later changes are made here only.
    """
    from rrf.registry import promotion

    import_modules(imports)
    if file:
        promotion.rule(name, file, reason)
    gate = promotion.gate_of(name)
    if gate is None:
        typer.echo(
            f"no gate rules '{name}' yet; record one: rrf models gate {name} FILE --reason '…'"
        )
        return
    typer.echo(f"{name} is ruled by {gate.file} ({gate.hash[:12]})")
    for key, value in gate.config.items():
        if key == "trial":
            value = f"{value['name']}, protocol {value['protocol']['name']}"
        if key not in ("type", "protocol"):
            typer.echo(f"  {key}: {value}")
    typer.echo(f"  protocol: {gate.config['protocol']['name']}")


@app.command()
def repair(
    name: Model,
    reason: Annotated[
        str, typer.Option(help="Why it was mended; kept in the ledger. Without it, only explain.")
    ] = "",
) -> None:
    """Explain what is wrong with a model's ledger, aliases or tags; with --reason, mend it.

    Entries that the chain of hashes does not prove are moved aside, and the champion is the one of
    the last entry that is proved.
    """
    from rrf.mlflow_store import store
    from rrf.registry import listing
    from rrf.registry import repair as repairs

    listing.versions(name)  # an unknown name ends here
    damage = repairs.examine(store.connect(), name)
    for finding in damage.findings:
        typer.echo(f"- {finding}")
    if not damage.findings:
        typer.echo(f"ledger, aliases and tags of '{name}' agree; nothing to mend")
        return
    champion = damage.champion or "none"
    proved = f"{len(damage.proved.entries)} entries are proved; by them, the champion is {champion}"
    if not reason:
        typer.echo(f"{proved}; to mend it: rrf models repair {name} --reason '...'")
        raise typer.Exit(1)
    repairs.repair(name, reason)
    typer.echo(f"mended: {proved}; see: rrf models ledger {name}")


@app.command()
def ledger(name: Model) -> None:
    """Show what came and what changed, oldest first. Fails if the ledger was tampered with.

    `champion` is the champion after the change and `before` the one it replaced. `verdict` is the
    beginning of the verdict's digest.
    """
    from rich.markup import escape
    from rich.table import Table

    from rrf.registry import descriptions, promotion

    entries = promotion.ledger_of(name).entries
    table = Table(box=None, header_style="bold")
    for column in descriptions.COLUMNS:
        table.add_column(column, overflow="fold" if column == "reason" else "ellipsis")
    for entry in entries:
        table.add_row(*map(escape, descriptions.table_row(entry)))
    print_table(table)
    typer.echo(f"{len(entries)} entries, chain of hashes intact")


def _success(tags: dict[str, str]) -> str:
    if "evaluation.success" not in tags:
        return "-"
    rate, low, high = (float(tags[f"evaluation.{key}"]) for key in ("success", "low", "high"))
    return success(rate, low, high, tags["evaluation.episodes"])


def _trained_on(tags: dict[str, str]) -> str:
    """The version of the data, or the simulated task, that a version was trained on."""
    return tags.get("lineage.dataset_md5", "")[:12] or tags.get("lineage.environment.task", "-")


def lineage_behind(checkpoint: Path, dataset: str | None = None) -> Lineage:
    """The lineage of a checkpoint.

    If it was trained on datasets, their current lineage is collected. Otherwise it is the
    environment's lineage that training wrote to the checkpoint.

    Raises:
        ValueError: If the checkpoint names neither and no dataset is given.
    """
    from rrf.registry.lineage_sources import collect_lineage
    from rrf.runners.checkpoints.deployable import load_lineage

    written = load_lineage(checkpoint)
    datasets = [dataset] if dataset else written.dataset_names
    if datasets:
        return collect_lineage(*datasets)
    if written.environment or written.published:
        return written
    raise ValueError(
        f"{checkpoint} does not name the dataset it was trained on; give it with: rrf models "
        f"register {checkpoint} NAME --dataset DATASET"
    )


def run_of(checkpoint: Path) -> str:
    """The MLflow run of the run directory that contains a checkpoint; an imported policy and one
    that was joined from others get one.

    Raises:
        ValueError: If there is no such run, or MLflow has not heard of it yet, or its file is
            damaged.
    """
    from rrf.registry.registration import imported_run, joined_run
    from rrf.run_directory import UNSENT, mlflow_run_of
    from rrf.runners.checkpoints.deployable import load_lineage

    if run_id := mlflow_run_of(checkpoint):
        return run_id
    if (run_dir := checkpoint.resolve().parent).joinpath(UNSENT).is_file():
        raise ValueError(
            f"MLflow has no run of {run_dir} yet, because it could not be reached in the training; "
            "type the same `rrf train` again: it trains nothing, and sends what is missing"
        )
    lineage = load_lineage(checkpoint)
    if lineage.published and not lineage.datasets:
        return imported_run(checkpoint)
    if lineage.system1_checkpoint:
        return joined_run(checkpoint)
    raise ValueError(
        f"'{checkpoint}' is not in a run directory with an MLflow run; give the run with: rrf "
        f"models register {checkpoint} NAME --run-id RUN"
    )


def tell_standing(name: str, version: str) -> bool:
    """Print the alias under which a version was registered. Returns whether it is the champion."""
    from rrf.registry.versions import champion

    best = champion(name)
    is_champion = best is not None and best.version == version
    alias = "@champion already" if is_champion else "@candidate"
    typer.echo(f"{name} version {version} is {alias}")
    return is_champion
