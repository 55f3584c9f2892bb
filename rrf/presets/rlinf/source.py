"""The values of a composed config of RLinf, and what became of each."""

import dataclasses
import typing
from collections.abc import Callable, Mapping

from rrf.presets.rlinf.composition import Unresolved, leaves
from rrf.presets.rlinf.keys import OFF, key_of

_WORDS = {str: "words", int: "whole numbers", int | float: "numbers", dict: "mappings"}


@dataclasses.dataclass(frozen=True)
class Row:
    """What became of one key."""

    path: str
    value: typing.Any
    ours: str | None  # the counterpart; None without one
    text: str  # its value, or why there is no counterpart
    is_harmless: bool = False


class Source:
    """The values, by dotted path. Who reads one says what becomes of it."""

    def __init__(self, config: Mapping):
        self._values = dict(leaves(config))
        self._rows: dict[str, Row] = {}

    def get(self, path: str, default: typing.Any = None) -> typing.Any:
        """A value; `default` for null or if there is none.

        Raises:
            ValueError: For one that could not be filled in.
        """
        value = self._values.get(path)
        if isinstance(value, Unresolved):
            raise ValueError(f"{path} is '{value}', but {value.why}")
        return default if value is None or value == "None" else value

    @typing.overload
    def number(self, path: str, default: float) -> float: ...
    @typing.overload
    def number(self, path: str, default: None = None) -> float | None: ...
    def number(self, path: str, default: float | None = None) -> float | None:
        """A number.

        Raises:
            ValueError: For something else.
        """
        value = self.get(path, default)
        if value is None:
            return None
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} is '{value}', expected a number") from error

    @typing.overload
    def count(self, path: str, default: int) -> int: ...
    @typing.overload
    def count(self, path: str, default: None = None) -> int | None: ...
    def count(self, path: str, default: int | None = None) -> int | None:
        """A whole number. Raises ValueError for something else."""
        value = self.number(path) if default is None else self.number(path, default)
        if value is not None and not value.is_integer():
            raise ValueError(f"{path} is {value}, expected a whole number")
        return None if value is None else int(value)

    def items(self, path: str, kind: typing.Any = object) -> list[typing.Any]:
        """A list, empty if there is none; one value is a list of it.

        Raises:
            ValueError: If an item is not of a kind.
        """
        value = self.get(path, [])
        items = value if isinstance(value, list) else [value]
        if wrong := [item for item in items if not isinstance(item, kind)]:
            raise ValueError(f"{path} has {wrong[0]!r}, expected a list of {_WORDS[kind]}")
        return items

    def first(self, *paths: str, read: Callable[[str], typing.Any] | None = None) -> typing.Any:
        """The first value that is there, read by `get` if nothing else is said; None without."""
        given = ((read or self.get)(path) for path in paths)
        return next((value for value in given if value is not None), None)

    def below(self, path: str) -> dict[str, typing.Any]:
        """All values below a path, by the rest of theirs."""
        start = f"{path}."
        return {p.removeprefix(start): self.get(p) for p in self._values if p.startswith(start)}

    def became(self, ours: str, value: typing.Any, *paths: str) -> None:
        """Note the counterpart of keys."""
        for path in paths:
            if self.get(path) is not None:
                self._rows.setdefault(path, Row(path, self._values[path], ours, str(value)))

    def lacks(self, path: str, why: str) -> None:
        """Note that the value of a key has no counterpart."""
        if path in self._values:
            self._rows[path] = Row(path, self._values[path], None, why)

    def ignored(self, path: str, why: str) -> None:
        """Note that the value of a key changes nothing."""
        if path in self._values:
            self._rows[path] = Row(path, self._values[path], None, why, is_harmless=True)

    def rows(self) -> list[Row]:
        """What became of every key, in the order of the config."""
        return [self._rows.get(path) or self._row(path) for path in self._values]

    def _row(self, path: str) -> Row:
        value, key = self._values[path], key_of(path)
        if value in (None, "None"):
            return Row(path, value, None, "null: nothing is set", is_harmless=True)
        if key is None:
            return Row(path, value, None, "not known")
        if value is False and path.rpartition(".")[2] in OFF:
            return Row(path, value, None, "false: nothing is asked for", is_harmless=True)
        if key.kind == "mapped":
            why = f"not used with the rest of this config (else: {key.text})"
            return Row(path, value, None, why, is_harmless=True)
        return Row(path, value, None, key.text, key.kind == "harmless")
