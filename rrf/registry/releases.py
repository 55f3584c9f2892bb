"""Releases: a version acts in a share of the episodes beside the champion, until its outcomes say.

    begin      the checks of a promotion -> approvals -> entry `release`
    (policy servers give episodes to both, and store their outcomes)
    conclude   stored outcomes -> decide (a pure function) -> kept as evidence -> entry `conclude`
               -> the promotion, if the rules of the release say so

Only a version that the gate passes may act, and only if others have approved it where a promotion
needs that. A shadow computes and never acts, so it needs neither. A change of the champion ends a
release; so does its conclusion. A canary that is stopped is revoked as a withdrawn champion is. One
that by now stands on tainted data, or on a version that was revoked, is stopped (`barred`).
"""

import dataclasses
import logging
from typing import TYPE_CHECKING

from rrf.evaluation.gates.release import Decision, ReleaseCfg, arm_of, decide, load_rules
from rrf.registry import approvals, changes, outcomes, promotion, rules, standing
from rrf.registry.client import connect
from rrf.registry.entries import Conclusion, Entry, ModelRelease
from rrf.registry.ledger import Ledger
from rrf.registry.outcomes import Stored
from rrf.registry.rules import NotPromotedError
from rrf.registry.versions import Version, check_exists, find

if TYPE_CHECKING:
    from mlflow import MlflowClient

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Release:
    """A release as its entry has it."""

    name: str
    entry: Entry

    @property
    def hash(self) -> str:
        """Names the release, and is the salt of its shares."""
        return self.entry.hash

    @property
    def version(self) -> str:
        """The version that is released."""
        return self.entry.version or ""

    @property
    def facts(self) -> ModelRelease:
        """Its rules, and the champion of its time."""
        return ModelRelease(**self.entry.release or {})

    @property
    def rules(self) -> ReleaseCfg:
        """What it may do by itself."""
        return ReleaseCfg.from_dict(self.facts.config)


@dataclasses.dataclass(frozen=True)
class Status:
    """A release and what its outcomes say."""

    release: Release
    decision: Decision | None
    """None for a shadow, whose outcomes nobody counts."""
    stored: Stored | None
    """None for a release that is over."""
    conclusion: Entry | None
    """None while it runs."""
    is_superseded: bool
    """Whether a change of the champion has ended it."""

    @property
    def advice(self) -> str:
        """What people are to type who have to decide, since the rules leave it to them; or ""."""
        if self.decision is None or self.is_superseded:
            return ""
        release = self.release
        promote = f"to make it the champion: rrf models promote {release.name} {release.version}"
        if self.conclusion:
            return promote if self.is_to_promote else ""
        stop = f"to end its release: rrf models release {release.name} --stop --reason '...'"
        said = {"good": [promote], "bad": [stop], "undecided": [promote, stop], "running": []}
        return "; ".join(said[self.decision.verdict])

    @property
    def is_to_promote(self) -> bool:
        """Whether its outcomes speak for the canary, and it is not the champion yet."""
        facts = (self.conclusion.conclusion if self.conclusion else None) or {}
        return facts.get("outcome") == "good" and not self.is_superseded


def begin(name: str, version: str, shadow: bool = False, unrevoke: str | None = None) -> Entry:
    """Let a version act in a share of the episodes, or compute in all of them; returns the entry.

    The rules are those of configs/releases/NAME.yaml. Beginning the same release again changes
    nothing.

    Args:
        name: The registered model.
        version: The version.
        shadow: Whether it only computes.
        unrevoke: Why a revoked version may act, see `promotion.promote`.

    Raises:
        AwaitingApprovalError, NotPromotedError: Like a promotion; for a shadow only if it is
            revoked, or stands on tainted data or on what is revoked.
        ValueError: If there is no champion, another release runs, or the rules cannot be read.
    """
    client, (cfg, file) = connect(), load_rules(name)
    check_exists(client, name)
    with promotion.changing(client, name):
        for _ in range(changes.ROUNDS):
            ledger = promotion.finished(client, name)
            candidate = find(f"{name}/{version}", client)
            if running := running_in(ledger):
                if (running.version, running.facts.shadow) == (version, shadow):
                    return running.entry
                raise ValueError(
                    f"a release of '{name}' version {running.version} runs; end it first: rrf "
                    f"models release {name} --stop --reason '...'"
                )
            if ledger.champion is None or ledger.champion == version:
                has = f"is version {version} itself" if ledger.champion else "is missing"
                raise ValueError(
                    f"a release needs another version as champion, which {has}; see: rrf models "
                    f"list {name}"
                )
            facts: dict = {}
            if shadow:
                rules.check_registered(ledger, candidate)
                if why := standing.barred(client, ledger, candidate):
                    raise NotPromotedError(f"{candidate} does not compute beside others: {why}")
            else:
                verdict = promotion.passing(client, ledger, candidate, unrevoke, "release")
                if verdict is None or not approvals.are_given(client, ledger, candidate, verdict):
                    continue
                facts = {
                    "verdict_digest": verdict.digest,
                    "protocol_hash": verdict.protocol_hash,
                }
            release = ModelRelease(shadow, ledger.champion, file, cfg.to_dict())
            acts = "computes beside" if shadow else f"{100 * cfg.share:g} % of the episodes beside"
            entry = changes.append(
                client,
                ledger,
                action="release",
                version=version,
                release=dataclasses.asdict(release),
                reason=f"{acts} version {ledger.champion}",
                **facts,
            )
            if entry:
                return entry
    raise changes.busy(name)


def stop(name: str, reason: str) -> Entry:
    """End the release that runs; returns the entry. The version is revoked if it has acted.

    Raises:
        ValueError: Without a reason, or if no release runs.
    """
    if not reason.strip():
        raise ValueError("to stop a release needs a reason; give one with --reason '...'")
    client = connect()
    check_exists(client, name)
    with promotion.changing(client, name):
        for _ in range(changes.ROUNDS):
            ledger = promotion.finished(client, name)
            running = running_in(ledger)
            if running is None:
                raise ValueError(f"no release of '{name}' runs; see: rrf models releases {name}")
            if entry := _end(client, ledger, running, "stopped", reason, None, 0):
                return entry
    raise changes.busy(name)


def conclude(name: str) -> Status | None:
    """Do what the rules of the release that runs say about its outcomes, and finish what a killed
    process has left of the last one; returns the release, None if there never was one.

    Raises:
        AwaitingApprovalError, NotPromotedError: If the canary is good, and may not be promoted.
        ValueError, OSError: If ledger or store cannot be used.
    """
    client = connect()
    check_exists(client, name)
    for _ in range(changes.ROUNDS):
        with promotion.changing(client, name):
            ledger = promotion.finished(client, name)
            status = _status(client, ledger)
            if status is None or status.is_superseded:
                return status
            if status.conclusion is None and (why := _barred(client, ledger, status.release)):
                if _end(client, ledger, status.release, "stopped", why, None, 0):
                    return _status(client, promotion.finished(client, name))
                continue
            decision, cfg = status.decision, status.release.rules
            if status.conclusion is None and decision and _acts_on(decision, cfg):
                assert status.stored is not None
                canary = find(f"{name}/{status.release.version}", client)
                facts = {"decision": dataclasses.asdict(decision), "rules": cfg.to_dict()}
                digest = outcomes.keep(client, canary, status.release.hash, status.stored, facts)
                episodes = decision.canary.ended + decision.champion.ended
                ends = (decision.verdict, decision.text, digest, episodes)
                if not _end(client, ledger, status.release, *ends):
                    continue
                status = _status(client, promotion.finished(client, name))
                assert status is not None
        if status.is_to_promote:
            promotion.promote(name, status.release.version)
            return _status(client, changes.agreed(client, name))
        return status
    raise changes.busy(name)


def statuses(name: str) -> list[Status]:
    """All releases of a model, the oldest first, with what their outcomes say.

    Raises:
        ValueError: If a ledger or evidence was tampered with.
        OSError: If the store cannot be read.
    """
    client = connect()
    check_exists(client, name)
    ledger = changes.agreed(client, name)
    begun = [entry for entry in ledger.entries if entry.action == "release"]
    return [_status_of(client, ledger, Release(name, entry)) for entry in begun]


def barred(client: "MlflowClient", ledger: Ledger, release: Release) -> str:
    """Why the version of a release must not go on although the ledger lets it, or "". Raises like
    `standing.barred`.
    """
    return standing.barred(client, ledger, find(f"{release.name}/{release.version}", client))


def running_in(ledger: Ledger) -> Release | None:
    """The release that runs."""
    return Release(ledger.name, ledger.release) if ledger.release else None


def _barred(client: "MlflowClient", ledger: Ledger, release: Release) -> str:
    """The same; what cannot be read must not keep a bad canary acting."""
    try:
        return barred(client, ledger, release)
    except ValueError as error:
        _log.warning("whether %s may go on is not known: %s", release.version, error)
        return ""


def _status(client: "MlflowClient", ledger: Ledger) -> Status | None:
    """The last release."""
    begun = [entry for entry in ledger.entries if entry.action == "release"]
    return _status_of(client, ledger, Release(ledger.name, begun[-1])) if begun else None


def _status_of(client: "MlflowClient", ledger: Ledger, release: Release) -> Status:
    concluded = [
        entry
        for entry in ledger.entries
        if entry.conclusion and entry.conclusion["release"] == release.hash
    ]
    conclusion = concluded[0] if concluded else None
    runs = ledger.release is not None and ledger.release.hash == release.hash
    if release.facts.shadow:
        return Status(release, None, None, conclusion, not runs and conclusion is None)
    version = find(f"{release.name}/{release.version}", client)
    if conclusion is not None:
        decision = _kept_decision(client, ledger, version, release, conclusion)
        return Status(release, decision, None, conclusion, _is_superseded(ledger, conclusion))
    stored = _consistent(outcomes.load(client, version, release.hash), ledger, release)
    decision = decide(stored.rows, release.rules, release.hash, _digests(ledger, release))
    return Status(release, decision, stored, None, not runs)


def _consistent(stored: Stored, ledger: Ledger, release: Release) -> Stored:
    """Without the books that have an episode of another checkpoint, which are named: one of them
    must not keep the others from stopping a canary."""
    problems, digests = {}, _digests(ledger, release)
    for row in stored.rows:
        try:
            arm_of(row, release.rules, release.hash, digests)
        except ValueError as error:
            problems[row.book] = f"book {row.book} is left out: {error}"
    return Stored(
        [row for row in stored.rows if row.book not in problems],
        {book: digest for book, digest in stored.books.items() if book not in problems},
        [*stored.problems, *problems.values()],
    )


def _kept_decision(
    client: "MlflowClient", ledger: Ledger, version: Version, release: Release, conclusion: Entry
) -> Decision | None:
    """What the evidence of a conclusion says, computed again; None if it rests on none."""
    facts = Conclusion(**conclusion.conclusion or {})
    if facts.digest is None:
        return None
    kept = outcomes.kept(client, version, release.hash, facts.digest)
    decision = decide(kept["episodes"], release.rules, release.hash, _digests(ledger, release))
    if decision.verdict != facts.outcome:
        raise ValueError(
            f"the ledger says that the release of {version} ended '{facts.outcome}', but its "
            f"outcomes say '{decision.verdict}'; do not believe it"
        )
    return decision


def _is_superseded(ledger: Ledger, conclusion: Entry) -> bool:
    """Whether the champion or another release was decided on after a conclusion."""
    return any(
        entry.action in ("promote", "rollback", "withdraw", "release") or entry.deleted
        for entry in ledger.entries[conclusion.index :]
    )


def _digests(ledger: Ledger, release: Release) -> tuple[str, str]:
    versions = release.version, release.facts.champion
    return ledger.checkpoint_of(versions[0]), ledger.checkpoint_of(versions[1])


def _acts_on(decision: Decision, cfg: ReleaseCfg) -> bool:
    does = {
        "good": cfg.on_better == "promote",
        "bad": cfg.on_worse == "stop",
        "undecided": cfg.on_undecided == "stop",
        "running": False,
    }
    return does[decision.verdict]


def _end(
    client: "MlflowClient",
    ledger: Ledger,
    release: Release,
    outcome: str,
    reason: str,
    digest: str | None,
    episodes: int,
) -> Entry | None:
    revokes = outcome in ("bad", "stopped") and not release.facts.shadow
    facts = {"release": release.hash, "outcome": outcome, "digest": digest}
    return changes.append(
        client,
        ledger,
        action="conclude",
        version=release.version,
        conclusion=facts | {"episodes": episodes, "revokes": revokes},
        reason=reason,
    )
