"""What the trials of a study say: an evaluation of each arm, the gate's verdict on each candidate.

Only complete blocks count, so that all arms have as many trials in every condition.
"""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence

from rrf import atomic, code_digest, formats
from rrf.evaluation.gates.decision import Rival, decide
from rrf.evaluation.gates.verdicts import Verdict
from rrf.evaluation.results import EpisodeResult, Evaluation
from rrf.evaluation.trials.configs import (
    DURATION,
    INTERVENTIONS,
    INVALID,
    PROGRESS,
    TrialProtocolCfg,
)
from rrf.evaluation.trials.plan import Arm, Plan
from rrf.evaluation.trials.record import Record, Trial

TRIAL = "trial.json"
"""Plan, secret and record of a study, beside the evaluations of its arms."""


@dataclasses.dataclass(frozen=True)
class Standing:
    """Where a study stands."""

    evaluations: Mapping[str, Evaluation]
    """Arm -> its evaluation; empty before the first complete block."""
    verdicts: Mapping[str, Verdict]
    """Candidate -> what the gate says; empty before the first complete block."""
    is_over: bool
    """Whether every candidate has passed or failed, or all blocks are complete."""


def standing(record: Record) -> Standing:
    """The evaluations and verdicts of a record as it is now."""
    plan = record.plan
    if record.state.num_blocks == 0:
        return Standing({}, {}, False)
    evaluations = {arm.name: evaluation_of(record, arm) for arm in plan.arms}
    verdicts = {
        arm.name: verdict_on(plan, arm, evaluations, plan.attempt + number)
        for number, arm in enumerate(plan.candidates)
    }
    is_over = record.state.turn is None or all(v.outcome != "hold" for v in verdicts.values())
    return Standing(evaluations, verdicts, is_over)


def verdict_on(
    plan: Plan, arm: Arm, evaluations: Mapping[str, Evaluation], attempt: int
) -> Verdict:
    """What the plan's gate says about a candidate, compared with the other arms."""
    rivals = {
        other.role: Rival(evaluations[other.name], other.version or None)
        for other in plan.arms
        if other.role != "candidate"
    }
    evaluation, gate = evaluations[arm.name], plan.gate_cfg
    return decide(evaluation, gate, rivals.get("first"), rivals.get("best"), attempt=attempt)


def evaluation_of(record: Record, arm: Arm) -> Evaluation:
    """The trials of an arm in the complete blocks, in the order of its protocol's initial states.

    Raises:
        ValueError: Before the first complete block.
    """
    plan, num_blocks = record.plan, record.state.num_blocks
    if num_blocks == 0:
        raise ValueError(f"no block of study '{plan.name}' is complete yet")
    protocol = plan.protocol.replace(
        episodes_per_task=num_blocks, study=plan.digest, record=record.digest
    )
    scored: dict[tuple[str, int], Trial] = {}
    invalid: dict[tuple[str, int], int] = {}
    for trial in record.state.trials:
        slot = trial.turn.slot
        if slot.arm != arm.name or slot.block >= num_blocks:
            continue
        place = (slot.condition, slot.block)
        if trial.is_valid:
            scored[place] = trial
        else:
            invalid[place] = invalid.get(place, 0) + 1
    episodes = [
        _episode(scored[s.task, s.index], protocol, invalid.get((s.task, s.index), 0))
        for s in protocol.initial_states()
    ]
    wall_s = sum(trial.duration_s for trial in scored.values())
    return Evaluation(
        protocol=protocol.to_dict(),
        protocol_hash=protocol.hash,
        checkpoint_digest=arm.digest,
        episodes=episodes,
        timings={
            "wall_s": round(wall_s, 1),
            "cpu_s": 0.0,
            "episodes_per_s": len(scored) / max(wall_s, 1e-9),
        },
        policy=arm.reference,
        created=record.lines[-1]["time"],
        source_digest=code_digest.source_digest(),
        surroundings={"robot": protocol.robot, "rig": protocol.rig},
    )


def is_solved(trial: Trial, protocol: TrialProtocolCfg) -> bool:
    """Whether a trial counts as solved: the operator says so, and nobody had to help."""
    helped = trial.answer["interventions"] > 0 and protocol.intervention_fails
    return trial.answer["success"] and not helped


def progress(trial: Trial, protocol: TrialProtocolCfg) -> float:
    """The partial credit of a trial, in [0, 1]: points of the rubric, or else the furthest stage,
    or else whether it is solved.
    """
    if protocol.rubric:
        done = sum(protocol.rubric[step] for step in trial.answer["steps"])
        return min(1.0, done / sum(protocol.rubric.values()))
    if protocol.stages:
        stage = trial.answer["stage"]
        reached = protocol.stages.index(stage) + 1 if stage else 0
        return reached / len(protocol.stages)
    return float(is_solved(trial, protocol))


def bundle(record: Record, secret: str) -> dict:
    """Plan, secret and record as one, with a digest: the evidence behind the evaluations. With the
    secret, everybody can draw the order again.
    """
    data = {
        **formats.TRIAL.mark,
        "plan": {**dataclasses.asdict(record.plan), "digest": record.plan.digest},
        "secret": secret,
        "record": record.lines,
    }
    return data | {"digest": atomic.digest_of(data)}


def failures(trials: Sequence[Trial]) -> dict[str, int]:
    """How often each tag was given, most often first."""
    tags = [tag for trial in trials if trial.is_valid for tag in trial.answer["tags"]]
    counted = {tag: tags.count(tag) for tag in dict.fromkeys(tags)}
    return dict(sorted(counted.items(), key=lambda item: -item[1]))


def mean_duration(trials: Sequence[Trial]) -> float:
    """Seconds; 0 without trials."""
    return statistics.fmean(trial.duration_s for trial in trials) if trials else 0.0


def _episode(trial: Trial, protocol: TrialProtocolCfg, num_invalid: int) -> EpisodeResult:
    credit = progress(trial, protocol)
    return EpisodeResult(
        task=trial.turn.slot.condition,
        seed=protocol.seed,
        index=trial.turn.slot.block,
        success=is_solved(trial, protocol),
        steps=0,
        episode_return=credit,
        metrics={
            PROGRESS: credit,
            INTERVENTIONS: float(trial.answer["interventions"]),
            INVALID: float(num_invalid),
            DURATION: round(trial.duration_s, 3),
        },
    )
