"""`rrf nightly bisect`: which commit made a champion worse, or training slower."""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rrf.evaluation.nightly.bisection import Answer, Found, Trial
    from rrf.evaluation.nightly.worktree import Worktree

_FILES = 8


def bisect(
    model: Annotated[
        str,
        typer.Argument(
            help="A model, whose champion is evaluated; with --speed, a preset that is trained."
        ),
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="With --speed: dotted overrides of the preset.")
    ] = None,
    good: Annotated[
        str | None,
        typer.Option(help="A commit at which all was well; by default, of the nights."),
    ] = None,
    bad: Annotated[
        str | None, typer.Option(help="A later commit; by default, of the nights.")
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(help="Which series of nights: the name of its protocol, or a file."),
    ] = None,
    speed: Annotated[
        bool, typer.Option("--speed", help="Compare the CPU time of short trainings.")
    ] = False,
    rounds: Annotated[
        int, typer.Option(min=2, help="With --speed: rounds of measurements at the first look.")
    ] = 16,
    looks: Annotated[
        int,
        typer.Option(
            min=1, max=6, help="How often a commit is looked at, each time with twice as much."
        ),
    ] = 3,
    workers: Annotated[int, typer.Option(min=0, help="Simulation processes.")] = 2,
) -> dict:
    """Find the first commit at which a champion does worse (or a preset trains slower).

    The commits between a good and a bad night are tried by bisection, each with its own code in a
    git worktree in .rrf/bisect. The same command goes on where an interrupted one stopped.
    """
    from rrf.evaluation.nightly.bisection import first_bad
    from rrf.evaluation.nightly.worktree import described

    if overrides and not speed:
        raise ValueError("overrides are for --speed, e.g. rrf nightly bisect PRESET --speed seed=1")
    with _prepared(model, good, bad, protocol, speed) as (repository, tree, folder, ends, listed):
        trial = (
            _speed(tree, folder, [model, *(overrides or [])], (ends, listed[-1]), rounds, looks)
            if speed
            else _evaluation(tree, folder, model, looks, workers)
        )

        def say(commit: str, answer: "Answer") -> None:
            typer.echo(f"{answer.state}: {described(repository, commit)}: {answer.said}")

        return _concluded(repository, first_bad(ends, listed, trial, say))


@contextlib.contextmanager
def _prepared(
    model: str, good: str | None, bad: str | None, protocol: str | None, speed: bool
) -> Iterator[tuple[Path, "Worktree", Path, str, list[str]]]:
    """Repository, worktree, folder, good commit, and the commits after it; held by this process."""
    from rrf import atomic, workspace
    from rrf.evaluation.nightly.worktree import Worktree, commits_between, described
    from rrf.registry import night_changes

    repository = workspace.home()
    if not (good and bad):
        if speed:
            raise ValueError("--speed needs --good COMMIT and --bad COMMIT")
        before, after = night_changes.turn(model, protocol)
        good, bad = good or before.commit, bad or after.commit
    first, listed = commits_between(repository, good, bad)
    name = f"{model}-{'speed' if speed else 'success'}-{first[:12]}-{listed[-1][:12]}"
    folder = workspace.state() / "bisect" / name.replace("/", "-")
    busy = f"another process bisects this in {folder}; wait for it, or end it"
    with atomic.alone(folder, busy):
        typer.echo(f"good: {described(repository, first)}")
        typer.echo(f"bad: {described(repository, listed[-1])}; {len(listed)} commits to suspect")
        if not speed:
            _bring(model, protocol, folder)
        tree = Worktree(repository, folder / "worktree", functools.partial(typer.echo, err=True))
        try:
            yield repository, tree, folder, first, listed
        finally:
            tree.remove()


def _bring(model: str, protocol: str | None, folder: Path) -> None:
    """The champion and the protocol, as files that no commit changes."""
    from rrf import atomic
    from rrf.registry import loading, night_changes

    if not (folder / "checkpoint").is_dir():
        loading.fetch(f"{model}@champion", folder / "checkpoint")
    if not (folder / "protocol.yaml").is_file():
        cfg = night_changes.protocol_of(model, protocol)
        atomic.write_text(folder / "protocol.yaml", cfg.to_yaml())


def _evaluation(tree: "Worktree", folder: Path, model: str, looks: int, workers: int) -> "Trial":
    from rrf.evaluation.nightly.trials import EvaluationTrial

    return EvaluationTrial(
        tree, folder, folder / "checkpoint", folder / "protocol.yaml", looks, workers
    )


def _speed(
    tree: "Worktree",
    folder: Path,
    words: list[str],
    ends: tuple[str, str],
    rounds: int,
    looks: int,
) -> "Trial":
    from rrf.evaluation.nightly.trials import SpeedTrial

    return SpeedTrial(tree, folder, words, ends, rounds, looks)


def _concluded(repository: Path, found: "Found") -> dict:
    from rrf.evaluation.nightly.worktree import changed_files, described

    *others, last = found.suspects
    if others:
        typer.echo("one of these is the first bad commit; those before the last cannot be told:")
        for commit in found.suspects:
            typer.echo(f"  {described(repository, commit)}")
    else:
        typer.echo(f"first bad commit: {described(repository, last)}")
        files = changed_files(repository, last)
        more = f" and {len(files) - _FILES} more" if len(files) > _FILES else ""
        typer.echo(f"it changed {', '.join(files[:_FILES])}{more}; see: git show {last[:12]}")
    return {
        "suspects": found.suspects,
        "answers": {commit: [a.state, a.said] for commit, a in found.answers.items()},
    }
