"""Reads a NumPy file of pickled plain data without unpickling it.

Unpickling calls whatever the file names. Here the file's instructions are read one by one
(`pickletools.genops`) and carried out by this module alone, which knows dicts, lists, tuples, text,
numbers and NumPy's arrays of numbers, text or such plain data, and refuses everything else. Nothing
that the file names is imported or called.
"""

import pickletools
import typing
from pathlib import Path

import numpy as np

_NUMBERS_AND_TEXT = "biufUS"
_ARRAY, _NDARRAY, _DTYPE, _SCALAR, _ENCODE = "_reconstruct", "ndarray", "dtype", "scalar", "encode"
_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
_KNOWN = {
    **{(module, name): name for module in _MULTIARRAY for name in (_ARRAY, _SCALAR)},
    ("numpy", _NDARRAY): _NDARRAY,
    ("numpy", _DTYPE): _DTYPE,
    ("_codecs", _ENCODE): _ENCODE,
}
_VALUES = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_NOTHING_TO_DO = {"PROTO", "FRAME", "STOP"}
_PUSHES = {
    *("BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "BINFLOAT", "FLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BINSTRING", "SHORT_BINSTRING"),
}
_PUTS, _GETS = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARK, _UNDER_WAY = object(), object()


class _Named:
    """What the file calls by a name that is known here."""

    def __init__(self, name: str):
        self.name = name


class _Array:
    """An array whose content comes later. It takes the place of the content in a list or dict."""

    def __init__(self):
        self.content: typing.Any = None


class _Dtype:
    """A dtype whose order of bytes comes later."""

    def __init__(self, text: typing.Any):
        if not isinstance(text, str) or text == "O8":
            text = "O"
        self.dtype = np.dtype(text)


def read_plain(path: Path) -> typing.Any:
    """The plain data of a .npy file that was written with `allow_pickle`.

    Raises:
        ValueError: If it is no such file, is damaged, or holds anything but plain data; the message
            names what.
    """
    try:
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            read_header = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }[version]
            _, _, dtype = read_header(file)
            if not dtype.hasobject:
                raise ValueError(f"it is an array of {dtype}, not a pickle")
            return _content(_Machine().run(file))
    except FileNotFoundError:
        raise ValueError(f"{path} is missing") from None
    except (LookupError, TypeError, RecursionError, OSError, ValueError) as error:
        raise ValueError(f"{path} holds no plain data that could be read: {error}") from error


class _Machine:
    """Carries out the instructions of a pickle, as far as they make plain data."""

    def __init__(self):
        self._stack: list[typing.Any] = []
        self._memo: dict[int, typing.Any] = {}

    def run(self, file: typing.BinaryIO) -> typing.Any:
        """What the pickle in `file` describes."""
        for opcode, argument, _ in pickletools.genops(file):
            self._step(opcode.name, argument)
        [result] = self._stack
        return result

    def _step(self, name: str, argument: typing.Any) -> None:
        stack = self._stack
        if name in _NOTHING_TO_DO:
            return
        if name in _PUSHES:
            stack.append(argument)
        elif name in _VALUES:
            stack.append(_VALUES[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in _PUTS:
            self._memo[int(argument)] = stack[-1]
        elif name in _GETS:
            stack.append(self._memo[int(argument)])
        elif name in _TUPLES:
            stack.append(tuple(self._pop(_TUPLES[name])))
        elif name in ("TUPLE", "LIST", "DICT"):
            items = self._since_mark()
            made = {"TUPLE": tuple, "LIST": list, "DICT": _pairs}[name]
            stack.append(made(items))
        elif name == "POP":
            stack.pop()
        else:
            self._change(name, argument)

    def _change(self, name: str, argument: typing.Any) -> None:
        """The instructions that change what is there, or call something."""
        stack = self._stack
        if name in ("APPEND", "APPENDS"):
            items = self._pop(1) if name == "APPEND" else self._since_mark()
            _as(list, stack[-1]).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = self._pop(2) if name == "SETITEM" else self._since_mark()
            _as(dict, stack[-1]).update(_pairs(items))
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            named = tuple(argument.split(" ")) if name == "GLOBAL" else tuple(self._pop(2))
            if named not in _KNOWN:
                raise ValueError(f"it names {'.'.join(map(str, named))}")
            stack.append(_Named(_KNOWN[named]))
        elif name == "REDUCE":
            function, arguments = self._pop(2)
            stack.append(_call(_as(_Named, function).name, _as(tuple, arguments)))
        elif name == "BUILD":
            [state] = self._pop(1)
            _build(stack[-1], _as(tuple, state))
        else:
            raise ValueError(f"it has the instruction {name}")

    def _pop(self, count: int) -> list[typing.Any]:
        items = self._stack[-count:]
        if len(items) < count or _MARK in items:
            raise ValueError("it is damaged")
        del self._stack[-count:]
        return items

    def _since_mark(self) -> list[typing.Any]:
        items: list[typing.Any] = []
        while (item := self._stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]


def _call(name: str, arguments: tuple) -> typing.Any:
    """What a known call makes, without calling anything of that name."""
    if name == _ARRAY:
        return _Array()
    if name == _DTYPE:
        return _Dtype(arguments[0])
    if name == _SCALAR:
        return _numbers(_as(_Dtype, arguments[0]).dtype, (1,), arguments[1])[0].item()
    if name == _ENCODE:
        return _as(str, arguments[0]).encode("latin1")
    raise ValueError(f"it calls {name}")


def _build(thing: typing.Any, state: tuple) -> None:
    if isinstance(thing, _Dtype):
        if thing.dtype.kind in _NUMBERS_AND_TEXT and state[1] in ("<", ">"):
            thing.dtype = thing.dtype.newbyteorder(state[1])
        return
    _, shape, dtype, is_fortran, content = state
    dtype = _as(_Dtype, dtype).dtype
    if dtype.kind == "O":
        items = _as(list, content)
        _as(_Array, thing).content = items[0] if shape == () and len(items) == 1 else items
    else:
        array = _numbers(dtype, tuple(shape), content, "F" if is_fortran else "C")
        _as(_Array, thing).content = array


def _numbers(
    dtype: np.dtype, shape: tuple, content: typing.Any, order: typing.Literal["C", "F"] = "C"
) -> np.ndarray:
    if dtype.kind not in _NUMBERS_AND_TEXT:
        raise ValueError(f"it has an array of {dtype}")
    if isinstance(content, str):
        content = content.encode("latin1")
    return np.frombuffer(_as(bytes, content), dtype).reshape(shape, order=order)


def _content(value: typing.Any, done: dict[int, typing.Any] | None = None) -> typing.Any:
    """The same data with arrays in the places where they belong. What is in several places is
    looked at once.
    """
    done = {} if done is None else done
    if not isinstance(value, (_Array, dict, list, tuple, _Named, _Dtype)):
        return value
    if id(value) not in done:
        done[id(value)] = _UNDER_WAY
        if isinstance(value, _Array):
            made = _content(value.content, done)
        elif isinstance(value, dict):
            made = {key: _content(item, done) for key, item in value.items()}
        elif isinstance(value, (list, tuple)):
            made = type(value)(_content(item, done) for item in value)
        else:
            raise ValueError("it holds a type")
        done[id(value)] = made
    if done[id(value)] is _UNDER_WAY:
        raise ValueError("it holds itself")
    return done[id(value)]


def _pairs(items: typing.Sequence) -> dict:
    keys, values = items[::2], items[1::2]
    if any(not isinstance(key, (str, int)) for key in keys):
        raise ValueError("a dict has a key that is neither text nor a number")
    return dict(zip(keys, values, strict=True))


_Kind = typing.TypeVar("_Kind")


def _as(kind: type[_Kind], value: typing.Any) -> _Kind:
    if not isinstance(value, kind):
        raise ValueError(f"it has a {type(value).__name__} where a {kind.__name__} must be")
    return value
