"""Plays a hierarchy on a robot: builds the systems, runs the clock, and writes down what happened.

On a simulated clock the systems run in this process, and a second of the episode takes what its
computation takes. On a real clock each system is a process of its own, or Systems 2 and 1 are on a
server, and this one only keeps time: a tick that begins late is counted, and none is skipped.
"""

import dataclasses
import json
import time
import typing
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np

from rrf.envs.control_env import Interface
from rrf.envs.humanoid import body
from rrf.envs.humanoid.balancer import load_balancer
from rrf.hierarchy.configs import HierarchyCfg
from rrf.hierarchy.interfaces import check_fits, sent_by, taken_by
from rrf.hierarchy.runtime import Robot, Runtime, Simulated, Stop
from rrf.hierarchy.served import Served
from rrf.hierarchy.systems import Remote, RemoteBalancer, System1, System2, plain
from rrf.policies.vla.psi0_configs import Psi0PolicyCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.control import load_interface
from rrf.runners.checkpoints.deployable import VLA, described, kind_of

_LATE_S = 0.002  # a tick counts as late when it begins so long after its time


@dataclasses.dataclass(frozen=True)
class Timing:
    """What the ticks of a run took, in ms."""

    p50_ms: float
    p99_ms: float
    longest_ms: float


@dataclasses.dataclass(frozen=True)
class Played:
    """The result of a run."""

    ticks: int
    late_ticks: int
    late_requests: dict[str, int]
    answers: dict[str, int]
    oldest_features_s: float
    stopped: Stop | None
    timing: Timing


def check(cfg: HierarchyCfg, robot_joints: Collection[str]) -> Psi0PolicyCfg:
    """Check that the three systems of a config fit each other and the robot.

    Returns:
        The config of System 1.

    Raises:
        ValueError: If not; the message says what differs.
    """
    policy, takes = _system1(cfg), taken_by(cfg.system0.policy, robot_joints)
    interface = load_interface(cfg.system0.policy)
    check_fits(sent_by(policy, cfg.frames), takes)
    _check_rates(cfg, policy, interface)
    return policy


def _system1(cfg: HierarchyCfg) -> Psi0PolicyCfg:
    path = cfg.system1.policy
    policy = checkpoint.deployed_cfg(path) if kind_of(path) == VLA else None
    if not isinstance(policy, Psi0PolicyCfg):
        what = type(policy).__name__ if policy else described(kind_of(path))
        raise ValueError(
            f"system1.policy {path} is not in two parts ({what}); train a Psi0PolicyCfg (preset "
            "psi0-laptop)"
        )
    policy.require_system1()
    if policy.past_states:
        raise ValueError(
            f"system1.policy {path} sees {policy.past_states} past states, which the clock does "
            "not keep; train one with policy.past_states=0"
        )
    return policy


def _check_rates(cfg: HierarchyCfg, policy: Psi0PolicyCfg, interface: Interface) -> None:
    if abs(policy.control_hz - cfg.chunk_hz) > 1e-6:
        raise ValueError(
            f"chunk_hz is {cfg.chunk_hz:g}, but System 1 was trained on {policy.control_hz:g} "
            f"actions per second; set chunk_hz={policy.control_hz:g}"
        )
    if abs(interface.step_dt * cfg.system0.hz - 1) > 1e-6:
        raise ValueError(
            f"system0.hz is {cfg.system0.hz:g}, but System 0 was trained at "
            f"{1 / interface.step_dt:g}; set system0.hz={1 / interface.step_dt:g}"
        )
    if policy.chunk_length * cfg.ticks("chunk_hz") < cfg.ticks("system1.hz"):
        raise ValueError(
            f"System 1 sends {policy.chunk_length} commands, which are over before it is asked "
            f"again ({cfg.system1.hz:g} Hz); raise system1.hz"
        )
    period_s = 1 / cfg.system2.hz + cfg.system2.latency_s
    if period_s > policy.age_limit_s:
        raise ValueError(
            f"the features of System 2 will be up to {period_s:g} s old (system2.hz, latency_s), "
            f"but System 1 allows {policy.max_feature_age_s:g} s; raise system2.hz, or train with "
            "a higher max_feature_age_s"
        )


def play_simulated(
    cfg: HierarchyCfg,
    robot: Robot,
    seconds: float,
    log: Callable[[str, dict], None] | None = None,
    on_tick: Callable[[Runtime], bool] | None = None,
) -> Played:
    """Play on a simulated clock; the same start gives the same episode.

    Args:
        on_tick: Called after each tick; true ends the run.

    Raises:
        ValueError: As `check` does.
    """
    policy = check(cfg, robot.joints)
    system2, system1 = System2(cfg.system2.policy), System1(cfg.system1.policy)
    hz = cfg.system0.hz
    runtime = Runtime(
        cfg,
        robot,
        Simulated(
            lambda *question: system2.see(*plain(question)), round(cfg.system2.latency_s * hz)
        ),
        Simulated(
            lambda *question: system1.act(*plain(question)), round(cfg.system1.latency_s * hz)
        ),
        load_balancer(cfg.system0.policy, body.spec().compile()),
        policy.action_names,
        policy.max_feature_age_s,
        log,
    )
    took = []
    for _ in range(round(seconds * hz)):
        began = time.perf_counter()
        runtime.tick()
        took.append(time.perf_counter() - began)
        if on_tick and on_tick(runtime):
            break
    return _played(runtime, took)


def play(
    cfg: HierarchyCfg,
    robot: Robot,
    seconds: float,
    log: Callable[[str, dict], None] | None = None,
    on_start: Callable[[dict[str, int]], None] | None = None,
    on_tick: Callable[[Runtime], bool] | None = None,
    served: Served | None = None,
) -> Played:
    """Play on a real clock, each system in a process of its own.

    Args:
        served: Systems 2 and 1 on a server, instead of in processes of this machine.
        on_start: Is told the ids of the processes: system2, system1, system0.
        on_tick: Called after each tick; true ends the run. Its time counts for the tick.

    Raises:
        ValueError: As `check` does.
        ChildError: If a system cannot be started.
    """
    policy = check(cfg, robot.joints)
    system0, processes = RemoteBalancer(cfg.system0.policy), {}
    if served is None:
        system2 = processes["system2"] = Remote(2, cfg.system2.policy, "see")
        system1 = processes["system1"] = Remote(1, cfg.system1.policy, "act")
    else:
        system2, system1 = served.system2, served.system1
    processes["system0"] = system0
    try:
        for system in processes.values():
            system.wait()
        pids = {name: system.child.pid for name, system in processes.items()}
        if on_start:
            on_start(pids)
        runtime = Runtime(
            cfg, robot, system2, system1, system0,
            policy.action_names, policy.max_feature_age_s, log,
        )  # fmt: skip
        if log:
            log("processes", pids)
            if served:
                log("server", {"url": served.url, "digest": served.digest})
        ticks = round(seconds * cfg.system0.hz)
        return _played(runtime, _keep_time(runtime, ticks, on_tick))
    finally:
        for system in processes.values():
            system.close()


def _keep_time(
    runtime: Runtime, ticks: int, on_tick: Callable[[Runtime], bool] | None
) -> list[float]:
    """Run the ticks at their times; what each took, in s."""
    period, took = 1 / runtime.cfg.system0.hz, []
    begin = time.perf_counter()
    for number in range(ticks):
        due = begin + number * period
        if (early := due - time.perf_counter()) > 0:
            time.sleep(early)
        began = time.perf_counter()
        runtime.tick(is_late=began - due > _LATE_S)
        is_over = on_tick is not None and on_tick(runtime)
        took.append(time.perf_counter() - began)
        if is_over:
            break
    return took


def _played(runtime: Runtime, took: list[float]) -> Played:
    p50, p99 = np.percentile(took, [50, 99]) * 1000
    counts = dataclasses.asdict(runtime.counts)
    timing = Timing(float(p50), float(p99), max(took) * 1000)
    return Played(**counts, stopped=runtime.stopped, timing=timing)


class JsonLog:
    """Writes what happens into a file, a JSON object per line, at once.

    Args:
        path: The file; it is appended to.
        clock: Seconds, for the column "time".
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time):
        self._file: typing.TextIO = path.open("a", encoding="utf-8")
        self._clock = clock

    def __enter__(self) -> "JsonLog":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __call__(self, event: str, facts: dict) -> None:
        """Write a line."""
        self._file.write(json.dumps({"time": self._clock(), "event": event, **facts}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
