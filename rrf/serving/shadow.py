"""A shadow: a version that computes what the champion is asked, and whose answers nobody gets.

It is asked after the champion's answer has been sent, one question at a time, in a thread of the
lowest priority; what comes meanwhile is left out and counted. So it delays nobody by a queue, and
by its computation only as far as both need the same device or Python's lock.
"""

import logging
import typing

import numpy as np

from rrf.serving.metrics import Metrics
from rrf.serving.player import Player

_SAYS_EVERY = 100  # comparisons
_log = logging.getLogger("rrf.serving")


class Shadow:
    """Compares a version with the champion.

    Args:
        player: The shadow, which has started.
        release: Names the release.
        metrics: Where differences are shown.
    """

    def __init__(self, player: Player, release: str, metrics: Metrics):
        self.player, self.release, self._metrics = player, release, metrics
        self._is_busy = False
        self.num_compared = self.num_left_out = 0
        self._unit = "in physical units"
        self._sum_a = self._most_a = np.zeros(0)

    async def compare(self, content: typing.Any, champion: Player, actions: np.ndarray) -> None:
        """Compute the answer to a message, and note how it differs from the champion's.

        Args:
            content: The message.
            champion: Who answered.
            actions: float32 [H, A] or [A], the answer.
        """
        if self._is_busy:
            self.num_left_out += 1
            self._metrics.shadow.labels("left_out").inc()
            return
        self._is_busy = True
        try:
            row = self.player.read(content)
            own = (await self.player.batcher.submit(row, lambda: True)).actions
            self._note(own, actions, champion.action_std)
        except Exception as error:  # whatever a policy raises: it must harm nobody
            self._metrics.error("shadow")
            _log.warning("the shadow, version %s, failed: %s", self.player.version, error)
        finally:
            self._is_busy = False

    def _note(self, own: np.ndarray, actions: np.ndarray, std: np.ndarray | None) -> None:
        if own.shape != actions.shape:
            raise ValueError(f"it answers {list(own.shape)}, the champion {list(actions.shape)}")
        scale = 1.0 if std is None else np.maximum(std, 1e-6)
        if std is not None:
            self._unit = "in standard deviations of the training"
        difference_a = (np.abs(own - actions) / scale).reshape(-1, own.shape[-1]).mean(axis=0)
        if not self.num_compared:
            self._sum_a, self._most_a = np.zeros_like(difference_a), np.zeros_like(difference_a)
        self.num_compared += 1
        self._sum_a = self._sum_a + difference_a
        self._most_a = np.maximum(self._most_a, difference_a)
        self._metrics.shadow.labels("compared").inc()
        for number, mean in enumerate(self._sum_a / self.num_compared):
            self._metrics.shadow_difference.labels(str(number)).set(float(mean))
        if self.num_compared % _SAYS_EVERY == 0:
            _log.warning("%s", self.summary())

    def summary(self) -> str:
        """A line about all comparisons; it names the unit of the differences."""
        if not self.num_compared:
            return f"the shadow, version {self.player.version}, has computed nothing yet"
        means = ", ".join(f"{value:.2g}" for value in self._sum_a / self.num_compared)
        most = ", ".join(f"{value:.2g}" for value in self._most_a)
        return (
            f"the shadow, version {self.player.version}, differs from the champion by [{means}] "
            f"per action dimension on average, at most [{most}], {self._unit}, over "
            f"{self.num_compared} answers; {self.num_left_out} were left out"
        )
