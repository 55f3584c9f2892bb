"""Returns and lengths of the last finished episodes. Legend: N environments."""

import collections

import torch


class EpisodeStatistics:
    """Sums the rewards of running episodes and keeps the results of the last finished ones."""

    def __init__(self, num_envs: int, window: int):
        self._sums = torch.zeros(2, num_envs, dtype=torch.float64)  # return, length
        self._ended: collections.deque[list[float]] = collections.deque(maxlen=window)
        self.num_episodes = 0

    def observe(self, rewards: torch.Tensor, dones: torch.Tensor) -> None:
        """Record one step: rewards float32 [N] and dones bool [N], on any device."""
        returns, lengths = self._sums
        returns += rewards.detach().cpu()
        lengths += 1
        if dones.any():
            ended = dones.cpu().nonzero().squeeze(-1)
            self._ended.extend(self._sums[:, ended].T.tolist())
            self._sums[:, ended] = 0.0
            self.num_episodes += len(ended)

    def metrics(self) -> dict[str, float]:
        """rollout/return and rollout/length; empty until the first episode has ended."""
        if not self._ended:
            return {}
        returns, lengths = zip(*self._ended, strict=True)
        count = len(returns)
        return {"rollout/return": sum(returns) / count, "rollout/length": sum(lengths) / count}

    def forget_running(self) -> None:
        """Discard the sums of running episodes. Called when the environments were reset."""
        self._sums.zero_()

    def state(self) -> tuple[torch.Tensor, dict]:
        """The tensor and plain data that `load_state` needs."""
        return self._sums, {"ended": list(self._ended), "num_episodes": self.num_episodes}

    def load_state(self, sums: torch.Tensor, facts: dict) -> None:
        """Restore what `state` returned."""
        self._sums.copy_(sums)
        self._ended.clear()
        self._ended.extend(facts["ended"])
        self.num_episodes = facts["num_episodes"]
