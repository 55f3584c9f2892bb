"""Environments of states that a simulator steps together: what its class has to offer.

Served without `Episodes`: the class itself answers the calls of `rrf.envs.foreign.control`. It is
made from the arguments of its config and `num_envs`, `seed` and `device`.

Legend: N environments, A action dimension, D width of a group, K episodes that a step ended.
"""

from __future__ import annotations

import typing

import numpy as np


class Batch(typing.Protocol):
    """N environments; one whose episode ends is reset within the same step.

    An observation is a dict of groups, each float32 [N, D]. A ValueError is a mistake of the user,
    whatever else is raised is a failure of the process.
    """

    def describe(self) -> dict[str, typing.Any]:
        """What does not change, as JSON data, called first:

        num_actions         A
        num_choices         number of discrete actions; None: actions are real
        step_s              seconds between actions
        max_episode_length  steps
        groups              group -> [[term, width], …], in the order of its columns
        has_seeds           whether `reset` takes seeds
        takes_commands      whether it has `command`, and `step` answers velocity and power
        robot               anything that a policy needs to know, e.g. names of joints
        """
        ...

    def reset(self, envs: list[int], seeds: list[int] | None) -> dict[str, np.ndarray]:
        """Begin new episodes in some environments; the observations of all of them."""
        ...

    def step(self, actions: np.ndarray, lengths: np.ndarray | None) -> dict[str, typing.Any]:
        """Execute actions, float32 [N, A].

        Args:
            lengths: Steps since each episode began, int64 [N], where the caller has set them.

        Returns:
            observations after the resets; final, those that the K episodes ended in, in the order
            of the environments; rewards float32 [N]; terminated and truncated bool [N]; log, a dict
            of numbers. With `takes_commands` also velocity float32 [N, 3] (forward m/s, left m/s,
            turn left rad/s, in the body frame) and power float32 [N] (W).
        """
        ...

    def command(self, commands: np.ndarray) -> dict[str, np.ndarray]:
        """Give commands, float32 [N, 3] in the units of velocity, from now on, also after resets;
        the observations."""
        ...

    def set_progress(self, num_steps: int, seed: int) -> None:
        """Go on as after `num_steps` steps of each environment, with new random numbers."""
        ...

    def pictures(self, envs: list[int], height: int, width: int) -> np.ndarray:
        """Some environments as they are now, uint8 [len(envs), height, width, 3]."""
        ...

    def close(self) -> None:
        """Free what is open."""
        ...
