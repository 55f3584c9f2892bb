"""What makes commands start and end fast: fewer imports, and fewer garbage collections.

While a command imports thousands of modules, Python would look for garbage a thousand times and
find none, and again when it ends; together a third of the time.

Torch's compiler is left alone until something compiles. `import tensordict`, and the first step of
an optimizer, import `torch._dynamo` with sympy and hundreds of modules: 1.1 s of CPU, nearly as
much as torch itself. They only leave marks there for a compilation that most commands never start.
Until then a stand-in takes the marks; whatever else is asked of it imports the real module, which
gets the marks first.

`transformers` and `diffusers` each ask Python on import which distribution every package belongs
to, and Python looks at each of their 35,000 files: 0.7 s of CPU. `distributions_of_packages` reads
the lists of files only, once.
"""

import collections
import functools
import gc
import importlib
import importlib.metadata
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable

_NAME = "torch._dynamo"
_OBJECTS = 50_000  # new objects between two collections during imports; Python's default is 700
_usual = gc.get_threshold()
_NAME_OF_DISTRIBUTION = re.compile(r"^Name:(.+)$", re.MULTILINE)


def begin() -> None:
    """To be called before the imports of a command."""
    gc.set_threshold(_OBJECTS, *_usual[1:])
    defer_compiler()
    importlib.metadata.packages_distributions = distributions_of_packages


def work_begins() -> None:
    """To be called when everything is imported: what is there now is not garbage."""
    gc.freeze()
    gc.set_threshold(*_usual)


def end() -> None:
    """To be called when a command ends: the modules are not searched for garbage once more."""
    gc.freeze()


def defer_compiler() -> None:
    """Put the stand-in where `import torch._dynamo` finds it, unless the real module is there."""
    sys.modules.setdefault(_NAME, _StandIn(_NAME))


def distributions_of_packages() -> dict[str, list[str]]:
    """What `importlib.metadata.packages_distributions` says: package -> names of distributions.

    Files are not looked for, so a package whose files were deleted by hand is named, too. Each call
    gives a dict of its own: MLflow adds to what it gets.
    """
    return {package: [*names] for package, names in _names_of_packages().items()}


@functools.cache
def _names_of_packages() -> dict[str, list[str]]:
    names: dict[str, list[str]] = collections.defaultdict(list)
    for distribution in importlib.metadata.distributions():
        named = _NAME_OF_DISTRIBUTION.search(distribution.read_text("METADATA") or "")
        name = named[1].strip() if named else distribution.metadata["Name"]
        for package in _packages(distribution):
            names[package].append(name)
    return dict(names)


def _packages(distribution: importlib.metadata.Distribution) -> set[str]:
    if declared := (distribution.read_text("top_level.txt") or "").split():
        return set(declared)
    record = distribution.read_text("RECORD")
    files = [line.partition(",")[0].strip('"') for line in (record or "").splitlines()]
    if record is None:
        files = [str(file) for file in distribution.files or ()]
    tops = {top if below else inspect.getmodulename(top) or top
            for top, _, below in (file.partition("/") for file in files)}  # fmt: skip
    return {top for top in tops if top and "." not in top}


class _StandIn(types.ModuleType):
    """The functions of `torch._dynamo` that eager code calls."""

    def __init__(self, name: str):
        super().__init__(name)
        self._marks: list[tuple[str, Callable]] = []

    def allow_in_graph(self, fn):
        return self._marked("allow_in_graph", fn)

    def assume_constant_result(self, fn):
        return self._marked("assume_constant_result", fn)

    def graph_break(self, msg: str = "") -> None:
        """Nothing is compiled now, so there is no graph to break."""

    def disable(self, fn=None, recursive: bool = True, **how):
        if fn is None:
            return functools.partial(self.disable, recursive=recursive, **how)
        known: list[Callable] = []  # the function as the real module disables it

        @functools.wraps(fn)
        def call(*args, **kwargs):
            if sys.modules.get(_NAME) is self:
                return fn(*args, **kwargs)
            if not known:
                known.append(self._real().disable(fn, recursive, **how))
            return known[0](*args, **kwargs)

        return call

    def __getattr__(self, name: str):
        if name.startswith("__") and name != "__path__" and sys.modules.get(_NAME) is self:
            raise AttributeError(name)  # for those who only look at all modules, e.g. inspect
        return getattr(self._real(), name)

    def _marked(self, name: str, fn):
        if sys.modules.get(_NAME) is not self:
            return getattr(self._real(), name)(fn)
        self._marks.append((name, fn))
        return fn

    def _real(self) -> typing.Any:
        if sys.modules.get(_NAME) is self:
            del sys.modules[_NAME]
            real = importlib.import_module(_NAME)
            marks, self._marks = self._marks, []
            for name, fn in marks:
                getattr(real, name)(fn)
        return importlib.import_module(_NAME)
