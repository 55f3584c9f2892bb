"""One clock with three rates: when each system runs, on what, and when the robot is stopped.

Each tick of the clock, System 0 turns the present command into targets of the joints. System 1 is
asked for a new chunk of commands, and System 2 for new features, when their ticks come; both answer
later (`Asked`). System 1 is told how old the features are: the time since the images were taken.
Nothing is skipped silently: a request that finds the last one unanswered is counted as late, and so
is a tick that began after its time.

The robot is stopped safely, and the reason logged, if a system dies or fails, if features are older
than System 1 allows, if System 1 sends nothing for too long, or if the robot falls. Stopped, it is
told to stand still by System 0 as long as that runs, and to hold (`Robot.halt`) otherwise.

On a simulated clock, answers arrive after the latencies of the config, and the same seed gives the
same episode bit for bit.

Legend: H commands of a chunk, A numbers that System 1 sends.
"""

import dataclasses
import typing
from collections.abc import Callable, Collection

import numpy as np

from rrf.data.schema import Observation
from rrf.envs.humanoid import command
from rrf.envs.humanoid.balancer import Balancer, standing_command
from rrf.hierarchy.configs import HierarchyCfg


class Robot(typing.Protocol):
    """The body, real or simulated."""

    joints: Collection[str]
    """Those that have a motor."""
    resting: np.ndarray
    """The command, float64 [36], under which it stands when an episode begins."""

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions [36] and velocities [35] of pelvis and joints, as in `body.spec`'s model."""
        ...

    def observe(self) -> Observation:
        """One row: what Systems 2 and 1 see."""
        ...

    def told(self, command_36: np.ndarray) -> None:
        """The command has changed, for robots that see the last one."""
        ...

    def drive(self, joints_29: np.ndarray, hands_14: np.ndarray) -> None:
        """Send targets of the joints of `body.JOINTS` and of the hands, rad."""
        ...

    def halt(self, reason: str) -> None:
        """Stop without System 0, which is gone: the motors hold where they are, softly. Called in
        each tick instead of `drive`."""
        ...

    @property
    def has_fallen(self) -> bool: ...


class Asked(typing.Protocol):
    """A system that is asked now and answers later, one question at a time."""

    @property
    def is_busy(self) -> bool:
        """Whether a question is unanswered."""
        ...

    def ask(self, tick: int, *question: typing.Any) -> None:
        """Ask.

        Raises:
            SystemDiedError: If it is gone.
        """
        ...

    def answer(self, tick: int) -> typing.Any:
        """The answer, once; None while there is none.

        Raises:
            SystemDiedError: If it is gone or failed.
        """
        ...


class SystemDiedError(RuntimeError):
    """A system is gone, or failed."""


class Simulated:
    """An `Asked` that computes at once and answers after a fixed number of ticks."""

    def __init__(self, compute: Callable[..., typing.Any], latency_ticks: int = 0):
        self._compute, self._latency = compute, latency_ticks
        self._due, self._value = 0, None

    @property
    def is_busy(self) -> bool:
        return self._value is not None

    def ask(self, tick: int, *question: typing.Any) -> None:
        self._value, self._due = self._compute(*question), tick + self._latency

    def answer(self, tick: int) -> typing.Any:
        if self._value is None or tick < self._due:
            return None
        value, self._value = self._value, None
        return value


@dataclasses.dataclass
class Counts:
    """What happened."""

    ticks: int = 0
    late_ticks: int = 0  # that began after their time
    late_requests: dict[str, int] = dataclasses.field(
        default_factory=lambda: {"system2": 0, "system1": 0}
    )  # that found the last one unanswered
    answers: dict[str, int] = dataclasses.field(
        default_factory=lambda: {"system2": 0, "system1": 0}
    )
    oldest_features_s: float = 0.0


@dataclasses.dataclass
class Stop:
    """Why the robot was stopped, and when."""

    tick: int
    reason: str


class Runtime:
    """Plays one robot.

    Args:
        cfg: Rates and limits.
        robot: The body.
        system2: Asked with an observation, answers with features [1, T, W].
        system1: Asked with features, their age in s and an observation, answers with a chunk
            [H, A].
        system0: The balancer of one robot.
        sends: Names of the numbers that System 1 sends.
        max_feature_age_s: Of System 1.
        log: Is told what happens: the event's name and its facts.
    """

    def __init__(
        self,
        cfg: HierarchyCfg,
        robot: Robot,
        system2: Asked,
        system1: Asked,
        system0: Balancer,
        sends: list[str],
        max_feature_age_s: float,
        log: Callable[[str, dict], None] | None = None,
    ):
        self.cfg, self.robot = cfg, robot
        self._system2, self._system1, self._system0 = system2, system1, system0
        self._sends = command.indices(sends)
        self._max_age_s = max_feature_age_s
        self._log = log or (lambda event, facts: None)
        self._ticks2, self._ticks1 = cfg.ticks("system2.hz"), cfg.ticks("system1.hz")
        self._ticks_command = cfg.ticks("chunk_hz")
        self._row = np.zeros(1, np.int64)
        self.begin()

    def begin(self) -> None:
        """Start an episode: the robot stands, nothing is known."""
        self.counts = Counts()
        self.stopped: Stop | None = None
        self._has_system0 = True
        self.command_36 = self.robot.resting.copy()
        for name, value in self.cfg.held.items():
            self.command_36[command.NAMES.index(name)] = value
        self.features: np.ndarray | None = None
        self.joints_29: np.ndarray | None = None
        self._seen_at = self._asked_at = 0
        self._chunk: np.ndarray | None = None
        self._chunk_at = self._chunk_asked_at = 0
        self._log("begin", {"max_feature_age_s": self._max_age_s})
        qpos, qvel = self.robot.read()
        try:
            self._system0.reset(self._row, qpos[None], qvel[None])
        except SystemDiedError as error:
            self._has_system0 = False
            self.stop(str(error))

    @property
    def feature_age_s(self) -> float:
        """Seconds since the images were taken that the newest features are of."""
        return (self.counts.ticks - self._seen_at) / self.cfg.system0.hz

    def tick(self, is_late: bool = False) -> None:
        """Do what is due now.

        Args:
            is_late: Whether this tick begins after its time, to be counted.
        """
        now = self.counts.ticks
        self.counts.late_ticks += is_late
        if self.stopped is None:
            try:
                self._upper_levels(now)
            except SystemDiedError as error:
                self.stop(str(error))
        if self.stopped is None and self.robot.has_fallen:
            self.stop("the robot has fallen")
        self._lowest_level()
        self.counts.ticks += 1

    def stop(self, reason: str) -> None:
        """Stop safely: from now on the robot is told to stand still where it is."""
        if self.stopped is not None:
            return
        self.stopped = Stop(self.counts.ticks, reason)
        arms = self.command_36[: command.ARMS.stop].copy()
        height = command.NAMES.index("height")
        tall, yaw = self.command_36[height], self.command_36[-1]
        self.command_36 = standing_command(1)[0]
        self.command_36[: command.ARMS.stop] = arms  # nothing is dropped
        self.command_36[height], self.command_36[-1] = tall, yaw
        self._log("stop", {"tick": self.counts.ticks, "reason": reason})

    def _upper_levels(self, now: int) -> None:
        counts = self.counts
        observation: Observation | None = None
        self._take_features(now)
        if now % self._ticks2 == 0:
            if self._system2.is_busy:
                counts.late_requests["system2"] += 1
                self._log("late", {"tick": now, "system": 2})
            else:
                observation, self._asked_at = self.robot.observe(), now
                self._system2.ask(now, observation)
                self._take_features(now)
        self._take_chunk(now)
        if self.features is not None and now % self._ticks1 == 0:
            age_s = self.feature_age_s
            counts.oldest_features_s = max(counts.oldest_features_s, age_s)
            if age_s > self._max_age_s * (1 + 1e-6):
                self.stop(
                    f"the features of System 2 are {age_s:.2f} s old, and System 1 allows "
                    f"{self._max_age_s:g} s"
                )
                return
            if self._system1.is_busy:
                counts.late_requests["system1"] += 1
                self._log("late", {"tick": now, "system": 1})
            else:
                observation = observation or self.robot.observe()
                self._chunk_asked_at = now
                self._system1.ask(now, self.features, age_s, observation)
                self._take_chunk(now)
        self._follow_chunk(now)

    def _take_features(self, now: int) -> None:
        if (features := self._system2.answer(now)) is not None:
            self.features, self._seen_at = features, self._asked_at
            self.counts.answers["system2"] += 1

    def _take_chunk(self, now: int) -> None:
        if (chunk := self._system1.answer(now)) is not None:
            self._chunk, self._chunk_at = chunk, self._chunk_asked_at
            self.counts.answers["system1"] += 1

    def _follow_chunk(self, now: int) -> None:
        """Set the command that the chunk has for now. Its first one is for when it was asked."""
        hz = self.cfg.system0.hz
        if self._chunk is None:
            if now / hz > self.cfg.max_wait_s + self._max_age_s:
                self.stop(f"System 1 has sent nothing for {now / hz:.2f} s")
            return
        index = (now - self._chunk_at) // self._ticks_command
        over_s = ((now - self._chunk_at) - len(self._chunk) * self._ticks_command) / hz
        if over_s > self.cfg.max_wait_s:
            self.stop(f"System 1 has sent nothing for {over_s:.2f} s after the end of its chunk")
            return
        sent = self._chunk[min(index, len(self._chunk) - 1)]
        if not np.array_equal(self.command_36[self._sends], sent):
            self.command_36 = self.command_36.copy()
            self.command_36[self._sends] = sent
            self.robot.told(self.command_36)

    def _lowest_level(self) -> None:
        if self._has_system0:
            qpos, qvel = self.robot.read()
            try:
                joints = self._system0.targets(
                    self._row, qpos[None], qvel[None], self.command_36[None]
                )
                self.joints_29 = joints[0]
                self.robot.drive(joints[0], self.command_36[command.HANDS])
                return
            except SystemDiedError as error:
                self._has_system0 = False
                self.stop(str(error))
        assert self.stopped is not None
        self.robot.halt(self.stopped.reason)
