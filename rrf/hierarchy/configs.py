"""The config that names the three systems of a hierarchy, their rates and interfaces. No torch."""

import typing

from rrf.config import Cfg, configclass, did_you_mean, require_not_negative, require_positive
from rrf.envs.humanoid import command

_WHOLE = 1e-6  # how far a ratio of rates may be from a whole number
_MOST_TICKS = 1000  # of a rate that an error proposes


@configclass
class SystemCfg(Cfg):
    """One of the three systems."""

    policy: str = ""
    """A checkpoint, or a registered version as NAME@ALIAS or NAME/NUMBER."""
    hz: float = 1.0
    """How often it runs per second."""
    latency_s: float = 0.0
    """On a simulated clock: seconds until its answer is there. On a real clock it takes what it
    takes."""

    def __post_init__(self):
        require_positive(self, "hz")
        require_not_negative(self, "latency_s")


@configclass
class HierarchyCfg(Cfg):
    """System 2 sees images and the instruction and sends features; System 1 acts on features, state
    and their age, and sends chunks of commands; System 0 turns commands into targets of joints.

    Systems 2 and 1 are the two parts of a `Psi0PolicyCfg` policy, which may be one checkpoint;
    System 0 is a whole-body policy (`rrf.envs.humanoid.balancer`).
    """

    system2: SystemCfg = SystemCfg(hz=2.0)
    """Vision and language. The rates of Systems 2 and 1 divide that of the clock."""
    system1: SystemCfg = SystemCfg(hz=10.0)
    """Actions: what `system1.hz` means is how often it is asked for a new chunk."""
    system0: SystemCfg = SystemCfg(hz=50.0)
    """Balance. Its rate is that of the clock."""
    chunk_hz: float = 10.0
    """How many of a chunk's commands are executed per second: the rate of the recordings."""
    frames: dict[str, str] = {}
    """Frames of what System 1 sends, signal -> joint, heading or start, where its dataset says so.
    A signal that is not here is taken to be in the frame in which System 0 takes it."""
    held: dict[str, float] = {}
    """Values of signals that System 1 does not send. All others keep those of standing still."""
    max_wait_s: float = 0.5
    """Seconds without a command of System 1, after the end of its last chunk, until the robot is
    stopped."""

    def __post_init__(self):
        require_positive(self, "chunk_hz", "max_wait_s")
        for slow, fast in (
            ("system2.hz", "system0.hz"), ("system1.hz", "system0.hz"), ("chunk_hz", "system0.hz"),
            ("system1.hz", "chunk_hz"),
        ):  # fmt: skip
            _require_divides(slow, self.rate(slow), fast, self.rate(fast))
        if self.system0.latency_s:
            raise ValueError(
                f"system0.latency_s is {self.system0.latency_s}, but the clock waits for System 0; "
                "leave it out"
            )
        for name in (*self.frames, *self.held):
            if name not in command.NAMES:
                near = did_you_mean(name, command.NAMES)
                raise ValueError(f"the command has no signal '{name}'{near}")
        for name, frame in self.frames.items():
            if frame not in typing.get_args(command.Frame):
                raise ValueError(
                    f"frames: {name} is in the frame '{frame}', allowed: "
                    f"{', '.join(typing.get_args(command.Frame))}"
                )
        for name, value in self.held.items():
            signal = command.COMMAND[command.NAMES.index(name)]
            if not signal.low <= value <= signal.high:
                raise ValueError(
                    f"held: {name} is {value}, allowed: {signal.low} to {signal.high} {signal.unit}"
                )

    def rate(self, name: str) -> float:
        """A rate by its path, in Hz: "system2.hz", "chunk_hz"."""
        owner, _, field = name.rpartition(".")
        return getattr(getattr(self, owner) if owner else self, field)

    def ticks(self, name: str) -> int:
        """Ticks of the clock from one run to the next of what has the rate `name`."""
        return round(self.system0.hz / self.rate(name))


def _require_divides(slow: str, slow_hz: float, fast: str, fast_hz: float) -> None:
    if not _divides(slow_hz, fast_hz):
        typed = (float(f"{fast_hz / n:g}") for n in range(1, _MOST_TICKS))
        nearest = min(
            (hz for hz in typed if _divides(hz, fast_hz)), key=lambda hz: abs(hz - slow_hz)
        )
        raise ValueError(
            f"{slow} is {slow_hz:g} and {fast} is {fast_hz:g}, of which the first does not divide "
            f"the second; e.g. {slow}={nearest:g}"
        )


def _divides(slow_hz: float, fast_hz: float) -> bool:
    ratio = fast_hz / slow_hz
    return round(ratio) >= 1 and abs(ratio - round(ratio)) <= _WHOLE
