"""The result file of a benchmark of vla-eval 0.8 (`BENCHMARK_aggregate.json`), one policy in each.

Every episode counts, those that ended in an error as failures, as vla-eval counts them. Its own
means are compared with its episodes. A partial result is refused: what is missing may be what
failed.
"""

import datetime
import typing
from collections.abc import Mapping
from pathlib import Path

from rrf import atomic
from rrf.evaluation.trials.outcomes import Outcome, Table, check_fields, number, one_arm

VERSIONS = ("0.8.",)
_KNOWN = (
    *("benchmark", "harness_version", "tasks", "seed", "metric_keys", "mean_success", "partial"),
    *("queue_unfinished", "shard", "num_episodes_total", "num_errors", "mode"),
)
_HARMLESS = ("created_at", "config", "eval_id", "server_info", "render")
_TASK = ("task", "episodes", "num_episodes", "num_errors", "avg_steps", "mean_success")
_EPISODE = ("episode_id", "metrics", "steps", "elapsed_sec", "failure_reason", "failure_detail")
_ROUNDED = 6e-5  # means are written with four digits


def read(path: Path, arm: str) -> Table:
    """See `rrf.evaluation.trials.foreign.Exchange`."""
    if not arm:
        raise ValueError(f"{path} does not name its policy; name it: --arm NAME")
    content = atomic.read_json(path, f"there is no file {path}", "export it again: vla-eval export")
    if not isinstance(content, dict) or not isinstance(content.get("tasks"), list):
        raise ValueError(f"{path} is no result of vla-eval: it has no 'tasks'")
    version = content.get("harness_version")
    if not str(version).startswith(VERSIONS):
        raise ValueError(
            f"{path} is of vla-eval {version}, known is {VERSIONS[0]}x; export it with that"
        )
    means = [n for n in content if n.split("_")[0] in ("mean", "sum", "max", "min") and "_" in n]
    ignored = check_fields(list(content), (*_KNOWN, *means), _HARMLESS, str(path))
    if content.get("partial") or content.get("queue_unfinished") or content.get("shard"):
        raise ValueError(
            f"{path} is partial: not all episodes were played; finish it: vla-eval run --eval-id "
            f"{content.get('eval_id', 'ID')}"
        )
    outcomes: list[Outcome] = []
    for task in content["tasks"]:
        played = _task(content, task, arm, str(path))
        _check_mean(task, played, f"{path}: task {task['task']}")
        outcomes += played
    _check_mean(content, outcomes, str(path))
    if content.get("num_episodes_total", len(outcomes)) != len(outcomes) or not outcomes:
        raise ValueError(
            f"{path} says that it has {content.get('num_episodes_total')} episodes, but it has "
            f"{len(outcomes)}"
        )
    return Table(f"vla-eval {version}, {content.get('benchmark')}", tuple(outcomes), ignored)


def _task(content: Mapping, task: typing.Any, arm: str, where: str) -> list[Outcome]:
    if not isinstance(task, dict) or not isinstance(task.get("episodes"), list):
        raise ValueError(f"{where}: a task has no 'episodes'")
    name = str(task.get("task"))
    means = [n for n in task if n.split("_")[0] in ("mean", "sum", "max", "min") and "_" in n]
    check_fields(list(task), (*_TASK, *means), (), f"{where}: task {name}")
    outcomes = []
    for place, episode in enumerate(task["episodes"]):
        at = f"{where}: task {name}, episode {place}"
        if not isinstance(episode, dict):
            raise ValueError(f"{at} is no object")
        metrics = episode.get("metrics")
        failed = episode.get("failure_reason") or ""
        success = (
            metrics.get("success", None if not failed else False)
            if isinstance(metrics, dict)
            else None
        )
        if type(success) is not bool and success not in (0, 1, 0.0, 1.0):
            raise ValueError(f"{at}: metrics.success is {success!r:.40}, allowed: true or false")
        context = {k: v for k, v in episode.items() if k not in _EPISODE}
        steps = number(episode.get("steps"), f"{at}: steps", least=0)
        number_ = episode.get("episode_id")
        outcomes.append(
            Outcome(
                arm=arm,
                condition=name,
                success=bool(success),
                scenario=f"{name}/{context.get('task_idx', '')}/{number_}",
                duration_s=number(episode.get("elapsed_sec"), f"{at}: elapsed_sec", least=0),
                termination=str(failed),
                notes=str(episode.get("failure_detail") or ""),
                seed=content.get("seed"),
                steps=None if steps is None else int(steps),
                extra={"context": context, "episode_id": number_, "metrics": metrics},
            )
        )
    return outcomes


def _check_mean(told: Mapping, outcomes: list[Outcome], where: str) -> None:
    said = told.get("mean_success")
    if said is None or not outcomes:
        return
    mean = sum(outcome.success for outcome in outcomes) / len(outcomes)
    if abs(mean - said) > _ROUNDED:
        raise ValueError(
            f"{where}: mean_success is {said}, but its episodes have {mean:.4f}; it was edited, or "
            "episodes are missing"
        )


def write(table: Table, path: Path, arm: str) -> None:
    """See `rrf.evaluation.trials.foreign.Exchange`. Raises ValueError for invalid trials."""
    outcomes = one_arm(table, arm, "vla-eval")
    tasks = []
    for name in dict.fromkeys(outcome.condition for outcome in outcomes):
        played = [outcome for outcome in outcomes if outcome.condition == name]
        episodes = [_episode(outcome, place) for place, outcome in enumerate(played)]
        errors = sum(bool(e.get("failure_reason")) for e in episodes)
        tasks.append(
            {
                "task": name,
                "episodes": episodes,
                "num_episodes": len(episodes),
                "avg_steps": sum(outcome.steps or 0 for outcome in played) / len(played),
                **({"num_errors": errors} if errors else {}),
                "mean_success": round(sum(o.success for o in played) / len(played), 4),
            }
        )
    content = {
        "benchmark": table.source,
        "mode": "real",
        "harness_version": f"{VERSIONS[0]}0",
        "created_at": datetime.datetime.now(datetime.UTC).isoformat(),
        "tasks": tasks,
        "config": {},
        "metric_keys": {"success": "mean"},
        "mean_success": round(sum(o.success for o in outcomes) / len(outcomes), 4),
        "num_episodes_total": len(outcomes),
        "num_errors": sum(task.get("num_errors", 0) for task in tasks),
    }
    atomic.write_json(path, content)


def _episode(outcome: Outcome, place: int) -> dict:
    known = outcome.extra.get("episode_id")
    episode = {
        "episode_id": place if known is None else known,
        "metrics": outcome.extra.get("metrics") or {"success": outcome.success},
        "steps": outcome.steps or 0,
        "elapsed_sec": outcome.duration_s or 0.0,
        **outcome.extra.get("context", {}),
    }
    if outcome.termination and not outcome.success:
        episode["failure_reason"] = outcome.termination
    return episode
