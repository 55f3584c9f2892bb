"""Chooses the next initial states to train on: all tasks, but more often those that still fail."""

from collections.abc import Iterator, Sequence

import numpy as np

from rrf.envs.vec_env import InitialState
from rrf.runners.vla_rl.configs import CurriculumCfg


class Curriculum:
    """Draws tasks by their failure rate, and the initial states of each task in shuffled order.

    Most initial states whose episodes all succeeded when last played are skipped.
    """

    def __init__(
        self,
        cfg: CurriculumCfg,
        tasks: Sequence[str],
        env_seeds: Sequence[int],
        num_initial_states: int,
        seed: int,
    ):
        """
        Args:
            cfg: The weights.
            tasks: Task names.
            env_seeds: Environment seeds that generate the initial states.
            num_initial_states: Number of initial states per task and seed.
            seed: Seed of the order and of all draws.
        """
        self.cfg = cfg
        self._tasks = list(tasks)
        self._states = [(s, index) for s in env_seeds for index in range(num_initial_states)]
        self._seed = seed
        self.success = dict.fromkeys(self._tasks, 0.5)
        self._num_drawn = dict.fromkeys(self._tasks, 0)
        self._solved: set[tuple[str, int, int]] = set()

    def draw(self, round_number: int) -> Iterator[InitialState]:
        """An endless iterator over the initial states for the groups of a round.

        Tasks take turns in proportion to their weights (stratified, not independent draws).
        """
        rng = np.random.default_rng([self._seed, round_number])
        weights = np.array([self._weight(self.success[task]) for task in self._tasks])
        shares = weights / weights.sum()
        credit = rng.random(len(self._tasks)) * shares
        while True:
            credit += shares
            task = int(credit.argmax())
            credit[task] -= 1
            yield self._next_state(self._tasks[task], rng)

    def learn(self, outcomes: Sequence[tuple[InitialState, bool]]) -> None:
        """Record which episodes of a round succeeded."""
        by_state: dict[InitialState, list[bool]] = {}
        for state, success in outcomes:
            by_state.setdefault(state, []).append(success)
        for state, successes in by_state.items():
            key = (state.task, state.seed, state.index)
            if all(successes):
                self._solved.add(key)
            else:
                self._solved.discard(key)
        for task in self._tasks:
            successes = [success for state, success in outcomes if state.task == task]
            if successes:
                rate, memory = sum(successes) / len(successes), self.cfg.memory
                self.success[task] = memory * self.success[task] + (1 - memory) * rate

    def state_dict(self) -> dict:
        """Plain data that `load_state_dict` needs."""
        return {
            "success": dict(self.success),
            "num_drawn": dict(self._num_drawn),
            "solved": [list(key) for key in sorted(self._solved)],
        }

    def load_state_dict(self, state: dict) -> None:
        self.success, self._num_drawn = dict(state["success"]), dict(state["num_drawn"])
        self._solved = {(task, seed, index) for task, seed, index in state["solved"]}

    def _weight(self, success: float) -> float:
        """The unnormalised weight of a task with this success rate."""
        need = 1 - success
        if self.cfg.hope_episodes is not None:
            need *= 1 - (1 - success) ** self.cfg.hope_episodes
        return self.cfg.floor + (1 - self.cfg.floor) * need

    def _next_state(self, task: str, rng: np.random.Generator) -> InitialState:
        while True:
            state = self._in_turn(task)
            key = (state.task, state.seed, state.index)
            if key not in self._solved or rng.random() >= self.cfg.skip:
                return state

    def _in_turn(self, task: str) -> InitialState:
        turn, place = divmod(self._num_drawn[task], len(self._states))
        self._num_drawn[task] += 1
        order = np.random.default_rng([self._seed, self._tasks.index(task), turn])
        env_seed, index = self._states[order.permutation(len(self._states))[place]]
        return InitialState(task, env_seed, index)
