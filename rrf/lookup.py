"""Tables of the names that a config file or a command line can use. What a name stands for is
imported on first use."""

import importlib
import logging
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib.metadata import entry_points

from rrf.config import did_you_mean, is_trusted, locate, trust
from rrf.extras import install_command

PLUGIN_GROUP = "rrf.plugins"
_OWN = __name__.partition(".")[0]
_log = logging.getLogger(__name__)


class Lookup:
    """A mapping of names to "module:attr" for one kind of object, e.g. environments. Iteration
    leaves out aliases."""

    def __init__(
        self,
        kind: str,
        targets: dict[str, str] | None = None,
        aliases: Mapping[str, str] | None = None,
        own: str = "",
    ):
        """`aliases` are other names for some of the names; `own` says how users add one, for the
        error of an unknown name."""
        self.kind, self._own = kind, f"; {own}" if own else ""
        self._targets = dict(targets or {})
        self.aliases = dict(aliases or {})

    def register(self, name: str, target: str) -> None:
        """Add a name. Raises ValueError if `name` already stands for another target."""
        if self._targets.setdefault(name, target) != target:
            raise ValueError(f"{self.kind} '{name}' already stands for {self._targets[name]}")

    def get(self, name: str):
        """Import and return the object. For an unknown name, raises ValueError with the closest
        known one."""
        name = self.aliases.get(name, name)
        if name not in self._targets:
            near = did_you_mean(name, {**self._targets, **self.aliases})
            raise ValueError(f"no {self.kind} '{name}'{near}{self._own}")
        return locate(self._targets[name])

    def name_of(self, object_type: type) -> str:
        """The name that stands for a class, or its own if none does."""
        target = f"{object_type.__module__}:{object_type.__qualname__}"
        return next(
            (name for name in self if self._targets[name] == target), object_type.__qualname__
        )

    def __contains__(self, name: str) -> bool:
        return name in self._targets or name in self.aliases

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._targets))


def lazy_attributes(
    package: str, targets: Mapping[str, str], others: Iterable[str] = ()
) -> Callable[[str], typing.Any]:
    """A module's `__getattr__` (PEP 562) that imports each of `targets` on first use.

    `targets` maps names to "module:attr". For any other name it raises an AttributeError that lists
    the known names, including `others`.
    """
    names = ", ".join(sorted({*targets, *others}))

    def get(name: str):
        if name in targets:
            return locate(targets[name])
        raise AttributeError(f"{package} has no '{name}'; it has: {names}")

    return get


def locate_function(path: str, known: Collection[str], what: str) -> Callable:
    """The function that a config names as "module:name".

    It is one of `known`, or defined in a package that the user named (`trust`), not one that such a
    package only imported from elsewhere.

    Args:
        path: The text in the config.
        known: The functions of rrf that may be named here.
        what: The field of the config, for errors.

    Raises:
        ValueError: For any other text. Nothing is imported then.
    """
    module = path.partition(":")[0]
    if path not in known and (module.partition(".")[0] == _OWN or not is_trusted(module)):
        raise ValueError(
            f"{what} is '{path}', which is neither one of {', '.join(sorted(known)) or 'ours'} nor "
            f"in a module that you named; if it is a function of your own, add --import {module}"
        )
    try:
        target = locate(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{what} is '{path}', which cannot be found: {error}") from error
    home = str(getattr(target, "__module__", ""))
    if not callable(target) or home.partition(".")[0] != module.partition(".")[0]:
        raise ValueError(f"{what} is '{path}', which is not a function that is defined there")
    return target


def require(package: str, extra: str) -> types.ModuleType:
    """Import an optional package.

    Raises:
        ImportError: With the command that installs it, or with what it lacks on this system.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        if not isinstance(error, ModuleNotFoundError):  # e.g. a library of the system
            raise ImportError(f"'{package}' is installed, but cannot be used: {error}") from error
        raise ImportError(
            f"'{package}' is not installed; it comes with: {install_command(extra)}"
        ) from error


def load_plugins(group: str = PLUGIN_GROUP) -> list[str]:
    """Call `register()` of every installed plugin and trust its configs; returns the plugin names.

    The command line and the flows do this; `import rrf` does not. A plugin that fails is left out,
    and a warning says so: most commands do not need it.
    """
    loaded = []
    for point in entry_points(group=group):
        try:
            point.load()()
        except Exception as error:  # the code is not ours and may raise anything
            what = f"{type(error).__name__}: {error}"
            _log.warning("left out: the plugin '%s' (%s): %s", point.name, point.value, what)
            continue
        trust(point.module)
        loaded.append(point.name)
    return loaded
