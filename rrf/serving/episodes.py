"""Episodes that clients announce: their messages, and those of which nothing is heard any more."""

import asyncio
import collections
import contextlib
import dataclasses
import logging
import time
import typing
import weakref
from collections.abc import Callable, Mapping

import numpy as np

from rrf.notifications import Event, tell
from rrf.serving.book import NOT_REPORTED, Actor, Book, Episode, Outcome, begin_of, end_of
from rrf.serving.drift import Sightings
from rrf.serving.metrics import Metrics
from rrf.serving.player import Player

_LOOKS = 20  # for silent episodes, within `outcome_s`
_log = logging.getLogger("rrf.serving")


@dataclasses.dataclass
class Conversation:
    """What a connection is about."""

    episode: Episode | None = None
    """The one that the next observations belong to; None for a client that announces none."""
    player: Player | None = None
    """Who answers in this episode; None: the champion of the moment."""
    guards: int = 0
    """Violations of guards in this episode that the book could not be told."""
    sightings: Sightings | None = None
    """What is seen in this episode, in all conversations about it; None if nothing follows it."""
    actions: collections.deque[np.ndarray] = dataclasses.field(default_factory=collections.deque)
    """What is left of a chunk, for clients that ask for one action at a time."""
    asked_s: float | None = None
    """When the last request came, by a clock that nobody sets."""

    def leave(self) -> None:
        """Let the next observations belong to none."""
        self.episode, self.player, self.sightings, self.guards = None, None, None, 0
        self.actions.clear()

    def see(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Note an observation of the episode."""
        if self.sightings and self.player and self.player.drift:
            self.sightings.note(self.player.drift.outside(inputs))


class Episodes:
    """The announced episodes of one server.

    Args:
        book: Where they are noted.
        metrics: Where outcomes are counted.
        outcome_s: How long nothing may be heard of an episode before it counts as not solved. It is
            counted by a clock that nobody sets, from when this server heard of the episode last.
    """

    def __init__(self, book: Book, metrics: Metrics, outcome_s: float):
        self._book, self._metrics, self._outcome_s = book, metrics, outcome_s
        self._heard: dict[str, float] = {}
        self._sightings: weakref.WeakValueDictionary[str, Sightings] = weakref.WeakValueDictionary()
        self._telling: asyncio.Task | None = None

    async def begin(self, content: typing.Any, choose: Callable[[str], Actor]) -> Episode:
        """The episode that a client announces; returns once it is on the disk.

        Args:
            content: What it says.
            choose: Who acts in a new episode of this id.

        Raises:
            ValueError: If it is refused; also what `choose` raises.
            OSError: If it cannot be written down.
        """
        id, task = begin_of(content)
        episode = await asyncio.to_thread(self._book.begin, id, task, lambda: choose(id))
        self.heard(episode)
        return episode

    def take(self, talk: Conversation, episode: Episode, player: Player) -> None:
        """Let the next observations of a conversation belong to an episode. Others may be about the
        same one: System 2 and System 1 of a robot have a connection each."""
        talk.leave()
        talk.episode, talk.player = episode, player
        if player.drift:
            own = Sightings(len(player.drift.names))
            talk.sightings = self._sightings.setdefault(episode.id, own)

    async def end(self, content: typing.Any, talk: Conversation) -> str:
        """Note the outcome that a client reports; returns the episode's id once it is on the disk.
        Raises like `begin`."""
        id, outcome = end_of(content)
        is_own = talk.episode is not None and talk.episode.id == id
        if is_own:
            outcome = dataclasses.replace(outcome, guards=outcome.guards + talk.guards)
        await self._end(id, outcome)
        if is_own:
            self._follow_drift(talk.player, self._sightings.pop(id, None))
            talk.leave()
        return id

    async def violated(self, talk: Conversation, number: int) -> None:
        """Note violations of guards at once: the connection may break, or the server be killed."""
        if talk.episode is None:
            return
        try:
            await asyncio.to_thread(self._book.violated, talk.episode.id, number)
        except OSError as error:
            _log.error("%s", error)
            talk.guards += number

    def _follow_drift(self, player: Player | None, sightings: Sightings | None) -> None:
        """Note what was seen in an episode, once, and say if that is not what the version was
        trained on."""
        if player is None or player.drift is None or sightings is None:
            return
        dimensions = player.drift.add(sightings.share)
        for label, evidence in zip(player.drift.labels, player.drift.log_evidence, strict=True):
            self._metrics.drift.labels(player.version, label).set(float(evidence))
        if dimensions:
            where = ", ".join(player.drift.names[number] for number in dimensions)
            title = f"{player.metadata['policy']} sees what it was not trained on: {where}"
            _log.warning("%s", title)
            event = Event("drift", title, "", player.model, player.version)
            self._telling = asyncio.create_task(asyncio.to_thread(tell, event))

    def heard(self, episode: Episode) -> None:
        """Note that a client goes on with an episode."""
        self._heard[episode.id] = time.monotonic()

    async def watch(self) -> None:
        """End episodes of which nothing is heard, until the task is cancelled."""
        while True:
            try:
                await self.end_silent()
            except OSError as error:
                _log.warning("%s", error)
            await asyncio.sleep(self._outcome_s / _LOOKS)

    async def end_silent(self) -> None:
        """End the episodes of which nothing was heard for `outcome_s`: they are not solved."""
        now = time.monotonic()
        for episode in await asyncio.to_thread(self._book.episodes, running=True):
            if now - self._heard.setdefault(episode.id, now) >= self._outcome_s:
                with contextlib.suppress(ValueError):  # it has been reported in this moment
                    await self._end(episode.id, Outcome(None, NOT_REPORTED))
                    _log.warning("episode '%s' counts as not solved: %s", episode.id, NOT_REPORTED)

    async def _end(self, id: str, outcome: Outcome) -> None:
        episode = await asyncio.to_thread(self._book.end, id, outcome)
        self._heard.pop(id, None)
        says = {True: "solved", False: "not_solved", None: "unknown"}[outcome.success]
        self._metrics.outcomes.labels(episode.actor.role, says).inc()
