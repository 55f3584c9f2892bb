"""What a version stands on, as a graph: verdicts, evaluations, trainings one after another, data,
code, simulators; and the versions that stand on something.

    version -> promotion, evaluation, run -> run that it started from -> … -> dataset -> recordings
                                          -> code, environment

Nothing is stored for it: versions and the ledger name runs, the tags of runs name what was trained
on. The runs that a training started from are found by the digest of its first checkpoint. What is
not in this store is a node that says so.
"""

import collections
import dataclasses
import datetime
import fnmatch
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rrf.identity import trust
from rrf.identity.trust import ModelTrustCfg
from rrf.lineage import SYSTEMS, facts_in
from rrf.registry import changes, listing, signatures, versions
from rrf.registry.entries import Entry
from rrf.registry.ledger import Ledger
from rrf.registry.listing import Run
from rrf.registry.versions import CHECKPOINT_DIGEST, Version

if TYPE_CHECKING:
    from mlflow import MlflowClient
Kind = typing.Literal[
    "version", "promotion", "evaluation", "run", "checkpoint", "dataset", "recordings", "code",
    "environment", "published",
]  # fmt: skip
_OTHERS = (
    ("parent_checkpoint", "started from"),
    ("teacher_checkpoint", "taught by"),
)
"""Fact of a lineage that names another checkpoint, and how the policy stands on it."""
_BY_SYSTEM = ("sees by the System 2", "acts by the System 1", "stands by the System 0")
"""The same for `SYSTEMS`."""
_REACHED = {
    "parent_checkpoint": "that it started from",
    "teacher_checkpoint": "that taught it",
    **{key: f"that made its System {2 - number}" for number, key in enumerate(SYSTEMS)},
}
"""The same facts, in words for `chain`."""
_LONGEST_CHAIN = 50  # of trainings, one from another
_SHOWN = 12
_COSTS = (
    ("machine hours", "wall_s", 3600),
    ("core hours", "cpu_s", 3600),
    ("GPU hours", "gpu_s", 3600),
    ("estimated kWh", "energy_wh_estimated", 1000),
    ("GB written", "written_bytes", 1e9),
)
"""Name of a fact, metric below `cost/`, and by what its value is divided."""


@dataclasses.dataclass(frozen=True)
class Node:
    """Something that a version stands on."""

    id: str
    kind: Kind
    title: str
    facts: dict[str, str]


@dataclasses.dataclass
class Graph:
    """Nodes, and which of them stands on which."""

    root: str
    """The id of the version."""
    nodes: dict[str, Node] = dataclasses.field(default_factory=dict)
    edges: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)
    """(what, stands on what, how)."""

    def add(self, child: str | None, how: str, node: Node) -> str:
        """Add a node on which `child` stands; returns its id."""
        self.nodes.setdefault(node.id, node)
        if child is not None and (child, node.id, how) not in self.edges:
            self.edges.append((child, node.id, how))
        return node.id

    def below(self, id: str) -> list[tuple[str, Node]]:
        """How, and on what a node stands."""
        return [(how, self.nodes[parent]) for child, parent, how in self.edges if child == id]

    def to_dict(self) -> dict[str, typing.Any]:
        """Plain data."""
        return {
            "root": self.root,
            "nodes": [dataclasses.asdict(node) for node in self.nodes.values()],
            "edges": [dict(zip(("what", "on", "how"), edge, strict=True)) for edge in self.edges],
        }


def of_version(reference: str) -> Graph:
    """The graph of a version, by "NAME@alias", "NAME/3" or "NAME" (the champion).

    Raises:
        ValueError: If there is no such version, or its ledger or tags cannot be believed.
    """
    client = listing.connect()
    version = versions.find(reference, client)
    ledger = changes.agreed(client, version.name)
    if differences := versions.contradictions(ledger, version):
        raise ValueError(
            f"{'; '.join(differences)}; to put it right: rrf models repair {version.name}"
        )
    graph = Graph(f"version:{version.name}/{version.version}")
    _add_version(graph, ledger, version)
    _add_trainings(client, graph, version)
    return graph


def of_run(client: "MlflowClient", version: Version) -> Graph:
    """The part of `of_version` without promotions and evaluations, whatever the ledger says."""
    graph = Graph(f"version:{version.name}/{version.version}")
    graph.add(None, "", Node(graph.root, "version", str(version), {}))
    _add_trainings(client, graph, version)
    return graph


def _add_trainings(client: "MlflowClient", graph: Graph, version: Version) -> None:
    facts = facts_in(version.tags)
    is_joined = any(map(facts.get, SYSTEMS))
    how = "joined by" if is_joined else "trained by"
    run = _add_run(client, graph, graph.root, how, version.run_id)
    _add_foundations(client, graph, run, facts)


@dataclasses.dataclass(frozen=True)
class Standing:
    """A version that stands on something."""

    version: Version
    why: str


def standing_on(
    dataset: str | None = None, md5: str = "", commit: str = "", checkpoint: str = ""
) -> list[Standing]:
    """The versions, of all models, that stand on a dataset, a commit or a checkpoint; also those
    that were trained from, taught by or joined from a checkpoint that does.

    Args:
        dataset: Its name, or a pattern of names; None for any.
        md5: The beginning of the dataset's version; "" for any.
        commit: The beginning of a commit; "" for any.
        checkpoint: The beginning of the digest of a checkpoint; "" for any.
    """
    client = listing.connect()
    trainings: dict[str, list[Mapping[str, str]]] = {}
    for run in listing.runs_tagged(client, CHECKPOINT_DIGEST):
        trainings.setdefault(run.tags[CHECKPOINT_DIGEST], []).append(facts_in(run.tags))
    found = []
    for version in listing.versions():
        begin = facts_in(version.tags), version.checkpoint_digest
        for (facts, digest), way in chain(*begin, lambda digest: trainings.get(digest, [])):
            if why := stands(facts, digest, dataset, md5, commit, checkpoint):
                found.append(Standing(version, f"{why}{way}"))
                break
    return found


Training = tuple[Mapping[str, str], str]
"""The facts of the lineage of a training, and the digest of its checkpoint."""


def chain(
    facts: Mapping[str, str], digest: str, facts_of: Callable[[str], Sequence[Mapping[str, str]]]
) -> Iterator[tuple[Training, str]]:
    """A training, those that it started from, was taught by or was joined from, theirs, and so on,
    each with words for how it is reached.

    Args:
        facts: Of the first.
        digest: Of its checkpoint.
        facts_of: The facts of all trainings that made the checkpoint with a digest; none if it is
            not known.
    """
    ahead, seen = collections.deque([(facts, digest, "")]), {digest}
    while ahead:
        facts, digest, way = ahead.popleft()
        yield (facts, digest), way
        for key, how in _REACHED.items():
            origin = facts.get(key, "")
            if origin and origin not in seen:
                seen.add(origin)
                way_there = f", by the training of {origin[:_SHOWN]} {how}"
                ahead += [(known, origin, way_there) for known in facts_of(origin) or [{}]]


def trainings_of(
    client: "MlflowClient", version: Version, others: Sequence[Version] = ()
) -> list[tuple[Training, str]]:
    """The `chain` of a version, by the runs of this store and by other versions of its model, whose
    lineage the ledger knows whatever becomes of their runs.
    """
    return trainings_of_each(client, [version], others)[0]


def trainings_of_each(
    client: "MlflowClient", versions: Sequence[Version], others: Sequence[Version]
) -> list[list[tuple[Training, str]]]:
    """The same for several versions, beside others of their models. To find one run takes as long
    as to find many: so those of all versions are looked up at once, one step of the chains after
    the other.
    """
    registered: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for each in others:
        made = registered.setdefault((each.name, each.checkpoint_digest), [])
        made.append(facts_in(each.tags))
    runs: dict[str, list[Mapping[str, str]]] = {}
    while True:
        unknown: set[str] = set()
        chains = []
        for version in versions:
            begin = facts_in(version.tags), version.checkpoint_digest
            facts_of = _known(version.name, registered, runs, unknown)
            chains.append(list(chain(*begin, facts_of)))
        if not unknown:
            return chains
        runs |= {digest: [] for digest in unknown}
        if values := sorted(filter(str.isalnum, unknown)):
            for run in listing.runs_tagged(client, CHECKPOINT_DIGEST, *values):
                runs[run.tags[CHECKPOINT_DIGEST]].append(facts_in(run.tags))


def _known(
    model: str,
    registered: Mapping[tuple[str, str], list[Mapping[str, str]]],
    runs: Mapping[str, list[Mapping[str, str]]],
    unknown: set[str],
) -> Callable[[str], list[Mapping[str, str]]]:
    """What a chain asks; it is noted in `unknown` which runs were not looked up yet."""

    def facts_of(digest: str) -> list[Mapping[str, str]]:
        if digest not in runs:
            unknown.add(digest)
        return [*registered.get((model, digest), []), *runs.get(digest, [])]

    return facts_of


def run_of_checkpoint(client: "MlflowClient", digest: str) -> Run | None:
    """The training in this store that made a checkpoint, the newest if there are several."""
    return next(iter(_runs_of(client, digest)), None)


def _runs_of(client: "MlflowClient", digest: str) -> list[Run]:
    return listing.runs_tagged(client, CHECKPOINT_DIGEST, digest) if digest.isalnum() else []


def stands(
    facts: Mapping[str, str],
    digest: str,
    dataset: str | None,
    md5: str,
    commit: str,
    checkpoint: str,
) -> str:
    """Why a training with these facts stands on what is asked for, or ""."""
    reasons = []
    if dataset is not None:
        if not (reason := _stands_on_data(facts, dataset, md5)):
            return ""
        reasons.append(reason)
    if commit:
        if not facts.get("git_revision", "").startswith(commit):
            return ""
        reasons.append(f"commit {facts['git_revision'][:_SHOWN]}")
    if checkpoint:
        own = (digest, *(facts.get(key, "") for key in SYSTEMS))
        if not (fitting := [each for each in own if each.startswith(checkpoint)]):
            return ""
        reasons.append(f"checkpoint {fitting[0][:_SHOWN]}")
    return ", ".join(reasons)


def _stands_on_data(facts: Mapping[str, str], dataset: str, md5: str) -> str:
    """Why a training stands on a dataset, or "". An unknown version may be any; of a merged dataset
    the facts name the parts.
    """
    names = facts.get("dataset", "").split(", ")
    fitting = [name for name in names if fnmatch.fnmatchcase(name, dataset)]
    known = facts.get("dataset_md5")
    if fitting and (not known or any(one.startswith(md5) for one in known.split(", "))):
        return f"dataset {', '.join(fitting)} {known or 'of an unknown version'}"
    for part in facts.get("raw_md5", "").split(", "):
        path, _, version = part.rpartition(" ")
        name = path.removeprefix("datasets/")
        if name and fnmatch.fnmatchcase(name, dataset) and version.startswith(md5):
            return f"dataset {name} {version}, a part of {facts.get('dataset')}"
    return ""


def _add_version(graph: Graph, ledger: Ledger, version: Version) -> None:
    cfg = trust.load()
    rules = cfg.policy(ledger.name) or ModelTrustCfg()
    facts = {"checkpoint": version.checkpoint_digest[:_SHOWN]}
    if version.aliases:
        facts["aliases"] = " ".join(f"@{alias}" for alias in version.aliases)
    for entry in ledger.entries:
        if entry.version == version.version and entry.registration:
            facts |= {"registered": entry.time, "by": _who(entry)}
            break
    title = f"{version.name} version {version.version}"
    graph.add(None, "", Node(graph.root, "version", title, facts))
    for entry in ledger.entries:
        if entry.version != version.version:
            continue
        if entry.action == "promote":
            facts = {"when": entry.time, "by": _who(entry), "why": entry.reason}
            if entry.verdict_digest:
                facts["verdict"] = entry.verdict_digest[:_SHOWN]
            asked = [e for e in ledger.entries if e.action == "stage" and e.index < entry.index]
            fitting = [e for e in asked if e.verdict_digest == entry.verdict_digest]
            if fitting:
                given = signatures.approvers(cfg, rules, ledger.entries, fitting[-1])
                facts["approved by"] = ", ".join(given) or "nobody"
            node = Node(f"promotion:{entry.hash}", "promotion", "promoted", facts)
            graph.add(graph.root, "promoted by", node)
    for stored in ledger.evaluations(version.version):
        facts = {
            "success": f"{stored.success:.3f}",
            "episodes per task": str(stored.episodes_per_task),
            "protocol": stored.protocol_hash[:_SHOWN],
        }
        if name := signatures.signed_by(signatures.EVALUATION, stored.digest, stored):
            facts["signed by"] = name
        title = f"evaluation {stored.digest[:_SHOWN]}"
        node = Node(f"evaluation:{stored.digest}", "evaluation", title, facts)
        graph.add(graph.root, "evaluated by", node)


def _add_run(client: "MlflowClient", graph: Graph, child: str, how: str, run_id: str) -> str:
    run = listing.run_with(client, run_id)
    if run is None:
        node = Node(f"run:{run_id}", "run", f"run {run_id[:_SHOWN]}", {"gone": "deleted in MLflow"})
        return graph.add(child, how, node)
    return graph.add(child, how, _run_node(client, run))


def _run_node(client: "MlflowClient", run: Run) -> Node:
    tags, begun = run.tags, run.start_ms
    facts = {"run": run.run_id}
    if begun:
        moment = datetime.datetime.fromtimestamp(begun / 1000, datetime.UTC)
        facts["begun"] = moment.isoformat(timespec="seconds")
    if begun and run.end_ms:
        facts["took"] = f"{(run.end_ms - begun) / 1000:.0f} s"
    for name, key in {"by": "mlflow.user", "flow run": "prefect.flow_run_name"}.items():
        if tags.get(key):
            facts[name] = tags[key]
    if CHECKPOINT_DIGEST in tags:
        facts["checkpoint"] = tags[CHECKPOINT_DIGEST][:_SHOWN]
    costs = listing.costs_of(client, run.run_id)
    facts |= {
        name: f"{costs[key] / unit:.3g}" for name, key, unit in _COSTS if costs.get(key) is not None
    }
    title = run.name or f"run {run.run_id[:_SHOWN]}"
    return Node(f"run:{run.run_id}", "run", title, facts)


def _add_foundations(
    client: "MlflowClient", graph: Graph, child: str, facts: Mapping[str, str], depth: int = 0
) -> None:
    """What a training stands on, by the facts of its lineage."""
    for node, how, also in _foundations(facts):
        id = graph.add(child, how, node)
        if also:
            graph.add(id, "made from", also)
    for key, how in _OTHERS:
        if digest := facts.get(key):
            _add_training_of(client, graph, child, how, digest, depth)
    if any(map(facts.get, SYSTEMS)):
        _add_systems(client, graph, child, facts, depth)


def _add_training_of(
    client: "MlflowClient", graph: Graph, child: str, how: str, digest: str, depth: int
) -> None:
    """The training that made a checkpoint, and what it stands on."""
    run = run_of_checkpoint(client, digest)
    if run is None or depth == _LONGEST_CHAIN:
        graph.add(child, how, _checkpoint_node(digest, {"run": "not in this store"}))
        return
    is_new = f"run:{run.run_id}" not in graph.nodes
    id = graph.add(child, how, _run_node(client, run))
    if is_new:
        _add_foundations(client, graph, id, facts_in(run.tags), depth + 1)


def _add_systems(
    client: "MlflowClient", graph: Graph, child: str, facts: Mapping[str, str], depth: int
) -> None:
    """The artifacts that a policy was joined from: their versions, and the trainings behind them.

    Systems 2 and 1 that no training has as they are, are parts of the policy that the training
    before has made: joining them has compared their weights.
    """
    versions = listing.versions()
    for key, how in zip(SYSTEMS, _BY_SYSTEM, strict=True):
        if not (digest := facts.get(key)):
            continue
        names = [f"{v.name} version {v.version}" for v in versions if v.checkpoint_digest == digest]
        shown = {"registered as": ", ".join(names)} if names else {}
        whole, made = digest, "trained by"
        if run_of_checkpoint(client, digest) is None:
            whole, made = (
                "" if key == SYSTEMS[-1] else facts.get("parent_checkpoint", ""),
                "part of",
            )
            shown |= {} if whole else {"run": "not in this store"}
        id = graph.add(child, how, _checkpoint_node(digest, shown))
        if whole:
            _add_training_of(client, graph, id, made, whole, depth)


def _checkpoint_node(digest: str, facts: dict[str, str]) -> Node:
    return Node(f"checkpoint:{digest}", "checkpoint", f"checkpoint {digest[:_SHOWN]}", facts)


def _foundations(facts: Mapping[str, str]) -> Iterator[tuple[Node, str, Node | None]]:
    """Each thing but checkpoints that a training stands on, how, and what that was made from."""
    if name := facts.get("dataset"):
        md5 = facts.get("dataset_md5", "")
        shown = _some(facts, "validation", "num_episodes", "num_frames", md5="dataset_md5")
        node = Node(f"dataset:{name}@{md5}", "dataset", f"dataset {name}", shown)
        raw, also = facts.get("raw_md5"), None
        if raw:
            shown = {"md5": raw} | _some(facts, pushed="data_pushed")
            also = Node(f"recordings:{raw}", "recordings", f"recordings of {name}", shown)
        yield node, "trained on", also
    if commit := facts.get("git_revision"):
        shown = _some(facts, "lock_hash", "source_digest", uncommitted="git_dirty")
        yield (
            Node(f"code:{commit}", "code", f"commit {commit[:_SHOWN]}", shown),
            "by the code",
            None,
        )
    if task := facts.get("environment.task"):
        digest = facts.get("environment.config_digest", "")
        prefix = "environment.packages."
        packages = {key.removeprefix(prefix): facts[key] for key in facts if key.startswith(prefix)}
        yield Node(f"environment:{digest}", "environment", task, packages), "trained in", None
    if name := facts.get("published.name"):
        shown = {k.partition(".")[2]: facts[k] for k in facts if k.startswith("published.")}
        yield Node(f"published:{name}", "published", name, shown), "started from", None


def _some(facts: Mapping[str, str], *same: str, **renamed: str) -> dict[str, str]:
    keys = {name: name for name in same} | renamed
    return {name: facts[key] for name, key in keys.items() if key in facts}


def _who(entry: Entry) -> str:
    name = signatures.signed_by(signatures.ENTRY, entry.hash, entry)
    return f"{name}, signed" if name else entry.actor
