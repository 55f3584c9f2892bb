"""Configs of RLinf and of Isaac Lab's extension of it as one mapping: what Hydra does with them.

* `defaults` lists files of groups, `GROUP/NAME@PACKAGE`, each of which may have a list of its own.
  What the file itself says goes over them, unless `_self_` stands earlier in the list.
* `${a.b}`, `${.a}` and `${..a}` stand for other values; `${oc.env:NAME,DEFAULT}` for a variable of
  the environment; `${multiply:…}` and RLinf's other functions are computed.
* YAML's own anchors (`&name`, `*name`) and merge keys are read, up to a size.

What Hydra can do besides is refused by name. Nothing is imported or run because a file names it
(`_target_` is a key like any other).
"""

import dataclasses
import os
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rrf.config import did_you_mean
from rrf.presets.rlinf.yaml_files import read_mapping

Value = typing.Any
_ENTRY = re.compile(r"(?P<group>[^@\s]+)(@(?P<package>\S+))?$")
_INNERMOST = re.compile(r"\$\{([^${}]*)\}")
_PACKAGE = re.compile(r"^#\s*@package\s+(\S+)", re.MULTILINE)
_OF_HYDRA = ("defaults", "hydra")
_MAX_DEPTH = 20


@dataclasses.dataclass(frozen=True)
class Unresolved:
    """A value that depends on what is not here."""

    text: str  # as it stands in the file
    why: str

    def __str__(self) -> str:
        return self.text


def composed(file: Path, search_path: Sequence[Path] = ()) -> dict[str, Value]:
    """The whole config of a file, with all values filled in.

    Args:
        file: The YAML file that is named to RLinf as the config.
        search_path: Further directories in which groups lie, besides the file's own.

    Raises:
        ValueError: For a file that is missing or no YAML, and for what cannot be composed.
    """
    merged = _merged(file, [file.parent, *search_path], _MAX_DEPTH)
    for key in _OF_HYDRA:
        merged.pop(key, None)
    return _Filling(merged, file).filled()


def leaves(config: Mapping, path: str = "") -> Iterator[tuple[str, Value]]:
    """Dotted path and value of everything that is no mapping; empty mappings are left out."""
    for key, value in config.items():
        at = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            yield from leaves(value, at)
        else:
            yield at, value


def _merged(file: Path, folders: Sequence[Path], depth: int) -> dict[str, Value]:
    """The config of a file on top of its defaults."""
    if not depth:
        raise ValueError(f"{file}: defaults name one another without an end")
    own = read_mapping(file)
    entries = own.get("defaults") or []
    if not isinstance(entries, list):
        raise ValueError(f"{file}: defaults is a {type(entries).__name__}, expected a list")
    result: dict[str, Value] = {}
    has_self = False
    for entry in entries:
        if entry == "_self_":
            has_self = True
            _merge(result, own)
            continue
        part = _default(entry, file)
        if part is None:
            continue
        name, package = part
        path = _file_of(name, folders, file)
        content = _merged(path, folders, depth - 1)
        content.pop("defaults", None)
        for key in reversed(_place(name, package, path)):
            content = {key: content}
        _merge(result, content)
    if not has_self:
        _merge(result, own)
    return result


def _default(entry: Value, file: Path) -> tuple[str, str | None] | None:
    """Name of a group's file and its package; None for one that is not to be read."""
    if isinstance(entry, dict) and len(entry) == 1:
        ((group, name),) = entry.items()
        group = str(group)
        if group.startswith("override hydra/") or name is None:
            return None
        if group.startswith(("override ", "optional ")):
            raise ValueError(
                f"{file}: '{group}: {name}' among the defaults is not read; name the file of the "
                "group, e.g. env/libero_10@env.train"
            )
        group, at, package = group.partition("@")
        entry = f"{group}/{name}{at}{package}"
    found = _ENTRY.match(entry) if isinstance(entry, str) else None
    if found is None or "${" in str(entry):
        raise ValueError(
            f"{file}: '{entry}' among the defaults is not read; expected GROUP/NAME@PACKAGE, e.g. "
            "env/libero_10@env.train"
        )
    return found["group"].removeprefix("/"), found["package"]


def _file_of(name: str, folders: Sequence[Path], file: Path) -> Path:
    if ".." in Path(name).parts:
        raise ValueError(f"{file}: '{name}' among the defaults leaves its directory")
    paths = [folder / f"{name}.yaml" for folder in folders]
    for path in paths:
        if path.is_file():
            return path
    near = [p.stem for path in paths for p in path.parent.glob("*.yaml")]
    hint = did_you_mean(Path(name).name, near) if near else ""
    where = ", ".join(map(str, dict.fromkeys(folders)))
    raise ValueError(
        f"{file}: '{name}' among the defaults is no file in {where}{hint}; give the directory that "
        "has the groups, e.g. --search-path RLinf/examples/embodiment/config"
    )


def _place(name: str, package: str | None, path: Path) -> list[str]:
    """The keys below which a group's file stands."""
    if package is None:
        header = _PACKAGE.search(path.read_text(encoding="utf-8"))
        package = header[1] if header else "_group_"
    group = ".".join(Path(name).parts[:-1])
    assert package is not None
    package = package.replace("_group_", group).removeprefix("_global_").removeprefix(".")
    return [key for key in package.split(".") if key]


def _merge(into: dict[str, Value], other: Mapping[str, Value]) -> None:
    """Mappings are merged; everything else is replaced."""
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = _copy(value)


def _copy(value: Value) -> Value:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


class _Filling:
    """Fills in the values that stand for others."""

    def __init__(self, config: dict[str, Value], file: Path):
        self._config, self._file = config, file
        self._open: list[str] = []  # paths whose value is being filled in

    def filled(self) -> dict[str, Value]:
        return {key: self._value(value, [str(key)]) for key, value in self._config.items()}

    def _value(self, value: Value, path: list[str]) -> Value:
        if isinstance(value, dict):
            return {key: self._value(item, [*path, str(key)]) for key, item in value.items()}
        if isinstance(value, list):
            return [self._value(item, [*path, str(at)]) for at, item in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        name = ".".join(path)
        if name in self._open:
            chain = " -> ".join([*self._open[self._open.index(name) :], name])
            raise ValueError(f"{self._file}: {chain} stand for one another")
        self._open.append(name)
        try:
            return self._text(value, path)
        finally:
            self._open.pop()

    def _text(self, text: str, path: list[str]) -> Value:
        """What a text with `${…}` stands for, innermost first."""
        rest = text
        while found := _INNERMOST.search(rest):
            value = self._expression(found[1].strip(), path)
            if isinstance(value, Unresolved):
                return Unresolved(text, value.why)
            if found[0] == rest:
                return value
            if isinstance(value, dict | list):
                raise ValueError(
                    f"{self._file}: {'.'.join(path)} is '{text}', but ${{{found[1]}}} is no text"
                )
            shown = "" if value is None else str(value)
            rest = rest[: found.start()] + shown + rest[found.end() :]
        if "${" in rest:
            raise ValueError(f"{self._file}: {'.'.join(path)} is '{text}', which is not closed")
        return rest

    def _expression(self, expression: str, path: list[str]) -> Value:
        function, colon, words = expression.partition(":")
        if not colon:
            return self._reference(expression, path)
        arguments = [word.strip() for word in words.split(",")]
        if function == "oc.env":
            name, default = arguments[0], ",".join(arguments[1:]).strip("'\"")
            if name in os.environ:
                return os.environ[name]
            if len(arguments) > 1:
                return default
            return Unresolved(expression, f"the variable {name} is not set")
        if function == "oc.select":
            try:
                return self._reference(arguments[0], path)
            except ValueError:
                return ",".join(arguments[1:]) or None
        if function in _FUNCTIONS:
            try:
                return _FUNCTIONS[function](*map(_number, arguments))
            except (TypeError, ValueError, ZeroDivisionError) as error:
                raise ValueError(
                    f"{self._file}: {'.'.join(path)}: ${{{expression}}} cannot be computed: {error}"
                ) from error
        raise ValueError(
            f"{self._file}: {'.'.join(path)} calls '{function}', which is not read; write its "
            f"value instead. Known: oc.env, oc.select, {', '.join(_FUNCTIONS)}"
        )

    def _reference(self, expression: str, path: list[str]) -> Value:
        """The value at a path; dots at its begin lead up from the mapping that names it."""
        name = expression.lstrip(".")
        up = len(expression) - len(name)
        if up > len(path):
            raise ValueError(
                f"{self._file}: {'.'.join(path)} stands for ${{{expression}}}, which leads out of "
                "the file"
            )
        keys = [*(path[: len(path) - up] if up else []), *re.split(r"[.\[\]]+", name.rstrip("]"))]
        node: Value = self._config
        for at, key in enumerate(keys):
            if isinstance(node, list) and key.isdigit() and int(key) < len(node):
                node = node[int(key)]
            elif isinstance(node, dict) and key in (names := {str(k): k for k in node}):
                node = node[names[key]]
            else:
                known = [str(k) for k in node] if isinstance(node, dict) else []
                raise ValueError(
                    f"{self._file}: {'.'.join(path)} stands for ${{{expression}}}, but there is no "
                    f"'{'.'.join(keys[: at + 1])}'{did_you_mean(key, known)}"
                )
        return self._value(node, keys)


def _number(word: str) -> float | int:
    number = float(word)
    return int(number) if number.is_integer() else number


_FUNCTIONS = {
    "multiply": lambda x, y: x * y,
    "int_div": lambda x, y: x // y,
    "subtract": lambda x, y: x - y,
    "not": lambda x: not x,
}
