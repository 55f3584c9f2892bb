"""Simulated robots for `make flywheel`: Meta-World's arm, driven by a real policy server through
the real client, each with its own log.

Nobody watches an unattended robot: an episode ends by success or by its time. An attended one has
an operator, Meta-World's scripted expert, who knows where things are. He takes over where the robot
goes elsewhere than he would, or has not finished in time, and finishes the task (HG-DAgger).
"""

import contextlib
import dataclasses
import typing
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from rrf.client import EpisodeLogger, PolicyClient, RecedingHorizon, RobotHistory
from rrf.data.episode_log import OPERATOR
from rrf.data.schema import IMAGE_PREFIX, STATE, Observation
from rrf.envs.metaworld.configs import ACTION_NAMES, STATE_NAMES, MetaWorldCfg
from rrf.envs.vec_env import InitialState

_DISAGREE = 0.0  # cosine of the directions in which operator and robot would go
_WRONG_STEPS = 4  # so many of them in a row make the operator take over


@dataclasses.dataclass(frozen=True)
class Shift:
    """What a number of robots is to do."""

    url: str
    """The policy server."""
    logs: Path
    """Where they log."""
    num_robots: int
    execute: int
    """Actions of a chunk that are executed before the next one."""
    max_steps: int
    """Steps of an episode; for the operator as many again."""
    is_attended: bool
    patience: int = 20
    """Steps after which the operator takes over."""


@dataclasses.dataclass
class _Robot:
    """A robot that plays an episode."""

    client: PolicyClient
    log: EpisodeLogger
    controller: RecedingHorizon
    history: RobotHistory
    state: InitialState | None = None
    seen: dict[str, typing.Any] = dataclasses.field(default_factory=dict)
    steps: int = 0
    wrong_steps: int = 0
    is_corrected: bool = False


@dataclasses.dataclass
class Played:
    """How an episode ended."""

    state: InitialState
    success: bool
    is_corrected: bool
    steps: int


def work(
    shift: Shift,
    states: Iterable[InitialState],
    on_episode: Callable[[int], None] = lambda number: None,
) -> list[Played]:
    """Let robots play an episode from each start. The episodes are on their disk then.

    Args:
        shift: What they are to do.
        states: The starts; one is taken when an episode begins.
        on_episode: Called with the number of episodes that are over.

    Raises:
        OSError: If the policy server cannot be reached.
    """
    waiting, played = iter(states), []
    horizon = shift.max_steps * (2 if shift.is_attended else 1)
    cfg = MetaWorldCfg(num_envs=shift.num_robots, chunk_length=1, max_episode_steps=horizon)
    with contextlib.ExitStack() as stack:
        env = cfg.build()
        stack.callback(env.close)
        robots = [_robot(shift, number, stack) for number in range(shift.num_robots)]
        running = [n for n in range(shift.num_robots) if _begin(env, n, robots[n], waiting)]
        while running:
            actions = np.stack([_act(env, number, robots[number], shift) for number in running])
            step = env.step(actions[:, None], running)
            ends = step.terminated | step.truncated
            for row, number in enumerate(running):
                robot = robots[number]
                if not ends[row]:
                    robot.seen = _row(step.observation, row)
                    continue
                assert robot.state is not None
                success = bool(step.success[row])
                robot.client.end_episode(success, "solved" if success else "time")
                played.append(Played(robot.state, success, robot.is_corrected, robot.steps))
                robot.state = None
                on_episode(len(played))
            running = [
                number
                for number in running
                if robots[number].state or _begin(env, number, robots[number], waiting)
            ]
    return played


def _robot(shift: Shift, number: int, stack: contextlib.ExitStack) -> _Robot:
    log = stack.enter_context(EpisodeLogger(shift.logs, f"sim-{number}"))
    client = stack.enter_context(PolicyClient(shift.url, timeout_s=120, log=log))
    controller = RecedingHorizon(client.infer, shift.execute)
    return _Robot(client, log, controller, RobotHistory(client.metadata.get("past")))


def _begin(env: typing.Any, number: int, robot: _Robot, waiting: Iterator[InitialState]) -> bool:
    """Begin the next episode, if there is one."""
    state = robot.state = next(waiting, None)
    if state is None:
        return False
    robot.seen = _row(env.reset([state], [number]), 0)
    robot.controller.reset()
    robot.history.reset()
    robot.steps = robot.wrong_steps = 0
    robot.is_corrected = False
    robot.client.begin_episode(
        task=state.task,
        fps=env.fps,
        instruction=robot.seen["instruction"],
        start={"seed": state.seed, "index": state.index},
        state_names=STATE_NAMES,
        action_names=ACTION_NAMES,
    )
    return True


def _act(env: typing.Any, number: int, robot: _Robot, shift: Shift) -> np.ndarray:
    """The action of this step, [A] within [-1, 1], which is logged."""
    expert = env.expert_action(number) if shift.is_attended else None
    if expert is not None and robot.is_corrected:
        action = expert
    else:
        action = np.clip(robot.controller.act(robot.history.seen(robot.seen)), -1, 1)
        if expert is not None and _takes_over(robot, expert, action, shift.patience):
            action, robot.is_corrected = expert, True
    by = OPERATOR if robot.is_corrected else None
    robot.log.step(robot.seen, action, by=by)
    robot.steps += 1
    return action


def _takes_over(robot: _Robot, expert: np.ndarray, action: np.ndarray, patience: int) -> bool:
    """Whether the operator has seen enough."""
    mine, its = expert[:3], action[:3]
    agreement = mine @ its / (np.linalg.norm(mine) * np.linalg.norm(its) + 1e-6)
    robot.wrong_steps = robot.wrong_steps + 1 if agreement < _DISAGREE else 0
    return robot.wrong_steps >= _WRONG_STEPS or robot.steps >= patience


def _row(observation: Observation, row: int) -> dict[str, typing.Any]:
    images = {f"{IMAGE_PREFIX}{name}": rows[row] for name, rows in observation.images.items()}
    return {
        **images,
        STATE: observation.state[row],
        "instruction": observation.instruction[row],
    }
