"""Which gate rules a model, what it says about a version, and what else a promotion needs.

A promotion believes no verdict that somebody brings. It computes the verdict again from the
evaluations that the ledger names: of the candidate, of the champion and of the best champion so
far. The lineage of the candidate must be complete, and as clean as the gate demands. Tags of
versions are for people; what decides is compared with the ledger first (`check_registered`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rrf import atomic, workspace
from rrf.config import first_error
from rrf.evaluation.gates.decision import Rival, decide
from rrf.evaluation.gates.verdicts import Verdict
from rrf.evaluation.results import Evaluation
from rrf.lineage import facts_in, lacking
from rrf.registry import evidence
from rrf.registry.entries import Entry, ModelGate, PlannedTrial, StoredEvaluation
from rrf.registry.ledger import Ledger
from rrf.registry.versions import Version, contradictions

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from rrf.evaluation.gates.gate import GateCfg
    from rrf.evaluation.serving_profile import ServingProfile

_ROLES = {"champion": "champion", "best": "best champion so far"}


class NotPromotedError(ValueError):
    """A version may not become the champion, as the rules of its model say."""


def model_gate(file: str | Path) -> ModelGate:
    """A gate file as the ledger records it.

    Raises:
        ValueError: If the gate cannot be read, or is neither in the workspace nor one that rrf
            ships, so that other machines and the flows would not find it.
    """
    from rrf.evaluation.gates.gate import load_gate

    gate, path = load_gate(file), workspace.find(file).resolve()
    home, shipped = workspace.home().resolve(), workspace.shipped()
    if path.is_relative_to(shipped / workspace.CONFIGS):  # an environment may lie in the workspace
        home = shipped
    if not path.is_relative_to(home):
        raise ValueError(
            f"the gate {path} lies outside the workspace {home}, so no other machine would find it;"
            " copy it to configs/gates/, and its protocol to configs/protocols/"
        )
    return ModelGate(str(path.relative_to(home)), gate.hash, gate.to_dict())


def gate_of(ledger: Ledger) -> "GateCfg | None":
    """The gate on record as a config; None if there is none.

    Raises:
        ValueError: If this version of rrf cannot read it, or it is not the gate that was recorded.
    """
    from rrf.evaluation.gates.gate import GateCfg  # only here, and only as a config

    recorded = ledger.gate
    if recorded is None:
        return None
    try:
        if (digest := atomic.digest_of(recorded.config)) == recorded.hash:
            return GateCfg.from_dict(recorded.config)
        error = f"its hash is {digest[:12]}, not {recorded.hash[:12]}"
    except ValueError as problem:
        error = first_error(problem)
    raise ValueError(
        f"the gate on record for '{ledger.name}', {recorded.file}, cannot be read ({error}); if it "
        f"has to be another one: rrf models gate {ledger.name} FILE --reason '...'"
    )


def other_gate(ledger: Ledger, file: str | Path) -> str:
    """Why a candidate that the gate in this file judges cannot be promoted, or "": another gate
    rules the model.
    """
    from rrf.evaluation.gates.gate import load_gate

    proposed, gate, recorded = load_gate(file), gate_of(ledger), ledger.gate
    if gate is None or recorded is None or gate.hash == proposed.hash:
        return ""
    return (
        f"'{ledger.name}' is ruled by {recorded.file} ({gate.hash[:12]}), not by {file} "
        f"({proposed.hash[:12]}); to change that: rrf models gate {ledger.name} {file} --reason "
        "'...'"
    )


def base_hash_of(ledger: Ledger) -> str | None:
    """The base hash of the protocol that the gate on record names; None without a gate."""
    gate = gate_of(ledger)
    return gate.protocol.base_hash if gate else None


def trial_gate_of(ledger: Ledger) -> "GateCfg | None":
    """The gate that judges trials on a robot: the one on record, or the one that it names."""
    gate = gate_of(ledger)
    return gate.of_trials if gate else None


def rivals(
    ledger: Ledger, versions: Sequence[Version], gate: "GateCfg | None"
) -> dict[str, Version]:
    """The versions that a candidate is compared with: "champion" and, if it is another one, "best".

    The best champion so far is the version that was once champion, was not rolled back, and has the
    highest success under the protocol of the gate.
    """
    by_number = {version.version: version for version in versions}
    champion = by_number.get(ledger.champion or "")
    if champion is None:
        return {}
    base_hash = gate.protocol.base_hash if gate else None
    allowed = [by_number[v] for v in ledger.promoted if v in by_number and v not in ledger.revoked]
    best = max(
        allowed,
        key=lambda v: (_success(ledger, v, base_hash), v is champion, int(v.version)),
        default=champion,
    )
    return {"champion": champion} if best is champion else {"champion": champion, "best": best}


def attempt_of(ledger: Ledger, checkpoint_digest: str) -> int:
    """Which candidate this is that is judged by the model's gate against its current champion.

    Candidates with a lower version number come first, also those that were deleted in MLflow; one
    that is not registered yet comes last.
    """
    base_hash, champion = base_hash_of(ledger), ledger.champion or ""
    if base_hash is None:
        return 1
    own = ledger.version_of(checkpoint_digest)
    attempts = {
        entry.version
        for entry in ledger.entries
        if entry.version
        and entry.evaluation
        and (entry.evaluation["base_hash"], entry.evaluation["against"]) == (base_hash, champion)
    }
    return 1 + sum(
        version != own and (own is None or int(version) < int(own)) for version in attempts
    )


def judge(
    client: "MlflowClient", ledger: Ledger, versions: Sequence[Version], candidate: Version
) -> Verdict:
    """What the model's gate says about a version, from the stored evaluations.

    Raises:
        ValueError: If the model has no gate, or an evaluation is missing or was replaced.
        OSError: If an evaluation cannot be read.
    """
    name, gate = ledger.name, gate_of(ledger)
    if gate is None:
        raise ValueError(
            f"no gate rules '{name}' yet; record one: rrf models gate {name} "
            "configs/gates/FILE.yaml --reason '...'"
        )
    trial = trial_verdict(client, ledger, versions, candidate) if gate.trial else None
    return _judge(client, ledger, versions, candidate, gate, trial)


def trial_verdict(
    client: "MlflowClient", ledger: Ledger, versions: Sequence[Version], candidate: Version
) -> Verdict | None:
    """What the gate for trials says that the model's gate names; None without one, and if no trial
    of the version against the champion is stored. Raises like `judge`.
    """
    gate = gate_of(ledger)
    if gate is None or gate.trial is None or not _of_candidate(ledger, candidate, gate.trial):
        return None
    return _judge(client, ledger, versions, candidate, gate.trial, None)


def _judge(
    client: "MlflowClient",
    ledger: Ledger,
    versions: Sequence[Version],
    candidate: Version,
    gate: "GateCfg",
    trial: Verdict | None,
) -> Verdict:
    name, file = ledger.name, ledger.gate.file if ledger.gate else ""
    judged = _of_candidate(ledger, candidate, gate)
    if judged is None:
        raise ValueError(
            f"{candidate} has no evaluation under protocol '{gate.protocol.name}' of its gate; "
            f"make one: {gate.protocol.how_to_evaluate(name, file, f'{name}/{candidate.version}')}"
        )
    evaluation = evidence.load(client, candidate, judged)
    compared: dict[str, Rival] = {}
    known = _as_planned(ledger, evaluation) if gate.protocol.is_sequential else ledger
    for role, rival in rivals(known, versions, gate).items():
        same_states = [
            evaluation
            for evaluation in ledger.evaluations(rival.version)
            if evaluation.protocol_hash == judged.protocol_hash
        ]
        if rival.version == candidate.version:
            same_states = [judged]
        if not same_states:
            extra = gate.extra_episodes(judged.episodes_per_task)
            policy = f"{name}/{candidate.version}"
            again = gate.protocol.how_to_evaluate(name, file, policy, extra)
            raise ValueError(
                f"the {_ROLES[role]} of '{name}', version {rival.version}, has no evaluation on "
                f"the {judged.episodes_per_task} initial states per task of version "
                f"{candidate.version}, with the same simulator or in the same trial; evaluate both "
                f"again: {again}"
            )
        best = max(same_states, key=lambda evaluation: evaluation.success)
        compared[role] = Rival(evidence.load(client, rival, best), rival.version)
    if gate.protocol.is_sequential:
        attempt = _attempt_in_trial(ledger, known, evaluation, compared)
    else:
        attempt = attempt_of(ledger, candidate.checkpoint_digest)
    return decide(
        evaluation,
        gate,
        compared.get("champion"),
        compared.get("best"),
        gate.round_of(judged.episodes_per_task),
        attempt,
        _profiles(client, ledger, candidate) if gate.serving else (),
        trial,
    )


def _profiles(client: "MlflowClient", ledger: Ledger, version: Version) -> list["ServingProfile"]:
    """All that are stored with a version's evaluations, of whatever protocol."""
    listed = {e.digest: e for e in ledger.evaluations(version.version)}
    loaded = [evidence.load(client, version, stored) for stored in listed.values()]
    return [evaluation.profile for evaluation in loaded if evaluation.profile]


def check_promotable(ledger: Ledger, version: Version, verdict: Verdict) -> None:
    """Raise NotPromotedError if a version may not become the champion after the gate has judged it.

    The verdict must pass. The version's lineage must name the code and either a dataset that passed
    validation or an environment, and must be as clean as the gate demands.
    """
    gate = gate_of(ledger)
    assert gate  # it has just judged
    assert ledger.gate
    if not verdict.passed:
        reasons = [reason for reason in verdict.reasons if not reason.startswith("pass")]
        if verdict.more_episodes_per_task:
            more = verdict.more_episodes_per_task
            judged = _of_candidate(ledger, version, gate)
            extra = gate.extra_episodes((judged.episodes_per_task if judged else 0) + more)
            policy = f"{version.name}/{version.version}"
            file = ledger.gate.file
            how = gate.protocol.how_to_evaluate(version.name, file, policy, extra)
            reasons.append(f"{more} more episodes per task may tell: {how}")
        raise NotPromotedError(
            f"{version} is not promoted: gate {verdict.gate} says {verdict.outcome}:\n  "
            + "\n  ".join(reasons)
        )
    facts = facts_in(version.tags)
    if missing := lacking(facts):
        remedy = (
            "train it in a workspace with a commit, then register it"
            if "environment.task" in facts
            else "run `dvc repro` in a workspace with a commit, then register it"
        )
        raise NotPromotedError(
            f"{version} is not promoted: its lineage lacks {', '.join(missing)}; {remedy} again"
        )
    if facts.get("validation", "passed") != "passed":  # a dataset has this key, see lacking()
        raise NotPromotedError(
            f"{version} is not promoted: the validation of dataset {facts.get('dataset')} is "
            f"{facts['validation']!r}, not 'passed'"
        )
    gates = [gate, gate.trial] if gate.trial else [gate]
    if any(each.forbid_git_dirty for each in gates) and facts.get("git_dirty") != "false":
        raise NotPromotedError(
            f"{version} is not promoted: it was trained with uncommitted changes of the code, and "
            f"gate {gate.name} forbids that (forbid_git_dirty); commit them, train and register "
            "again"
        )
    forbid_unpushed = any(each.forbid_unpushed_data for each in gates)
    if forbid_unpushed and "dataset" in facts and facts.get("data_pushed") != "true":
        raise NotPromotedError(
            f"{version} is not promoted: the recordings of dataset {facts['dataset']} are in no "
            f"DVC remote, and gate {gate.name} forbids that (forbid_unpushed_data); run `dvc "
            "push`, then register it again"
        )


def check_registered(ledger: Ledger, version: Version) -> None:
    """Raise ValueError unless MLflow says of a version what the ledger says of it."""
    if ledger.registration(version.version) is None:
        raise ValueError(
            f"{version} was not registered by rrf; register its checkpoint: rrf models register "
            f"CHECKPOINT {version.name}"
        )
    if differences := contradictions(ledger, version):
        raise ValueError(
            f"{'; '.join(differences)}; to put it right: rrf models repair {version.name}"
        )


def next_attempt_in_trial(ledger: Ledger) -> int:
    """Which attempt the first candidate of a trial is that is planned now."""
    return 1 + sum(_num_tried(ledger, entry) for entry in ledger.entries)


def _num_tried(ledger: Ledger, entry: Entry) -> int:
    """How many candidates an entry plans to try under the model's gate, against its champion."""
    gate = trial_gate_of(ledger)
    if entry.trial is None or gate is None:
        return 0
    trial, champion = PlannedTrial(**entry.trial), ledger.champion or ""
    is_same = (trial.base_hash, trial.against) == (gate.protocol.base_hash, champion)
    return trial.num_candidates if is_same else 0


def _attempt_in_trial(
    ledger: Ledger, planned: Ledger, evaluation: Evaluation, rivals: Mapping[str, Rival]
) -> int:
    """Which attempt a candidate is in its trial: one more than the candidates of all trials that
    were planned before it, under the same protocol and against the same champion, whether or not
    they were ever played.

    Args:
        ledger: The ledger.
        planned: The same up to the plan of the trial.
        evaluation: Of the candidate, in the trial.
        rivals: What it is compared with.

    Raises:
        ValueError: If it was planned for another gate, against another champion, or with other
            policies.
    """
    *before, entry = planned.entries
    trial = PlannedTrial(**entry.trial or {})
    _check_trial(ledger, trial, evaluation, rivals)
    own = trial.checkpoints[-trial.num_candidates :]
    tried = sum(_num_tried(ledger, earlier) for earlier in before)
    return 1 + tried + own.index(evaluation.checkpoint_digest)


def _as_planned(ledger: Ledger, evaluation: Evaluation) -> Ledger:
    """The ledger up to the plan of the trial that an evaluation is from. What came later, also the
    results of the other arms, does not change whom a candidate is compared with.

    Raises:
        ValueError: If the trial is not in the ledger as it was played.
    """
    from rrf.evaluation.protocols.files import parse_protocol

    study = getattr(parse_protocol(evaluation.protocol), "study", "")
    for number, entry in enumerate(ledger.entries, start=1):
        if (entry.evaluation or {}).get("digest") == evaluation.digest:
            break  # what is planned after that was not planned before it
        if entry.trial and entry.trial["digest"] == study:
            return Ledger(ledger.name, ledger.entries[:number])
    raise ValueError(
        f"the trial that the evaluation is from (plan {study[:12] or 'none'}) is not in the ledger "
        f"of '{ledger.name}', so nobody knows that it was planned before it was played; its "
        "results promote nothing"
    )


def _check_trial(
    ledger: Ledger, trial: PlannedTrial, evaluation: Evaluation, rivals: Mapping[str, Rival]
) -> None:
    where = f"the trial '{trial.study}' of '{ledger.name}'"
    gate = trial_gate_of(ledger)
    if gate is None or trial.gate != gate.hash:
        raise ValueError(
            f"{where} was planned for the gate {trial.gate[:12]}, not for the one that rules the "
            "model now; plan another trial"
        )
    if trial.against != (ledger.champion or ""):
        raise ValueError(
            f"{where} was planned when the champion was version {trial.against or 'none'}, and now "
            f"it is {ledger.champion or 'none'}; plan another trial"
        )
    judged = trial.checkpoints[-trial.num_candidates :]
    if evaluation.checkpoint_digest not in judged:
        raise ValueError(
            f"checkpoint {evaluation.checkpoint_digest[:12]} is no candidate of {where}"
        )
    for role, rival in rivals.items():
        if rival.evaluation.checkpoint_digest not in trial.checkpoints:
            raise ValueError(f"the {_ROLES[role]} is no arm of {where}; plan another trial with it")


def _of_candidate(ledger: Ledger, version: Version, gate: "GateCfg") -> StoredEvaluation | None:
    """The evaluation under the gate's protocol with the most episodes; of several, the one with the
    lowest success. So nobody gains by evaluating again until the result is lucky. Trials are
    compared with those of the same study only, so those against earlier champions do not count.
    """
    base_hash, champion = gate.protocol.base_hash, ledger.champion or ""
    comparable = [e for e in ledger.evaluations(version.version) if e.base_hash == base_hash]
    if gate.protocol.is_sequential:
        comparable = [e for e in comparable if e.against == champion]
    return max(comparable, key=lambda e: (e.episodes_per_task, -e.success), default=None)


def _success(ledger: Ledger, rival: Version, base_hash: str | None) -> float:
    """The highest success of a rival in its longest evaluations, so that nobody gains by evaluating
    it again until it fails.
    """
    comparable = [e for e in ledger.evaluations(rival.version) if e.base_hash == base_hash]
    return max(((e.episodes_per_task, e.success) for e in comparable), default=(0, -1.0))[1]
