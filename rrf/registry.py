"""Names for things a config file or a command line can ask for. Nothing is imported until it is
asked for."""

import importlib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import entry_points

from rrf.config import did_you_mean, locate, trust

PLUGIN_GROUP = "rrf.plugins"


class Registry:
    """Name -> "module:attr", for one kind of thing."""

    def __init__(self, kind: str, targets: dict[str, str] | None = None):
        self.kind = kind
        self._targets = dict(targets or {})

    def register(self, name: str, target: str) -> None:
        """Add a name. Raises ValueError if `name` is taken by another target."""
        if self._targets.setdefault(name, target) != target:
            raise ValueError(f"{self.kind} '{name}' is already {self._targets[name]}")

    def get(self, name: str):
        """The object itself, imported now. Raises ValueError naming the closest known name."""
        if name not in self._targets:
            raise ValueError(f"no {self.kind} '{name}'{did_you_mean(name, self._targets)}")
        return locate(self._targets[name])

    def __contains__(self, name: str) -> bool:
        return name in self._targets

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._targets))


def lazy_attributes(
    package: str, targets: Mapping[str, str], others: Iterable[str] = ()
) -> Callable[[str], typing.Any]:
    """A module's `__getattr__` (PEP 562): name -> "module:attr", imported when first asked for.

    Any other name is an AttributeError that lists the names there are, `others` among them.
    """
    names = ", ".join(sorted({*targets, *others}))

    def get(name: str):
        if name in targets:
            return locate(targets[name])
        raise AttributeError(f"{package} has no '{name}'; it has: {names}")

    return get


def require(package: str, extra: str) -> types.ModuleType:
    """An optional package, imported now. Raises ImportError with the command that installs it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(
            f"'{package}' is not installed; it comes with: uv pip install -e '.[{extra}]'"
        ) from error


def load_plugins(group: str = PLUGIN_GROUP) -> list[str]:
    """Call every installed plugin's `register()` and trust its configs. Returns the plugins' names.

    The command line and the flows do this; `import rrf` does not.
    """
    loaded = []
    for point in entry_points(group=group):
        point.load()()
        trust(point.module)
        loaded.append(point.name)
    return loaded
