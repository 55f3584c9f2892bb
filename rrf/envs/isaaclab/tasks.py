"""Isaac Lab's tasks and the settings that rsl_rl trains them with, as the setup has listed them.

`rrf envs setup isaaclab` asks Isaac Lab once (`prepare.py`) and writes `tasks.json` into the
interpreter's folder, so that a wrong name is told before a simulator starts.
"""

import json
import typing

from rrf.config import did_you_mean
from rrf.envs.foreign.interpreters import interpreter

INTERPRETER = "isaaclab"
PREFIXES = ("Isaac-", "IsaacContrib-")
LIST = "tasks.json"


def is_of_isaaclab(task: str) -> bool:
    """Whether `task` looks like an id of Isaac Lab."""
    return task.startswith(PREFIXES)


def tasks() -> dict[str, dict[str, typing.Any]]:
    """Task -> its `rsl_rl` settings (None if it has none), `step_s` and `episode_s`.

    Raises:
        ValueError: If Isaac Lab is not set up; the message says what to type.
    """
    list_of_tasks = interpreter(INTERPRETER).python.parents[1] / LIST
    if not list_of_tasks.is_file():
        raise ValueError(f"{list_of_tasks} is gone; type: rrf envs setup {INTERPRETER} --force")
    return json.loads(list_of_tasks.read_text())


def require(task: str) -> dict[str, typing.Any]:
    """What is known of a task.

    Raises:
        ValueError: If there is no such task, or if Isaac Lab is not set up.
    """
    known = tasks()
    bare = task.removesuffix("-v0")
    if task not in known and bare in known:
        raise ValueError(f"Isaac Lab 3.0 has no '{task}': its names have no -v0; write {bare}")
    if task not in known:
        raise ValueError(f"Isaac Lab has no task '{task}'{did_you_mean(task, known)}")
    return known[task]
