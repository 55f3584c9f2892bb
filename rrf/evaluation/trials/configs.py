"""The protocol of trials that people score on a real robot, and the file of a study.

A protocol (`configs/protocols/`) says what a policy has to do: the conditions (a task and how its
scene is set up), the rubric and the stages, and what counts as solved. A gate names it like every
other protocol. A study (`configs/trials/`) says which policies are compared under the gate.

A trial is played in blocks. A block has one trial of each arm in each condition, in an order that
is drawn (`rrf.evaluation.trials.order`). So an evaluation of n episodes per task is of n blocks,
and episodes of two arms with one initial state are the two trials of a condition in a block.

No torch here.
"""

import re
import typing
from collections.abc import Collection, Mapping

from rrf.atomic import digest_of
from rrf.config import Cfg, configclass, require_at_least_one, require_positive
from rrf.envs.vec_env import InitialState
from rrf.evaluation.protocols.base import BaseProtocolCfg
from rrf.runners.checkpoints.deployable import KINDS

PROGRESS, INTERVENTIONS, INVALID, DURATION = "progress", "interventions", "invalid", "duration_s"
_NOT_IN_HASH = ("name", "type", "failure_tags")
_OF_A_STUDY: dict[str, typing.Any] = {"episodes_per_task": 1, "study": "", "record": ""}
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST_ARMS = 8


@configclass(builds="rrf.evaluation.trials.protocol:TrialProtocol")
class TrialProtocolCfg(BaseProtocolCfg):
    """What every policy has to do on the robot."""

    policy_kind: typing.ClassVar[str] = "trial"
    is_sequential: typing.ClassVar[bool] = True
    metrics: typing.ClassVar[Mapping[str, str]] = {
        PROGRESS: "of 1",
        INTERVENTIONS: "per trial",
        INVALID: "replaced per trial",
        DURATION: "s",
    }
    with_bounds: typing.ClassVar[Mapping[str, float]] = {PROGRESS: 1.0}
    left_out_if_empty: typing.ClassVar[Collection[str]] = ("study", "record")

    seed: int = 0
    """Part of the initial states' names; nothing is drawn from it."""
    conditions: dict[str, str]
    """Name -> how the operator sets the scene up, and what the robot is told to do."""
    success_criterion: str = ""
    """When a trial is solved, in a sentence that the operator reads."""
    rubric: dict[str, float] = {}
    """Step -> points. The points of the steps that were done, of all points, are the progress of a
    trial, its partial credit."""
    stages: list[str] = []
    """The stages of the task in order. Without a rubric, the furthest one that was reached, of all,
    is the progress."""
    failure_tags: list[str] = []
    """Words for what went wrong, offered to the operator; not part of the hash."""
    intervention_fails: bool = True
    """Whether a trial in which a person intervened counts as not solved."""
    max_s: float | None = None
    """The time that a trial may take, shown to the operator; null for none."""
    robot: str = ""
    """The robot; another one is another protocol."""
    rig: str = ""
    """The place with its cameras and objects; another one is another protocol."""
    study: str = ""
    """Digest of the plan of the study that the episodes are from; written by `rrf trial`."""
    record: str = ""
    """Digest of the record of the study's trials; written by `rrf trial`."""

    def __post_init__(self) -> None:
        where = f"protocol '{self.name}'"
        if not self.conditions:
            raise ValueError(
                f"{where} has no conditions; e.g. conditions: {{left: cup on the left}}"
            )
        for name in self.conditions:
            if not _PLAIN.fullmatch(name):
                raise ValueError(
                    f"{where}: the condition {name!r} may have only letters, digits, '.', '_' and "
                    "'-', at most 64"
                )
        if len(set(self.stages)) != len(self.stages):
            raise ValueError(f"{where} lists a stage twice: {', '.join(self.stages)}")
        for step, points in self.rubric.items():
            if not points > 0:
                raise ValueError(f"{where}: rubric: '{step}' has {points} points, allowed: above 0")
        require_at_least_one(self, "episodes_per_task")
        require_positive(self, "max_s")

    @property
    def max_episodes_per_task(self) -> int:
        return 10_000

    @property
    def hash(self) -> str:
        return digest_of({k: v for k, v in self.to_dict().items() if k not in _NOT_IN_HASH})

    @property
    def base_hash(self) -> str:
        return self.replace(**_OF_A_STUDY).hash

    @property
    def success_rule(self) -> str:
        says = self.success_criterion or "an operator says whether a trial is solved"
        return f"{says}; an intervention counts as a failure" if self.intervention_fails else says

    def initial_states(self) -> list[InitialState]:
        blocks = range(self.episodes_per_task)
        return [
            InitialState(name, self.seed, block) for name in self.conditions for block in blocks
        ]

    def is_about(self, config: Mapping) -> bool:
        """Never the default protocol of a policy: people make trials, `rrf eval` does not."""
        return False

    def check_kind(self, kind: str, what: str) -> None:
        """Policies of every kind that a server can serve are tried on robots."""
        if kind not in KINDS:
            super().check_kind(kind, what)

    def how_to_evaluate(self, model: str, gate: str, policy: str, extra_episodes: int = 0) -> str:
        return (
            f"a trial on the robot with {policy} as an arm: rrf trial new configs/trials/FILE.yaml"
            ", rrf trial serve NAME, rrf trial submit NAME"
        )


@configclass
class TrialCfg(Cfg):
    """A study: which policies are tried on the robot, under which gate."""

    name: str
    """Its folder below trials/, and the name in `rrf trial` commands."""
    gate: str
    """A gate below configs/gates/ whose protocol is of trials: what is judged, when the study stops
    (as soon as every candidate passes or fails), and the most blocks (its look)."""
    arms: dict[str, str]
    """Name -> policy: NAME@champion, NAME/3, or a checkpoint's folder. The first one is what the
    others are compared with."""
    model: str = ""
    """The registered model whose ledger the plan and the results enter; "" for none."""
    notes: str = ""
    """Anything that belongs to the plan: hypotheses, who watches, how scenes are reset."""

    def __post_init__(self) -> None:
        if not _PLAIN.fullmatch(self.name):
            raise ValueError(
                f"the study's name {self.name!r} may have only letters, digits, '.', '_' and '-', "
                "at most 64, and begins with a letter or digit"
            )
        if not 1 <= len(self.arms) <= _MOST_ARMS:
            raise ValueError(
                f"study '{self.name}' has {len(self.arms)} arms, allowed: 1 to {_MOST_ARMS}; e.g. "
                "arms: {champion: arm@champion, candidate: arm/4}"
            )
        for arm in self.arms:
            if not _PLAIN.fullmatch(arm):
                raise ValueError(
                    f"study '{self.name}': the arm {arm!r} may have only letters, digits, '.', '_' "
                    "and '-', at most 64"
                )
