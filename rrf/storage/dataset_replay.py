"""A replay that begins with recorded transitions, which new ones never overwrite.

Legend: F recorded transitions, W width of a row.
"""

import functools

import torch

from rrf.data.dataset.transitions import returns_to_go
from rrf.storage.replay import Replay, Transitions


class DatasetReplay:
    """The recorded rows, then those of a `Replay`. All are drawn with equal probability.

    Checkpoints hold the new transitions only.
    """

    def __init__(
        self,
        recorded_fw: torch.Tensor,
        new: Replay,
        gamma: float,
        reward_scale: float = 1.0,
        reward_shift: float = 0.0,
    ):
        """
        Args:
            recorded_fw: Rows in the order of time, episode by episode. Their rewards are scaled and
                shifted already.
            gamma: Discount factor of `returns_to_go`.
            reward_scale: Factor on the rewards of new transitions.
            reward_shift: Added to them after scaling.
        """
        self.recorded, self.new, self.layout = recorded_fw, new, new.layout
        self._gamma, self._scale, self._shift = gamma, reward_scale, reward_shift

    def __len__(self) -> int:
        return len(self.recorded) + len(self.new)

    @property
    def num_bytes(self) -> int:
        """Memory of a full replay in bytes."""
        return self.recorded.nbytes + self.new.num_bytes

    def write(self, *, rewards: torch.Tensor, **step: torch.Tensor) -> None:
        """See `Replay.write`."""
        self.new.write(rewards=rewards * self._scale + self._shift, **step)

    def cut(self) -> None:
        """See `Replay.cut`."""
        self.new.cut()

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        """Indices of rows, int64 of shape `shape`; those from F on are new transitions."""
        return torch.randint(len(self), shape, generator=generator, device=self.recorded.device)

    def gather_n_step(
        self, rows_b: torch.Tensor, num_steps: int, gamma: float
    ) -> tuple[Transitions, torch.Tensor]:
        """See `Replay.gather_n_step`; `num_steps` must be 1."""
        assert num_steps == 1, "the run's config was checked before"
        recorded = self.recorded.index_select(0, rows_b.clamp(max=len(self.recorded) - 1))
        if len(self.new):
            is_new = rows_b >= len(self.recorded)
            rows = (rows_b - len(self.recorded)).clamp(min=0)
            recorded = torch.where(is_new.unsqueeze(-1), self.new.gather(rows).rows, recorded)
        steps = Transitions(recorded, self.layout)
        return steps, gamma * (1 - steps.terminated)

    @functools.cached_property
    def _returns(self) -> torch.Tensor:
        """Those of `returns_to_go` of the recorded rows, [F]; most algorithms need none."""
        steps = Transitions(self.recorded.cpu(), self.layout)
        returns = returns_to_go(steps.rewards.numpy(), steps.ended.numpy(), self._gamma)
        return torch.from_numpy(returns).to(self.recorded)

    def returns_to_go(self, rows_b: torch.Tensor) -> torch.Tensor:
        """The discounted sums of rewards from these rows to the ends of their episodes, [B].

        Those of new transitions are -inf, because their episodes may still go on.
        """
        returns = self._returns[rows_b.clamp(max=len(self.recorded) - 1)]
        return torch.where(rows_b < len(self.recorded), returns, -torch.inf)

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        """See `Replay.state`."""
        return self.new.state()

    def load_state(self, tensors: dict[str, torch.Tensor], facts: dict) -> None:
        """See `Replay.load_state`."""
        self.new.load_state(tensors, facts)
