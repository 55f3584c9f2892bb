"""`@configclass`: a keyword-only dataclass that checks its types, round-trips through plain data
and builds its owner.

A config is data. Defaults are copied, assignments are checked, and an undeclared field is an error.
`cfg.build(**runtime)` constructs the class that the config describes; that class is imported only
then. Nested configs name their class under "type" when they are written out, so a subclass survives
YAML. On reading, only classes of trusted packages are accepted (`trust`). Overrides are dotted
paths, with the same syntax on the command line, in YAML files and in flow parameters.
"""

import copy
import dataclasses
import difflib
import functools
import importlib
import inspect
import logging
import re
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import pydantic
import yaml
from pydantic.dataclasses import dataclass as pydantic_dataclass

from rrf import formats

_T = typing.TypeVar("_T")
_log = logging.getLogger(__name__)
TYPE_KEY = "type"
_FLAT = "overrides"  # the keys of a mapping with this name are dotted paths
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$")
_INT = re.compile(r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]+|0|[1-9][0-9_]*)$")
_CHECKED = pydantic.ConfigDict(
    extra="forbid",
    validate_assignment=True,
    arbitrary_types_allowed=True,
    allow_inf_nan=False,
    ser_json_inf_nan="constants",
)
_BAD_VALUES = (ValueError, LookupError, AttributeError, TypeError)
NOT_YAML = (yaml.YAMLError, RecursionError, *_BAD_VALUES)
"""What PyYAML raises: other errors than its own for e.g. 2001-99-99 and `!!bool x`."""
_OWN = "rrf"
_trusted = {_OWN}
_MOST_NAMES = 60  # that an error lists
_CLOSE = 0.65  # difflib's default of 0.6 would take "Nope-v1" for a typo of "Hopper-v5"


class _Loader(yaml.SafeLoader):
    """Reads 1e-3 as a number, as in YAML 1.2; PyYAML follows YAML 1.1 and reads it as text.

    Aliases are refused: with ten of them a file of 2 kB becomes gigabytes.
    """

    def compose_node(self, parent, index):
        if self.check_event(yaml.AliasEvent):
            alias = self.peek_event()
            raise yaml.YAMLError(f"*{alias.anchor} must be written out{alias.start_mark}")
        return super().compose_node(parent, index)


class _Dumper(yaml.SafeDumper):
    """Writes the text "1e-3" in quotes, so that `_Loader` reads text again, and no aliases."""

    def ignore_aliases(self, data) -> bool:
        return True


_Loader.yaml_implicit_resolvers = {  # as in YAML 1.2, 1:30 is text and no sum of minutes
    first: [(tag, _INT if tag.endswith(":int") else pattern) for tag, pattern in resolvers]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


class Cfg:
    """The methods `@configclass` gives every config. Inherit it to let a type checker see them."""

    _builds: typing.ClassVar[str]
    left_out_if_empty: typing.ClassVar[Collection[str]] = ()
    """Fields that plain data leaves out while they are empty: digests of before such a field was
    added stay as they are."""

    def build(self, *args, **runtime):
        """Construct what this config describes: `Owner(self, *args, **runtime)`."""
        return locate(self._builds)(self, *args, **runtime)

    def to_dict(self) -> dict:
        """Plain data (dict, list, scalar); every config names its class under "type"."""
        return _dump(self)

    @classmethod
    def from_dict(cls, data: Mapping) -> typing.Self:
        """The inverse of `to_dict`. A mapping without "type" becomes the declared class.

        Raises:
            ValueError: For an unknown field (the message names the closest known one), a value of
                the wrong type, or a "type" that is not a subclass of the declared class or is not
                in a trusted package.
        """
        return pydantic.TypeAdapter(cls).validate_python(data)

    def replace(self, **changes) -> typing.Self:
        """A deep copy with some fields changed."""
        return dataclasses.replace(copy.deepcopy(self), **changes)  # type: ignore[type-var]

    def override(self, changes: Mapping[str, typing.Any]) -> typing.Self:
        """A copy with dotted paths replaced (`{"optimizer.lr": 1e-3}`), checked as a whole.

        In a plain mapping (one that is not a config), missing keys of a path are created. The keys
        of a mapping named `overrides` are dotted paths themselves: everything after its name is one
        key. So "env.overrides.rewards.air_time.weight" sets that entry and keeps the others.

        Raises:
            ValueError: For an unknown field; the message names the path and the closest known one.
        """
        data = self.to_dict()
        for path, value in changes.items():
            *parents, leaf = _keys(path)
            node = data
            for depth, parent in enumerate(parents):
                node = _step_into(node, parent, path=".".join(parents[: depth + 1]), root=data)
            _check_key(node, leaf, path, data)
            node[leaf] = value
        return type(self).from_dict(data)

    def to_yaml(self) -> str:
        """The config as YAML in declaration order, below the version of the format; `from_yaml`
        reads back an equal config."""
        data = formats.CONFIG.mark | self.to_dict()
        return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True)

    @classmethod
    def from_yaml(cls, text: str) -> typing.Self:
        """The inverse of `to_yaml`. Raises ValueError like `from_dict`."""
        data = parse_yaml(text) or {}
        return cls.from_dict(formats.CONFIG.read(data, f"this {cls.__name__}"))

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _resolve(cls, value, handler):
        if not isinstance(value, Mapping):
            return handler(value)
        value = dict(value)
        path = value.pop(TYPE_KEY, None)
        named: typing.Any = cls if path is None else _locate_trusted(path)
        if not (isinstance(named, type) and issubclass(named, cls)):
            raise ValueError(f"{path!r} is not a {cls.__name__}")
        names = [f.name for f in dataclasses.fields(named)]  # type: ignore[arg-type]
        for name, given in value.items():
            if name not in names:
                near = _nearest(str(name), names, _defaults(named))
                raise ValueError(f"{named.__name__} has no field '{name}'{near}")
            if isinstance(given, bool) and not _takes_bool(named, name):
                raise ValueError(
                    f"{name} is {str(given).lower()}, which is neither a number nor text"
                )
        return named(**value)


_Class = typing.TypeVar("_Class")


@typing.overload
@typing.dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
def configclass(cls: type[_Class], /) -> type[_Class]: ...


@typing.overload
@typing.dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
def configclass(*, builds: str | None = None) -> Callable[[type[_Class]], type[_Class]]: ...


def configclass(cls: type | None = None, /, *, builds: str | None = None) -> typing.Any:
    """Turn a class body into a config.

    Args:
        cls: The class body; fields are `name: type = default`, or a bare `name = value` overriding
            an inherited field.
        builds: What `cfg.build(...)` constructs, as "module:Name" or a "Name" in the config's own
            module. It is imported by `build`, so importing a config never imports torch or a
            simulator.

    Raises:
        TypeError: For a bare `name = value` that overrides nothing inherited (a typo, or a missing
            annotation).
    """
    if cls is None:
        return functools.partial(_configclass, builds=builds)
    return _configclass(cls, builds)


def _configclass(cls, builds: str | None):
    inherited = _inherited_fields(cls)
    annotations = inspect.get_annotations(cls)
    for name, value in list(vars(cls).items()):
        if name.startswith("_") or hasattr(value, "__get__") or _is_class_variable(cls, name):
            continue
        if name not in annotations and name not in inherited:
            raise TypeError(
                f"{cls.__name__}.{name} is neither annotated nor inherited"
                f"{did_you_mean(name, inherited)}"
            )
        annotations.setdefault(name, inherited.get(name))
        if not isinstance(value, dataclasses.Field) and type(value).__hash__ is None:
            setattr(
                cls,
                name,
                dataclasses.field(default_factory=lambda value=value: copy.deepcopy(value)),
            )
    cls.__annotations__ = annotations
    if builds is not None:
        cls._builds = builds if ":" in builds else f"{cls.__module__}:{builds}"
    if not issubclass(cls, Cfg):
        for name, member in vars(Cfg).items():
            if not name.startswith("__") and name not in dir(cls):
                setattr(cls, name, member)
    return pydantic_dataclass(cls, kw_only=True, config=_CHECKED)


def parse_overrides(words: Iterable[str]) -> dict[str, typing.Any]:
    """Turn `["a.b=1", "c=[2, 3]"]` into `{"a.b": 1, "c": [2, 3]}`; values are read as YAML.

    Raises:
        ValueError: For a word without "=", an empty path, or a value that is not YAML.
    """
    changes = {}
    for word in words:
        path, equals, value = word.partition("=")
        if not path or not equals:
            raise ValueError(
                f"override {word!r} is not of the form path=value, e.g. optimizer.lr=1e-3"
            )
        try:
            changes[path] = parse_yaml(value)
        except yaml.YAMLError as error:
            raise ValueError(
                f"the value of override {word!r} is not YAML; write a list as [1, 2] and a mapping "
                "as {a: 1}"
            ) from error
    return changes


def trust(package: str) -> None:
    """Accept what configs name in `package`: config classes as "type", functions, tasks.

    The package may be given by the name of one of its modules. Loaded plugins and the modules of
    `--import` are trusted this way. Nothing of any other package is imported or called because a
    config names it, since the config may have come with somebody else's checkpoint.
    """
    _trusted.add(package.partition(".")[0])


def is_trusted(module: str) -> bool:
    """Whether configs may name what is in `module` (`trust`)."""
    return module.partition(".")[0] in _trusted


def locate(path: str):
    """The object at "module:Name", imported now. For names that stand in the code, not in configs:
    those go through `rrf.lookup.locate_function`."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def first_error(error: Exception) -> str:
    """The text of an error; a pydantic error becomes one line `path: what is wrong` per problem."""
    if not isinstance(error, pydantic.ValidationError):
        return str(error)
    lines = []
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"])
        what = problem["msg"].removeprefix("Value error, ")
        lines.append(f"{where}: {what}" if where else what)
    return "\n".join(lines)


def parse_yaml(text: str) -> typing.Any:
    """What a text says. Raises yaml.YAMLError for what is no YAML that a config can be."""
    try:
        return yaml.load(text, _Loader)
    except RecursionError as error:
        raise yaml.YAMLError("it is nested too deeply") from error
    except _BAD_VALUES as error:
        raise yaml.YAMLError(f"a value in it is not of the kind that it says: {error}") from error


def read_yaml(path: str | Path) -> dict:
    """Read a YAML file that must hold a mapping, and leave out the version of its format.

    Raises:
        ValueError: For anything else, or if a newer rrf wrote the file; with the file's name.
    """
    path = Path(path)
    if not path.is_file():
        near = closest(path.name, [p.name for p in path.parent.glob("*.yaml")])
        hint = f"; did you mean '{path.parent / near}'?" if near else ""
        raise ValueError(f"no file '{path}'{hint}")
    try:
        data = parse_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not YAML: {error}") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path} must hold a mapping at top level, found {type(data).__name__}")
    return formats.CONFIG.read(data, path)


def readable(files: Iterable[Path], read: Callable[[Path], _T]) -> dict[Path, _T]:
    """What `read` makes of each file that a scan of a folder finds.

    What it cannot read is left out, and a warning says so: nobody asked for that file.
    """
    values = {}
    for file in files:
        try:
            values[file] = read(file)
        except (ValueError, OSError, ImportError) as error:
            text = " ".join(first_error(error).split())
            where = "" if str(file) in text else f"{file}: "
            _log.warning("left out, because it cannot be read: %s%s", where, text)
    return values


def require_at_least_one(cfg: typing.Any, *names: str) -> None:
    """Raise ValueError if one of these fields is below 1; null passes."""
    _require(cfg, names, lambda value: value >= 1, "1 or more")


def require_positive(cfg: typing.Any, *names: str) -> None:
    """Raise ValueError if one of these fields is 0 or below; null passes."""
    _require(cfg, names, lambda value: value > 0, "above 0")


def require_not_negative(cfg: typing.Any, *names: str) -> None:
    """Raise ValueError if one of these fields is below 0; null passes."""
    _require(cfg, names, lambda value: value >= 0, "0 or more")


def _require(
    cfg: typing.Any, names: Iterable[str], is_allowed: Callable[[float], bool], allowed: str
) -> None:
    for name in names:
        value = getattr(cfg, name)
        if value is not None and not is_allowed(value):
            raise ValueError(f"{name} is {value}, allowed: {allowed}")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of an error about an unknown name: the closest known name, or else all of them, or
    the nearest of very many."""
    known, name = sorted(names), str(name)  # of YAML, a key may be null or a number
    close = closest(name, known)
    if not close and len(known) > _MOST_NAMES:
        nearest = difflib.get_close_matches(name, known, n=5, cutoff=0)
        return f"; the nearest of {len(known):,}: {', '.join(nearest)}"
    return f"; did you mean '{close}'?" if close else f"; known: {', '.join(known) or 'none'}"


def closest(name: str, names: Iterable[str]) -> str | None:
    """The entry of `names` that `name` is most likely a typo of, if any is close enough."""
    return next(iter(difflib.get_close_matches(str(name), sorted(names), n=1, cutoff=_CLOSE)), None)


def _takes_bool(cls, name: str) -> bool:
    """Whether the field accepts a bool; pydantic alone would convert true to 1."""
    hint = _type_hints(cls)[name]
    return hint is typing.Any or bool in (hint, *typing.get_args(hint))


_type_hints = functools.cache(typing.get_type_hints)


def _is_class_variable(cls, name: str) -> bool:
    """Whether a class or a base class declares the name as a ClassVar, which is not a field."""
    declared = [inspect.get_annotations(base).get(name) for base in cls.__mro__]
    return any(typing.get_origin(hint) is typing.ClassVar for hint in declared)


def _defaults(cls) -> dict:
    """The fields of a config class that have defaults, as plain data."""
    defaults = {}
    for field in dataclasses.fields(cls):
        if field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = _dump(field.default_factory())
        elif field.default is not dataclasses.MISSING:
            defaults[field.name] = _dump(field.default)
    return defaults


def _inherited_fields(cls) -> dict[str, typing.Any]:
    bases = (base for base in reversed(cls.__mro__[1:]) if dataclasses.is_dataclass(base))
    return {f.name: f.type for base in bases for f in dataclasses.fields(base)}


def _locate_trusted(path):
    if not isinstance(path, str):
        raise ValueError(f"type is {path!r}; expected text such as 'module:Name'")
    if not is_trusted(path.partition(":")[0]):
        raise ValueError(f"type {path!r} lies outside the trusted packages {sorted(_trusted)}")
    try:
        return locate(path)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"type {path!r} does not exist: {error}") from error


def _keys(path: str) -> list[str]:
    """Split a dotted path into keys; everything after `overrides` is one key."""
    keys = path.split(".")
    if _FLAT not in keys[:-1]:
        return keys
    start = keys.index(_FLAT) + 1
    return [*keys[:start], ".".join(keys[start:])]


def _step_into(node, key: str, path: str, root: Mapping) -> dict:
    _check_key(node, key, path, root)
    if node.get(key) is None:
        node[key] = {}
    return node[key]


def _check_key(node, key: str, path: str, root: Mapping) -> None:
    if not isinstance(node, dict):
        raise ValueError(f"'{path}' goes into a plain value, which has no fields")
    if TYPE_KEY in node and key not in node and key not in _left_out(node[TYPE_KEY]):
        fields = [name for name in node if name != TYPE_KEY]
        raise ValueError(f"no config field '{path}'{_nearest(key, fields, root)}")


def _left_out(path: str) -> Collection[str]:
    """The fields of a class that plain data may be without."""
    return getattr(_locate_trusted(path), "left_out_if_empty", ())


def _nearest(key: str, fields: Iterable[str], root: Mapping) -> str:
    """The end of an error about an unknown field: a field of that name elsewhere in the config, or
    the closest one here, or the closest one elsewhere, or all that there are here.

    Args:
        key: The name that is not a field.
        fields: The fields there are where it stands.
        root: The whole config as plain data.
    """
    places: dict[str, list[str]] = {}
    for path in _paths(root):
        places.setdefault(path.rpartition(".")[2], []).append(path)
    near = key if key in places else None
    if near is None and closest(key, fields) is None:
        near = closest(key, places)
    if near is None:
        return did_you_mean(key, fields)
    return f"; did you mean {' or '.join(repr(path) for path in places[near][:3])}?"


def _paths(node: Mapping, prefix: str = "") -> Iterable[str]:
    """The dotted paths of all fields in plain data of a config."""
    for name, value in node.items():
        if name != TYPE_KEY:
            yield f"{prefix}{name}"
            if isinstance(value, Mapping) and TYPE_KEY in value:
                yield from _paths(value, f"{prefix}{name}.")


def _dump(value) -> typing.Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        optional = getattr(type(value), "left_out_if_empty", ())
        fields = {
            field.name: _dump(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.name not in optional or getattr(value, field.name)
        }
        return {TYPE_KEY: f"{type(value).__module__}:{type(value).__qualname__}"} | fields
    if isinstance(value, Mapping):
        return {key: _dump(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_dump(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value
