"""Which gate rules a model, and what it says about a version, from what the registry stores.

A promotion believes no verdict that somebody brings. It computes the verdict again from the stored
evaluations of the candidate, of the champion and of the best champion so far.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rrf import atomic, workspace
from rrf.evaluation import judging
from rrf.evaluation.gates.gate import GateCfg, Rival, load_gate, verdict
from rrf.evaluation.gates.verdicts import Verdict
from rrf.tracking import evidence
from rrf.tracking.evidence import Stored
from rrf.tracking.ledger import ModelGate
from rrf.tracking.standing import Standing
from rrf.tracking.versions import Version

if TYPE_CHECKING:
    from mlflow import MlflowClient

_ROLES = {"champion": "champion", "best": "best champion so far"}


def model_gate(file: str | Path) -> ModelGate:
    """A gate file as the ledger records it.

    Raises:
        ValueError: If the gate cannot be read, or is neither in the workspace nor one that rrf
            ships, so that other machines and the flows would not find it.
    """
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


def gate_of(standing: Standing) -> GateCfg | None:
    """The gate on record as a config; None if there is none.

    Raises:
        ValueError: If this version of rrf cannot read it, or it is not the gate that was recorded.
    """
    gate, model = standing.gate, standing.name
    if gate is None:
        return None
    try:
        if (digest := atomic.digest_of(gate.config)) == gate.hash:
            return GateCfg.from_dict(gate.config)
        error = f"its hash is {digest[:12]}, not {gate.hash[:12]}"
    except ValueError as problem:
        error = str(problem)
    raise ValueError(
        f"the gate on record for '{model}', {gate.file}, cannot be read ({error}); record it "
        f"again: rrf models gate {model} FILE --reason '...'"
    )


def base_hash_of(standing: Standing) -> str | None:
    """The base hash of the protocol that the gate on record names; None without a gate."""
    gate = gate_of(standing)
    return gate.protocol.base_hash if gate else None


def rivals(standing: Standing, versions: Sequence[Version]) -> dict[str, Version]:
    """The versions that a candidate is compared with: "champion" and, if it is another one, "best".

    The best champion so far is the version that was once champion, was not rolled back, and has the
    highest success under the protocol of the model's gate.
    """
    by_number = {version.version: version for version in versions}
    champion = by_number.get(standing.champion or "")
    if champion is None:
        return {}
    found, base_hash = {"champion": champion}, base_hash_of(standing)
    once = {entry.champion for entry in standing.entries if entry.action == "promote"}
    allowed = [by_number[v] for v in once if v in by_number and v not in standing.revoked]
    ranked = sorted(allowed, key=lambda v: (_success(v, base_hash), v is champion))
    if ranked and ranked[-1] is not champion:
        found["best"] = ranked[-1]
    return found


def attempt_of(standing: Standing, versions: Sequence[Version], checkpoint_digest: str) -> int:
    """Which candidate this is that is judged by the model's gate against its current champion.

    Candidates with a lower version number come first; one that is not registered yet comes last.
    """
    base_hash, champion = base_hash_of(standing), standing.champion or ""
    if base_hash is None:
        return 1
    mine = [int(v.version) for v in versions if v.checkpoint_digest == checkpoint_digest]
    before = [
        version
        for version in versions
        if version.checkpoint_digest != checkpoint_digest
        and (not mine or int(version.version) < mine[0])
        and any(
            one.base_hash == base_hash and champion in one.against
            for one in evidence.evaluations_of(version)
        )
    ]
    return len(before) + 1


def judge(
    client: "MlflowClient", standing: Standing, versions: Sequence[Version], version: Version
) -> Verdict:
    """What the model's gate says about a version, from the stored evaluations.

    Raises:
        ValueError: If the model has no gate, or an evaluation is missing or was replaced.
        OSError: If an evaluation cannot be read.
    """
    name = version.name
    gate = gate_of(standing)
    if gate is None or standing.gate is None:
        raise ValueError(
            f"no gate rules '{name}' yet; say which one does: rrf models gate {name} "
            "configs/gates/FILE.yaml --reason '...'"
        )
    mine = _longest(version, gate.protocol.base_hash)
    if mine is None:
        raise ValueError(
            f"'{name}' version {version.version} has no evaluation under protocol "
            f"'{gate.protocol.name}' of its gate; make one: rrf eval CHECKPOINT --gate "
            f"{standing.gate.file} --register {name}"
        )
    others: dict[str, Rival] = {}
    for role, other in rivals(standing, versions).items():
        theirs = [
            one for one in evidence.evaluations_of(other) if one.protocol_hash == mine.protocol_hash
        ]
        if other.version == version.version:
            theirs = [mine]
        if not theirs:
            raise ValueError(
                f"the {_ROLES[role]} of '{name}', version {other.version}, has no evaluation on "
                f"the {mine.episodes_per_task} initial states per task of version "
                f"{version.version}; judge that one again: rrf eval {name}/{version.version} "
                f"--gate {standing.gate.file} --register {name}"
            )
        best = max(theirs, key=lambda one: one.success)
        others[role] = Rival(evidence.load(client, other, best.digest), other.version)
    return verdict(
        evidence.load(client, version, mine.digest),
        gate,
        others.get("champion"),
        others.get("best"),
        judging.round_of(gate, mine.episodes_per_task),
        attempt_of(standing, versions, version.checkpoint_digest),
    )


def _longest(version: Version, base_hash: str | None) -> Stored | None:
    """The evaluation under the gate's protocol with the most episodes; of several, the one with the
    lowest success. So nobody gains by evaluating again until the result is lucky.
    """
    found = [one for one in evidence.evaluations_of(version) if one.base_hash == base_hash]
    return max(found, key=lambda one: (one.episodes_per_task, -one.success), default=None)


def _success(version: Version, base_hash: str | None) -> float:
    found = _longest(version, base_hash)
    return found.success if found else -1.0


def differing(standing: Standing, file: str | Path) -> str:
    """Why a candidate that is judged by this gate cannot be promoted, or ""."""
    mine, gate, recorded = load_gate(file), gate_of(standing), standing.gate
    if gate is None or recorded is None or gate.hash == mine.hash:
        return ""
    return (
        f"'{standing.name}' is ruled by {recorded.file} ({gate.hash[:12]}), not by {file} "
        f"({mine.hash[:12]}); to change that: rrf models gate {standing.name} {file} --reason '...'"
    )
