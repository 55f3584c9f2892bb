"""Whether a version may act: what its ledger says of it, and what it stands on.

A version must not act if it was rolled back, withdrawn or stopped as a canary; nor if it stands on
data that is tainted, or was trained from, taught by or joined from a checkpoint that is revoked,
over any number of steps, registered or not, and under whatever name. Somebody can allow it with a
reason. That holds for what was revoked until then: what is revoked later counts again.

The champion is the exception: what it stands on does not stop it, since nobody but its people knows
whether the robots can do without it. It is flagged.

Promotions, rollbacks, releases, policy servers, trials on robots and copies that were fetched ask
here. Nothing here reads weights, so a policy server can ask every few seconds; `likeness` does.
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from rrf import atomic, formats
from rrf.registry import ledger as ledgers
from rrf.registry import lineage_graph, listing, taints
from rrf.registry.changes import CHAMPION
from rrf.registry.client import connect
from rrf.registry.entries import REVOKED_BY, Entry
from rrf.registry.ledger import Ledger
from rrf.registry.lineage_graph import Training
from rrf.registry.versions import Version, check_exists, find, versions_of

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import RegisteredModel

_REVOKING = tuple(f'"{action}"' for action in REVOKED_BY)


def standing_of(name: str, version: str) -> str:
    """Why a version must not act, or "".

    Raises:
        ValueError: If there is no such model or version, its ledger cannot be believed, or the list
            of taints is damaged.
        OSError: If the store cannot be reached.
    """
    client = connect()
    check_exists(client, name)
    ledger = ledgers.read(client, name)
    if revocation := ledger.revoked.get(version):
        return revoked_because(name, version, revocation)
    if version == ledger.champion:
        return ""
    why = barred(client, ledger, find(f"{name}/{version}", client))
    return must_not_act(name, version, why) if why else ""


def revoked_because(name: str, version: str, revocation: Entry) -> str:
    """A sentence about a version that is not allowed any more."""
    done = REVOKED_BY[revocation.action]
    return f"version {version} of '{name}' was {done} at {revocation.time}: {revocation.reason}"


def must_not_act(name: str, version: str, why: str) -> str:
    """A sentence about a version that what it stands on keeps from acting."""
    return f"version {version} of '{name}' must not act: {why}"


def how_to_allow(name: str, version: str) -> str:
    """What to type for a version that must not act, and should all the same."""
    return (
        f"taints stand in {taints.FILE}, and who is revoked comes back by: rrf models promote "
        f"{name} {version} --unrevoke --reason '...'"
    )


def barred(client: "MlflowClient", ledger: Ledger, version: Version) -> str:
    """Why a version that is no champion must not act, or "": it, or what it comes from, is revoked,
    or stands on data that is tainted.

    Raises:
        ValueError: If the list of taints is damaged; what is revoked is known all the same.
    """
    trainings = _trainings_of(client, version)
    return inherited(client, ledger, version, trainings) or taints.problem_in(trainings)


def inherited(
    client: "MlflowClient",
    ledger: Ledger,
    version: Version,
    trainings: Iterable[tuple[Training, str]] | None = None,
) -> str:
    """Why a version must not act as it, or what it comes from, is revoked, or ""; data does not
    count. `trainings` are its `lineage_graph.trainings_of`."""
    reaching = revocations(client, ledger, version, trainings)
    return next((words for _, words in reaching), "")


def revocations(
    client: "MlflowClient",
    ledger: Ledger,
    version: Version,
    trainings: Iterable[tuple[Training, str]] | None = None,
) -> Iterator[tuple[Entry, str]]:
    """The revocations that hold for a version, each with words for it: its own, and those of what
    it comes from that nobody has lifted for it since."""
    if entry := ledger.revoked.get(version.version):
        yield entry, f"it {how(entry)}"
    if trainings is None:
        trainings = _trainings_of(client, version)
    digests = {digest for (_, digest), _ in trainings}
    yield from _reaching(ledger, version, digests, _revoked(_suspects(client), digests))


def flagged(name: str | None = None) -> dict[str, str]:
    """Model, of one or of all -> a sentence that says why its champion should not act, although it
    does, and what to type.

    Raises:
        ValueError: If there is no such model, or the list of taints is damaged.
        OSError: If the store cannot be reached.
    """
    client = connect()
    suspects = _suspects(client)
    if not suspects and not taints.load().data:
        return {}
    versions = listing.versions(name)
    champions = [each for each in versions if CHAMPION in each.aliases]
    trainings = lineage_graph.trainings_of_each(client, champions, versions)
    digests = {digest for chain in trainings for (_, digest), _ in chain}
    revoked, problems = _revoked(suspects, digests), {}
    for champion, chain in zip(champions, trainings, strict=True):
        model, own = champion.name, {digest for (_, digest), _ in chain}
        why = taints.problem_in(chain)
        if not own.isdisjoint(revoked):
            ledger, _ = ledgers.proved(model, client.get_registered_model(model).tags)
            why = next((words for _, words in _reaching(ledger, champion, own, revoked)), why)
        if why:
            problems[model] = (
                f"the champion {champion}: {why}; it acts until another version is promoted, or: "
                f"rrf models withdraw {model} --reason '...'; "
                f"{how_to_allow(model, champion.version)}"
            )
    return problems


def how(entry: Entry) -> str:
    """What a revocation did to a version, and why."""
    return f"was {REVOKED_BY[entry.action]} ({entry.reason})"


def _trainings_of(client: "MlflowClient", version: Version) -> list[tuple[Training, str]]:
    return lineage_graph.trainings_of(client, version, versions_of(client, version.name))


def _reaching(
    ledger: Ledger,
    version: Version,
    digests: Set[str],
    revoked: Mapping[str, Sequence[Entry]],
) -> Iterator[tuple[Entry, str]]:
    """Those of these revocations, and of those in the version's own ledger, that hold for what it
    comes from, the checkpoints with these digests; each with words for it."""
    for digest, entries in revoked.items():
        for entry in entries if digest in digests else ():
            if entry.model != ledger.name and not ledger.allows(version.version, entry):
                made = "is the policy of" if digest == version.checkpoint_digest else "stands on"
                named = f"'{entry.model}' version {entry.revokes}"
                yield entry, f"it {made} {named}, which {how(entry)}"
    for number, entry in ledger.revoked.items():
        is_other = number != version.version and ledger.checkpoint_of(number) in digests
        if is_other and not ledger.allows(version.version, entry):
            yield entry, f"it was trained from version {number}, which {how(entry)}"


@dataclasses.dataclass(frozen=True)
class _Suspect:
    """A model whose ledger revokes checkpoints, if it is believed. To prove it takes ten times as
    long as to read what it says."""

    model: "RegisteredModel"
    digests: set[str]

    @classmethod
    def of(cls, model: "RegisteredModel") -> "_Suspect":
        """What a model's tags say."""
        tags = sorted(model.tags.items())
        texts = [text for key, text in tags if key.startswith(ledgers.PREFIX)]
        if not any(action in text for text in texts for action in _REVOKING):
            return cls(model, set())
        checkpoints: dict[str, str] = {}
        versions = set()
        for text in texts:
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                entry = atomic.parse_json(text)
                if entry.get("action") in REVOKED_BY:
                    versions.add(entry["version"])
                if registration := entry.get("registration"):
                    digest = str(registration["checkpoint_digest"])
                    checkpoints.setdefault(entry["version"], digest)
        return cls(model, {checkpoints[version] for version in versions & checkpoints.keys()})


def _suspects(client: "MlflowClient") -> list[_Suspect]:
    suspects = map(_Suspect.of, listing.read_all(client))
    return sorted((each for each in suspects if each.digests), key=lambda each: each.model.name)


def _revoked(suspects: Iterable[_Suspect], digests: Set[str]) -> dict[str, list[Entry]]:
    """Those of these checkpoints that are revoked, and by what. Of a damaged ledger, what is proved
    counts; one that only a newer rrf can read holds up no other model.
    """
    revoked: dict[str, list[Entry]] = {}
    for suspect in suspects:
        if digests.isdisjoint(suspect.digests):
            continue
        with contextlib.suppress(formats.NewerFormatError):
            ledger, _ = ledgers.proved(suspect.model.name, suspect.model.tags)
            for version, entry in ledger.revoked.items():
                if (digest := ledger.checkpoint_of(version)) in digests:
                    revoked.setdefault(digest, []).append(entry)
    return revoked
