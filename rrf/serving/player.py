"""A policy that is loaded and warmed up, and the queue of those who ask it.

System 2 and System 1 of a policy in two parts may be asked each alone: each is a player of its own,
so that System 1 never waits for what System 2 computes.
"""

import asyncio
import typing
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rrf.client.messages import RUNNING, SYSTEM
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
        self.is_combination = False
        """Whether it brings a System 0, which runs at the robot."""
        self.model = ""
        """The registered model that it is a version of."""
        self.systems: dict[int, Player] = {}
        """System 2 and System 1, where they may be asked alone."""
        self._batcher: Batcher | None = None
        self._task: asyncio.Task | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Version and digest."""
        return self.version, self.digest

    def asked_by(self, message: typing.Any) -> "Player":
        """Who answers a message: this one, or the system that it names.

        Raises:
            ValueError: If there is no such system.
        """
        number = message.get(SYSTEM) if isinstance(message, Mapping) else None
        if number is None:
            return self
        if RUNNING in message:
            raise ValueError(f"'{RUNNING}' is not for a system alone; leave one of both out")
        if type(number) is not int or number not in self.systems:
            have = " or ".join(map(str, self.systems)) or "none: this policy has no such parts"
            raise ValueError(f"'{SYSTEM}' is {number!r:.40}, allowed: {have}")
        return self.systems[number]

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
        for system in self.systems.values():  # one robot, and nobody to wait for
            system.start(cfg, lambda: 1, metrics, is_idle)

    def end(self) -> None:
        """Answer what waits, and nothing more."""
        for player in (self, *self.systems.values()):
            if player._batcher:
                player._batcher.end()

    def acts(self, role: Role, release: str = "") -> Actor:
        """It as who acts in an episode."""
        return Actor(self.version, self.digest, role, release)
