"""The registry in words: descriptions of models and versions on MLflow's pages, and the ledger.

Both texts are computed from the registry (tags, aliases, ledger) and rewritten after every change.
If a process is killed before it has written them, the next change brings them up to date. A
description that a person wrote or edited is kept (`rrf.mlflow_store.authorship`).
"""

import datetime
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rrf import atomic
from rrf.lineage import facts_in
from rrf.mlflow_store.authorship import ROOM, is_ours, signed
from rrf.mlflow_store.flow_run import FlowRun
from rrf.registry import evidence, signatures
from rrf.registry import ledger as ledgers
from rrf.registry.changes import CANDIDATE, CHAMPION, PREVIOUS
from rrf.registry.entries import REVOKED_BY, Entry
from rrf.registry.training_facts import foundations, in_words
from rrf.registry.versions import Version, model_named, versions_in
from rrf.runners.checkpoints.deployable import VLA, described

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import RegisteredModel

COLUMNS = ("#", "when (UTC)", "change", "champion", "before", "verdict", "by", "reason")
"""Columns of `row`. `champion` is the champion after the change, `before` the one it replaced.
`verdict` is the beginning of the verdict's digest; the version's tags hold the whole verdict."""
_ROLES = {CHAMPION: "Champion", CANDIDATE: "Candidate", PREVIOUS: "Previous champion"}
_DONE = {
    "register": "registered",
    "evaluate": "evaluated",
    "document": "described anew",
    "promote": "promoted",
    "rollback": "rolled back",
    "withdraw": "withdrawn",
    "unrevoke": "allowed again",
    "stage": "waits for approvals",
    "approve": "approved",
    "release": "acts as a canary",
}
"""What is done to a version."""
_PAST = {
    "promote": "Former champion",
    "rollback": "Rolled back",
    "withdraw": "Withdrawn",
    "unrevoke": "Allowed again after it was rolled back or withdrawn",
    "release": "Canary, or shadow",
    "conclude": "Former canary",
}
"""What a version is after an action, if it is nothing else."""
_ARRIVALS = ("register", "evaluate", "document")
_NUM_REASONS, _NUM_TASKS, _LONGEST_REASON = 8, 12, 300
log = logging.getLogger(__name__)


def refresh(client: "MlflowClient", name: str) -> None:
    """Bring the descriptions of a model and of its versions up to date.

    They are only for people to read. Therefore an error while writing them becomes a warning.
    """
    from mlflow.exceptions import MlflowException

    try:
        seen = ledgers.remembered(name)
        if model := model_named(client, name):
            _write(client, model, seen)
    except (MlflowException, OSError, ValueError) as error:
        log.warning("the descriptions of '%s' are not up to date: %s", name, error)


def _write(client: "MlflowClient", model: "RegisteredModel", seen: str | None) -> None:
    name, versions = model.name, versions_in(client, model)
    if not versions:
        return
    ledger = ledgers.parse(name, model.tags, seen)
    entries = [entry for entry in ledger.entries if entry.action not in _ARRIVALS]
    for version in versions:
        text = signed(version_text(version, entries))
        if is_ours(version.description) and version.description != text:
            client.update_model_version(name, version.version, text)
    text = signed(model_text(name, versions, entries))
    written = model.description or ""
    if is_ours(written) and written != text:
        client.update_registered_model(name, text)


def model_text(name: str, versions: Sequence[Version], entries: Sequence[Entry]) -> str:
    """The description of a model: its purpose, how to use it, and the history of its champions.

    Args:
        name: The registered model.
        versions: All versions, newest first; at least one.
        entries: The changes of champion and gate, oldest first. If the text would be too long for
            MLflow, the oldest changes are left out.
    """
    in_role = {alias: version for version in versions for alias in version.aliases}
    shown = in_role.get(CHAMPION, versions[0])
    lines = [_purpose(shown), ""]
    for alias, role in _ROLES.items():
        if alias in in_role:
            version = in_role[alias]
            lines.append(
                f"- {role}: version {version.version}, {_success_and_verdict(version.tags)}"
            )
    lines += ["", *_usage(name, CHAMPION if CHAMPION in in_role else CANDIDATE, shown), ""]
    num_shown = len(entries)
    while len("\n".join([*lines, *_history(name, entries, num_shown)])) > ROOM and num_shown:
        num_shown -= 1
    return "\n".join([*lines, *_history(name, entries, num_shown)])


def version_text(version: Version, entries: Sequence[Entry]) -> str:
    """The description of a version: its training, its evaluation, and its history as champion.

    MLflow's lists show the beginning of the first line.
    """
    tags = version.tags
    training, lineage = _below("training.", tags), facts_in(tags)
    lines = [f"{_role(version, entries)}: {_success_and_verdict(tags)}", ""]
    lines.append(f"- Training: {in_words(training)}; MLflow run `{version.run_id}`")
    lines += [f"- {line}" for line in foundations(lineage)]
    if "evaluation.protocol" in tags:
        digest = tags.get("evaluation.protocol_hash", "")[:12]
        protocol = f"`{tags['evaluation.protocol']}` (`{digest}`)"
        lines.append(f"- Evaluated under protocol {protocol}: {_success(tags)}")
        if "evaluation.served_on" in tags:
            lines.append(f"- Served on {tags['evaluation.served_on']}: {served(tags)}")
        report = f"{evidence.place(tags['evaluation.digest'])}/report.html"
        lines.append(f"- Report: `{report}` among the artifacts of the run")
    lines += _gate(tags)
    changes = [e for e in entries if e.action in _PAST]
    of_others = ("release", "conclude")  # whose champion only stays what it is
    named = [
        e
        for e in changes
        if e.version == version.version
        or (e.champion == version.version and e.action not in of_others)
    ]
    lines += [f"- {_sentence(entry, version.version)}" for entry in named]
    if flow_run := FlowRun.from_tags(tags):
        lines.append(f"- Registered by Prefect flow run {flow_run}")
    return "\n".join(lines)


def _below(prefix: str, tags: Mapping[str, str]) -> dict[str, str]:
    """The tags that begin with `prefix`; their keys are returned without it."""
    return {key.removeprefix(prefix): tags[key] for key in tags if key.startswith(prefix)}


def _role(version: Version, entries: Sequence[Entry]) -> str:
    past = [e for e in entries if e.version == version.version and e.action in _PAST]
    last = past[-1] if past else None
    if last and _revokes(last):
        return REVOKED_BY[last.action].capitalize()
    for alias, role in _ROLES.items():
        if alias in version.aliases:
            return role
    return _PAST[last.action] if last else "Registered"


def _revokes(entry: Entry) -> bool:
    return entry.action in REVOKED_BY and (entry.conclusion or {"revokes": True})["revokes"]


def _success_and_verdict(tags: Mapping[str, str]) -> str:
    """Success and verdict in a few words."""
    success = _success(tags) if "evaluation.success" in tags else "not evaluated"
    if "gate.outcome" not in tags:
        return f"{success}; judged by no gate"
    return f"{success}; gate {tags.get('gate.name', '')}: {tags['gate.outcome']}"


def _success(tags: Mapping[str, str]) -> str:
    rate, low, high = (
        float(tags.get(f"evaluation.{k}", "nan")) for k in ("success", "low", "high")
    )
    return (
        f"{rate:.1%} of {tags.get('evaluation.episodes', '?')} episodes solved "
        f"(95 % bounds {low:.1%} to {high:.1%})"
    )


def served(tags: Mapping[str, str]) -> str:
    """Latency and memory of the served policy in a few words; "" if they were not measured."""
    words = {
        "latency_ms_p95": "95 of 100 requests in {:.3g} ms",
        "peak_memory_mb": "{:.0f} MB",
        "peak_gpu_memory_mb": "{:.0f} MB on the GPU",
    }
    numbers = _below("evaluation.served.", tags)
    parts = [text.format(float(numbers[name])) for name, text in words.items() if name in numbers]
    return ", ".join(parts)


def _gate(tags: Mapping[str, str]) -> list[str]:
    """The verdict of the last gate, with the decisive reasons first."""
    if "gate.verdict" not in tags:
        return []
    verdict = atomic.parse_json(tags["gate.verdict"])
    reasons, champion = verdict["reasons"], verdict["champion_version"]
    against = f"version {champion}" if champion else "no champion"
    look = f"look {verdict['round'] + 1} of {verdict['rounds']}"
    lines = [f"- Gate `{verdict['gate']}`: {verdict['outcome']}, {look}, against {against}"]
    lines += [f"    - {reason[:_LONGEST_REASON]}" for reason in reasons[:_NUM_REASONS]]
    more = len(reasons) - _NUM_REASONS
    return [*lines, f"    - and {more} more, in the tag `gate.verdict`"] if more > 0 else lines


def _purpose(version: Version) -> str:
    """The kind of policy that a model holds, and its tasks."""
    tags, tasks = version.tags, _tasks(version.tags)
    text = described(tags["policy.kind"]) if "policy.kind" in tags else "a policy"
    if task := tags.get("lineage.environment.task"):
        text += f", trained in `{task}`"
    if dataset := tags.get("lineage.dataset"):
        text += f", trained on dataset `{dataset}`"
    if protocol := tags.get("evaluation.protocol"):
        text += f", evaluated under protocol `{protocol}`"
    named = ", ".join(f"`{task}`" for task in tasks[:_NUM_TASKS])
    more = f" and {len(tasks) - _NUM_TASKS} more" if len(tasks) > _NUM_TASKS else ""
    return f"{text[0].upper()}{text[1:]}." + (f" Tasks: {named}{more}." if tasks else "")


def _tasks(tags: Mapping[str, str]) -> list[str]:
    return tags["evaluation.tasks"].split(", ") if "evaluation.tasks" in tags else []


def _usage(name: str, alias: str, version: Version) -> list[str]:
    """How to fetch the policy, watch it, and ask it for actions."""
    tasks, reference = _tasks(version.tags), f"{name}@{alias}"
    task = f" --task {(tasks or ['TASK'])[0]}" if version.tags.get("policy.kind") == VLA else ""
    return [
        "Use it, where `MLFLOW_TRACKING_URI` names this store:",
        "",
        "```",
        f"rrf models fetch {reference} --out policy",
        f"rrf play {reference}{task} --video policy.mp4",
        "```",
        "",
        "```python",
        f'rrf.load_policy("{reference}").predict(observations)',
        "```",
    ]


def _history(name: str, entries: Sequence[Entry], num_shown: int) -> list[str]:
    """The last `num_shown` changes of champion as a table, newest first."""
    promoted = any(entry.action == "promote" for entry in entries)
    lines = [] if promoted else ["No version has been promoted yet.", ""]
    if not entries:
        return lines[:1]
    lines += [
        f"Changes of champion and gate, newest first (`rrf models ledger {name}` shows all):",
        "",
        f"| {' | '.join(COLUMNS)} |",
        f"|{'---|' * len(COLUMNS)}",
    ]
    for entry in reversed(entries[len(entries) - num_shown :]):
        cells = (" ".join(cell.replace("|", "/").split()) for cell in table_row(entry))
        lines.append(f"| {' | '.join(cell[:_LONGEST_REASON] for cell in cells)} |")
    if num_shown < len(entries):
        lines += ["", f"{len(entries) - num_shown} earlier changes are not shown here."]
    return lines


def table_row(entry: Entry) -> tuple[str, ...]:
    """A change of the ledger as the cells of a table."""
    replaced = {"promote": entry.previous, "rollback": entry.version, "withdraw": entry.version}
    before = replaced.get(entry.action)
    return (
        str(entry.index),
        _when(entry),
        _change(entry),
        entry.champion or "-",
        before or "-",
        (entry.verdict_digest or "-")[:8],
        signatures.who(entry),
        entry.reason,
    )


def _change(entry: Entry) -> str:
    """What an entry changed, in a few words."""
    if entry.action == "gate" and entry.gate:
        return f"ruled by gate {entry.gate['file']}"
    if entry.action == "repair":
        return f"ledger repaired, {len(entry.lost or ())} entries lost"
    if entry.conclusion:
        return f"release of version {entry.version} ended: {entry.conclusion['outcome']}"
    if entry.trial:
        return f"trials planned: {entry.trial['study']}"
    if entry.release and entry.release["shadow"]:
        return f"version {entry.version} computes as a shadow"
    return f"version {entry.version} {_DONE[entry.action]}"


def _when(entry: Entry) -> str:
    """The time of a change to the minute, in UTC."""
    moment = datetime.datetime.fromisoformat(entry.time).astimezone(datetime.UTC)
    return f"{moment:%Y-%m-%d %H:%M}"


def _sentence(entry: Entry, version: str) -> str:
    """One line that says what a change of champion did to `version`."""
    moment = f"{_when(entry)} UTC (change {entry.index} of the ledger)"
    reason = " ".join(entry.reason.split())
    if entry.action == "unrevoke":
        return f"Allowed again {moment}: {reason}"
    if entry.action == "promote":
        return f"Promoted {moment}: {reason}"
    if entry.release:
        acts = "Computes as a shadow" if entry.release["shadow"] else "Acts as a canary"
        return f"{acts} since {moment}: {reason}"
    if entry.conclusion:
        ended = REVOKED_BY["conclude"].capitalize() if _revokes(entry) else "Its release ended"
        return f"{ended} {moment}: {reason}"
    if entry.action == "withdraw":
        return f"Withdrawn {moment}; the model has had no champion since: {reason}"
    if entry.version == version:
        return f"Rolled back to version {entry.champion}, {moment}: {reason}"
    return f"Champion again, {moment}, as version {entry.version} was rolled back: {reason}"
