"""The verdict of a gate as data.

A verdict is bound to one checkpoint, protocol, evaluation and champion, and a digest reveals edits.
"""

import dataclasses
import typing
from pathlib import Path

from rrf import atomic, formats
from rrf.config import readable

Outcome = typing.Literal["pass", "hold", "fail"]


def verdict_file(folder: str | Path, gate: str) -> Path:
    """The file of a gate's verdict in an evaluation directory; each gate has its own file.

    Raises:
        ValueError: If the gate's name leads out of the directory.
    """
    return atomic.inside(folder, f"verdict-{gate}.json", f"the verdict of gate '{gate}'")


def verdicts_of(folder: str | Path, evaluation_digest: str) -> "dict[Path, Verdict]":
    """File -> verdict, for the verdicts in an evaluation directory that judge this evaluation.

    Verdicts on an earlier, shorter evaluation are left out, and, with a warning, those that cannot
    be read.
    """
    verdicts = readable(sorted(Path(folder).glob("verdict-*.json")), Verdict.load)
    return {path: v for path, v in verdicts.items() if v.evaluation_digest == evaluation_digest}


@dataclasses.dataclass(frozen=True)
class Check:
    """One requirement of a gate and its outcome."""

    name: str  # "overall", a task, "champion", "champion on <task>"
    outcome: Outcome
    reason: str


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The verdict of a gate on one checkpoint, protocol, evaluation and champion."""

    outcome: Outcome
    gate: str
    gate_hash: str
    protocol_hash: str
    checkpoint_digest: str
    evaluation_digest: str
    champion_digest: str | None  # digest of the champion's checkpoint, if there was a champion
    champion_version: str | None
    round: int
    rounds: int
    confidence: float  # of each one-sided bound at this look
    success: dict[str, float]  # successes, episodes, rate, low, high (Wilson 95 %)
    checks: tuple[Check, ...]
    more_episodes_per_task: int = 0  # additional episodes that a hold asks for
    champion_evaluation: str | None = None  # digest of the champion's evaluation
    best_version: str | None = None  # the best champion so far, if it is another one
    best_evaluation: str | None = None
    attempt: int = 1  # which candidate this is that is judged against this champion
    trial_evaluation: str | None = None  # digest of its trials on a robot, if the gate asks for any

    @property
    def passed(self) -> bool:
        """Whether the candidate may be promoted."""
        return self.outcome == "pass"

    @property
    def reasons(self) -> list[str]:
        """One sentence per check, the decisive ones first."""
        order = {"fail": 0, "hold": 1, "pass": 2}
        ranked = sorted(self.checks, key=lambda check: order[check.outcome])
        return [f"{check.outcome}: {check.reason}" for check in ranked]

    def to_dict(self) -> dict:
        """Plain data with a digest over it, so that edits are detected."""
        data = {
            **formats.VERDICT.mark,
            **dataclasses.asdict(self),
            "reasons": self.reasons,
        }
        if self.trial_evaluation is None:  # digests of before there were trials stay as they are
            del data["trial_evaluation"]
        data["checks"] = [dataclasses.asdict(check) for check in self.checks]
        return data | {"digest": atomic.digest_of(data)}

    @property
    def digest(self) -> str:
        """Hex SHA-256 of the verdict."""
        return self.to_dict()["digest"]

    @classmethod
    def from_dict(cls, data: dict, where: str = "verdict") -> "Verdict":
        """The inverse of `to_dict`.

        Raises:
            ValueError: If the data is not a verdict, was edited, or was written by a newer rrf.
        """
        if not isinstance(data, dict):
            raise ValueError(
                f"{where} holds a {type(data).__name__}, not a verdict; run the gate again"
            )
        content = {key: value for key, value in data.items() if key != "digest"}
        formats.VERDICT.check(data, where)
        if data.get("digest") != atomic.digest_of(content):
            raise ValueError(f"{where} was edited after the gate wrote it; run the gate again")
        content = formats.VERDICT.read(content, where)
        names = {f.name for f in dataclasses.fields(cls)}
        fields: dict = {key: value for key, value in content.items() if key in names}
        fields["checks"] = tuple(Check(**check) for check in content["checks"])
        return cls(**fields)

    def save(self, path: str | Path) -> None:
        """Write the verdict as JSON, atomically."""
        atomic.write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> "Verdict":
        """Read a verdict written by `save`. Raises ValueError naming the file."""
        path = Path(path)
        absent = f"no verdict at '{path}'; write one with: rrf eval CHECKPOINT --gate FILE"
        return cls.from_dict(atomic.read_json(path, absent, "run the gate again"), str(path))
