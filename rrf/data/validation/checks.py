"""The outcome of one check on a dataset, whoever made it: Great Expectations or our own code."""

import dataclasses
import typing
from collections.abc import Iterable, Mapping, Sequence

from rrf.config import did_you_mean

MAX_FINDINGS = 20

Status = typing.Literal["pass", "warn", "fail", "crashed"]

# What a failed check of each kind does, unless the dataset's config says otherwise.
SEVERITIES: dict[str, str] = {
    "files": "error",
    "features": "error",
    "counts": "error",
    "episode_ranges": "error",
    "tasks": "error",
    "splits": "error",
    "images_decodable": "error",
    "duplicate_episodes": "error",
    "same_actions": "warn",
    "leakage": "error",
    "source": "warn",
    "source_statistics": "error",
    "cut_episodes": "error",
    "alignment": "warn",
    "statistics_drift": "warn",
    "constant_dimensions": "warn",
    "saturated_dimensions": "warn",
    "measured_fps": "error",
    "video_frames": "error",
    "keyframes": "warn",
    "hold_previous_baseline": "warn",
    "not_null": "error",
    "finite": "error",
    "limits": "error",
    "types": "error",
    "columns": "error",
    "rows": "error",
    "timestamps": "error",
    "frame_order": "error",
    "unique_frames": "error",
    "task_index": "error",
    "blank_image": "error",
    "instruction": "error",
    "frame_counts": "error",
    "episode_length": "error",
    "frozen_camera": "error",
    "ends_in_success": "warn",
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """One place where a check failed."""

    key: str
    value: str
    episode: int | None = None
    frame: int | None = None

    def __str__(self) -> str:
        where = [f"episode {self.episode}"] * (self.episode is not None)
        where += [f"frame {self.frame}"] * (self.frame is not None)
        return f"{', '.join([*where, self.key])}: {self.value}"


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """What one check found."""

    check: str  # kind, a key of SEVERITIES
    title: str  # what must hold, in a sentence
    status: Status
    num_bad: int = 0
    findings: tuple[Finding, ...] = ()  # the first MAX_FINDINGS
    by: str = "rrf"


def result(
    check: str,
    title: str,
    findings: Sequence[Finding],
    severities: Mapping[str, str],
    num_bad: int | None = None,
    by: str = "rrf",
) -> CheckResult:
    """A result whose status follows from what was found and how severe the check is."""
    status: Status = "pass"
    if findings or num_bad:
        status = "fail" if severities[check] == "error" else "warn"
    count = len(findings) if num_bad is None else num_bad
    return CheckResult(check, title, status, count, tuple(findings[:MAX_FINDINGS]), by)


def results(
    checks: Iterable[tuple[str, str, Sequence[Finding]]], severities: Mapping[str, str]
) -> list[CheckResult]:
    """One result per (check, title, findings), without the checks that are off."""
    return [
        result(check, title, findings, severities)
        for check, title, findings in checks
        if severities[check] != "off"
    ]


def severities(overrides: Mapping[str, str]) -> dict[str, str]:
    """The severity of every check: the defaults, changed by a dataset's config.

    Raises:
        ValueError: For a check that does not exist, with the closest one that does.
    """
    for check in overrides:
        if check not in SEVERITIES:
            raise ValueError(
                f"checks.severity: no check '{check}'{did_you_mean(check, SEVERITIES)}"
            )
    return SEVERITIES | dict(overrides)
