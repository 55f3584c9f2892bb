"""The one way from what chooses actions, a policy or a person, to a robot: limits, watchdog, stop.

    observation = guard.observe()
    guard.send(choose(observation))     # or RobotStoppedError, and the robot is safe

A command outside the limits is not sent. The robot is stopped instead: it holds where it is, or its
motors let go, as `on_limit` says. So it is when an observation is old, a step late, the robot does
not answer, or no step comes at all, which a thread of its own notices. `resume` goes on after that.
Nothing of this is left when the process is killed: what a robot then does must be set in itself.
"""

import contextlib
import math
import threading
import time
import typing
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from rrf.envs.robots.configs import RobotCfg
from rrf.envs.robots.limits import Reach, misfit, too_fast

if typing.TYPE_CHECKING:
    from lerobot.robots import Robot

Log = Callable[..., None]
"""Called with the kind of an event and its facts."""
_CLOSING_S = 1.0  # to wait for a robot that is in use by another thread


class RobotStoppedError(Exception):
    """The robot was stopped and is safe.

    Attributes:
        kind: joint_range, speed, workspace, stale, late, frozen, watchdog, device or stop_key.
    """

    def __init__(self, kind: str, reason: str):
        super().__init__(reason)
        self.kind = kind


@typing.runtime_checkable
class SimulatedTask(typing.Protocol):
    """What a simulated robot may have beside lerobot's interface."""

    def begin_episode(self, index: int) -> None:
        """Prepare the scene of an episode; the same index always gives the same one."""
        ...

    @property
    def is_solved(self) -> bool:
        """Whether the task is solved now."""
        ...


class Guard:
    """Between actions and a connected robot.

    Args:
        robot: The robot.
        cfg: Its limits.
        log: Called with every stop.
        is_dry: Whether to send nothing. Speeds are then compared with the command before and with
            where the robot is, because it stays there.
    """

    def __init__(self, robot: "Robot", cfg: RobotCfg, log: Log, is_dry: bool = False):
        self._robot, self._cfg, self._log, self.is_dry = robot, cfg, log, is_dry
        self._reach = Reach(cfg.workspace, cfg.joints) if cfg.workspace else None
        self._lock = threading.Lock()  # lerobot's buses are for one thread at a time
        self._stopped: RobotStoppedError | None = None
        self._is_safe = False
        self._seen: dict[str, typing.Any] = {}
        self._seen_s = 0.0
        self._before: dict[str, float] | None = None
        self._same_steps: dict[str, int] = {}
        self._due_s: float | None = None  # when the watchdog bites
        self._has_ended = threading.Event()
        threading.Thread(target=self._watch, name="robot-watchdog", daemon=True).start()

    @property
    def command(self) -> dict[str, float]:
        """The last command, or where the robot is if there was none since it began or resumed; a
        joint that it does not observe is then left out."""
        return dict(self._before or self._present())

    @property
    def is_stopped(self) -> bool:
        """Whether the robot was stopped and not resumed yet."""
        return self._stopped is not None

    def watch(self, is_on: bool) -> None:
        """Begin or end to expect a step every `watchdog_s`."""
        self._due_s = time.monotonic() + self._cfg.watchdog_s if is_on else None

    def observe(self) -> dict[str, typing.Any]:
        """What the robot observes now, by lerobot's names.

        Raises:
            RobotStoppedError: If it does not answer, or its numbers or pictures are no use.
        """
        self._beat()
        began_s = time.monotonic()
        with self._lock:
            try:
                seen, failed = self._robot.get_observation(), None
            except (OSError, RuntimeError, ValueError) as error:
                seen, failed = {}, error
            self._settle()
        if failed is not None:
            raise self.stop("device", f"the robot does not answer: {failed}") from failed
        for name in self._cfg.joints:
            if name in seen and not math.isfinite(seen[name]):
                raise self.stop("device", f"the robot says that {name} is {seen[name]}")
        self._check_frozen(seen)
        self._seen, self._seen_s = seen, began_s
        return seen

    def send(self, action: Mapping[str, float]) -> dict[str, float]:
        """Execute an action; what was executed, as the robot says.

        Raises:
            RobotStoppedError: If it may not be executed.
        """
        self._beat()
        command = {name: float(value) for name, value in action.items()}
        before = command | self.command
        if reason := misfit(command, before, self._cfg.joints):
            raise self.stop("joint_range", reason)
        self._check_speed(command, before)
        if self._reach and (reason := self._reach.misfit(command, before)):
            raise self.stop("workspace", reason)
        age_s = time.monotonic() - self._seen_s
        if self._cfg.real_time and age_s > self._cfg.max_age_s:
            raise self.stop(
                "stale",
                f"the action comes {age_s:.2f} s after its observation, allowed: "
                f"{self._cfg.max_age_s:g} (max_age_s)",
            )
        if self.is_dry:
            self._before = command
            return command
        with self._lock:
            if self._stopped:  # meanwhile, by the stop key or the watchdog
                raise self._stopped
            try:
                sent, failed = self._robot.send_action(command) or {}, None
            except (OSError, RuntimeError, ValueError) as error:
                sent, failed = {}, error
            self._settle()
        if failed is not None:
            raise self.stop("device", f"the robot takes no action: {failed}") from failed
        self._before = command | {name: float(v) for name, v in sent.items() if name in command}
        return dict(self._before)

    def stop(self, kind: str, reason: str) -> RobotStoppedError:
        """Make the robot safe. What is returned is raised by every step until `resume`."""
        with self._lock:
            return self._stop(kind, reason)

    def resume(self) -> None:
        """Go on after a stop, from where the robot is."""
        if self._stopped is None:
            return
        with self._lock:
            if not self._robot.is_connected:
                self._robot.connect()
            if self._cfg.on_limit == "torque_off" and not self.is_dry:
                self._hold()  # or the motors would go back to their last goal
                for bus in _buses(self._robot):
                    bus.enable_torque()
            self._stopped, self._is_safe = None, False
            self._before, self._same_steps = None, {}
        self._log("resumed")

    def hold(self) -> None:
        """Stay where the robot is, e.g. between two episodes."""
        with self._lock:
            try:
                if self._stopped is None:
                    self._hold()
            except (OSError, RuntimeError, ValueError) as error:
                raise self._stop("device", f"the robot takes no action: {error}") from error
        self._before = None

    def close(self) -> None:
        """Make the robot safe and disconnect it."""
        self._has_ended.set()
        is_free = self._lock.acquire(timeout=_CLOSING_S)
        try:
            if self._robot.is_connected:
                self._make_safe()
                self._robot.disconnect()
                self._log("closed")
        finally:
            if is_free:
                self._lock.release()

    def _check_speed(self, command: Mapping[str, float], before: Mapping[str, float]) -> None:
        period_s = 1 / self._cfg.fps
        reason = too_fast(command, before, self._cfg.joints, period_s)
        if reason and self.is_dry:
            reason = too_fast(command, self._present(), self._cfg.joints, period_s) and reason
        if reason:
            raise self.stop("speed", reason)

    def _check_frozen(self, seen: Mapping[str, typing.Any]) -> None:
        if self._cfg.max_frozen_s is None:
            return
        for name, value in seen.items():
            if not isinstance(value, np.ndarray):
                continue
            is_same = name in self._seen and np.array_equal(value, self._seen[name])
            self._same_steps[name] = self._same_steps.get(name, 0) + 1 if is_same else 0
            frozen_s = self._same_steps[name] / self._cfg.fps
            if frozen_s > self._cfg.max_frozen_s:
                raise self.stop(
                    "frozen",
                    f"the camera '{name}' has shown one picture for {frozen_s:.1f} s, allowed: "
                    f"{self._cfg.max_frozen_s:g} (max_frozen_s)",
                )

    def _present(self) -> dict[str, float]:
        """Where the robot is, as far as it says; a velocity that it does not say is 0."""
        said = {name: float(self._seen[name]) for name in self._cfg.joints if name in self._seen}
        return dict.fromkeys(self._cfg.velocities, 0.0) | said

    def _beat(self) -> None:
        if self._stopped:
            raise self._stopped
        if self._due_s is not None:
            self._due_s = time.monotonic() + self._cfg.watchdog_s

    def _watch(self) -> None:
        while not self._has_ended.wait(self._cfg.watchdog_s / 5):
            due_s = self._due_s
            if due_s is None or self._stopped or time.monotonic() < due_s:
                continue
            reason = f"no control step for {self._cfg.watchdog_s:g} s (watchdog_s)"
            if not self._lock.acquire(timeout=self._cfg.watchdog_s):
                reason += (
                    ", and the robot itself does not answer: it is stopped as soon as it does; "
                    "switch it off"
                )
                self._stopped = RobotStoppedError("watchdog", reason)
                self._log("stopped", why="watchdog", reason=reason)
                continue
            try:
                self._stop("watchdog", reason)
            finally:
                self._lock.release()

    def _stop(self, kind: str, reason: str) -> RobotStoppedError:
        if self._stopped is None:
            self._stopped = RobotStoppedError(kind, reason)
            self._make_safe()
            self._log("stopped", why=kind, reason=reason)
        return self._stopped

    def _settle(self) -> None:
        """Make safe what the watchdog stopped while it did not answer; the lock is held."""
        if self._stopped is not None:
            self._make_safe()

    def _make_safe(self) -> None:
        """Hold or let go, once; whatever the robot answers, this does not fail."""
        if self.is_dry or self._is_safe:
            return
        self._is_safe = True
        try:
            if self._cfg.on_limit == "hold":
                self._hold()
            elif buses := _buses(self._robot):
                for bus in buses:
                    bus.disable_torque()
            else:
                self._robot.disconnect()
        except Exception as error:  # a device may raise anything
            self._log("not_safe", reason=f"{type(error).__name__}: {error}")

    def _hold(self) -> None:
        """Command where the robot is, and no velocity."""
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # then where it was last seen
            seen = self._robot.get_observation()
            self._seen |= {
                name: value
                for name, value in seen.items()
                if not isinstance(value, float) or math.isfinite(value)
            }
        still = (self._before or {}) | self._present() | dict.fromkeys(self._cfg.velocities, 0.0)
        if still and not self.is_dry:
            self._robot.send_action(still)


def _buses(robot: "Robot") -> list[typing.Any]:
    """The motor buses of a robot, and of its arms."""

    def found() -> Iterator[typing.Any]:
        for part in (robot, *vars(robot).values()):
            bus = getattr(part, "bus", None)
            if hasattr(bus, "disable_torque") and hasattr(bus, "enable_torque"):
                yield bus

    return list({id(bus): bus for bus in found()}.values())
