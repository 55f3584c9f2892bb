"""`rrf data edit`: declare a dataset that is edited, split or merged from others."""

import re
from collections.abc import Sequence
from typing import Annotated

import typer

from rrf import workspace
from rrf.cli.data_display import plain, say, shown
from rrf.cli.options import words_of

_FRACTION = re.compile(r"0?\.\d+|1\.0*")
_TIME = re.compile(r"(\d+(?:\.\d+)?) ?s|(\d+)")


def edit(
    new: Annotated[str, typer.Argument(help="NAME of the new dataset.")],
    of: Annotated[
        list[str],
        typer.Option(help="Dataset to edit. Two or more are merged; see docs/how-to."),
    ],
    delete: Annotated[str, typer.Option(help="Episodes to leave out: 3,10-14.")] = "",
    keep: Annotated[str, typer.Option(help="Episodes to keep, leaving out all others.")] = "",
    trim_start: Annotated[
        str, typer.Option(help="Leave out so many frames at the beginning: 5, or in seconds 0.5s.")
    ] = "",
    trim_end: Annotated[str, typer.Option(help="The same at the end.")] = "",
    trim_episodes: Annotated[
        str, typer.Option(help="Trim only these episodes; by default all.")
    ] = "",
    relabel: Annotated[
        list[str] | None,
        typer.Option(help="Another instruction, 'OLD=NEW', or of episodes: '3-7=NEW'. Repeatable."),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(help="OLD=NEW, such as cameras.top=cameras.front or state.q0=state.elbow."),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(help="A feature to leave out: cameras.top, state.q0, action.x, reward."),
    ] = None,
    cut: Annotated[
        int | None, typer.Option(help="Cut every episode into so many of equal length.")
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(
            help="A part that becomes the dataset NEW-PART: train=0.8 (a fraction), or "
            "train=0-79 (episodes). Repeat for every part."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of a split by fractions.")] = 0,
) -> None:
    """Write the config of a dataset that is edited from another, which stays as it is.

    Episodes are numbers and ranges, separated by commas, and keep the numbers they have in the
    origin. Steps are done in the order of the options above; a config file may have them in any
    order and more than once.
    """
    from rrf.data.conversion.edit_file import write_edit, write_merge, write_split

    trim = _trim(trim_start, trim_end, trim_episodes)
    steps: list[dict] = [{"delete": episode_list(delete)}] if delete else []
    steps += [{"keep": episode_list(keep)}] if keep else []
    steps += [{"trim": trim}] if trim else []
    steps += [{"relabel": _relabel(relabel)}] if relabel else []
    steps += [{"rename": dict(_pair(word, "--rename") for word in rename)}] if rename else []
    steps += [{"drop": drop}] if drop else []
    steps += [{"cut": cut}] if cut is not None else []
    if len(of) > 1:
        if steps or split:
            raise ValueError(
                "several --of are merged as they are; edit the parts before, or the merged dataset"
            )
        path = write_merge(new, of)
        lines = [_line(new, f"datasets/{of[0]}", f"datasets/{of[1]}")] if len(of) == 2 else []
        say(f"{shown(path)}: {plain(', '.join(of))} merged")
        _print_next([new], lines)
        return
    (origin,) = of
    if not steps and not split:
        raise ValueError("there is nothing to do; give --delete, --keep, --split, --trim-end, ...")
    parts = dict(_part(word) for word in split or ())
    if parts:
        written = write_split(new, origin, steps, parts, seed)
    else:
        written = [write_edit(new, origin, steps)]
    for path, plan in written:
        frames = sum(cut.stop - cut.first for cut in plan.cuts)
        say(f"{shown(path)}: {len(plan.cuts)} episodes, {frames} frames of {plain(origin)}")
    is_checkout = workspace.home() == workspace.shipped()
    made_by = "rrf/data/conversion/VERSION" if is_checkout else "requirements.lock"
    names = [path.stem for path, _ in written]
    _print_next(names, [_line(name, f"datasets/converted/{origin}", made_by) for name in names])


def _line(name: str, raw: str, made_by: str) -> str:
    return f"{name}: {{raw: {raw}, with: {made_by}}}"


def _print_next(names: Sequence[str], lines: Sequence[str]) -> None:
    if lines:
        typer.echo("to give it a version, add to the datasets in dvc.yaml:")
        for line in lines:
            typer.echo(f"      {line}")
        typer.echo(f"and run: dvc repro {' '.join(f'publish@{name}' for name in names)}")
    else:
        typer.echo(
            "DVC takes two parts: to give it a version, merge two, then the result with more"
        )
    typer.echo("or without a version:")
    for name in names:
        commands = (f"rrf data {verb} {name}" for verb in ("convert", "validate", "stats"))
        typer.echo(f"      {' && '.join(commands)}")


def episode_list(text: str) -> list[int | str]:
    """Numbers and ranges of episodes, "3,10-14", as steps of an edit have them."""
    return [int(word) if word.isdecimal() else word for word in words_of(text)]


def _trim(start: str, end: str, episodes: str) -> dict:
    trim: dict = {}
    for name, text in (("start", start), ("end", end)):
        match = _TIME.fullmatch(text.strip())
        if text and not match:
            raise ValueError(f"--trim-{name} is '{text}', but must be frames (5) or seconds (0.5s)")
        if match:
            trim |= {f"{name}_s": float(match[1])} if match[1] else {name: int(match[2])}
    if episodes and not trim:
        raise ValueError("--trim-episodes needs --trim-start or --trim-end")
    return trim | ({"episodes": episode_list(episodes)} if episodes else {})


def _relabel(words: Sequence[str]) -> dict:
    pairs = [_pair(word, "--relabel") for word in words]
    is_episode = re.compile(r"\d+(-\d+)?").fullmatch
    replacements = {
        "instructions": {old: new for old, new in pairs if not is_episode(old)},
        "episodes": {old: new for old, new in pairs if is_episode(old)},
    }
    return {name: texts for name, texts in replacements.items() if texts}


def _part(word: str) -> tuple[str, float | list[int | str]]:
    name, value = _pair(word, "--split")
    return name, float(value) if _FRACTION.fullmatch(value) else episode_list(value)


def _pair(word: str, option: str) -> tuple[str, str]:
    old, equals, new = (part.strip() for part in word.partition("="))
    if not (old and equals and new):
        raise ValueError(f"{option} is '{word}', but must be of the form OLD=NEW")
    return old, new
