"""An environment role that records what a scripted expert would do in the states that are visited.

At each decision (an action chunk of the policy), the expert acts with probability beta, else the
policy (DAgger, arXiv:1011.0686, algorithm 3.1). When the expert acts, it is asked before each step
of the chunk. Whoever acts, every visited state becomes a frame whose action is the expert's own
answer to this state. Failed episodes are recorded like successful ones.

A policy learns chunks: the label of frame t is made of the recorded actions of frames t, t + 1, ...
Each of them is the expert's answer to the state that was really visited, as in demonstrations with
action noise (`rrf.envs.demonstrations`). The first action of a label is therefore exactly what the
expert would do. The later ones are what it would do along the visited trajectory, not along its
own; both agree more and more while the policy learns to act like the expert.

Legend: B running episodes, H steps in an action chunk, A action dimension, T frames of an episode.
"""

import dataclasses
import typing
from collections.abc import Sequence

import numpy as np

from rrf.atomic import digest_of
from rrf.data.schema import Observation
from rrf.envs.observations import join, rows_of, to_plain
from rrf.envs.vec_env import ExpertVecEnv, InitialState, Step
from rrf.orchestra.env_role import EnvRole, solved_at_end


class RecordingRole(EnvRole):
    """An `EnvRole` whose results of ended episodes also hold a `recording`:

    fps, num_expert_steps (steps that the expert executed), and of every frame: image/<camera>,
    state, instruction (what was seen), action (of the expert, float32 [T, A]), reward (float32
    [T]), success (bool [T]).
    """

    def __init__(self, cfg: dict, keeps_final: bool, beta: float, stream: Sequence[int]):
        """
        Args:
            cfg: The config of an environment with experts, as plain data. A decision is a chunk of
                its `chunk_length`; it is executed and recorded step by step.
            keeps_final: See `EnvRole`.
            beta: Probability that the expert acts.
            stream: Numbers that, together with an episode's initial state, seed its randomness.

        Raises:
            ValueError: If the environment has no expert.
        """
        super().__init__(cfg | {"chunk_length": 1}, keeps_final)
        if not isinstance(self._env, ExpertVecEnv):
            raise ValueError(f"{type(self._env).__name__} has no method expert_action")
        self._expert = self._env
        self._beta, self._stream = beta, list(stream)
        self._recordings: dict[int, _Recording] = {}  # by slot

    def _on_begin(self, slot: int, initial_state: InitialState) -> None:
        key = [*self._stream, initial_state.task, initial_state.seed, initial_state.index]
        self._recordings[slot] = _Recording(
            f"{initial_state.task} (seed {initial_state.seed}, initial state "
            f"{initial_state.index})",
            np.random.default_rng(int(digest_of(key)[:16], 16)),
        )

    def _of_ended(self, slot: int) -> dict[str, typing.Any]:
        return {"recording": self._recordings.pop(slot).to_plain(self._env.fps)}

    def _execute(self, slots: Sequence[int], actions: np.ndarray) -> Step:
        acts = {slot: self._recordings[slot].draw(self._beta) for slot in slots}  # the expert
        steps: dict[int, list[tuple[Step, int]]] = {slot: [] for slot in slots}
        chunks = dict(zip(slots, actions, strict=True))
        running = list(slots)
        for number in range(actions.shape[1]):
            chosen = []
            for slot in running:
                answer = self._recordings[slot].ask(self._rows[slot], self._expert, slot)
                chosen.append(answer if acts[slot] else chunks[slot][number])
                self._recordings[slot].num_expert_steps += acts[slot]
            step = self._env.step(np.stack(chosen)[:, None].astype(np.float32), env_ids=running)
            for row, slot in enumerate(running):
                self._recordings[slot].note(float(step.reward[row]), bool(step.success[row]))
                self._rows[slot] = rows_of(step.observation, [row])
                steps[slot].append((step, row))
            over = step.terminated | step.truncated
            running = [slot for row, slot in enumerate(running) if not over[row]]
            if not running:
                break
        merged = [steps[slot] for slot in slots], [self._rows[slot] for slot in slots]
        return self._merged(*merged, actions.shape[1])

    def _merged(
        self,
        steps: Sequence[Sequence[tuple[Step, int]]],
        observations: Sequence[Observation],
        chunk_length: int,
    ) -> Step:
        """The steps of each slot as one."""
        last = [of_slot[-1] for of_slot in steps]
        single = [[float(step.reward[row]) for step, row in of_slot] for of_slot in steps]
        padded = [[*rewards, *[0.0] * (chunk_length - len(rewards))] for rewards in single]
        return Step(
            observation=join(observations),
            reward=np.array([sum(rewards) for rewards in single], np.float32),
            terminated=np.array([step.terminated[row] for step, row in last]),
            truncated=np.array([step.truncated[row] for step, row in last]),
            success=np.array([step.success[row] for step, row in last]),
            steps=np.array([len(of_slot) for of_slot in steps], np.int64),
            extras={
                "rewards": np.array(padded, np.float32),
                "success_at_end": np.array([solved_at_end(step)[row] for step, row in last]),
            },
        )


@dataclasses.dataclass
class _Recording:
    """An episode being recorded."""

    where: str
    random: np.random.Generator
    num_expert_steps: int = 0
    seen: list[Observation] = dataclasses.field(default_factory=list)
    answers: list[np.ndarray] = dataclasses.field(default_factory=list)
    rewards: list[float] = dataclasses.field(default_factory=list)
    successes: list[bool] = dataclasses.field(default_factory=list)

    def draw(self, beta: float) -> bool:
        """Whether the expert makes the next decision."""
        return bool(self.random.random() < beta)

    def ask(self, seen: Observation, env: ExpertVecEnv, slot: int) -> np.ndarray:
        """Record what is seen and the expert's answer to it; returns the answer."""
        answer = np.asarray(env.expert_action(slot), np.float32)
        if not np.isfinite(answer).all():
            raise ValueError(
                f"the expert of {self.where} answered {answer.tolist()} at step "
                f"{len(self.answers)}; a label must be finite"
            )
        self.seen.append(seen)
        self.answers.append(answer)
        return answer

    def note(self, reward: float, success: bool) -> None:
        """Record the outcome of a step."""
        self.rewards.append(reward)
        self.successes.append(success)

    def to_plain(self, fps: int) -> dict[str, typing.Any]:
        """The recording as builtins and arrays."""
        return {
            **to_plain(join(self.seen)),
            "action": np.stack(self.answers),
            "reward": np.array(self.rewards, np.float32),
            "success": np.array(self.successes, bool),
            "fps": fps,
            "num_expert_steps": self.num_expert_steps,
        }
