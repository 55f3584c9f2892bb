"""A policy that is loaded and warmed up, and the queue of those who ask it."""

import asyncio
import typing
from collections.abc import Callable, Sequence

import numpy as np

from rrf.serving.batching import Batcher, Row
from rrf.serving.book import Actor, Role
from rrf.serving.configs import ServingCfg
from rrf.serving.drift import Drift
from rrf.serving.metrics import Metrics


class Policy(typing.Protocol):
    """What a server serves; `rrf.serving.model.ServedPolicy` is one."""

    def answer(self, rows: Sequence[Row]) -> np.ndarray:
        """The actions of each row, in one pass."""
        ...

    def metadata(self) -> dict[str, typing.Any]:
        """What clients are told when they connect."""
        ...


class Player:
    """A policy that is loaded and warmed up, and the queue of those who ask it.

    Args:
        policy: The policy.
        read: Turns the content of a message into a row for the policy. It raises ValueError for an
            observation that does not fit.
        version: The number of a registered version; "" for a checkpoint that no registry knows.
    """

    def __init__(self, policy: Policy, read: Callable[[typing.Any], Row], version: str = ""):
        self.policy, self.read, self.version = policy, read, version
        self.metadata = policy.metadata()
        self.digest = str(self.metadata.get("digest", ""))
        self.action_std: np.ndarray | None = None
        """float [A], the standard deviation of the actions of the training, if it is known."""
        self.drift: Drift | None = None
        """Follows the states and images that it sees, if the training's are known."""
        self.unwatched = ""
        """Which of its cameras no alarm watches, in words."""
        self.model = ""
        """The registered model that it is a version of."""
        self._batcher: Batcher | None = None
        self._task: asyncio.Task | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Version and digest."""
        return self.version, self.digest

    @property
    def batcher(self) -> Batcher:
        """The queue, once it has started."""
        assert self._batcher is not None
        return self._batcher

    def start(
        self,
        cfg: ServingCfg,
        num_clients: Callable[[], int],
        metrics: Metrics | None,
        is_idle: bool = False,
    ) -> None:
        """Begin to answer; again changes nothing. With `is_idle`, others come first."""
        if self._batcher is None:
            limits = (cfg.max_batch, cfg.max_wait_ms / 1000)
            self._batcher = Batcher(self.policy.answer, *limits, num_clients, metrics, is_idle)
            self._task = asyncio.create_task(self._batcher.run())

    def end(self) -> None:
        """Answer nothing more."""
        if self._task:
            self._task.cancel()

    def acts(self, role: Role, release: str = "") -> Actor:
        """It as who acts in an episode."""
        return Actor(self.version, self.digest, role, release)
