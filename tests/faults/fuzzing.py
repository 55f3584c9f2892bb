"""What others may have written, changed by chance: every reader takes it or says in words why not.

A valid document is the beginning of most inputs: a value in it is replaced, removed or added, its
text is cut, repeated and stained. A reader may give a value, or raise ValueError or OSError out of
rrf's own code, whose message names the place, or pydantic's ValidationError, which commands show as
a line for each field; nothing else. Needs hypothesis.
"""

import copy
import dataclasses
import json
import traceback
import typing
from collections.abc import Callable
from pathlib import Path

import msgpack
import yaml
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]
MOST_CHARACTERS = 20_000
"""Of a message; more is no sentence."""
_ENDINGS = (
    "!!timestamp x",
    "!!bool x",
    "!!int ''",
    "!!binary '*'",
    "!!python/name:os.system",
    "&a",
)


@dataclasses.dataclass(frozen=True)
class Target:
    """A reader."""

    name: str
    document: typing.Any
    """Plain data that it reads."""
    read: Callable[[bytes], typing.Any]
    encode: Callable[[typing.Any], bytes]


_SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from([10**400, -1, 2**63, "../../x", "\0", "nan", "1e999", "2001-99-99", "é", "="])
)  # fmt: skip
PLAIN = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
"""Plain data of any form."""


@st.composite
def changed(draw: st.DrawFn, document: typing.Any) -> typing.Any:
    """The document with up to three changes."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(document))
        if not places:
            return draw(PLAIN)
        holder, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["replace", "remove", "add", "swap"])):
            case "replace":
                holder[key] = draw(PLAIN)
            case "remove":
                del holder[key]
            case "add" if isinstance(holder, dict):
                holder[draw(st.text(max_size=8))] = draw(PLAIN)
            case "add":
                holder.insert(key, draw(PLAIN))
            case "swap":  # a value of the right kind in the wrong place
                other, name = draw(st.sampled_from(places))
                if name in other if isinstance(other, dict) else name < len(other):
                    holder[key] = copy.deepcopy(other[name])
    return document


@st.composite
def stained(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes that were cut, repeated, or changed in a place."""
    at = draw(st.integers(0, len(content)))
    to = draw(st.integers(at, min(len(content), at + 64)))
    match draw(st.sampled_from(["cut", "remove", "repeat", "put", "tail"])):
        case "cut":
            return content[:at]
        case "remove":
            return content[:at] + content[to:]
        case "repeat":
            return content[:to] + content[at:to] * draw(st.integers(1, 50)) + content[to:]
        case "put":
            return content[:at] + draw(st.binary(max_size=12)) + content[to:]
    return content[:at] + draw(st.sampled_from(_ENDINGS)).encode() + content[to:]


def inputs(target: Target) -> st.SearchStrategy[bytes]:
    """Inputs of a reader."""
    good = target.encode(target.document)
    return (
        changed(target.document).map(lambda data: _encoded(target, data))
        | stained(good)
        | PLAIN.map(lambda data: _encoded(target, data))
        | st.binary(max_size=200)
        | st.sampled_from([b"", b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", good * 3])
    )


def check(target: Target, content: bytes) -> None:
    """Read it. Raises AssertionError if the reader fails in another way than by saying why."""
    try:
        target.read(content)
        return
    except (ValueError, OSError) as raised:
        error = raised
    last = traceback.extract_tb(error.__traceback__)[-1]
    kind, text, where = type(error).__name__, str(error), f"{last.filename}:{last.lineno}"
    is_ours = Path(last.filename).is_relative_to(ROOT / "rrf") or kind == "ValidationError"
    assert is_ours, f"{target.name}: {kind} of {where} is not explained: {text:.300}"
    assert text.strip(), f"{target.name}: an empty {kind} of {where}"
    assert len(text) < MOST_CHARACTERS, f"{target.name}: {where} says {len(text)} characters"


def _places(data: typing.Any) -> typing.Iterator[tuple[typing.Any, typing.Any]]:
    """All values inside, as holder and key."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in [*items]:
        yield data, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _encoded(target: Target, data: typing.Any) -> bytes:
    """The bytes of data; of what the format cannot carry, those of its text."""
    try:
        return target.encode(data)
    except (ValueError, TypeError, OverflowError, UnicodeEncodeError):
        return repr(data).encode(errors="replace")


def as_json(data: typing.Any) -> bytes:
    return json.dumps(data).encode()


def as_yaml(data: typing.Any) -> bytes:
    return yaml.safe_dump(data, allow_unicode=True).encode()


def as_message(data: typing.Any) -> bytes:
    return typing.cast("bytes", msgpack.packb(data))
