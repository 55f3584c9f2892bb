"""Run a policy closed loop under a protocol.

Every slot runs one episode at a time. When the episode ends, the slot starts the next initial state
at once, so no slot waits for the slowest one. Results are listed in the protocol's order and do not
depend on the slot or worker process that ran an episode.

Legend: B running episodes, H steps in an action chunk, A action dimension.
"""

import collections
import contextlib
import dataclasses
import datetime
import time
import typing
from collections.abc import Iterable, Sequence

import numpy as np

from rrf.atomic import digest_of
from rrf.data.dataset.history import HistoryBuffer, history_of, misfit_of
from rrf.envs.observations import rows_of
from rrf.envs.vec_env import InitialState, Step, VecEnv
from rrf.evaluation.action_metrics import of_actions
from rrf.evaluation.cpu_time import cpu_seconds
from rrf.evaluation.protocols.base import OnEpisode
from rrf.evaluation.results import EpisodeResult, Evaluation
from rrf.evaluation.vla.execution import Acting
from rrf.evaluation.vla.remote import RemotePolicy

if typing.TYPE_CHECKING:
    from rrf.evaluation.vla.configs import ProtocolCfg

Jobs = collections.deque[InitialState]


class _Rule(typing.Protocol):
    def act(self, episodes: Sequence[Acting]) -> np.ndarray: ...


@dataclasses.dataclass
class _Running(Acting):
    state: InitialState = dataclasses.field(kw_only=True)
    history: HistoryBuffer = dataclasses.field(kw_only=True)
    actions: list[np.ndarray] = dataclasses.field(default_factory=list)
    total: float = 0.0
    told: dict[str, float] = dataclasses.field(default_factory=dict)  # by the simulator


def evaluate(
    policy,
    env: VecEnv,
    protocol: "ProtocolCfg",
    on_episode: OnEpisode | None = None,
    *,
    checkpoint_digest: str = "",
    label: str = "",
    known: Sequence[EpisodeResult] = (),
) -> Evaluation:
    """Run every episode of `protocol` that is not in `known`.

    Args:
        policy: Implements `rrf.policies.policy.Policy`.
        env: Fresh or used; its slots are reset. The caller must close it.
        protocol: The protocol to run.
        on_episode: Called after each episode, in the order in which they end.
        checkpoint_digest: Identifies the policy in the report.
        label: Name of the policy shown to people.
        known: Episodes of the same policy under the same conditions, e.g. from before the protocol
            was extended.

    Raises:
        ValueError: If policy, environment and protocol do not fit each other, or an action is NaN
            or Inf.
    """
    _check_fit(policy, env, protocol)
    if isinstance(policy, RemotePolicy):
        with contextlib.closing(policy.rule(protocol)) as rule:
            return _evaluate(
                policy, rule, env, protocol, on_episode, checkpoint_digest, label, known
            )
    rule = protocol.execution.build(policy, protocol)
    return _evaluate(policy, rule, env, protocol, on_episode, checkpoint_digest, label, known)


def _evaluate(
    policy,
    rule: "_Rule",
    env: VecEnv,
    protocol: "ProtocolCfg",
    on_episode: OnEpisode | None,
    checkpoint_digest: str,
    label: str,
    known: Sequence[EpisodeResult],
) -> Evaluation:
    wall, cpu = time.perf_counter(), cpu_seconds()
    states = protocol.initial_states()
    done = {e.initial_state: e for e in known if e.initial_state in set(states)}
    jobs: Jobs = collections.deque(state for state in states if state not in done)
    num_new = len(jobs)
    running: dict[int, _Running] = {}
    _refill(env, protocol, policy, jobs, running, free=range(env.num_envs))
    while running:
        slots = sorted(running)
        actions = rule.act([running[slot] for slot in slots])
        step = env.step(actions, env_ids=slots)
        freed = []
        for row, slot in enumerate(slots):
            _observe(running[slot], step, row, actions[row])
            if step.terminated[row] or step.truncated[row]:
                episode = _finish(running.pop(slot), bool(step.success[row]), protocol)
                done[episode.initial_state] = episode
                freed.append(slot)
                if on_episode is not None:
                    on_episode(episode, len(done), len(states))
        _refill(env, protocol, policy, jobs, running, freed)
    wall = time.perf_counter() - wall
    timings = {"wall_s": wall, "cpu_s": cpu_seconds() - cpu, "episodes_per_s": num_new / wall}
    return Evaluation(
        protocol=protocol.to_dict(),
        protocol_hash=protocol.hash,
        checkpoint_digest=checkpoint_digest,
        episodes=[done[state] for state in states],
        timings={name: round(value, 4) for name, value in timings.items()},
        policy=label,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def _check_fit(policy, env: VecEnv, protocol: "ProtocolCfg") -> None:
    for name, wanted in (
        ("max_episode_steps", protocol.max_episode_steps),
        ("chunk_length", protocol.execute_steps),
    ):
        if getattr(env, name) != wanted:
            raise ValueError(
                f"protocol '{protocol.name}' needs {name} {wanted}, but the environment has "
                f"{getattr(env, name)}"
            )
    if wrong := protocol.too_short(policy.chunk_length):
        raise ValueError(f"the policy {wrong}; lower execute_steps")
    if misfit := misfit_of(policy, protocol.execute_steps, env.fps):
        raise ValueError(
            f"the policy does not fit protocol '{protocol.name}' and its execute_steps: it {misfit}"
        )
    if policy.action_dim not in (None, env.action_dim):
        raise ValueError(
            f"the policy has {policy.action_dim} action dimensions, but the environment has "
            f"{env.action_dim}"
        )


def _refill(
    env: VecEnv,
    protocol: "ProtocolCfg",
    policy: typing.Any,
    jobs: Jobs,
    running: dict[int, _Running],
    free: Iterable[int],
) -> None:
    starts = [(slot, jobs.popleft()) for slot in free if jobs]
    if not starts:
        return
    observation = env.reset([state for _, state in starts], env_ids=[slot for slot, _ in starts])
    for row, (slot, state) in enumerate(starts):
        generator = None if protocol.greedy else _generator(protocol, state)
        history = history_of(policy, protocol.execute_steps)
        first = history.seen(rows_of(observation, [row]))
        running[slot] = _Running(first, generator, state=state, history=history)


def _observe(episode: _Running, step: Step, row: int, chunk: np.ndarray) -> None:
    executed = int(step.steps[row])
    episode.actions.append(np.array(chunk[:executed], dtype=np.float32))
    episode.steps += executed
    episode.total += float(step.reward[row])
    told = step.extras.get("metrics", {})
    episode.told = {name: float(values[row]) for name, values in told.items()}
    seen = rows_of(step.observation, [row])
    if seen.instruction != episode.observation.instruction:  # the next of a chain: begin anew
        episode.history.clear()
        episode.chunks.clear()
    episode.observation = episode.history.seen(seen)


def _finish(episode: _Running, success: bool, protocol: "ProtocolCfg") -> EpisodeResult:
    actions = np.concatenate(episode.actions)
    metrics = {**protocol.measured(episode.total), **episode.told}
    if protocol.action_metrics:
        metrics |= {name: round(value, 6) for name, value in of_actions(actions).items()}
    return EpisodeResult(
        task=episode.state.task,
        seed=episode.state.seed,
        index=episode.state.index,
        success=success,
        steps=episode.steps,
        episode_return=round(episode.total, 6),
        metrics=metrics,
        actions=actions,
    )


def _generator(protocol: "ProtocolCfg", state: InitialState):
    import torch

    seed = int(digest_of([protocol.policy_seed, state.task, state.seed, state.index])[:15], 16)
    return torch.Generator().manual_seed(seed)
