"""What Prefect shows of a run before anybody opens it: which model, stage and version it is about.

Prefect fills in names like "promote {model} version {version}" by itself; the functions here are
for names whose parts are shortened first, as their parameters are files.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from prefect.runtime import flow_run, task_run


def of_task(text: str, *shortened: str) -> Callable[[], str]:
    """A `task_run_name`: `text` filled in with the parameters, those `shortened` by `short`."""

    def name() -> str:
        return filled(text, shortened, task_run.parameters)

    return name


def of_flow(text: str, *shortened: str) -> Callable[[], str]:
    """A `flow_run_name`: `text` filled in with the parameters, those `shortened` by `short`."""

    def name() -> str:
        return filled(text, shortened, flow_run.parameters)

    return name


def short(value: str) -> str:
    """A file without folder and suffix, a checkpoint as RUN/STEP, a version as NAME/NUMBER."""
    path = Path(value.removeprefix("models:/"))
    if path.suffix in (".yaml", ".yml"):
        return path.stem
    return "/".join(path.parts[-2:])


def filled(text: str, shortened: Iterable[str], parameters: Mapping) -> str:
    """`text` filled in with the parameters, those `shortened` by `short`."""
    shorts = {name: short(parameters[name]) for name in shortened if parameters[name]}
    return text.format(**{**parameters, **shorts})
