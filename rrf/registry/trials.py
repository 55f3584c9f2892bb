"""Trials on a robot in the ledger: the plan before the first one, and the results as evaluations.

The plan's entry says which checkpoints are tried under which gate against which champion. A
promotion takes the results only of a plan that was in the ledger before them, and counts all plans
as attempts, also those that were given up (`rrf.registry.rules`).
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rrf import atomic
from rrf.evaluation.reports.report import write_report
from rrf.evaluation.results import FILE_NAME
from rrf.evaluation.trials import results
from rrf.evaluation.trials.plan import Plan
from rrf.evaluation.trials.record import Record
from rrf.registry import (
    changes,
    evidence,
    origin,
    promotion,
    registration,
    rules,
    signatures,
    standing,
)
from rrf.registry.client import connect
from rrf.registry.entries import Entry, PlannedTrial
from rrf.registry.ledger import Ledger
from rrf.registry.versions import check_exists, find, is_reference


def attempt(name: str, gate_hash: str, digests: Sequence[str]) -> tuple[int, str]:
    """Which attempt the first candidate of a trial is that is planned now, and the checkpoint of
    the best champion so far, if that is another one than the champion, else "".

    Args:
        name: The registered model.
        gate_hash: The gate of the trial.
        digests: Checkpoints of its arms, the one that the others are compared with first.

    Raises:
        ValueError: If the model is ruled by another gate, or the trial lacks its champions, or the
            first arm is not the champion.
    """
    client = connect()
    check_exists(client, name)
    ledger = changes.agreed(client, name)
    _check(ledger, gate_hash, digests)
    best = promotion.rivals(name, in_trial=True).get("best")
    return rules.next_attempt_in_trial(ledger), best.checkpoint_digest if best else ""


def register(plan: Plan) -> Entry:
    """Write a plan to the ledger of its model; again changes nothing. Returns the entry.

    Raises:
        ValueError: Like `attempt`; or if another trial was planned meanwhile, which makes this one
            another attempt than its plan says.
    """
    client, name, digests = connect(), plan.model, [arm.digest for arm in plan.arms]
    with promotion.changing(client, name):
        for _ in range(changes.ROUNDS):
            ledger = promotion.finished(client, name)
            if entry := _entry_of(ledger, plan):
                return entry
            _check(ledger, plan.gate_cfg.hash, digests)
            if (now := rules.next_attempt_in_trial(ledger)) != plan.attempt:
                raise ValueError(
                    f"'{plan.name}' was planned as attempt {plan.attempt} against the champion of "
                    f"'{name}', and is attempt {now} now; remove trials/{plan.name} and "
                    "plan it again"
                )
            if why := refusal(plan):
                raise ValueError(why)
            for arm in plan.arms:
                if arm.version:
                    rules.check_registered(ledger, find(f"{name}/{arm.version}", client))
            trial = PlannedTrial(
                plan.name,
                plan.digest,
                plan.gate_cfg.hash,
                plan.protocol.base_hash,
                ledger.champion or "",
                digests,
                len(plan.candidates),
            )
            versions = ", ".join(arm.version or arm.digest[:12] for arm in plan.arms)
            entry = changes.append(
                client,
                ledger,
                action="trial",
                trial=dataclasses.asdict(trial),
                reason=f"{plan.name}: versions {versions}, at most {plan.num_trials} trials",
            )
            if entry:
                return entry
    raise changes.busy(name)


def refusal(plan: Plan) -> str:
    """Why no trial of a study begins, or ""; an arm must not act (`rrf.registry.standing`). Of arms
    that no registry knows, nobody says so.

    Raises:
        ValueError, OSError: If the registry cannot be asked.
    """
    for arm in plan.arms:
        if is_reference(arm.reference):
            name, _, version = arm.reference.rpartition("/")
            why = standing.standing_of(name, version)
        elif fetched := origin.read(arm.reference):
            name, version = fetched.model, fetched.version
            why = origin.asker(fetched, arm.digest)(name, version)
        else:
            continue
        if why:
            return (
                f"no trial of '{plan.name}' begins, because of its arm '{arm.name}': {why}; "
                f"{standing.how_to_allow(name, version)}"
            )
    return ""


def check_planned(plan: Plan) -> None:
    """Raise ValueError if the plan of a study with a model is not in its ledger."""
    if not plan.model:
        return
    client = connect()
    check_exists(client, plan.model)
    if _entry_of(promotion.ledger_of(plan.model), plan) is None:
        raise ValueError(
            f"the plan of '{plan.name}' ({plan.digest[:12]}) is not in the ledger of "
            f"'{plan.model}'; write it there before the first trial: rrf trial new FILE.yaml"
        )


def write(record: Record, secret: str, folder: Path) -> dict[str, Path]:
    """Write an evaluation, its report and the evidence of each arm below a folder: arm -> folder.

    Raises:
        ValueError: Before the first complete block.
    """
    plan, folders = record.plan, {}
    evaluations = {arm.name: results.evaluation_of(record, arm) for arm in plan.arms}
    first = evaluations[plan.arms[0].name]
    for arm in plan.arms:
        folders[arm.name] = place = folder / arm.name
        place.mkdir(parents=True, exist_ok=True)
        evaluations[arm.name].save(place / FILE_NAME)
        atomic.write_json(place / results.TRIAL, results.bundle(record, secret))
        champion = first if arm != plan.arms[0] else None
        write_report(place, champion=champion, subject=f"{arm.reference} in trial {plan.name}")
    return folders


def submit(record: Record, secret: str, folder: Path) -> dict[str, Path]:
    """Store the results of a study with the versions of its model: arm -> folder of its evaluation.
    Again changes nothing.

    Raises:
        ValueError: If the plan is not in the ledger, no block is complete, or the champion has
            changed since.
    """
    plan = record.plan
    check_planned(plan)
    ledger = promotion.ledger_of(plan.model)
    entry = _entry_of(ledger, plan)
    assert entry is not None
    if (against := (entry.trial or {})["against"]) != (ledger.champion or ""):
        raise ValueError(
            f"'{plan.name}' was planned when the champion of '{plan.model}' was version "
            f"{against or 'none'}, and now it is {ledger.champion or 'none'}; its "
            "results promote nobody; plan another trial"
        )
    folders = write(record, secret, folder)
    signer = signatures.signer_for(plan.model)
    for arm in plan.arms:
        if signer:
            evidence.sign(folders[arm.name], signer)
        if arm.version:
            is_candidate = arm.role == "candidate"
            registration.store_evaluation(
                plan.model, arm.version, folders[arm.name], attempt=is_candidate
            )
    return folders


def _entry_of(ledger: Ledger, plan: Plan) -> Entry | None:
    return next((e for e in ledger.entries if (e.trial or {}).get("digest") == plan.digest), None)


def _check(ledger: Ledger, gate_hash: str, digests: Sequence[str]) -> None:
    name, gate, of_trials = ledger.name, ledger.gate, rules.trial_gate_of(ledger)
    if of_trials is None or of_trials.hash != gate_hash:
        has = f"by {gate.file} ({gate.hash[:12]})" if gate else "by no gate yet"
        also = ", which names no gate of trials" if gate and of_trials is None else ""
        raise ValueError(
            f"'{name}' is ruled {has}{also}, not by the gate of this trial ({gate_hash[:12]}); to "
            f"change that: rrf models gate {name} FILE --reason '...'"
        )
    if len(set(digests)) < len(digests):
        raise ValueError(
            f"two arms are the same checkpoint, so neither could be judged for '{name}'"
        )
    rivals = promotion.rivals(name, in_trial=True)
    for role, rival in rivals.items():
        if rival.checkpoint_digest not in digests:
            what = "best champion so far" if role == "best" else role
            raise ValueError(
                f"the gate compares with the {what} of '{name}', version {rival.version}, so it "
                f"must be an arm: {name}/{rival.version}"
            )
    champion = rivals.get("champion")
    if champion and champion.checkpoint_digest != digests[0]:
        raise ValueError(
            f"the first arm is what the others are compared with; let it be the champion: "
            f"{name}/{champion.version}"
        )
