"""What a version's card and its bill of materials say, computed from registry, ledger and lineage.

The same registry gives the same facts: there is no time of writing among them.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rrf import workspace
from rrf.config import read_yaml, readable
from rrf.evaluation.protocols.files import parse_protocol
from rrf.evaluation.results import Evaluation
from rrf.identity import trust
from rrf.identity.trust import ModelTrustCfg
from rrf.lineage import facts_in
from rrf.registry import changes, evidence, lineage_graph, rules, signatures, taints
from rrf.registry.entries import REVOKED_BY
from rrf.registry.ledger import Ledger
from rrf.registry.lineage_graph import Node
from rrf.registry.standing import inherited
from rrf.registry.training_facts import in_words
from rrf.registry.versions import Version
from rrf.runners.checkpoints.deployable import CONTROL, described

if TYPE_CHECKING:
    from mlflow import MlflowClient

UNKNOWN = "unknown"
_SHOWN = 12


@dataclasses.dataclass(frozen=True)
class Data:
    """A dataset that a training of the version used."""

    name: str
    md5: str
    licence: str
    """An SPDX identifier, or `UNKNOWN`."""
    provenance: str
    facts: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Facts:
    """Everything that the documents of a version say."""

    version: Version
    purpose: str
    standing: list[str]
    evaluation: Evaluation | None
    evaluated_by: str
    protocol: dict[str, str]
    data: list[Data]
    trainings: list[Node]
    """The last one first."""
    parents: list[Node]
    """What it started from and no run of this store made: checkpoints, published policies."""
    limits: list[str]
    people: list[str]
    hardware: dict[str, str]
    lineage: dict[str, str]

    @property
    def reference(self) -> str:
        """NAME/3."""
        return f"{self.version.name}/{self.version.version}"

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.version.name} version {self.version.version}"

    @property
    def approach(self) -> str:
        """How it learned, in the words of CycloneDX."""
        is_control = self.version.tags.get("policy.kind") == CONTROL
        return "reinforcement-learning" if is_control and not self.data else "supervised"


def gather(client: "MlflowClient", ledger: Ledger, version: Version) -> Facts:
    """The facts about a version, by a ledger in which a change may stand that is about to be
    written."""
    evaluation, evaluated_by = _evaluation(client, ledger, version)
    graph = lineage_graph.of_run(client, version)
    below = list(graph.nodes.values())
    return Facts(
        version,
        purpose(version),
        standing(client, ledger, version),
        evaluation,
        evaluated_by,
        _protocol(evaluation) if evaluation else {},
        [_data(node) for node in below if node.kind == "dataset"],
        [node for node in below if node.kind == "run"],
        [node for node in below if node.kind in ("checkpoint", "published")],
        _limits(evaluation),
        _people(ledger, version),
        _hardware(evaluation) if evaluation else {},
        facts_in(version.tags),
    )


def purpose(version: Version) -> str:
    """What the policy is, in a sentence."""
    tags = version.tags
    kind = tags.get("policy.kind")
    text = described(kind) if kind else "a policy"
    if task := tags.get("lineage.environment.task"):
        text += f", trained in {task}"
    if dataset := tags.get("lineage.dataset"):
        text += f", trained on {dataset}"
    training = {
        k.removeprefix("training."): v for k, v in tags.items() if k.startswith("training.")
    }
    return f"{text[0].upper()}{text[1:]} ({in_words(training).replace('`', '')})."


def standing(client: "MlflowClient", ledger: Ledger, version: Version) -> list[str]:
    """Which role a version has, and why it should not be used, if so."""
    roles = changes.expected_aliases(ledger).items()
    names = [alias for alias, number in roles if number == version.version]
    lines = [f"It is the {' and the '.join(names)} of {ledger.name}."] if names else []
    if revocation := ledger.revoked.get(version.version):
        done = REVOKED_BY[revocation.action]
        lines.append(f"It was {done} on {revocation.time}: {revocation.reason}")
    elif why := inherited(client, ledger, version):
        lines.append(f"It comes from what is revoked: {why}")
    if tainted := taints.problem(client, version):
        lines.append(f"It stands on data that is wrong: {tainted}")
    return lines or ["It has no role."]


def _evaluation(
    client: "MlflowClient", ledger: Ledger, version: Version
) -> tuple[Evaluation | None, str]:
    """The evaluation with the most episodes under the gate's protocol, and who signed it."""
    stored = ledger.evaluations(version.version)
    base_hash = rules.base_hash_of(ledger)
    fitting = [each for each in stored if each.base_hash == base_hash] or stored
    if not fitting:
        return None, ""
    best = max(fitting, key=lambda each: each.episodes_per_task)
    try:
        evaluation = evidence.load(client, version, best)
    except OSError:  # deleted: the card says less
        return None, ""
    return evaluation, signatures.signed_by(signatures.EVALUATION, best.digest, best)


def _protocol(evaluation: Evaluation) -> dict[str, str]:
    given = evaluation.protocol
    cfg = parse_protocol(given)
    env = given.get("env")
    facts = {
        "name": str(given["name"]),
        "hash": evaluation.protocol_hash[:_SHOWN],
        "simulator": env if isinstance(env, str) else str((env or {}).get("task", UNKNOWN)),
        "episodes per task": str(cfg.episodes_per_task),
        "longest episode": f"{given.get('max_episode_steps')} steps",
        "seed of the initial states": str(given.get("seed")),
    }
    if cfg.success_rule:
        facts["an episode succeeds with"] = cfg.success_rule
    return facts


def _data(node: Node) -> Data:
    """What is known of a dataset: in the lineage, and in its config here."""
    name, _, md5 = node.id.removeprefix("dataset:").rpartition("@")
    licences, provenances = [], []
    for part in name.split(", "):  # a training on several has one node
        file = workspace.configs("datasets").get(part)
        config: Mapping[str, Any] = {}
        if file is not None:
            config = readable([file], read_yaml).get(file) or {}
        licences.append(str(config.get("licence") or UNKNOWN))
        provenances.append(str(config.get("provenance") or ""))
    licence = " AND ".join(dict.fromkeys(licences)) if UNKNOWN not in licences else UNKNOWN
    return Data(name, md5, licence, " ".join(p for p in provenances if p), node.facts)


def _hardware(evaluation: Evaluation) -> dict[str, str]:
    """What it was evaluated on, and what was measured of it as it is served."""
    profile = evaluation.profile
    return {**evaluation.surroundings, **({"served policy": str(profile)} if profile else {})}


def _limits(evaluation: Evaluation | None) -> list[str]:
    """What the evaluation does not say."""
    if evaluation is None:
        return ["It was never evaluated under a protocol, so nothing is known of its success."]
    tasks = list(evaluation.per_task)
    shown = ", ".join(tasks[:_SHOWN]) + (
        f" and {len(tasks) - _SHOWN} more" if tasks[_SHOWN:] else ""
    )
    rate, where = evaluation.overall, "in simulation, from initial states that one seed draws"
    is_trial = parse_protocol(evaluation.protocol).is_sequential
    if is_trial:
        where = "in a trial on a robot"
    limits = [
        f"Success was measured on {shown} only, {where}. "
        "Other tasks, objects, instructions, cameras, light and robots were not tried.",
        f"{rate.episodes} episodes leave room: the 95 % bounds are {rate.low:.1%} to "
        f"{rate.high:.1%}.",
    ]
    if not is_trial:
        limits.append(
            "An evaluation in simulation says nothing about forces, delays and wear of a real "
            "robot."
        )
    weak = [task for task, each in evaluation.per_task.items() if each.high < 0.5]
    if weak:
        limits.append(f"It fails more often than not on {', '.join(weak)}.")
    return limits


def _people(ledger: Ledger, version: Version) -> list[str]:
    """Who registered, asked, approved and promoted it, and when."""
    cfg = trust.load()
    policy = cfg.policy(ledger.name) or ModelTrustCfg()
    done = {"register": "Registered", "stage": "Approvals asked for", "promote": "Promoted"}
    lines = []
    for entry in ledger.entries:
        if entry.version != version.version or entry.action not in done:
            continue
        if entry.action == "register" and lines:
            continue
        lines.append(
            f"{done[entry.action]} by {signatures.who(entry)} on {entry.time}: {entry.reason}"
        )
        if entry.action == "stage":
            given = signatures.approvers(cfg, policy, ledger.entries, entry)
            lines.append(f"Approved by {', '.join(given) or 'nobody yet'}")
    return lines
