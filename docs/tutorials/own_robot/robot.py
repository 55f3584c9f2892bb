"""A slider on a rail, pushed by a motor: a model of your robot as a task of Gymnasium."""

import gymnasium
import numpy as np

PERIOD_S = 0.05
REACH_M, FORCE_N, MASS_KG = 1.0, 2.0, 0.5


class Slider(gymnasium.Env):
    """Move to a target on the rail and stay there."""

    observation_space = gymnasium.spaces.Box(-5, 5, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-FORCE_N, FORCE_N, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.target = self.np_random.uniform(-REACH_M, REACH_M, 2)
        self.speed = 0.0
        return self.seen(), {}

    def seen(self) -> np.ndarray:
        """Place in m, speed in m/s, target in m."""
        return np.array([self.place, self.speed, self.target], np.float32)

    def step(self, action):
        force = float(np.clip(action[0], -FORCE_N, FORCE_N))
        self.speed += PERIOD_S * (force / MASS_KG - 0.5 * self.speed)
        self.place += PERIOD_S * self.speed
        return self.seen(), -abs(self.place - self.target), False, False, {}


gymnasium.register("Slider-v0", Slider, max_episode_steps=100)
