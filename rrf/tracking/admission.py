"""The conditions for a promotion: a passing verdict on this version, and a complete lineage."""

from rrf.evaluation.gates.verdicts import Verdict
from rrf.tracking.lineage import lacking
from rrf.tracking.versions import Version

LINEAGE = "lineage."
"""Prefix of the tags that hold a version's lineage."""


def check_verdict_is_of(version: Version, verdict: Verdict) -> None:
    """Raise ValueError for a verdict that belongs to another checkpoint or evaluation."""
    who = f"'{version.name}' version {version.version}"
    if verdict.checkpoint_digest != version.checkpoint_digest:
        raise ValueError(
            f"the verdict is about checkpoint {verdict.checkpoint_digest[:12] or 'none'}, but "
            f"{who} is {version.checkpoint_digest[:12]}; run the gate on an evaluation of this "
            "version"
        )
    evaluated = version.tags.get("evaluation.digest")
    if evaluated is None:
        raise ValueError(
            f"{who} has no evaluation; register it again with the directory `rrf eval` wrote"
        )
    if (verdict.evaluation_digest, verdict.protocol_hash) != (
        evaluated,
        version.tags["evaluation.protocol_hash"],
    ):
        raise ValueError(
            f"the verdict judges evaluation {verdict.evaluation_digest[:12]} under protocol "
            f"{verdict.protocol_hash[:12]}, but {who} is registered with evaluation "
            f"{evaluated[:12]} under protocol {version.tags['evaluation.protocol_hash'][:12]}; "
            "register it with the evaluation that was judged"
        )


def check_promotable(version: Version, verdict: Verdict, champion: Version | None) -> None:
    """Raise ValueError if a version may not become the champion.

    The verdict must pass and must have compared with the current champion. The version's lineage
    must name the code and either a dataset that passed validation or an environment.
    """
    who = f"'{version.name}' version {version.version}"
    if not verdict.passed:
        reasons = "\n  ".join(reason for reason in verdict.reasons if not reason.startswith("pass"))
        raise ValueError(
            f"{who} is not promoted: gate {verdict.gate} says {verdict.outcome}:\n  {reasons}"
        )
    against = champion.checkpoint_digest if champion else None
    if verdict.champion_digest != against:
        compared = (
            f"version {verdict.champion_version}" if verdict.champion_digest else "no champion"
        )
        now = f"version {champion.version}" if champion else "none"
        raise ValueError(
            f"{who} was compared with {compared}, but the champion is now {now}; run the gate "
            "again against that one"
        )
    facts = {
        key.removeprefix(LINEAGE): value
        for key, value in version.tags.items()
        if key.startswith(LINEAGE)
    }
    if missing := lacking(facts):
        remedy = (
            "train it in a git checkout with a commit, then register it"
            if "environment.task" in facts
            else "run `dvc repro` in a git checkout, then register it"
        )
        raise ValueError(
            f"{who} is not promoted: its lineage lacks {', '.join(missing)}; {remedy} again"
        )
    if facts.get("validation", "passed") != "passed":  # a dataset has this key, see lacking()
        raise ValueError(
            f"{who} is not promoted: the validation of dataset {facts.get('dataset')} is "
            f"{facts['validation']!r}, not 'passed'"
        )
