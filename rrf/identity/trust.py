"""Whose signature counts for what: `configs/trust.yaml` of the workspace.

    keys:
    - name: alice
      public: ed25519:…
      revoked: null
    models:
      policy-*:                   # the longest pattern that fits a model's name holds
        allowed:                  # action -> names; an action that is not listed: every name
          register: [ci, alice]
          promote: [ci]
        approvals: 2              # of others than the one who asks, before a promotion
        approvers: [alice, bob, carol]
        approval_hours: 72
        believed_until: {policy-arm: 3f…}   # up to this entry, the ledger is right as it is

The file is committed: what a workspace believes is reviewed as code is, and whoever may only write
to MLflow's store cannot change it. Without the file, or for a model that no pattern fits, nothing
needs a signature.

A name may have several keys, so that a key can be replaced. A revoked key counts in the ledgers
that `revoked.believed` names, up to the entry that it names there.
"""

import fnmatch
import functools
from pathlib import Path

import yaml

from rrf import atomic, workspace
from rrf.config import Cfg, configclass, did_you_mean, first_error, read_yaml
from rrf.identity import keys

FILE = Path(workspace.CONFIGS) / "trust.yaml"
ACTIONS = (
    *("register", "evaluate", "stage", "promote", "rollback", "withdraw", "unrevoke"),
    *("gate", "repair", "approve", "document", "release", "conclude", "outcome"),
    "trial",
)
"""What can be allowed: the actions of a ledger's entries. `stage` asks for approvals, and `outcome`
is what a policy server stores of the episodes of a release."""
_MOST_HOURS = 24 * 366
_HEADER = "# Whose signature counts for what. `rrf keys` writes this file; commit it.\n"


@configclass
class RevocationCfg(Cfg):
    """A key that does not count any more."""

    date: str
    """The day, as YYYY-MM-DD."""
    reason: str
    """Why."""
    believed: dict[str, str] = {}
    """Model -> hash of the last entry of its ledger up to which the key counts."""


@configclass
class TrustedKeyCfg(Cfg):
    """A key of a person or a machine."""

    name: str
    """Whose key it is."""
    public: str
    """The public key."""
    revoked: RevocationCfg | None = None
    """null: it counts."""

    def __post_init__(self):
        keys.raw(self.public)


@configclass
class ModelTrustCfg(Cfg):
    """What the ledgers of some models need."""

    allowed: dict[str, list[str]] = {}
    """Action -> names whose signature counts for it. An action that is not listed: all names."""
    approvals: int = 0
    """How many people besides the one who asks must approve a promotion."""
    approvers: list[str] = []
    """Who may approve; empty: all names."""
    approval_hours: float = 72.0
    """How long a request and its approvals hold."""
    believed_until: dict[str, str] = {}
    """Model -> hash of an entry of its ledger, up to which nothing is asked: what was there before
    these rules. The hash proves all entries up to it."""

    def __post_init__(self):
        for action in self.allowed:
            if action not in ACTIONS:
                raise ValueError(
                    f"allowed.{action}: there is no such action{did_you_mean(action, ACTIONS)}"
                )
        if self.approvals < 0 or not 0 < self.approval_hours <= _MOST_HOURS:
            raise ValueError(
                f"approvals={self.approvals} must not be negative, and approval_hours="
                f"{self.approval_hours} must be positive and at most {_MOST_HOURS}"
            )
        if self.approvers and self.approvals > len(set(self.approvers)):
            raise ValueError(
                f"approvals={self.approvals}, but only {len(set(self.approvers))} approvers"
            )


@configclass
class TrustCfg(Cfg):
    """Keys, and what models need."""

    keys: list[TrustedKeyCfg] = []
    """All keys that were ever trusted."""
    models: dict[str, ModelTrustCfg] = {}
    """Pattern of names -> what these models need."""

    def __post_init__(self):
        publics = [key.public for key in self.keys]
        if twice := next((key for key in publics if publics.count(key) > 1), None):
            raise ValueError(f"key {twice} is there twice; one key belongs to one name")
        known = {key.name for key in self.keys}
        for pattern, model in self.models.items():
            for name in [*model.approvers, *(n for names in model.allowed.values() for n in names)]:
                if name not in known:
                    raise ValueError(
                        f"models.{pattern} names '{name}', who has no key here"
                        f"{did_you_mean(name, sorted(known))}; add it: rrf keys trust {name} "
                        "ed25519:…"
                    )

    def policy(self, model: str) -> ModelTrustCfg | None:
        """What a model needs; None if nothing needs a signature."""
        fitting = [pattern for pattern in self.models if fnmatch.fnmatchcase(model, pattern)]
        return self.models[max(fitting, key=len)] if fitting else None

    def of(self, public: str | None) -> TrustedKeyCfg | None:
        """The trusted key with this public part, revoked or not; None if it is not known."""
        return next((key for key in self.keys if key.public == public), None)

    def name_of(self, public: str | None) -> str:
        """Whose key it is; "" if it is not known."""
        key = self.of(public)
        return key.name if key else ""


def load() -> TrustCfg:
    """What this workspace believes. Raises ValueError for a damaged file."""
    file = workspace.home() / FILE
    try:
        state = file.stat()
    except FileNotFoundError:
        return TrustCfg()
    return _load(file, state.st_mtime_ns, state.st_size)


def save(cfg: TrustCfg) -> None:
    """Write the file of this workspace."""
    text = yaml.safe_dump(_without_types(cfg.to_dict()), sort_keys=False, allow_unicode=True)
    atomic.write_text(workspace.home() / FILE, _HEADER + text)


@functools.lru_cache(maxsize=8)
def _load(file: Path, changed_ns: int, size: int) -> TrustCfg:
    try:
        return TrustCfg.from_dict(read_yaml(file) or {})
    except ValueError as error:
        raise ValueError(f"{file}: {first_error(error)}") from error


def _without_types(data):
    """Plain data without the names of classes (module:Class); a model may be called "type"."""
    if isinstance(data, dict):
        is_class = {key: key == "type" and ":" in value for key, value in data.items()}
        return {key: _without_types(v) for key, v in data.items() if not is_class[key]}
    return [_without_types(each) for each in data] if isinstance(data, list) else data
