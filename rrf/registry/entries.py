"""The entries of a ledger: what each of them holds, its hash, and its text in a tag."""

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Sequence

from rrf import atomic, formats
from rrf.identity import keys

APPROVAL = "approval"
"""Purpose of the signature of an `Approval`."""
HOLDERS = {
    "registration": ("register",),
    "evaluation": ("register", "evaluate"),
    "gate": ("gate",),
    "lost": ("repair",),
    "deleted": ("repair",),
    "approval": ("approve",),
    "documents": ("register", "evaluate", "promote", "document"),
    "release": ("release",),
    "conclusion": ("conclude",),
    "trial": ("trial",),
    "allows": ("unrevoke",),
}
"""Field of an `Entry` -> the actions whose entries may have it."""
APPROVALS_END = 6
"""The version of entries from which on approvals do not hold after a revocation of the version."""
_LIFTS_END = 7
"""The same after a revocation, also of what the version comes from, was lifted for it."""
_CHANGES_CHAMPION = ("promote", "rollback", "withdraw")
_Record = typing.TypeVar("_Record")


@dataclasses.dataclass(frozen=True)
class ModelGate:
    """The gate that rules a model, as it was when it was recorded."""

    file: str
    hash: str
    config: dict  # `GateCfg.to_dict`


@dataclasses.dataclass(frozen=True)
class Registration:
    """What a version was registered as."""

    checkpoint_digest: str
    lineage_digest: str  # of `rrf.lineage.facts_in` of its tags


@dataclasses.dataclass(frozen=True)
class StoredEvaluation:
    """An evaluation that is stored with a version."""

    digest: str
    protocol_hash: str
    base_hash: str  # of the protocol whatever its number of episodes
    episodes_per_task: int
    success: float
    against: str | None
    """The champion at whose time it was an attempt to become one; "" before the first. None for an
    evaluation that others were compared with."""
    key: str | None = None
    """The public key of who evaluated, who signed the digest; None: whoever signed the entry."""
    signature: str | None = None


@dataclasses.dataclass(frozen=True)
class Approval:
    """Somebody says that a version may become the champion."""

    model: str
    version: str
    stage: str
    """Hash of the entry that asked for it; it names the verdict."""
    reason: str
    time: str  # ISO 8601, UTC
    key: str
    signature: str = ""

    def signed(self, signer: keys.Signer) -> "Approval":
        """The approval with its signature."""
        return dataclasses.replace(self, signature=signer.sign(APPROVAL, self._content()))

    @property
    def is_signed(self) -> bool:
        """Whether the owner of the key has said this."""
        return keys.is_signed(APPROVAL, self._content(), self.key, self.signature)

    def _content(self) -> dict:
        return dataclasses.asdict(self) | {"signature": ""}


@dataclasses.dataclass(frozen=True)
class ModelRelease:
    """A version that acts, or only computes, beside the champion; its entry's hash names it."""

    shadow: bool
    """Whether it only computes."""
    champion: str
    """The version that it is compared with."""
    file: str
    """The rules' file; "" for the defaults."""
    config: dict  # `ReleaseCfg.to_dict`


@dataclasses.dataclass(frozen=True)
class Conclusion:
    """How a release ended."""

    release: str
    """Hash of the entry that began it."""
    outcome: typing.Literal["good", "bad", "undecided", "stopped"]
    """What the outcomes said, or that somebody stopped it."""
    digest: str | None
    """Of the stored outcomes that it rests on."""
    episodes: int
    """How many of them count."""
    revokes: bool
    """Whether the version must not be used any more."""


@dataclasses.dataclass(frozen=True)
class PlannedTrial:
    """A study of trials on a robot, before its first trial; see `rrf.evaluation.trials`."""

    study: str
    """Its name."""
    digest: str
    """Of its plan."""
    gate: str
    """Hash of the gate that judges it."""
    base_hash: str
    """Of the gate's protocol."""
    against: str
    """The champion at its time; "" before the first."""
    checkpoints: list[str]
    """Digests of its arms, what the others are compared with first."""
    num_candidates: int
    """How many of them are judged."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One change of champion or gate, or one version or evaluation that came."""

    model: str
    index: int  # from 1
    time: str  # ISO 8601, UTC
    action: typing.Literal[
        "register", "evaluate", "stage", "approve", "promote", "rollback", "withdraw", "unrevoke",
        "gate", "repair", "document", "release", "conclude", "trial",
    ]  # fmt: skip
    version: str | None  # the one that the action is about; None for a gate or a repair
    champion: str | None  # the champion after the change
    previous: str | None  # the version that a rollback would return to
    checkpoint_digest: str | None  # of the champion after the change
    verdict_digest: str | None
    protocol_hash: str | None
    reason: str
    actor: str
    parent: str  # hash of the previous entry
    hash: str = ""
    gate: dict | None = None  # of a change of gate: a `ModelGate` as plain data
    registration: dict | None = None  # a `Registration` as plain data
    evaluation: dict | None = None  # a `StoredEvaluation` as plain data
    lost: list[str] | None = None  # of a repair: hashes of the entries that are gone
    deleted: list[str] | None = None  # of a repair: champions whose versions are gone
    approval: dict | None = None  # an `Approval` as plain data
    documents: dict[str, str] | None = None  # card and bill of materials: file name -> SHA-256
    release: dict | None = None  # a `ModelRelease` as plain data
    conclusion: dict | None = None  # a `Conclusion` as plain data
    trial: dict | None = None  # a `PlannedTrial` as plain data
    allows: list[str] | None = None  # of an unrevoke: hashes of revocations in other ledgers
    key: str | None = None  # the public key that signed the hash; None for an unsigned entry
    signature: str | None = None
    format_version: int = dataclasses.field(default_factory=lambda: formats.LEDGER.version)

    @property
    def revokes(self) -> str | None:
        """The version that must not be used from this entry on."""
        is_revoking = self.action in ("rollback", "withdraw")
        return self.version if is_revoking or (self.conclusion or {}).get("revokes") else None

    def sealed(self) -> "Entry":
        """The entry with its hash."""
        return dataclasses.replace(self, hash=_hash_of(self._content()))

    def text(self) -> str:
        """The entry as JSON, for its tag."""
        return json.dumps(self._content())

    def _content(self) -> dict:
        return dataclasses.asdict(self)


def is_sealed(text: str, entry: Entry) -> bool:
    """Whether an entry is as it was written, in its tag `text`."""
    return entry.hash == _hash_of(atomic.parse_json(text))


REVOKED_BY = {
    "rollback": "rolled back",
    "withdraw": "withdrawn",
    "conclude": "stopped as a canary",
}
"""Action of an entry that revokes a version -> what was done to the version."""


def _hash_of(content: dict) -> str:
    """The hash of an entry, of all that stands in it but hash and signature."""
    unsigned = {"signature": None} if "signature" in content else {}
    return atomic.digest_of(content | {"hash": ""} | unsigned)


def entry_of(text: str, where: str) -> Entry:
    """The entry in a tag; whether it was edited is not checked (`is_sealed`).

    Raises:
        NewerFormatError: If a newer rrf wrote it.
        ValueError, TypeError: If it is unreadable, or a value has another type than it should.
    """
    data = dict(atomic.parse_json(text))
    version = formats.LEDGER.check(data, where)
    entry = checked(Entry(**formats.LEDGER.read(data, where), format_version=version))
    for kind, data in (
        (ModelGate, entry.gate),
        (Registration, entry.registration),
        (StoredEvaluation, entry.evaluation),
        (Approval, entry.approval),
        (ModelRelease, entry.release),
        (Conclusion, entry.conclusion),
        (PlannedTrial, entry.trial),
    ):
        if data:
            checked(kind(**data))
    return entry


def checked(record: _Record) -> _Record:
    """A dataclass of plain values whose fields have the types that they are declared with. Raises
    TypeError for another one.
    """
    for field, kind in _types_of(type(record)).items():
        if not _fits(getattr(record, field), kind):
            raise TypeError(f"'{field}' is no {getattr(kind, '__name__', kind)}")
    return record


def staged_in(entries: Sequence[Entry], also_revoked: bool = False) -> Entry | None:
    """The request for approvals that was made last, while the champion is the one of then and the
    version was neither revoked nor allowed again since: who approved it did not know why. With
    `also_revoked`, as before `APPROVALS_END`, also if it was.
    """
    revoked = set()
    is_new = any(entry.format_version >= _LIFTS_END for entry in entries)
    for entry in reversed(entries):
        if entry.action == "stage":
            return None if entry.version in revoked and not also_revoked else entry
        if entry.action in _CHANGES_CHAMPION:
            return None
        revoked.add(entry.version if entry.action == "unrevoke" and is_new else entry.revokes)
    return None


def released_in(entries: Sequence[Entry]) -> Entry | None:
    """The release that runs: the last one, unless it has ended or the champion is another one."""
    for entry in reversed(entries):
        if entry.action == "release":
            return entry
        if entry.action in (*_CHANGES_CHAMPION, "conclude") or entry.deleted:
            return None
    return None


def revoked_in(entries: Sequence[Entry]) -> dict[str, Entry]:
    """Versions that were rolled back, withdrawn or stopped as canaries and not allowed again since
    -> by what.
    """
    revocations: dict[str, Entry] = {}
    for entry in entries:
        if entry.revokes:
            revocations[entry.revokes] = entry
        elif entry.action == "unrevoke" and entry.version:
            revocations.pop(entry.version, None)
    return revocations


@functools.lru_cache
def _types_of(kind: type) -> dict[str, typing.Any]:
    return typing.get_type_hints(kind)


def _fits(value: typing.Any, kind: typing.Any) -> bool:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, each) for each in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is list:
        return type(value) is list and all(_fits(each, arguments[0]) for each in value)
    if origin is dict:
        pairs = value.items() if type(value) is dict else [()]
        return all(tuple(map(type, pair)) == arguments for pair in pairs)
    return type(value) is kind or (kind is float and type(value) is int)
