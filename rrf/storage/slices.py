"""A replay of short sequences that lie within one episode, for world models.

Legend: T steps of a slice, B slices, N environments.
"""

import torch

from rrf.storage.replay import Replay, Transitions

_MAX_ROUNDS = 200


class SliceReplay(Replay):
    """A `Replay` from which slices of consecutive steps are drawn."""

    def sample_slices(
        self, length: int, num_slices: int, generator: torch.Generator
    ) -> Transitions:
        """Slices [T, B]; only the last step of a slice may end an episode.

        All slices of the replay have the same probability.

        Raises:
            ValueError: If hardly any of the stored episodes has so many steps.
        """
        num_starts = (self.total_steps - self.first_step - length + 1) * self.num_envs
        found: list[torch.Tensor] = []
        missing = num_slices
        for _ in range(_MAX_ROUNDS if num_starts > 0 else 0):
            shape = (num_slices + num_slices // 4,)
            drawn = torch.randint(num_starts, shape, generator=generator, device=self.rows.device)
            ahead = torch.arange(length, device=drawn.device).unsqueeze(1) * self.num_envs
            rows = (drawn + self.first_step * self.num_envs + ahead) % self.capacity
            is_whole = (self.rows[rows[:-1], self.ended_column] < 0.5).all(0)
            found.append(rows[:, is_whole][:, :missing])
            missing -= found[-1].shape[1]
            if not missing:
                return self.gather(torch.cat(found, 1))
        raise ValueError(
            f"of {len(self)} stored transitions hardly any begins {length} steps within one "
            "episode; lower policy.actor_cfg.planner.horizon, or raise algorithm.warmup_steps"
        )
