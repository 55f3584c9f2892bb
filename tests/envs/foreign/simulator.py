"""A simulator of plain NumPy for a foreign interpreter: a dot that goes where the actions say."""

import importlib.util
import os

import numpy as np


class Dots:
    def __init__(self, size, goal=0.8):
        for module in ("rrf", "pydantic", "yaml"):
            assert importlib.util.find_spec(module) is None, f"{module} can be imported here"
        self._size, self._goal = size, goal
        self._dots = {}

    def begin(self, slot, task, seed, index):
        if index == 13:
            raise ValueError("13 is an unlucky number")
        if index == 14:
            os.write(2, b"about to go wrong\n")
            os.abort()
        if index == 15:
            raise RuntimeError("no scene\nno dots")
        random = np.random.RandomState([seed, index, len(task)])
        self._dots[slot] = random.uniform(-0.5, 0.5, 4)

    def act(self, slot, action):
        self._dots[slot] = np.clip(self._dots[slot] + 0.1 * action, -1, 1)
        return float(self._dots[slot][0]), bool(self._dots[slot].max() > self._goal)

    def state(self, slot):
        return self._dots[slot]

    def image(self, slot, camera):
        image = np.zeros((self._size, self._size, 3), np.uint8)
        row, column = ((self._dots[slot][:2] + 1) / 2 * (self._size - 1)).astype(int)
        image[row, column] = 255 if camera == "corner2" else (0, 90, 0)
        return image

    def expert_action(self, slot):
        if self._dots[slot][0] < 0:
            raise ValueError("left of the middle there is no expert")
        return np.ones(4)

    def close(self):
        pass


class Errands(Dots):
    """Three tasks in a row: the dot's first number must pass 0.1, 0.4 and 0.7, from 0 on."""

    def begin(self, slot, task, seed, index):
        self._dots[slot] = np.zeros(4)
        self._done = getattr(self, "_done", {}) | {slot: 0}

    def act(self, slot, action):
        self._dots[slot] = self._dots[slot] + 0.1 * action
        if self._dots[slot][0] <= 0.1 + 0.3 * self._done[slot] + 1e-6:
            return 0.0, False
        self._done[slot] += 1
        return 1.0, self._done[slot] == 3

    def stage(self, slot):
        return self._done[slot], ("first", "second", "third")[min(self._done[slot], 2)]
