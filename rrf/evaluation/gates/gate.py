"""The config of a gate: what a candidate must show before it is promoted, and under which protocol.

`rrf.evaluation.gates.decision` decides by it.
"""

import dataclasses
import re
import typing
from collections.abc import Collection, Mapping
from pathlib import Path

from rrf import atomic, workspace
from rrf.config import Cfg, configclass, first_error, read_yaml
from rrf.evaluation.gates.own_rules import check_rules, sources
from rrf.evaluation.gates.serving import check_serving
from rrf.evaluation.protocols.base import BaseProtocolCfg, in_words
from rrf.evaluation.protocols.files import load_protocol, parse_protocol
from rrf.evaluation.protocols.limits import LimitCfg, MeanLimitCfg, check_metrics
from rrf.evaluation.results import Evaluation

_NAME = re.compile(r"[A-Za-z0-9._-]+")


@configclass
class GateCfg(Cfg):
    """What a candidate must show before it is promoted."""

    left_out_if_empty: typing.ClassVar[Collection[str]] = (
        *("group_lower_bound", "good_tasks", "good_task_lower_bound"),
        *("serving", "hardware", "rules", "rule_sources", "trial"),
    )

    name: str
    """Name shown with the verdict and used in the name of its file."""
    protocol: BaseProtocolCfg
    """How candidates are evaluated; in YAML the name of a file under configs/protocols/."""
    overall_lower_bound: float
    """The lower confidence bound of the success rate over all tasks must reach this."""
    task_lower_bound: float = 0.0
    """The lower confidence bound of the success rate on each task must reach this."""
    group_lower_bound: float = 0.0
    """The lower confidence bound of the success rate in each of the protocol's `groups` of tasks
    must reach this: the worst group counts."""
    good_tasks: int = 0
    """On at least so many of the tasks, whichever they are, the lower confidence bound of the
    success rate must reach `good_task_lower_bound`; 0 asks for none."""
    good_task_lower_bound: float = 0.0
    """See `good_tasks`."""
    limits: dict[str, MeanLimitCfg] = {}
    """Metric of the protocol -> range that its mean over all episodes must lie in."""
    serving: dict[str, LimitCfg] = {}
    """Number of a serving profile -> range that it must lie in, e.g. {latency_ms_p95: {max: 50}}
    (`rrf/evaluation/serving_profile.py`)."""
    hardware: str = ""
    """The processor or GPU that `serving` is about, by its name or a pattern: "*H200"."""
    rules: dict[str, dict[str, typing.Any]] = {}
    """Rules of your own, module:function -> options (`rrf/evaluation/gates/own_rules.py`)."""
    rule_sources: dict[str, str] = {}
    """Rule -> digest of its code; computed when the gate's file is read."""
    trial: "GateCfg | None" = None
    """What a candidate must show on the robot as well: a gate whose protocol is of trials; in YAML
    the name of a file under configs/gates/."""
    looks: list[int] = [20, 35, 50]
    """Episodes per task at the first look, the second, ...; a hold at the last look is a fail."""
    alpha: float = 0.05
    """Probability, over all looks and attempts together, of passing a policy that should fail."""
    champion_margin: float = 0.1
    """Largest tolerated loss of success rate against the champion and against the best champion so
    far; 0 demands evidence that the candidate is better, 1 tolerates any loss.
    """
    task_margin: float = 0.3
    """Largest tolerated loss of success rate on each single task, against the same two policies."""
    forbid_git_dirty: bool = False
    """Whether a policy trained with uncommitted changes of the code is refused."""
    forbid_unpushed_data: bool = False
    """Whether a policy is refused if its recordings are in no DVC remote."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"gate name {self.name!r} becomes part of a file name; it may contain only "
                "letters, digits, '.', '_' and '-'"
            )
        if not self.looks or self.looks != sorted(set(self.looks)) or self.looks[0] < 1:
            raise ValueError(
                f"gate '{self.name}': looks is {self.looks}, but must be increasing numbers from 1 "
                "on, e.g. [20, 35, 50]"
            )
        if self.protocol.is_sequential and len(self.looks) > 1:
            raise ValueError(
                f"gate '{self.name}': trials are judged after every block, so looks has one "
                f"number, the most blocks, e.g. [{self.looks[-1]}], not {self.looks}"
            )
        if self.trial and (self.protocol.is_sequential or not self.trial.protocol.is_sequential):
            raise ValueError(
                f"gate '{self.name}': `trial` names a gate with a protocol of trials beside a "
                f"protocol of episodes, not '{self.trial.protocol.name}' beside "
                f"'{self.protocol.name}'"
            )
        if self.looks[-1] > self.protocol.max_episodes_per_task:
            raise ValueError(
                f"gate '{self.name}': the last look needs {self.looks[-1]} episodes per task, but "
                f"the protocol has only {self.protocol.max_episodes_per_task} initial states"
            )
        if self.limits and not self.protocol.measures:
            raise ValueError(
                f"gate '{self.name}': limits need metrics of episodes, but protocol "
                f"'{self.protocol.name}' measures only success; remove limits, or measure "
                "something (of policies that see images: action_metrics: true)"
            )
        check_metrics(self.limits, self.protocol.measures, f"gate '{self.name}'")
        check_rules(self.rules, self.rule_sources, f"gate '{self.name}'")
        check_serving(self.serving, self.hardware, f"gate '{self.name}'")
        if self.group_lower_bound and not self.groups:
            raise ValueError(
                f"gate '{self.name}': group_lower_bound is {self.group_lower_bound}, but protocol "
                f"'{self.protocol.name}' has no groups of tasks; add them there, or remove it"
            )
        if bool(self.good_tasks) != bool(self.good_task_lower_bound):
            raise ValueError(
                f"gate '{self.name}': good_tasks is {self.good_tasks} and good_task_lower_bound is "
                f"{self.good_task_lower_bound}; give both or neither"
            )
        if self.good_tasks and self.protocol.is_sequential:
            raise ValueError(
                f"gate '{self.name}': good_tasks is for protocols of episodes, not of trials"
            )
        tasks = {state.task for state in self.protocol.initial_states()} if self.good_tasks else ()
        if not 0 <= self.good_tasks <= len(tasks):
            raise ValueError(
                f"gate '{self.name}': good_tasks is {self.good_tasks}, allowed: 0 to {len(tasks)}, "
                "the tasks of the protocol"
            )
        for field in (
            *("overall_lower_bound", "task_lower_bound", "group_lower_bound"),
            "good_task_lower_bound",
        ):
            if not 0 <= getattr(self, field) < 1:
                raise ValueError(
                    f"gate '{self.name}': {field} is {getattr(self, field)}, not in [0, 1)"
                )
        for field in ("champion_margin", "task_margin"):
            if not 0 <= getattr(self, field) <= 1:
                raise ValueError(
                    f"gate '{self.name}': {field} is {getattr(self, field)}, not in [0, 1]"
                )
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"gate '{self.name}': alpha is {self.alpha}, not between 0 and 0.5")

    @property
    def groups(self) -> Mapping[str, list[str]]:
        """Title -> tasks, of a protocol that has groups."""
        return getattr(self.protocol, "groups", {})

    @property
    def of_trials(self) -> "GateCfg | None":
        """The gate that judges trials on a robot: this one, or the one that it names, or none."""
        return self if self.protocol.is_sequential else self.trial

    @property
    def hash(self) -> str:
        """Hex SHA-256 of the whole gate."""
        return atomic.digest_of(self.to_dict())

    def round_of(self, episodes_per_task: int) -> int:
        """The last look, counted from 0, that this many episodes are enough for."""
        return max(0, sum(look <= episodes_per_task for look in self.looks) - 1)

    def extra_episodes(self, episodes_per_task: int) -> int:
        """What `--extra-episodes` must be for this many: without it the first look is played."""
        return max(0, episodes_per_task - max(self.protocol.episodes_per_task, self.looks[0]))

    def check_evaluation(self, evaluation: Evaluation, who: str) -> None:
        """Raise ValueError if an evaluation is incomplete, or not under the gate's protocol.

        `who` names the policy in the message.
        """
        protocol = parse_protocol(evaluation.protocol)
        if protocol.hash != evaluation.protocol_hash:
            raise ValueError(
                f"the {who}'s evaluation has a protocol that does not match its protocol_hash"
            )
        if protocol.base_hash != self.protocol.base_hash:
            raise ValueError(
                f"the {who} was evaluated under protocol '{protocol.name}', but gate '{self.name}' "
                f"needs protocol '{self.protocol.name}'; evaluate with "
                f"configs/protocols/{self.protocol.name}.yaml"
            )
        wanted = self.protocol.versions
        played = {name: protocol.versions.get(name, "absent") for name in wanted}
        if played != wanted:
            raise ValueError(
                f"the {who} was evaluated with {in_words(protocol.versions)}, but gate "
                f"'{self.name}' needs {in_words(wanted)}; a simulator of another version is "
                "another protocol: evaluate again"
            )
        if [e.initial_state for e in evaluation.episodes] != protocol.initial_states():
            raise ValueError(
                f"the {who}'s evaluation has {len(evaluation.episodes)} episodes, which are not "
                f"the {len(protocol.initial_states())} episodes of its protocol in order; evaluate "
                "again"
            )

    def first_episodes(self, evaluation: Evaluation, look: int) -> Evaluation:
        """The first `look` episodes of each task of an evaluation, or all if there are fewer."""
        protocol = parse_protocol(evaluation.protocol)
        if protocol.episodes_per_task <= look:
            return evaluation
        states = set(protocol.replace(episodes_per_task=look).initial_states())
        episodes = [episode for episode in evaluation.episodes if episode.initial_state in states]
        shorter = evaluation.protocol | {"episodes_per_task": look}
        return dataclasses.replace(evaluation, protocol=shorter, episodes=episodes)


def load_gate(path: str | Path) -> GateCfg:
    """Load a gate from YAML.

    `protocol: NAME` stands for the file that `protocol_path` finds, and `trial: NAME` for NAME.yaml
    beside the gate, or else for that gate of the workspace, or else of those that rrf ships.

    Raises:
        ValueError: For a missing file, an unknown field or a value out of range; the message names
            the file.
    """
    path = workspace.find(path)
    data = read_yaml(path)
    try:
        if isinstance(name := data.get("protocol"), str):
            data["protocol"] = load_protocol(protocol_path(path, name))
        elif isinstance(name, Mapping):
            data["protocol"] = parse_protocol(name)
        if isinstance(name := data.get("trial"), str):
            beside = path.with_name(f"{name}.yaml")
            known = workspace.configs("gates")
            file = beside if beside.is_file() else known.get(name, beside)
            if "trial" in read_yaml(file):
                raise ValueError(f"trial: {name} asks for a trial itself; allowed is one")
            data["trial"] = load_gate(file)
        if isinstance(rules := data.get("rules"), Mapping) and "rule_sources" not in data:
            data["rule_sources"] = sources(rules)
        return GateCfg.from_dict(data)
    except ValueError as error:
        raise ValueError(f"{path}: {first_error(error)}") from error


def protocol_path(gate: str | Path, name: str) -> Path:
    """The file of the protocol that a gate's file names: protocols/NAME.yaml in the folder of its
    own folder, or else configs/protocols/NAME.yaml of the workspace, or else of those that rrf
    ships. For a gate that rrf ships, the workspace comes first.
    """
    gate = workspace.find(gate)
    beside = gate.parent.parent / "protocols" / f"{name}.yaml"
    is_shipped = gate.resolve().is_relative_to(workspace.shipped())
    if beside.is_file() and not is_shipped:
        return beside
    return workspace.configs("protocols").get(name, beside)
