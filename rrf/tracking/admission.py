"""The conditions for a promotion: a passing verdict, and a complete lineage the gate allows."""

from rrf.evaluation.gates.gate import GateCfg
from rrf.evaluation.gates.verdicts import Verdict
from rrf.tracking.lineage import lacking
from rrf.tracking.versions import Version

LINEAGE = "lineage."
"""Prefix of the tags that hold a version's lineage."""


class NotPromotedError(ValueError):
    """A version may not become the champion, as the rules of its model say."""


def check_promotable(version: Version, verdict: Verdict, gate: GateCfg) -> None:
    """Raise NotPromotedError if a version may not become the champion.

    The verdict must pass. The version's lineage must name the code and either a dataset that passed
    validation or an environment, and must be as clean as the gate demands.
    """
    who = f"'{version.name}' version {version.version}"
    if not verdict.passed:
        reasons = "\n  ".join(reason for reason in verdict.reasons if not reason.startswith("pass"))
        raise NotPromotedError(
            f"{who} is not promoted: gate {verdict.gate} says {verdict.outcome}:\n  {reasons}"
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
        raise NotPromotedError(
            f"{who} is not promoted: its lineage lacks {', '.join(missing)}; {remedy} again"
        )
    if facts.get("validation", "passed") != "passed":  # a dataset has this key, see lacking()
        raise NotPromotedError(
            f"{who} is not promoted: the validation of dataset {facts.get('dataset')} is "
            f"{facts['validation']!r}, not 'passed'"
        )
    if gate.forbid_git_dirty and facts.get("git_dirty") != "false":
        raise NotPromotedError(
            f"{who} is not promoted: it was trained with uncommitted changes of the code, and gate "
            f"{gate.name} forbids that (forbid_git_dirty); commit them, train and register again"
        )
    if gate.forbid_unpushed_data and "dataset" in facts and facts.get("data_pushed") != "true":
        raise NotPromotedError(
            f"{who} is not promoted: the recordings of dataset {facts['dataset']} are in no DVC "
            f"remote, and gate {gate.name} forbids that (forbid_unpushed_data); run `dvc push`, "
            "then register it again"
        )
