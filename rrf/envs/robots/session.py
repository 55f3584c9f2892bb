"""Episodes on a robot: the control loop, the operator's keys, and what becomes of an episode.

| key     | during an episode           | afterwards, and after a stop             |
|---------|-----------------------------|------------------------------------------|
| s       | end it, solved              | it was solved                            |
| f       | end it, not solved          | it was not solved                        |
| n       | end it                      | keep it as it is; after a stop: go on    |
| r       | throw it away, begin again  | the same                                 |
| space   | stop the robot              |                                          |
| q       | throw it away and end       | end                                      |
| o       | the operator takes over from the policy, or hands back                 |

Right, left and Esc are n, r and q, as in lerobot.
"""

import contextlib
import dataclasses
import logging
import queue
import time
import typing
from collections.abc import Callable, Iterator, Mapping

from rrf.envs.robots.configs import RobotCfg
from rrf.envs.robots.devices import Act
from rrf.envs.robots.guard import Guard, Log, RobotStoppedError, SimulatedTask
from rrf.envs.robots.recording import Recording

if typing.TYPE_CHECKING:
    from lerobot.robots import Robot

KEYS = "s solved, f failed, n next, r again, space stop, q end"
OPERATOR_KEY = "o takes over, and hands back"
_NAMES = {"right": "n", "left": "r", "esc": "q", " ": "space"}
_MAX_APPROACH_S = 30.0
_MAX_FAILURES = 10
"""Episodes in a row that a simulated task calls failed, or that were stopped, when nobody is asked.
"""


class Keys:
    """What the operator has pressed."""

    def __init__(self, is_there: bool):
        self.is_there = is_there
        """Whether there is an operator with a keyboard."""
        self.on_stop: Callable[[], typing.Any] = lambda: None
        """What the stop key does, at once and whatever the loop is doing."""
        self._pressed: queue.Queue[str] = queue.Queue()

    def press(self, name: str) -> None:
        """A key, by lerobot's names."""
        key = _NAMES.get(name.lower(), name.lower())
        if key == "space":
            self.forget()
            self.on_stop()
        else:
            self._pressed.put(key)

    def forget(self) -> None:
        """What was pressed until now was meant for something else."""
        while self.pressed() is not None:
            pass

    def pressed(self, timeout_s: float = 0.0) -> str | None:
        """The next key, waiting for it for at most so long; None without any."""
        with contextlib.suppress(queue.Empty):
            return self._pressed.get(timeout=timeout_s) if timeout_s else self._pressed.get_nowait()
        return None


@contextlib.contextmanager
def listening() -> Iterator[Keys]:
    """The keys of this terminal, or of the desktop, by lerobot's listener."""
    from lerobot.utils.keyboard_input import create_key_listener

    keys = Keys(is_there=True)
    # what it warns of, that there is no keyboard, is said by the command
    logging.getLogger("lerobot.utils.keyboard_input").setLevel(logging.ERROR)
    listener = create_key_listener(keys.press, controls_help=KEYS)
    keys.is_there = listener is not None
    try:
        yield keys
    finally:
        if listener is not None:
            listener.stop()


@dataclasses.dataclass(frozen=True)
class Actor:
    """What chooses the actions."""

    act: Act
    """An observation in, an action out."""
    begin: Callable[[int], None]
    """Called where an episode begins, with its number."""
    is_person: bool
    """Whether a person acts, whose arm may stand elsewhere than the robot: the robot then goes
    there slowly first."""


@dataclasses.dataclass(frozen=True)
class Result:
    """How an episode ended."""

    index: int
    success: bool
    how: str
    """solved, failed, ended, time, or why the robot was stopped."""
    steps: int
    seconds: float
    late_steps: int
    """Control steps that began later than the period allows."""
    operator_steps: int = 0
    """Control steps in which the operator acted instead of the policy."""


class Witness(typing.Protocol):
    """What is told of every episode, also of those that are not kept."""

    def begins(self, index: int) -> None:
        """An episode begins."""
        ...

    def saw(
        self,
        observation: Mapping[str, typing.Any],
        sent: Mapping[str, float],
        by_operator: bool,
    ) -> None:
        """A control step: what was seen, what was sent after all limits, and whether the operator
        acted instead of the policy."""
        ...

    def ended(self, result: Result) -> None:
        """The episode is over, and was judged."""
        ...


class Session:
    """Runs episodes.

    Args:
        cfg: The robot.
        robot: The connected robot; only a simulated one's own methods are used.
        guard: The way to it.
        actor: What chooses the actions.
        keys: The operator's.
        say: Called with each line for the operator.
        log: Called with each event.
        recording: Where finished episodes go, if they are kept.
        is_demonstration: Whether a person shows how: an episode that was stopped, or that a
            simulated task calls failed, is then done again.
        witness: Is told of every episode.
        operator: The person who takes over from a policy by a key.
    """

    def __init__(
        self,
        cfg: RobotCfg,
        robot: "Robot",
        guard: Guard,
        actor: Actor,
        keys: Keys,
        say: Callable[[str], None],
        log: Log,
        recording: Recording | None = None,
        is_demonstration: bool = False,
        witness: Witness | None = None,
        operator: Actor | None = None,
    ):
        self._cfg, self._guard, self._actor, self._keys = cfg, guard, actor, keys
        self._say, self._log, self._recording = say, log, recording
        self._task = robot if isinstance(robot, SimulatedTask) else None
        self._is_demonstration, self._witness = is_demonstration, witness
        self._operator, self._in_charge = operator, actor
        self._pace, self._steps, self._operator_steps = _Pace(cfg), 0, 0
        keys.on_stop = lambda: guard.stop("stop_key", "the operator pressed the stop key")

    def run(self, num_episodes: int, first: int = 0) -> list[Result]:
        """Run episodes until so many count; the results of those.

        Args:
            num_episodes: How many.
            first: The number of the first one, which a simulated task makes its scene of.

        Raises:
            ValueError: If the robot was stopped, or a simulated task failed too often, and there is
                no operator to say how to go on.
        """
        results: list[Result] = []
        attempt, failures = first, 0
        while len(results) < num_episodes:
            name = f"episode {len(results) + 1} of {num_episodes}"
            try:
                result = self._episode(attempt)
            except RobotStoppedError as stopped:
                result = self._after_stop(stopped, attempt)
            if result is None:
                break
            judged = self._judged(result)
            if self._witness is not None:
                self._witness.ended(judged)
            is_kept = self._is_kept(judged)
            self._tell(name, judged, is_kept, attempt)
            if judged.how == "end":
                break
            attempt, failures = attempt + 1, 0 if is_kept else failures + 1
            if is_kept:
                results.append(judged)
                if self._recording is not None and judged.steps:
                    self._recording.keep(judged.success, how=judged.how, attempt=attempt)
            if failures >= _MAX_FAILURES and not self._keys.is_there:
                raise ValueError(
                    f"{failures} episodes in a row were not solved; what was kept before is kept"
                )
            if len(results) < num_episodes:
                self._prepare()
        return results

    def _episode(self, index: int) -> Result:
        """One episode.

        Raises:
            RobotStoppedError: If the robot was stopped.
        """
        self._steps = self._operator_steps = 0
        self._in_charge = self._actor
        if self._recording is not None:
            self._recording.begin()
        if self._task is not None:
            self._task.begin_episode(index)
        self._actor.begin(index)
        if self._witness is not None:
            self._witness.begins(index)
        observation = self._guard.observe()  # the first one may take long
        self._pace.begin()
        self._guard.watch(True)
        how = "time"
        try:
            if self._actor.is_person:
                self._approach(observation)
            began_s = time.monotonic()
            self._log("begins", attempt=index)
            if self._keys.is_there:
                self._say("go")
            while self._steps < self._cfg.max_steps:
                key = self._keys.pressed()
                if key is not None and self._guard.is_stopped:
                    self._keys.press(key)  # it answers the question that follows
                elif key in _ENDS:
                    how = _ENDS[key]
                    break
                elif key == "o":
                    self._change_hands(index)
                observation = self._guard.observe()
                sent = self._guard.send(self._action(observation))
                by_operator = self._in_charge is self._operator
                self._steps += 1
                self._operator_steps += by_operator
                if self._recording is not None:
                    self._recording.add(observation, sent)
                if self._witness is not None:
                    self._witness.saw(observation, sent, by_operator)
                if self._task is not None and self._task.is_solved:
                    how = "solved"
                    break
                self._wait()
        finally:
            self._guard.watch(False)
        self._guard.hold()
        seconds = time.monotonic() - began_s
        if not self._cfg.real_time:
            seconds = self._steps / self._cfg.fps
        return self._result(index, how, seconds, self._pace.num_late)

    def _result(self, index: int, how: str, seconds: float, num_late: int) -> Result:
        counts = (self._steps, seconds, num_late, self._operator_steps)
        return Result(index, how == "solved", how, *counts)

    def _change_hands(self, index: int) -> None:
        """Let the operator act instead of the policy, or the policy again, which begins anew.

        The robot first goes slowly to where the operator's arm is. These steps are nobody's, and
        no one is told of them.
        """
        if self._operator is None:
            return
        takes_over = self._in_charge is self._actor
        self._in_charge = self._operator if takes_over else self._actor
        self._in_charge.begin(index)
        self._log("operator" if takes_over else "policy", step=self._steps)
        self._say("the operator acts" if takes_over else "the policy acts")
        if takes_over:
            self._approach(self._guard.observe())

    def _action(self, observation: Mapping[str, typing.Any]) -> Mapping[str, float]:
        try:
            return self._in_charge.act(observation)
        except OSError as error:  # a cable, a server
            raise self._guard.stop("device", f"there is no action: {error}") from error

    def _approach(self, observation: Mapping[str, typing.Any]) -> None:
        """Go slowly to where the person's arm is, which may move meanwhile."""
        period_s = 1 / self._cfg.fps
        for _ in range(max(1, round(_MAX_APPROACH_S * self._cfg.fps))):
            target, command, is_there = self._action(observation), self._guard.command, True
            for name, joint in self._cfg.joints.items():
                if name in self._cfg.velocities or name not in target:
                    continue
                command.setdefault(name, float(target[name]))
                way = float(target[name]) - command[name]
                is_there = is_there and abs(way) <= joint.max_speed * period_s
                most = joint.max_speed * period_s * self._cfg.approach_fraction
                command[name] += max(-most, min(most, way))
            if is_there:
                return
            self._guard.send(command)
            self._wait()
            observation = self._guard.observe()
        raise self._guard.stop(
            "speed", f"the robot did not reach the teleoperator within {_MAX_APPROACH_S:g} s"
        )

    def _wait(self) -> None:
        late_s = self._pace.wait()
        if late_s > self._cfg.max_late_s:
            raise self._guard.stop(
                "late",
                f"a control step is {late_s:.2f} s late, allowed: {self._cfg.max_late_s:g} "
                "(max_late_s)",
            )

    def _after_stop(self, stopped: RobotStoppedError, index: int) -> Result | None:
        """Say why the robot was stopped, and let the operator say how to go on."""
        what = {"hold": "the robot holds", "torque_off": "its motors have let go"}
        safe = "nothing was sent" if self._guard.is_dry else what[self._cfg.on_limit]
        self._say(f"STOPPED ({stopped.kind}): {stopped}; {safe}")
        if self._keys.is_there:
            if stopped.kind != "stop_key":
                self._keys.forget()
            self._say("n goes on, r begins the episode again, q ends")
            key = self._asked("n", "r", "q")
            if key == "q":
                return None
            how = "again" if key == "r" else f"stopped: {stopped.kind}"
        elif self._task is None:
            raise ValueError(
                f"the robot was stopped: {stopped}. Finished episodes are kept; see to the robot, "
                "then type the same command to go on"
            )
        else:
            how = f"stopped: {stopped.kind}"
        self._guard.resume()
        return self._result(index, how, self._steps / self._cfg.fps, 0)

    def _is_kept(self, result: Result) -> bool:
        """Whether an episode counts."""
        if result.how in ("again", "end"):
            return False
        if not self._is_demonstration:
            return True
        is_stopped = result.how.startswith("stopped")
        return result.steps > 0 and not is_stopped and (result.success or self._task is None)

    def _judged(self, result: Result) -> Result:
        """The result with the operator's verdict, where the episode ended without one."""
        if result.how not in ("ended", "time") or self._task is not None or not self._keys.is_there:
            return result
        self._say("solved? s yes, f no, r record it again, q end without it")
        key = self._asked("s", "f", "n", "r", "q")
        if key in ("r", "q"):
            return dataclasses.replace(result, how="again" if key == "r" else "end")
        return dataclasses.replace(result, success=key == "s", how=result.how)

    def _asked(self, *keys: str) -> str:
        while (key := self._keys.pressed(3600.0)) not in keys:
            pass
        assert key is not None
        return key

    def _prepare(self) -> None:
        """Time for the operator to prepare the scene."""
        if self._task is not None or self._cfg.reset_s == 0:
            return
        self._say(f"prepare the scene: {self._cfg.reset_s:g} s, or n")
        end_s = time.monotonic() + self._cfg.reset_s
        while (left_s := end_s - time.monotonic()) > 0 and self._keys.pressed(left_s) != "n":
            pass

    def _tell(self, name: str, result: Result, is_kept: bool, attempt: int) -> None:
        verdict = "solved" if result.success else "not solved"
        more = f", {result.late_steps} late steps" if result.late_steps else ""
        more += f", {result.operator_steps} of the operator" if result.operator_steps else ""
        kept = "" if is_kept else "; not kept"
        self._say(
            f"{name}: {verdict} ({result.how}), {result.steps} steps, {result.seconds:.1f} s"
            f"{more}{kept}"
        )
        facts = dataclasses.asdict(result) | {"attempt": attempt, "kept": is_kept}
        recording = self._recording.name if self._recording is not None else None
        self._log("episode", recording=recording, **facts)


_ENDS = {"s": "solved", "f": "failed", "n": "ended", "r": "again", "q": "end"}


_MOST_HURRIED = 0.8  # of a period: how soon a step may follow one that came a little late


class _Pace:
    """One control step per period; a late one moves the later ones, which are not hurried."""

    def __init__(self, cfg: RobotCfg):
        self._period_s, self._is_real = 1 / cfg.fps, cfg.real_time
        self.begin()

    def begin(self) -> None:
        self._due_s, self.num_late = time.monotonic() + self._period_s, 0

    def wait(self) -> float:
        """Wait for the next step; by how much it is late, in s."""
        if not self._is_real:
            return 0.0
        late_s = time.monotonic() - self._due_s
        if late_s <= 0:
            time.sleep(-late_s)  # and perhaps longer
            soonest_s = time.monotonic() + _MOST_HURRIED * self._period_s
            self._due_s = max(self._due_s + self._period_s, soonest_s)
            return 0.0
        self.num_late += late_s > self._period_s / 2
        self._due_s = time.monotonic() + self._period_s
        return late_s
