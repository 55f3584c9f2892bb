"""A promotion that others must approve first: ask for it, and see whether they have.

A promotion that the gate passes writes the request (`stage`) and stops; the version is @staging. It
names the verdict, so a new evaluation or another champion makes a new request, for which earlier
approvals do not count. With enough approvals, the same promotion goes through.
"""

import datetime
from typing import TYPE_CHECKING

from rrf import atomic
from rrf.evaluation.gates.verdicts import Verdict
from rrf.identity import keys, trust
from rrf.identity.trust import ModelTrustCfg
from rrf.mlflow_store.flow_run import FlowRun
from rrf.registry import changes, signatures
from rrf.registry.client import connect
from rrf.registry.entries import Approval, Entry, checked
from rrf.registry.ledger import Ledger
from rrf.registry.rules import NotPromotedError
from rrf.registry.versions import Version

if TYPE_CHECKING:
    from mlflow import MlflowClient

_WAITS = "approval.flow_run_id"


class AwaitingApprovalError(NotPromotedError):
    """A version waits for approvals."""

    def __init__(self, version: Version, stage: Entry, policy: ModelTrustCfg, given: list[str]):
        asking = trust.load().name_of(stage.key)
        missing, self._ends = policy.approvals - len(given), signatures.expires(policy, stage)
        who = [name for name in policy.approvers if name not in (*given, asking)]
        super().__init__(
            f"{version} waits for {missing} of {policy.approvals} approvals by "
            f"{' or '.join(who) or 'others'}, until {self._ends:%F %R} UTC; "
            f"they type: rrf models approve {version.name} {version.version} --reason '...'; then: "
            f"rrf models promote {version.name} {version.version}"
        )
        self.stage = stage
        self.missing = missing

    @property
    def seconds_left(self) -> float:
        """Until the request is over."""
        return max(0.0, (self._ends - datetime.datetime.now(datetime.UTC)).total_seconds())


def are_given(client: "MlflowClient", ledger: Ledger, candidate: Version, verdict: Verdict) -> bool:
    """Whether enough people have approved a version with this verdict. If nobody was asked yet, or
    the request is over, ask; then the ledger has changed, and the answer is no.

    Raises:
        AwaitingApprovalError: If approvals are missing.
    """
    cfg = trust.load()
    policy, stage = cfg.policy(ledger.name), signatures.request(ledger.name, ledger.entries)
    if policy is None or not policy.approvals:
        return True
    wanted = candidate.version, verdict.digest
    if stage is None or (stage.version, stage.verdict_digest) != wanted or _is_over(policy, stage):
        changes.append(
            client,
            ledger,
            action="stage",
            version=candidate.version,
            verdict_digest=verdict.digest,
            protocol_hash=verdict.protocol_hash,
            reason=f"gate {verdict.gate}: {verdict.outcome}; needs {policy.approvals} approvals",
        )
        return False
    given = signatures.approvers(cfg, policy, ledger.entries, stage)
    if len(given) < policy.approvals:
        raise AwaitingApprovalError(candidate, stage, policy, given)
    return True


def missing(ledger: Ledger) -> int:
    """How many approvals the version that is @staging still needs; 0 if none waits."""
    cfg = trust.load()
    policy, stage = cfg.policy(ledger.name), signatures.request(ledger.name, ledger.entries)
    if policy is None or stage is None:
        return 0
    given = signatures.approvers(cfg, policy, ledger.entries, stage)
    return max(0, policy.approvals - len(given))


def sign(ledger: Ledger, version: str, reason: str) -> Approval:
    """An approval of the request for a version, signed with this user's key.

    Raises:
        ValueError: Without a reason, or if nobody asked for approvals of this version.
        SigningError: Without a key.
    """
    if not reason.strip():
        raise ValueError("an approval needs a reason; give one with --reason '...'")
    stage, signer = _request(ledger, version), keys.find()
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    approval = Approval(ledger.name, version, stage.hash, reason, now, signer.public)
    return approval.signed(signer)


def parse(text: str) -> Approval:
    """An approval as `rrf models approve --print` prints it. Raises ValueError for other text."""
    try:
        return checked(Approval(**atomic.parse_json(text)))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"this is no line of rrf models approve --print ({error}); copy all of it"
        ) from error


def note_flow_run(name: str, version: str, flow_run: FlowRun | None) -> None:
    """Remember which flow run waits for approvals of a version."""
    if flow_run:
        connect().set_model_version_tag(name, version, _WAITS, flow_run.id)


def waiting_flow_run(name: str, version: str) -> str | None:
    """The id of the flow run that waits for approvals of a version, if one did."""
    return connect().get_model_version(name, version).tags.get(_WAITS)


def check_current(ledger: Ledger, approval: Approval) -> None:
    """Raise ValueError if an approval is not of the request that the ledger waits for."""
    stage = _request(ledger, approval.version)
    if stage.hash != approval.stage:
        raise ValueError(
            f"this is an approval of an earlier request for '{ledger.name}' version "
            f"{approval.version}; look at the present one: rrf models approve {ledger.name} "
            f"{approval.version} --reason '...'"
        )


def _request(ledger: Ledger, version: str) -> Entry:
    policy = trust.load().policy(ledger.name)
    if policy is None or not policy.approvals:
        raise ValueError(
            f"'{ledger.name}' needs no approvals; to ask for them: rrf keys require {ledger.name} "
            "--approvals 1"
        )
    stage = signatures.request(ledger.name, ledger.entries)
    if stage is None or stage.version != version:
        waiting = f"version {stage.version} does" if stage else "no version does"
        raise ValueError(
            f"'{ledger.name}' version {version} waits for no approval, {waiting}; to ask for it: "
            f"rrf models promote {ledger.name} {version}"
        )
    if _is_over(policy, stage):
        raise ValueError(
            f"the request for '{ledger.name}' version {version} expired "
            f"({signatures.expires(policy, stage):%F %R} UTC); ask again: rrf models promote "
            f"{ledger.name} {version}"
        )
    return stage


def _is_over(policy: ModelTrustCfg, stage: Entry) -> bool:
    return datetime.datetime.now(datetime.UTC) > signatures.expires(policy, stage)
