"""Options shared by several commands, and facts about how options were given."""

import importlib
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from rrf.cli.listing import complete_run

PolicyArgument = Annotated[
    str,
    typer.Argument(
        help="A checkpoint or run directory, NAME@champion, or models:/NAME@alias.",
        autocompletion=complete_run,
    ),
]
Imports = Annotated[
    list[str] | None,
    typer.Option("--import", help="A module that registers tasks. May be repeated."),
]

TaskOption = Annotated[
    str | None,
    typer.Option(
        help="Any task of Gymnasium, instead of a preset. It trains with the config that it was "
        "registered with, or else with the preset made for it, or with defaults for its kind."
    ),
]
AlgorithmOption = Annotated[
    str | None,
    typer.Option(
        help="The algorithm for --task: ppo (the default), sac, mbpo or tdmpc2; with dataset=NAME "
        "also gail, iql, cql, td3-bc or bc."
    ),
]

DeviceOption = Annotated[
    str,
    typer.Option(
        help="Device of the policy: cpu, cuda, cuda:1; or auto: on all GPUs, then in main memory, "
        "then in --offload."
    ),
]
MaxMemory = Annotated[
    list[str] | None,
    typer.Option(
        help="With --device auto: DEVICE=SIZE, the most that weights take on a GPU (its number) or "
        "in main memory (cpu), e.g. 0=20GiB. May be repeated."
    ),
]
Offload = Annotated[
    Path | None,
    typer.Option(
        help="With --device auto: a directory for weights that fit nowhere else.", file_okay=False
    ),
]


def is_first_process() -> bool:
    """Whether this process is the one that writes files and messages, among those of torchrun."""
    return os.environ.get("RANK", "0") == "0"


def is_given(context: typer.Context, name: str) -> bool:
    """Whether an option was given on the command line, not by default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def flags(context: typer.Context, names: Iterable[str]) -> str:
    """Options as they are typed on the command line, e.g. "--task, --index"."""
    known = {option.name: option.opts[0] for option in context.command.params}
    return ", ".join(known[name] for name in names)


_GPU_DEVICES = ("nvidia[0-9]*", "kfd", "dxg", "nvhost-gpu")  # also of ROCm, WSL and Jetson


def words_of(text: str) -> list[str]:
    """What commas separate."""
    return [word.strip() for word in text.split(",") if word.strip()]


def import_modules(names: Sequence[str] | None) -> None:
    """Import modules that register tasks, and trust their configs.

    The modules may be in the working directory or installed.

    Raises:
        ValueError: For a module that does not exist.
    """
    from rrf.config import trust
    from rrf.lookup import load_plugins

    load_plugins()
    here = str(Path.cwd())
    if names and here not in sys.path:
        sys.path.append(here)
    for name in names or ():
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not name.startswith(str(error.name)):
                raise
            raise ValueError(
                f"--import: no module '{name}' here ({here}) or among the installed packages"
            ) from error
        trust(name)


def check_device(device: str) -> None:
    """Raise ValueError for a device that this machine lacks. Where it may be here, torch, whose
    import takes seconds, is not asked yet.
    """
    has_gpu = any(next(Path("/dev").glob(name), None) for name in _GPU_DEVICES)
    if device in ("cpu", "auto") or (has_gpu and device.partition(":")[0] == "cuda"):
        return
    from rrf.runners.process_group import known_device

    known_device(device)


def check_output(path: Path) -> None:
    """Raise OSError if no file can be written at `path`. The folder of the file is made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror}") from error


def check_renderer(name: str | None) -> None:
    """Raise ValueError for a renderer that does not exist."""
    if name in (None, "warp"):
        return
    from rrf.config import did_you_mean
    from rrf.envs.rendering.renderers import AUTO, RENDERERS

    if name not in (known := (*RENDERERS, AUTO)):
        raise ValueError(f"no renderer '{name}'{did_you_mean(name, known)}")
