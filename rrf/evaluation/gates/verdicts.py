"""The answer of a gate, as data: bound to one checkpoint, protocol, evaluation and champion, and
safe against edits.
"""

import dataclasses
import json
import typing
from pathlib import Path

from rrf import atomic

SCHEMA_VERSION = 1
Outcome = typing.Literal["pass", "hold", "fail"]


def verdict_file(folder: str | Path, gate: str) -> Path:
    """Where the verdict of a gate lies in an evaluation directory; every gate has a file there."""
    return Path(folder) / f"verdict-{gate}.json"


def verdicts_of(folder: str | Path, evaluation_digest: str) -> "dict[Path, Verdict]":
    """The verdicts on one evaluation in its directory, by file; those of an earlier, shorter
    evaluation are left out.
    """
    found = {path: Verdict.load(path) for path in sorted(Path(folder).glob("verdict-*.json"))}
    return {path: v for path, v in found.items() if v.evaluation_digest == evaluation_digest}


@dataclasses.dataclass(frozen=True)
class Check:
    """One requirement and how it went."""

    name: str  # "overall", a task, "champion", "champion on <task>"
    outcome: Outcome
    reason: str


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The gate's answer, bound to one checkpoint, one protocol, one evaluation and one champion."""

    outcome: Outcome
    gate: str
    gate_hash: str
    protocol_hash: str
    checkpoint_digest: str
    evaluation_digest: str
    champion_digest: str | None  # checkpoint digest of the champion it was compared with
    champion_version: str | None
    round: int
    rounds: int
    confidence: float  # one-sided, of each bound at this look
    success: dict[str, float]  # successes, episodes, rate, low, high (Wilson 95 %)
    checks: tuple[Check, ...]
    more_episodes_per_task: int = 0  # what a hold asks for

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
        """Plain data with a digest over it, so that an edited verdict is noticed."""
        data = {
            "schema_version": SCHEMA_VERSION,
            **dataclasses.asdict(self),
            "reasons": self.reasons,
        }
        data["checks"] = [dataclasses.asdict(check) for check in self.checks]
        return data | {"digest": atomic.digest_of(data)}

    @property
    def digest(self) -> str:
        """Hex SHA-256 of the verdict."""
        return self.to_dict()["digest"]

    @classmethod
    def from_dict(cls, data: dict, where: str = "verdict") -> "Verdict":
        """The verdict `to_dict` came from. Raises ValueError if it is none, was edited or is of
        another version.
        """
        if not isinstance(data, dict):
            raise ValueError(
                f"{where} holds a {type(data).__name__}, not a verdict; run the gate again"
            )
        content = {key: value for key, value in data.items() if key != "digest"}
        if data.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(
                f"{where}: schema_version is {data.get('schema_version')!r}, this rrf reads "
                f"{SCHEMA_VERSION}; run the gate again"
            )
        if data.get("digest") != atomic.digest_of(content):
            raise ValueError(f"{where} was edited after the gate wrote it; run the gate again")
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
        if not path.is_file():
            raise ValueError(f"no verdict at '{path}'")
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is not JSON ({error}); run the gate again") from error
        return cls.from_dict(data, str(path))
