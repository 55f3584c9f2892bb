"""What holds for every test."""

import contextlib
import functools
import gc
import importlib.metadata
import importlib.util
import os
import signal
from pathlib import Path

import pytest
import typer.main

pytest_plugins = ["tests.people"]

# A shell's background jobs ignore Ctrl-C, and hand that on to what they start: tests that send one
# to a process would wait for it for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tree of rrf's commands is built once, not by each command that tests type in this process:
# it is most of what a short one does.
typer.main.get_command = functools.cache(typer.main.get_command)

_GL = os.environ.get("MUJOCO_GL")
_LARGE = (
    "torch._dynamo", "transformers", "lerobot.policies.factory",
    "prefect.testing.utilities", "mlflow", "sklearn.metrics",
    "wandb", "viser", "mujoco_warp",
)  # fmt: skip

gc.disable()  # until all is imported


def pytest_sessionstart():
    """Each worker imports as commands do: without a search of all files of all packages.

    A new environment has no bytecode: each worker begins with other packages, so that they do not
    all compile the same files at once.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        from rrf.cli.quick_imports import distributions_of_packages

        importlib.metadata.packages_distributions = distributions_of_packages
        with contextlib.suppress(ImportError):  # MLflow asks this one
            backport = importlib.import_module("importlib_metadata")
            backport.packages_distributions = distributions_of_packages
        # It asks Python to look at the files of all modules, which are few by now.
        with contextlib.suppress(ImportError):
            importlib.import_module("wandb")
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    begin = worker * 3 % len(_LARGE)
    spec = importlib.util.find_spec(_LARGE[begin].partition(".")[0])
    if worker and spec and spec.cached and not Path(spec.cached).exists():
        for name in _LARGE[begin:] + _LARGE[:begin]:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


def pytest_collection_finish():
    """Do not look for garbage among what the packages hold, which takes a tenth of the time."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture(autouse=True)
def _chosen_renderer():
    """Put back what mjlab chooses when a test module imports it: processes that tests start would
    not import MuJoCo where there is no EGL.
    """
    if _GL is None:
        os.environ.pop("MUJOCO_GL", None)


@pytest.fixture(autouse=True)
def _no_real_time_priority():
    """Put back what SVT-AV1, which other projects' writers use, leaves behind when root calls it:
    a process that keeps the others of the machine from running.
    """
    yield
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@pytest.fixture(autouse=True, scope="module")
def _small_heap():
    """Simulators search for garbage when they are closed: not also among all that was there when
    their module began, which takes a second each time.
    """
    gc.collect()
    gc.freeze()
