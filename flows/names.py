"""Names of flow runs and task runs in Prefect's lists: the model, stage and version of a run.

Prefect fills in names like "promote {model} version {version}" by itself. The functions here are
for names with parameters that are files, which are shortened first.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from prefect.runtime import flow_run, task_run


def of_task(text: str, *shortened: str) -> Callable[[], str]:
    """A `task_run_name`: `text` with the parameters filled in, the `shortened` ones by `short`."""

    def name() -> str:
        return filled(text, shortened, task_run.parameters)

    return name


def of_flow(text: str, *shortened: str) -> Callable[[], str]:
    """A `flow_run_name`: `text` with the parameters filled in, the `shortened` ones by `short`."""

    def name() -> str:
        return filled(text, shortened, flow_run.parameters)

    return name


def short(value: str) -> str:
    """A YAML file without folder and suffix, a checkpoint as RUN/STEP, a version as NAME/NUMBER."""
    path = Path(value.removeprefix("models:/"))
    if path.suffix in (".yaml", ".yml"):
        return path.stem
    return "/".join(path.parts[-2:])


def filled(text: str, shortened: Iterable[str], parameters: Mapping) -> str:
    """`text` with the parameters filled in, the `shortened` ones by `short`."""
    shorts = {name: short(parameters[name]) for name in shortened if parameters[name]}
    return text.format(**{**parameters, **shorts})
