"""What a study says, as text for people who decide."""

from rrf.evaluation.intervals import wilson
from rrf.evaluation.results import Evaluation
from rrf.evaluation.trials.configs import PROGRESS
from rrf.evaluation.trials.plan import Arm
from rrf.evaluation.trials.record import Record
from rrf.evaluation.trials.results import Standing, failures, mean_duration, standing


def text(record: Record) -> str:
    """Success by arm and condition with Wilson 95 % bounds, partial credit, interventions, invalid
    trials, failure tags, and the gate's verdict on each candidate.
    """
    plan, state, now = record.plan, record.state, standing(record)
    about = f"study {plan.name}, plan {plan.digest[:12]}, record {record.digest[:12]}"
    valid = sum(trial.is_valid for trial in state.trials)
    lines = [
        f"{about}: {valid} valid and {len(state.trials) - valid} invalid trials, "
        f"{state.num_blocks} complete blocks of at most {plan.num_blocks}"
    ]
    if state.looks:
        lines.append(f"  looked at before it was over: after {_numbers(state.looks)} trials")
    for arm in plan.arms:
        lines += _arm(record, now, arm)
    unserved = sum(trial.is_valid and not trial.episodes for trial in state.trials)
    if unserved:
        lines.append(
            f"{unserved} trials were played without the policy server of `rrf trial serve`: which "
            "policy acted in them is what somebody says"
        )
    for name, verdict in now.verdicts.items():
        lines.append(f"gate {verdict.gate} on {name}: {verdict.outcome}")
        lines += [f"  {reason}" for reason in verdict.reasons]
    return "\n".join(lines) + "\n"


def _arm(record: Record, now: Standing, arm: Arm) -> list[str]:
    trials = [trial for trial in record.state.trials if trial.turn.slot.arm == arm.name]
    valid = [trial for trial in trials if trial.is_valid]
    evaluation = now.evaluations.get(arm.name)
    if evaluation is None:
        return [f"{arm.name} ({arm.reference}): no complete block"]
    lines = [f"{arm.name} ({arm.reference}): {evaluation.overall}"]
    lines += [f"  {condition}: {rate}" for condition, rate in evaluation.per_task.items()]
    mean, low, high = evaluation.bounds_of(PROGRESS, 1.0)
    helped = sum(trial.answer["interventions"] > 0 for trial in valid)
    lines.append(
        f"  partial credit {mean:.3f} [{low:.3f}, {high:.3f}], {helped} of {len(valid)} trials "
        f"with an intervention, {mean_duration(valid):.1f} s on average"
    )
    if invalid := [trial for trial in trials if not trial.is_valid]:
        lines.append(f"  {len(invalid)} invalid: " + "; ".join(t.answer["reason"] for t in invalid))
        lines.append(f"  if they all had failed: {_if_failed(evaluation, len(invalid))}")
    if tags := failures(valid):
        lines.append("  " + ", ".join(f"{tag} {count}" for tag, count in tags.items()))
    return lines


def _if_failed(evaluation: Evaluation, extra: int) -> str:
    rate = evaluation.overall
    trials = rate.episodes + extra
    low, high = wilson(rate.successes, trials)
    return f"{rate.successes / trials:.3f} [{low:.3f}, {high:.3f}] ({rate.successes}/{trials})"


def _numbers(looks: list) -> str:
    return ", ".join(str(look["trials"]) for look in looks)
