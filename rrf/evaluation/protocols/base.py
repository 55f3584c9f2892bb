"""The contract of evaluation protocols: what a policy has to do, as data, and how it is run.

`rrf eval`, gates, flows and nightly benchmarks know protocols only through this contract. Each kind
of evaluation is a config and a class that `cfg.build()` makes. The config declares for which
policies it is, what it measures, and on which code its results depend; the class evaluates a
candidate and shows it at work. The two that exist are in `rrf.evaluation.vla` and
`rrf.evaluation.control`. To add another one, add a line to
`rrf.evaluation.protocols.files.PROTOCOLS`; its YAML files begin with `type: module:Class`.

Two results may be compared if their protocols have the same hash. The hash covers everything that
can change a result. It leaves out what cannot, e.g. the name and the number of slots.
"""

import dataclasses
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from rrf import code_digest
from rrf.config import Cfg, configclass, locate
from rrf.envs.vec_env import InitialState
from rrf.evaluation.candidate import Candidate
from rrf.evaluation.results import EpisodeResult, Evaluation
from rrf.runners.checkpoints.deployable import described

if typing.TYPE_CHECKING:
    from rrf.runners.checkpoints.placement import Placement

OnEpisode = Callable[[EpisodeResult, int, int], None]
"""Called with an episode, the number of finished episodes, and the number of all episodes."""


@dataclasses.dataclass(frozen=True)
class Resources:
    """Resources that an evaluation may use."""

    workers: int = 2
    """Number of simulation worker processes; 0 simulates in this process."""
    renderer: str = "warp"
    """Renderer of the camera images that the policy sees."""
    device: "str | Placement" = "cpu"
    """Where the policy computes. Other than the rest, it may change a result, by rounding."""

    @property
    def processor(self) -> str:
        """The kind of processor that the policy computes on: cpu, cuda."""
        if isinstance(self.device, str):
            return self.device.partition(":")[0]
        return self.device.processor


@configclass
class BaseProtocolCfg(Cfg):
    """What gates, reports, the registry and the command line need from a protocol."""

    policy_kind: typing.ClassVar[str]
    """The kind of policies it evaluates: one of `rrf.runners.checkpoints.deployable.KINDS`."""
    is_sequential: typing.ClassVar[bool] = False
    """Whether its episodes come in blocks, of which any number may be judged, up to the gate's only
    look (`rrf.evaluation.gates.anytime`). Else a look is about its own number of episodes."""
    metrics: typing.ClassVar[Mapping[str, str]] = {}
    """Metrics of each episode, name -> unit, that every protocol of this class measures."""
    with_bounds: typing.ClassVar[Mapping[str, float]] = {}
    """Metrics whose mean is shown with bounds, and the largest value of each; the smallest is 0."""
    options: typing.ClassVar[Collection[str]] = ()
    """Options of `rrf eval` that this protocol supports, of those that not every protocol does:
    slots, baselines, device."""
    num_videos: typing.ClassVar[int] = 6
    """Default number of episodes that a report shows as videos."""
    play_options: typing.ClassVar[Mapping[str, typing.Any]] = {}
    """Options of `rrf play`, besides --video and --seed, that this protocol supports, with their
    defaults."""
    default_video: typing.ClassVar[str | None] = None
    """Where `rrf play` writes without --video; None if it then writes no video."""

    name: str
    """Name shown in reports; not part of the hash."""
    seed: int
    """Seed that generates the initial states of each task."""
    episodes_per_task: int = 20
    """Episodes per task, each from a different initial state."""

    @property
    def measures(self) -> Mapping[str, str]:
        """Metrics of each episode that a gate may limit, name -> unit."""
        return self.metrics

    @property
    def max_episodes_per_task(self) -> int:
        """The largest `episodes_per_task` that `extended` may reach."""
        raise NotImplementedError

    @property
    def hash(self) -> str:
        """Hex SHA-256 of what can change a result, independent of the order of keys in the file."""
        raise NotImplementedError

    @property
    def base_hash(self) -> str:
        """The hash apart from the number of episodes and the simulator's versions: what a model's
        gate and its evaluations have in common.
        """
        return self.replace(episodes_per_task=1).hash

    @property
    def versions(self) -> Mapping[str, str]:
        """Package -> version that the episodes are played with, for packages that are a part of
        the protocol."""
        return {}

    def here(self, checkpoint: Path | None = None) -> typing.Self:
        """The protocol as it is run on this machine, with the versions of its simulator.

        Args:
            checkpoint: Of the policy that is played. What it brings along of the simulator
                (`VecEnvCfg.in_checkpoint`) belongs to the policy and is no version of the protocol.

        Raises:
            ValueError: If the simulator is not set up, or has another version than the protocol
                says.
        """
        return self

    @property
    def environment_class(self) -> type | None:
        """The class of its environment's config; None if it plays in none."""
        return None

    @property
    def success_rule(self) -> str:
        """A description of when an episode succeeds; empty if the simulator decides that."""
        return ""

    def initial_states(self) -> list[InitialState]:
        """The episodes to run, in order: all initial states of the first task, then all of the
        second, and so on.
        """
        raise NotImplementedError

    def extended(self, extra_episodes: int) -> typing.Self:
        """The same protocol with more initial states per task, added after the existing ones."""
        return self.replace(episodes_per_task=self.episodes_per_task + extra_episodes)

    def is_about(self, config: Mapping) -> bool:
        """Whether this is the default protocol for a policy that was trained with this resolved
        config."""
        raise NotImplementedError

    def how_to_evaluate(self, model: str, gate: str, policy: str, extra_episodes: int = 0) -> str:
        """How a user makes an evaluation under this protocol that a promotion of `model` takes.

        Args:
            model: The registered model.
            gate: The file of its gate.
            policy: What is evaluated, e.g. CHECKPOINT or NAME/3.
            extra_episodes: How many per task besides those of the gate's first look.
        """
        extra = f" --extra-episodes {extra_episodes}" if extra_episodes else ""
        return f"rrf eval {policy} --gate {gate} --register {model}{extra}"

    def source(self) -> str:
        """Digest of all code that a result depends on. A result is reused only if it matches."""
        return code_digest.source_digest()

    def with_options(self, **given: typing.Any) -> typing.Self:
        """A copy with options of the command line applied; an option that is None was not given.

        Raises:
            ValueError: For an option that this protocol does not support (`options`).
        """
        wrong = [name for name, value in given.items() if value and name not in self.options]
        if wrong:
            flags = ", ".join(f"--{name}" for name in wrong)
            raise ValueError(
                f"{flags}: not supported by protocol '{self.name}', which is for "
                f"{described(self.policy_kind)}; leave it out"
            )
        return self

    def check_kind(self, kind: str, what: str) -> None:
        """Raise ValueError if this protocol is not for policies of this kind.

        `what` names the policy in the message.
        """
        if kind != self.policy_kind:
            raise ValueError(
                f"protocol '{self.name}' is for {described(self.policy_kind)}, but {what} is "
                f"{described(kind)}"
            )

    @classmethod
    def runs_it(cls) -> "type[Protocol]":
        """The class that `build` makes."""
        return locate(cls._builds)


def versions_here(protocol: typing.Any, env: typing.Any) -> dict[str, str]:
    """Package -> version that a protocol's simulator has on this machine.

    Args:
        protocol: A config with `simulator_versions`, those that it asks for.
        env: The config of its environment, a `rrf.envs.configs.VecEnvCfg` or `ControlEnvCfg`.

    Raises:
        ValueError: If it has another version than the protocol asks for, or is not set up.
    """
    wanted = protocol.simulator_versions
    installed = env.versions({*env.packages, *wanted})
    wrong = {name: v for name, v in wanted.items() if installed.get(name) != v}
    if wrong:
        there = {name: installed.get(name, "none") for name in wrong}
        raise ValueError(
            f"protocol '{protocol.name}' is for {in_words(wrong)}, but {env.simulator} runs with "
            f"{in_words(there)} here, which may move or draw otherwise; {env.how_to_pin(wrong)}"
            ". Or copy the protocol and change its simulator_versions: its results are "
            "compared only with each other"
        )
    return installed


def in_words(versions: Mapping[str, str]) -> str:
    """Versions of packages for a sentence."""
    pairs = [f"{name} {versions[name]}" for name in sorted(versions)]
    return ", ".join(pairs) or "unrecorded versions"


AnyProtocolCfg = typing.TypeVar("AnyProtocolCfg", bound=BaseProtocolCfg)


class Protocol(typing.Generic[AnyProtocolCfg]):
    """Runs a protocol; `cfg.build()` makes it."""

    def __init__(self, cfg: AnyProtocolCfg):
        self.cfg = cfg

    def check_training(self, run: typing.Any) -> None:
        """Refuse a training whose policy could not be evaluated under this protocol.

        Args:
            run: The config of the run (`rrf.runners.configs.RunnerCfg`).

        Raises:
            ValueError: If the run trains another kind of policy, or a policy for another
                environment.
        """
        self.cfg.check_kind(run.policy_kind, "what is trained")

    def evaluate(
        self,
        candidate: Candidate,
        resources: Resources,
        on_episode: OnEpisode | None = None,
        known: Sequence[EpisodeResult] = (),
    ) -> Evaluation:
        """Run every episode that is not in `known`; the report lists all episodes in order.

        Args:
            candidate: The policy, of kind `policy_kind`.
            resources: Worker processes and renderer to use.
            on_episode: Called after each episode, in the order in which they end.
            known: Episodes of the same policy and the same code, e.g. from before the protocol was
                extended.

        Raises:
            ValueError: If policy, environment and protocol do not fit each other, or a number is
                NaN or Inf.
        """
        raise NotImplementedError

    def film(
        self,
        candidate: Candidate,
        evaluation: Evaluation,
        limit: int,
        folder: Path,
        resources: Resources,
    ) -> list[dict]:
        """Write `<folder>/videos/` of at most `limit` episodes of `evaluation`.

        Returns:
            The entries of `Evaluation.videos`.

        Raises:
            ValueError, OSError: If nothing can be drawn.
        """
        raise NotImplementedError

    def probe(self, num_steps: int) -> str:
        """A digest of what a policy sees that acts at random at the beginning of some episodes. It
        is the same whenever the simulator behaves in the same way.

        Args:
            num_steps: Steps of the environment, or chunks of actions.

        Raises:
            ValueError: If the simulator is not set up here or has another version, or a number is
                NaN or Inf.
        """
        raise NotImplementedError

    def baselines(self, candidate: Candidate) -> list[Candidate]:
        """Policies that have learned nothing, to be evaluated in the same way as `candidate`."""
        return []

    @classmethod
    def play(
        cls,
        candidate: Candidate,
        video: Path | None,
        seed: int,
        options: Mapping[str, typing.Any],
        say: Callable[[str], None],
    ) -> None:
        """Show a policy of this kind at work; this is `rrf play`.

        Args:
            candidate: The policy.
            video: The file to write; None for no video, or for a file with the default name.
            seed: Seed of the initial states.
            options: A value for each of `play_options`.
            say: Called with each line of text for the user.

        Raises:
            ValueError: For options that exclude each other, or a policy that cannot be shown.
        """
        raise NotImplementedError
