"""An alarm for runs that have learned something and then lose it again."""

from rrf.runners.control.configs import GuardCfg


class DivergenceAlarm:
    """Watches the mean return and warns once per drop."""

    def __init__(self, cfg: GuardCfg):
        self.cfg = cfg
        self._first: float | None = None
        self._best = -float("inf")
        self._num_low = 0

    def observe(self, mean_return: float | None) -> str | None:
        """A warning if the return has been far below its best for too long, else None."""
        if mean_return is None:
            return None
        if self._first is None:
            self._first = self._best = mean_return
        self._best = max(self._best, mean_return)
        rise = self._best - self._first
        is_low = rise > 0 and mean_return < self._best - self.cfg.divergence_drop * rise
        self._num_low = self._num_low + 1 if is_low else 0
        if self._num_low != self.cfg.divergence_iterations:
            return None
        return (
            f"the mean return is {mean_return:.4g} and has been far below its best, "
            f"{self._best:.4g}, for {self._num_low} iterations; the run may have diverged. Try a "
            "lower algorithm.learning_rate, starting from a checkpoint before the drop"
        )

    def state(self) -> dict:
        """Plain data that `load_state` needs."""
        best = None if self._first is None else self._best
        return {"first": self._first, "best": best, "num_low": self._num_low}

    def load_state(self, state: dict) -> None:
        """Restore what `state` returned."""
        self._first, self._num_low = state["first"], state["num_low"]
        self._best = -float("inf") if state["best"] is None else state["best"]
