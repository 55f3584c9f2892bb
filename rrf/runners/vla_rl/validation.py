"""Greedy success on held-out initial states, by which a run chooses its result."""

import typing
from collections.abc import Mapping, Sequence

from rrf.envs.vec_env import InitialState
from rrf.storage.trajectories import PlayedEpisode


class ValidationCfg(typing.Protocol):
    """The fields of a run's config that say where it is validated."""

    tasks: list[str]
    validation_seed: int
    validation_episodes: int


def validation_states(cfg: ValidationCfg) -> list[InitialState]:
    """The initial states, none of which is trained on."""
    return [
        InitialState(task, cfg.validation_seed, index)
        for task in cfg.tasks
        for index in range(cfg.validation_episodes)
    ]


def success_of(episodes: Sequence[PlayedEpisode], tasks: Sequence[str]) -> dict:
    """Success rates: `success`, the mean over the tasks, and `by_task`."""
    by_task = {
        task: _mean([e.success for e in episodes if e.job.initial_state.task == task])
        for task in tasks
    }
    return {"success": _mean(list(by_task.values())), "by_task": by_task}


def success_metrics(validation: Mapping) -> dict[str, float]:
    """The same as metrics."""
    by_task = validation["by_task"].items()
    rates = {f"validation/success/{task}": rate for task, rate in by_task}
    return rates | {"validation/success": validation["success"]}


def best_round(validations: Sequence[Mapping]) -> int:
    """The round with the best validation; if two are equal, the later one (more training)."""
    best = max(validations, key=lambda entry: (entry["success"], entry["round"]))
    return best["round"]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
