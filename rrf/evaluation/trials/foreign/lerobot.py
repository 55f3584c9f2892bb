"""`eval_info.json` of lerobot-eval 0.6, one policy in each: outcomes and rewards by task.

The file names no version, so its fields are the version. Its own means are compared with its
episodes; times are of the whole run.
"""

import math
import typing
from collections.abc import Mapping
from pathlib import Path

from rrf import atomic
from rrf.evaluation.trials.outcomes import Outcome, Table, check_fields, number, one_arm

_TOP = ("per_task", "per_group", "overall")
_TASK = ("task_group", "task_id", "metrics")
_METRICS = ("sum_rewards", "max_rewards", "successes")
_HARMLESS_METRICS = ("video_paths", "predicted_video_paths")
_OVERALL = ("avg_sum_reward", "avg_max_reward", "pc_success", "n_episodes")
_HARMLESS_OVERALL = ("eval_s", "eval_ep_s", *_HARMLESS_METRICS)


def read(path: Path, arm: str) -> Table:
    """See `rrf.evaluation.trials.foreign.Exchange`."""
    if not arm:
        raise ValueError(f"{path} does not name its policy; name it: --arm NAME")
    content = atomic.read_json(path, f"there is no file {path}", "run lerobot-eval again")
    if not isinstance(content, dict) or not isinstance(content.get("per_task"), list):
        raise ValueError(f"{path} is no eval_info.json of lerobot: it has no 'per_task'")
    check_fields(list(content), _TOP, (), str(path))
    ignored, outcomes = dict[str, None](), list[Outcome]()
    groups: dict[str, list[Outcome]] = {}
    for task in content["per_task"]:
        played, harmless = _task(task, arm, str(path))
        ignored |= dict.fromkeys(harmless)
        outcomes += played
        groups.setdefault(str(task["task_group"]), []).extend(played)
    if not outcomes:
        raise ValueError(f"{path} holds no episodes")
    if "overall" in content:
        _check(content["overall"], outcomes, f"{path}: overall")
    for name, told in (content.get("per_group") or {}).items():
        _check(told, groups.get(name, []), f"{path}: group {name}")
    return Table("lerobot-eval 0.6", tuple(outcomes), tuple(ignored))


def _task(task: typing.Any, arm: str, where: str) -> tuple[list[Outcome], tuple[str, ...]]:
    if not isinstance(task, dict) or not isinstance(task.get("metrics"), dict):
        raise ValueError(f"{where}: a task has no 'metrics'")
    name = f"{task.get('task_group')}/{task.get('task_id')}"
    at = f"{where}: task {name}"
    check_fields(list(task), _TASK, (), at)
    metrics = task["metrics"]
    harmless = check_fields(list(metrics), _METRICS, _HARMLESS_METRICS, at)
    successes, sums = metrics.get("successes"), metrics.get("sum_rewards")
    if not isinstance(successes, list) or any(type(each) is not bool for each in successes):
        raise ValueError(f"{at}: successes must be a list of true and false")
    if not isinstance(sums, list) or len(sums) != len(successes):
        raise ValueError(f"{at} has {len(successes)} successes and another number of sum_rewards")
    most = metrics.get("max_rewards", [None] * len(successes))
    if not isinstance(most, list) or len(most) != len(successes):
        raise ValueError(f"{at} has {len(successes)} successes and another number of max_rewards")
    outcomes = [
        Outcome(
            arm=arm,
            condition=name,
            success=success,
            scenario=f"{name}/{place}",
            reward=number(reward, f"{at}: sum_rewards"),
            extra={"max_reward": number(highest, f"{at}: max_rewards")},
        )
        for place, (success, reward, highest) in enumerate(zip(successes, sums, most, strict=True))
    ]
    return outcomes, harmless


def _check(told: typing.Any, outcomes: list[Outcome], where: str) -> None:
    if not isinstance(told, Mapping):
        raise ValueError(f"{where} is no object")
    check_fields(list(told), _OVERALL, _HARMLESS_OVERALL, where)
    count = told.get("n_episodes", len(outcomes))
    solved = sum(outcome.success for outcome in outcomes)
    said = told.get("pc_success")
    percent = 100 * solved / len(outcomes) if outcomes else math.nan
    if count != len(outcomes) or (said is not None and not abs(said - percent) < 1e-6):
        raise ValueError(
            f"{where} says {count} episodes and {said} % solved, but the tasks have "
            f"{len(outcomes)} and {percent:.4f} %; it was edited, or tasks are missing"
        )


def write(table: Table, path: Path, arm: str) -> None:
    """See `rrf.evaluation.trials.foreign.Exchange`. A condition GROUP/NUMBER is task NUMBER of a
    group, as it is read; others are the tasks of a group "trials". The reward of a trial without
    one is its progress, or 1 if it is solved. Raises ValueError for invalid trials.
    """
    outcomes = one_arm(table, arm, "lerobot")
    tasks, groups = [], dict[str, list[Outcome]]()
    conditions = list(dict.fromkeys(outcome.condition for outcome in outcomes))
    for place, condition in enumerate(conditions):
        group, slash, number_ = condition.rpartition("/")
        is_theirs = bool(slash) and number_.isdecimal()
        group, task = (group, int(number_)) if is_theirs else ("trials", place)
        played = [outcome for outcome in outcomes if outcome.condition == condition]
        groups.setdefault(group, []).extend(played)
        metrics = {
            "sum_rewards": [_reward(o) for o in played],
            "max_rewards": [_most(o) for o in played],
            "successes": [o.success for o in played],
            "video_paths": [],
        }
        tasks.append({"task_group": group, "task_id": task, "metrics": metrics})
    seconds = sum(outcome.duration_s or 0.0 for outcome in outcomes)
    overall = _summary(outcomes) | {"eval_s": seconds, "eval_ep_s": seconds / len(outcomes)}
    content = {
        "per_task": tasks,
        "per_group": {name: _summary(played) for name, played in groups.items()},
        "overall": overall,
    }
    atomic.write_json(path, content)


def _summary(outcomes: list[Outcome]) -> dict[str, typing.Any]:
    count = len(outcomes)
    return {
        "avg_sum_reward": sum(map(_reward, outcomes)) / count,
        "avg_max_reward": sum(map(_most, outcomes)) / count,
        "pc_success": 100 * sum(outcome.success for outcome in outcomes) / count,
        "n_episodes": count,
        "video_paths": [],
    }


def _reward(outcome: Outcome) -> float:
    if outcome.reward is not None:
        return outcome.reward
    return float(outcome.success) if outcome.progress is None else outcome.progress


def _most(outcome: Outcome) -> float:
    highest = outcome.extra.get("max_reward")
    return _reward(outcome) if highest is None else highest
