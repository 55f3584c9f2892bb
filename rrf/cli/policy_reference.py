"""Find the checkpoint directory of a policy that a user names."""

from pathlib import Path

import typer


def locate(reference: str) -> tuple[Path, str]:
    """The directory of the checkpoint that `reference` names, and a label for people.

    A registered version is fetched from the registry first; if it must not act, a line says so.

    Args:
        reference: A checkpoint or run directory, NAME@champion, NAME/3, or models:/NAME@alias.

    Raises:
        ValueError: If there is no such checkpoint or version.
    """
    path, label, version = locate_version(reference)
    if version:
        warn_unless_allowed(*version)
    return path, label


def locate_version(reference: str) -> tuple[Path, str, tuple[str, str] | None]:
    """Like `locate`, for who asks whether the version may act; also the model and the number of a
    registered version, or None."""
    from rrf.registry.versions import is_reference
    from rrf.runners.checkpoints import checkpoint

    if not is_reference(reference):
        path = checkpoint.find(reference)
        return path, f"{path.resolve().parent.name}/{path.name}", None
    typer.echo(f"looking up {reference} in the registry")
    from rrf.registry import loading, versions

    version = versions.find(reference)
    path = loading.fetched(version)
    label = f"{version.name} version {version.version}"
    return path, label, (version.name, version.version)


def warn_unless_allowed(name: str, version: str) -> None:
    """Say why a registered version must not act, if so, to who uses it all the same."""
    from rrf.registry.standing import standing_of

    try:
        why = standing_of(name, version)
    except ValueError as error:
        why = f"nobody says whether {name} version {version} may act: {error}"
    if why:
        typer.echo(f"warning: {why}", err=True)


def is_model_name(reference: str) -> bool:
    """Whether `reference` names a registered model and nothing else, neither a version of it nor a
    path."""
    if Path(reference).exists() or not reference or set("@/:") & set(reference):
        return False
    from rrf import workspace
    from rrf.mlflow_store import store
    from rrf.registry import listing

    return store.is_made(workspace.tracking_uri()) and reference in listing.models()
