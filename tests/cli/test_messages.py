"""What messages tell people to type exists: commands and options of `rrf`, targets of make, modules
of Python, and files."""

import ast
import functools
import importlib.util
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

from typer.main import get_command

from rrf import notifications
from rrf.cli import app
from rrf.evaluation.nightly import matrix
from rrf.identity import trust
from rrf.presets import PRESETS
from rrf.registry import retention, taints

ROOT = Path(__file__).parents[2]
MADE_LATER = (trust.FILE, taints.FILE, notifications.FILE, retention.FILE, matrix.FILE)
"""Files that commands or people make."""
SOURCES = [path for room in ("rrf", "flows", "infra") for path in (ROOT / room).rglob("*.py")]
ANYTHING = "\0"  # what an f-string puts there
TOLD = r"(?:`|(?:: |\brun |\btype |\bwith |\bby |\bor |\bthen )(?=(?:rrf|make|python -m) ))"
TYPED = re.compile(TOLD + r"((?:rrf|make|python -m) [^`;,()\n]+)")
QUOTED = re.compile(r"`((?:rrf|make|python -m) [^`;,()\n]+)")
ENGLISH = ("rrf needs", "make it", "make a ")
FILES = re.compile(
    r"(?<![\w/])(configs/[\w/.-]+\.yaml|(?:docs|infra|benchmarks)/[\w/.-]+\.(?:md|py|json))"
)


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of every string; a docstring may be the help of a command."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= set(node.values)
            parts = (v.value if isinstance(v, ast.Constant) else ANYTHING for v in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
            yield node.lineno, node.value


@functools.cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in SOURCES}


@functools.cache
def told() -> list[tuple[str, str]]:
    """Where, and the text of every message of the sources."""
    return [
        (f"{path.relative_to(ROOT)}:{line}", text)
        for path, tree in trees().items()
        for line, text in texts(tree)
    ]


@functools.cache
def rrf():
    return get_command(app)


def problem(words: list[str]) -> str | None:
    """Why a command cannot be typed; None if it can, as far as the sources tell."""
    program, *rest = words
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return None if ANYTHING in rest[0] or rest[0] in targets else f"no target {rest[0]}"
    if program == "python":
        module = rest[1]
        is_ours = module.split(".")[0] in ("rrf", "flows", "infra", "benchmarks", "tests")
        has_module = not is_ours or importlib.util.find_spec(module)
        return None if ANYTHING in module or has_module else f"no module {module}"
    command = rrf()
    while hasattr(command, "commands"):
        word = rest.pop(0) if rest else ""
        if ANYTHING in word or word.isupper() or word.startswith("-") or word in ("...", "…", ""):
            return None
        if word not in command.commands:
            return f"'{command.name}' has no command '{word}'"
        command = command.commands[word]
    options = {name for parameter in command.params for name in parameter.opts} | {"-h", "--help"}
    rest = rest or [""]
    for word in rest:
        name = word.partition("=")[0]
        if name.startswith("--") and ANYTHING not in name and name not in options:
            return f"'{command.name}' has no option '{name}'"
    if command.name in ("train", "show") and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", rest[0]):
        return None if rest[0] in PRESETS else f"no preset '{rest[0]}'"
    return None


def commands() -> list[tuple[str, str]]:
    found = [
        (where, typed)
        for where, text in told()
        for typed in (QUOTED if "\n" in text else TYPED).findall(text)
        if not typed.startswith(ENGLISH)
    ]
    assert len(found) > 60  # otherwise the pattern has gone blind
    return found


def test_commands_in_messages_can_be_typed():
    assert [wrong for where, typed in commands() if (wrong := misspelt(where, typed))] == []


def misspelt(where: str, typed: str) -> str | None:
    """Where a command is that cannot be typed, and why not; None if it can."""
    try:
        words = shlex.split(typed)
    except ValueError:  # a quote that ends after the command
        words = typed.split()
    reason = problem(words)
    return reason and f"{where}: {typed}: {reason}"


def test_files_in_messages_exist():
    missing = [
        (where, name)
        for where, text in told()
        for name in FILES.findall(text)
        if not Path(name).stem.isupper()  # NAME.yaml
        and not (ROOT / name).exists()
        and not (ROOT / "infra/workspace" / name).exists()
        and Path(name) not in MADE_LATER
    ]
    assert missing == []


def test_extras_that_messages_name_can_be_installed():
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = set()
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func).rpartition(".")[2]
                is_pydantic = name == "ConfigDict"
                given = [k.value for k in node.keywords if k.arg == "extra" and not is_pydantic]
                given += node.args[:1] if name == "install_command" else []
                named |= {v.value for v in given if isinstance(v, ast.Constant)}
    assert len(named) > 7
    assert named <= known["optional-dependencies"].keys()


def test_an_option_and_a_command_that_are_not_there_are_found():
    assert problem(["rrf", "data", "publish", "x"]) == "'data' has no command 'publish'"
    assert problem(["rrf", "eval", "x", "--gates", "y"]) == "'eval' has no option '--gates'"
    assert problem(["rrf", "train", "go1-fast-ppo"]) == "no preset 'go1-fast-ppo'"
    assert problem(["make", "demos"]) == "no target demos"
    assert problem(["python", "-m", "benchmarks.nothing"]) == "no module benchmarks.nothing"
    assert problem(["rrf", "models", "gate", ANYTHING, "--reason", "x"]) is None
