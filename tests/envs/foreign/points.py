"""Points of plain NumPy for a foreign interpreter, stepped together: each goes where its action
says, and its episode ends where it leaves [-1, 1] or after 8 steps.
"""

import importlib.util
import os
import time
from pathlib import Path

import numpy as np

LIMIT = 8


class Points:
    def __init__(self, task, trouble_at, num_envs, seed, device):
        for module in ("rrf", "torch", "yaml"):
            assert importlib.util.find_spec(module) is None, f"{module} can be imported here"
        if not task.startswith("Points"):
            raise ValueError(f"no task '{task}'; did you mean 'Points'?")
        self._trouble, self._at = trouble_at or ["", -1]
        self._random = np.random.RandomState(seed)
        self._places = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        self._speed = np.zeros(num_envs)
        self._command = None
        self._steps = 0
        self._walks = task == "PointsWalk"

    def describe(self):
        return {
            "num_actions": 2,
            "num_choices": None,
            "step_s": 0.1,
            "max_episode_length": LIMIT,
            "groups": {"policy": [["place", 1], ["steps", 1]], "critic": [["speed", 1]]},
            "has_seeds": True,
            "takes_commands": self._walks,
            "robot": {"names": ["x"]},
        }

    def reset(self, envs, seeds):
        for row, env in enumerate(envs):
            random = self._random if seeds is None else np.random.RandomState(seeds[row])
            self._places[env] = random.uniform(-0.5, 0.5)
            self._lengths[env] = 0
        return self._observed()

    def step(self, actions, lengths):
        self._steps += 1
        if self._steps == self._at or self._is_time():
            self._fail()
        if lengths is not None:
            self._lengths = lengths.copy()
        self._speed = actions[:, 0].astype(float)
        self._places = self._places + 0.1 * self._speed
        self._lengths += 1
        terminated = np.abs(self._places) > 1
        truncated = self._lengths >= LIMIT
        ended = np.flatnonzero(terminated | truncated)
        final = {name: group[ended] for name, group in self._observed().items()}
        if len(ended):
            self.reset(ended.tolist(), None)
        answer = {
            "observations": self._observed(),
            "final": final,
            "rewards": self._speed.astype(np.float32),
            "terminated": terminated,
            "truncated": truncated,
            "log": {"env/steps": self._steps},
        }
        if self._walks:
            planar = np.zeros((len(self._places), 3), np.float32)
            planar[:, 0] = self._speed
            answer.update(velocity=planar, power=np.full(len(planar), 7.0, np.float32))
        return answer

    def command(self, commands):
        self._command = commands
        return self._observed()

    def set_progress(self, num_steps, seed):
        self._random = np.random.RandomState(seed)

    def pictures(self, envs, height, width):
        return np.full((len(envs), height, width, 3), 9, np.uint8)

    def close(self):
        pass

    def _is_time(self):
        """Where a file is named instead of a step: in the third step, if the file is there."""
        if isinstance(self._at, int) or self._steps != 3 or not Path(self._at).exists():
            return False
        Path(self._at).unlink()
        return True

    def _fail(self):
        if self._trouble == "dies":
            os.write(2, b"out of memory\n")
            os.abort()
        if self._trouble == "hangs":
            time.sleep(600)
        raise RuntimeError("a solver\ndiverged")

    def _observed(self):
        place, steps = self._places, self._lengths
        if self._command is not None:
            place = self._command[:, 0]
        policy = np.stack([place, steps], 1).astype(np.float32)
        return {"policy": policy, "critic": self._speed.astype(np.float32)[:, None]}
