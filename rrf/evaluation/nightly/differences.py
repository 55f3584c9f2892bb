"""What differs between two evaluations of one checkpoint on the same initial states, as facts.

An evaluation is deterministic: the same checkpoint, protocol, code, packages and processor give the
same episodes to the last digit. So each episode that runs differently has a cause. These are facts
and no statistics. They raise no alarm, because most causes do no harm; the rules of
`rrf.evaluation.nightly.series` say whether a difference is a fall.
"""

import dataclasses

from rrf import atomic
from rrf.evaluation.results import Evaluation


@dataclasses.dataclass(frozen=True)
class Differences:
    """The episodes that differ, and everything on record that could explain it."""

    pairs: int  # initial states that both evaluations have
    otherwise: int  # pairs of which one episode succeeded and the other did not
    differently: int  # other pairs whose steps, return or metrics differ
    changed: tuple[str, ...]  # e.g. "torch 2.8.0 → 2.9.0"

    def in_words(self, other: str) -> str:
        """A sentence; `other` names the evaluation that this one is compared with."""
        cause = "nothing that is recorded has changed"
        if self.changed:
            cause = f"changed since then: {', '.join(self.changed)}"
        if not self.otherwise and not self.differently:
            return f"all {self.pairs} episodes run exactly as in {other}; {cause}"
        also = f", and {self.differently} more run differently" if self.differently else ""
        link = ";" if self.changed else ", although"
        return (
            f"{self.otherwise} of {self.pairs} episodes end otherwise than in {other}{also}{link} "
            f"{cause}"
        )


def differences(evaluation: Evaluation, other: Evaluation) -> Differences:
    """Compare an evaluation with an earlier one of the same checkpoint and the same conditions.

    Raises:
        ValueError: If they are of different checkpoints.
    """
    if evaluation.checkpoint_digest != other.checkpoint_digest:
        raise ValueError(
            f"the evaluations are of two checkpoints, {evaluation.checkpoint_digest[:12]} and "
            f"{other.checkpoint_digest[:12]}; only those of one checkpoint must be equal"
        )
    others = {episode.initial_state: episode for episode in other.episodes}
    pairs = [(e, others[e.initial_state]) for e in evaluation.episodes if e.initial_state in others]
    otherwise = sum(a.success != b.success for a, b in pairs)
    return Differences(
        len(pairs),
        otherwise,
        sum(a != b for a, b in pairs) - otherwise,
        _changes(evaluation, other),
    )


def outcomes(evaluation: Evaluation) -> dict[str, str]:
    """A digest by task, which two evaluations share if the same initial states were solved."""
    return {
        task: atomic.digest_of(
            [[e.seed, e.index, e.success] for e in evaluation.episodes if e.task == task]
        )
        for task in evaluation.per_task
    }


def _changes(evaluation: Evaluation, other: Evaluation) -> tuple[str, ...]:
    facts = [("code", other.source_digest[:12], evaluation.source_digest[:12])]
    after, before = evaluation.surroundings, other.surroundings
    names = sorted(after.keys() | before.keys())
    facts += [(name, before.get(name, "absent"), after.get(name, "absent")) for name in names]
    return tuple(f"{name} {old} → {new}" for name, old, new in facts if old != new)
