"""The contract of evaluation protocols: what a policy has to do, as data, and how it is run.

A protocol is the one thing that `rrf eval`, gates, flows and nightly benchmarks ask. Each kind of
evaluation is one class: it says which policies it is for, what it measures, which code its results
depend on; it evaluates a candidate, and shows it at work. `rrf.evaluation.vla.protocol` and
`rrf.evaluation.control.protocol` are the two there are; another one is a line in
`rrf.evaluation.protocols.files.PROTOCOLS`, and its files begin with `type: module:Class`.

Two results may be compared when their protocols have the same hash. The hash covers everything that
can change a result and leaves out what cannot: the name, the number of slots.
"""

import dataclasses
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from rrf import code_digest
from rrf.config import Cfg, configclass
from rrf.envs.vec_env import InitialState
from rrf.evaluation.candidate import Candidate
from rrf.evaluation.results import EpisodeResult, EvaluationReport
from rrf.runners.checkpoints.deployable import described

OnEpisode = Callable[[EpisodeResult, int, int], None]
"""Called with an episode, how many are done, and how many there are."""


@dataclasses.dataclass(frozen=True)
class Resources:
    """What an evaluation may use. Nothing of it changes a result."""

    workers: int = 2
    """Processes that simulate; 0 for none beside this one."""
    renderer: str = "warp"
    """Which renderer draws what the policy sees."""


@configclass
class BaseProtocolCfg(Cfg):
    """What gates, reports, the registry and the command line need of a protocol."""

    policy_kind: typing.ClassVar[str]
    """Which policies it is for: one of `rrf.runners.checkpoints.deployable.KINDS`."""
    metrics: typing.ClassVar[Mapping[str, str]] = {}
    """Numbers measured of each episode, which a gate may limit, and their units."""
    options: typing.ClassVar[Collection[str]] = ()
    """Those options of `rrf eval` that not every protocol has a use for: slots, baselines."""
    num_videos: typing.ClassVar[int] = 6
    """Episodes shown in a report unless told otherwise."""
    play_options: typing.ClassVar[Mapping[str, typing.Any]] = {}
    """Those options of `rrf play`, beside --video and --seed, that mean something here, and what
    they are if not given."""

    name: str
    """Name shown in reports; not part of the hash."""
    seed: int
    """Seed that generates the initial states of each task."""
    episodes_per_task: int = 20
    """Episodes per task, each from an initial state of its own."""

    @property
    def max_episodes_per_task(self) -> int:
        """How far `extended` may go."""
        raise NotImplementedError

    @property
    def hash(self) -> str:
        """Hex SHA-256 of what can change a result, independent of the order of keys in the file."""
        raise NotImplementedError

    @property
    def success_rule(self) -> str:
        """What makes an episode a success, for people; empty where the simulator itself says."""
        return ""

    def initial_states(self) -> list[InitialState]:
        """The episodes to run, in order: all initial states of the first task, then of the second,
        ...
        """
        raise NotImplementedError

    def extended(self, extra_episodes: int) -> typing.Self:
        """The same protocol with more initial states per task; those run already stay its first
        ones.
        """
        return self.replace(episodes_per_task=self.episodes_per_task + extra_episodes)

    def is_about(self, config: Mapping) -> bool:
        """Whether this is the protocol to take, unless told otherwise, for a policy whose training
        had this resolved config."""
        raise NotImplementedError

    def source(self) -> str:
        """Digest of all code that a result depends on; another digest, another evaluation."""
        return code_digest.source_digest()

    def evaluate(
        self,
        candidate: Candidate,
        resources: Resources,
        on_episode: OnEpisode | None = None,
        known: Sequence[EpisodeResult] = (),
    ) -> EvaluationReport:
        """Run every episode that is not in `known`; the report has all of them in their order.

        Args:
            candidate: The policy, of kind `policy_kind`.
            resources: What may be used.
            on_episode: Called after each episode, in the order in which they end.
            known: Episodes of the same policy by the same code, e.g. before the protocol was
                extended.

        Raises:
            ValueError: If policy, environment and protocol do not fit each other, or a number is
                NaN or Inf.
        """
        raise NotImplementedError

    def film(
        self,
        candidate: Candidate,
        report: EvaluationReport,
        limit: int,
        folder: Path,
        resources: Resources,
    ) -> list[dict]:
        """Write `<folder>/videos/` of at most `limit` episodes of `report`.

        Returns:
            The entries of `EvaluationReport.videos`.

        Raises:
            ValueError, OSError: Where nothing can be drawn.
        """
        raise NotImplementedError

    def baselines(self, candidate: Candidate) -> list[Candidate]:
        """Policies that learned nothing, to be evaluated like `candidate`."""
        return []

    def check_training(self, cfg: typing.Any) -> None:
        """Refuse a training whose policy could not be evaluated under this protocol.

        Args:
            cfg: The config of the run (`rrf.runners.configs.RunnerCfg`).

        Raises:
            ValueError: If it trains another kind of policy, or one for another environment.
        """
        self.check_kind(cfg.policy_kind, "what is trained")

    def with_options(self, **given: typing.Any) -> typing.Self:
        """As asked for on the command line; what is None was not.

        Raises:
            ValueError: For an option that is not one of `options`.
        """
        wrong = [name for name, value in given.items() if value and name not in self.options]
        if wrong:
            flags = ", ".join(f"--{name}" for name in wrong)
            raise ValueError(
                f"{flags}: of no use under protocol '{self.name}', which is for "
                f"{described(self.policy_kind)}"
            )
        return self

    def check_kind(self, kind: str, what: str) -> None:
        """Raise ValueError if this protocol is not for policies of this kind; `what` names the
        policy."""
        if kind != self.policy_kind:
            raise ValueError(
                f"protocol '{self.name}' is for {described(self.policy_kind)}, {what} is "
                f"{described(kind)}"
            )

    @classmethod
    def play(
        cls,
        candidate: Candidate,
        video: Path | None,
        seed: int,
        options: Mapping[str, typing.Any],
        say: Callable[[str], None],
    ) -> None:
        """Show a policy of this kind at work: what `rrf play` does.

        Args:
            candidate: The policy.
            video: The file to write; None for none, or for a file of the usual name.
            seed: Of the initial states.
            options: A value for each of `play_options`.
            say: Gets what a person shall read, line by line.

        Raises:
            ValueError: For options that exclude each other, or what cannot be shown.
        """
        raise NotImplementedError
