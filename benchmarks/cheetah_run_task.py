"""Registers DeepMind Control's cheetah-run with Gymnasium, every action executed twice as TD-MPC2's
authors do. Needs the packages shimmy and dm-control.
"""

import gymnasium

REPEATS, EPISODE = 2, 500


class Repeated(gymnasium.Wrapper):
    """Executes every action twice and adds the rewards."""

    def step(self, action):
        observation, total, terminated, truncated, info = super().step(action)
        for _ in range(REPEATS - 1):
            if not (terminated or truncated):
                observation, reward, terminated, truncated, info = super().step(action)
                total = float(total) + float(reward)
        return observation, total, terminated, truncated, info


def make(**words) -> gymnasium.Env:
    """The task; takes the keywords of `gymnasium.make`."""
    made = gymnasium.make("shimmy:dm_control/cheetah-run-v0", disable_env_checker=True, **words)
    return Repeated(made)


gymnasium.register("CheetahRunTwice-v0", entry_point=make, max_episode_steps=EPISODE)
