"""`--result-file PATH`: the outcome of a command as JSON, for programs that run it.

{"exit_code": 0, "error": null, "result": {...}}

What a command prints is for people, and anything may write to its output, even when it has ended.
The file is written beside its place and renamed; after a failure too, with the message as "error".
A path that cannot be written is refused before the command starts.
"""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from rrf.cli.options import is_first_process
from rrf.outcome import Outcome

_asked: Path | None = None
_outcome: dict[str, Any] = {}


def with_result_file(command: Callable) -> Callable:
    """A command that also takes --result-file; the mapping that it returns is the result."""
    signature = inspect.signature(command)
    parameter = inspect.Parameter(
        "result_file", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_ResultFile
    )

    @functools.wraps(command)
    def run(*args, **kwargs) -> None:
        kwargs.pop("result_file")
        _outcome["result"] = command(*args, **kwargs) or {}

    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), parameter]
    )
    run.__annotations__ = command.__annotations__ | {"result_file": _ResultFile}
    return run


@contextlib.contextmanager
def written() -> Iterator[None]:
    """Within the block, a command runs; then its outcome is written, if it was asked for."""
    global _asked
    _asked, code = None, 1
    _outcome.clear()
    try:
        yield
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        raise
    except BaseException as error:
        failed(f"{type(error).__name__}: {error}")
        raise
    finally:
        if _asked is not None:
            _write(_asked, code)


def failed(message: str) -> None:
    """Note why the command fails."""
    _outcome["error"] = message


def _write(path: Path, code: int) -> None:
    error = _outcome.get("error") if code else None
    try:
        Outcome(code, error, _outcome.get("result") or {}).write(path)
    except OSError as problem:
        sys.stderr.write(f"error: --result-file {path} cannot be written: {problem}\n")
        raise SystemExit(2) from None


def _ask(path: Path | None) -> Path | None:
    global _asked
    if path is not None and is_first_process():
        try:
            Outcome(None, "not finished", {}).write(path)
        except OSError as error:
            why = error.strerror or error
            raise ValueError(f"--result-file {path} cannot be written: {why}") from error
        _asked = path
    return path


_ResultFile = Annotated[
    Path | None,
    typer.Option(
        "--result-file",
        help="Write the outcome here, as JSON, also after a failure.",
        callback=_ask,
    ),
]
