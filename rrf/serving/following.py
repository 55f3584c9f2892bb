"""A server follows the registry: another champion, a canary, and where outcomes go.

The server asks every `ServingCfg.registry_s` seconds. A version that comes is loaded and warmed up
beside those that answer; then new episodes get it, and running ones finish with the old one. What
cannot be loaded does not act: the old champion goes on, which the log and the metrics say. While
the registry cannot be asked, everything stays as it is.
"""

import asyncio
import logging
import time
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rrf.serving.book import Book, Episode
from rrf.serving.cast import Cast, Release
from rrf.serving.metrics import Metrics
from rrf.serving.player import Player
from rrf.serving.shadow import Shadow

_RETRY_S = 60.0  # until what failed is tried again
_log = logging.getLogger("rrf.serving")


class State(typing.Protocol):
    """Who acts by the registry; `rrf.registry.served.State` is one."""

    @property
    def champion(self) -> str | None:
        """The champion's version; None without one."""
        ...

    @property
    def revoked(self) -> Mapping[str, str]:
        """Version -> why it is not allowed any more."""
        ...

    @property
    def release(self) -> Release | None:
        """The release that runs."""
        ...

    @property
    def is_unfinished(self) -> bool:
        """Whether the end of a release was left half done."""
        ...


class Registry(typing.Protocol):
    """A registered model; `rrf.registry.served.ServedModel` is one. Every method may raise
    ValueError and OSError."""

    name: str

    def state(self) -> State:
        """Who acts now."""
        ...

    def conclude(self) -> typing.Any:
        """Do what the rules of the release say."""
        ...

    def fetch(self, version: str) -> tuple[Path, str]:
        """The checkpoint of a version on this machine, and a label."""
        ...

    def report(self, release: str, version: str, book: str, rows: Sequence[Mapping]) -> None:
        """Store the episodes of a release and do what its rules say."""
        ...


class Follower:
    """Keeps a cast to what the registry says.

    Args:
        registry: The model.
        cast: Who answers; it changes.
        load: Loads and warms up a version; called in a thread.
        start: Lets a player answer, also with the lowest priority; called in the loop.
        book: The episodes.
        metrics: Where it is counted.
        every_s: Seconds between two questions.
    """

    def __init__(
        self,
        registry: Registry,
        cast: Cast,
        load: Callable[[str], Player],
        start: Callable[[Player, bool], None],
        book: Book,
        metrics: Metrics,
        every_s: float,
    ):
        self._registry, self._cast, self._load, self._start = registry, cast, load, start
        self._book, self._metrics, self._every_s = book, metrics, every_s
        self._is_away = False
        self._next_try = 0.0  # to finish the end of a release
        self._failed: dict[str, float] = {}  # version -> when it is tried again
        self._reported: tuple[str, list[dict]] | None = None

    async def watch(self) -> None:
        """Follow until the task is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._every_s)

    async def look(self) -> None:
        """Ask once, and do what the answer says."""
        try:
            state = await asyncio.to_thread(self._registry.state)
            await self._follow(state)
            running = await asyncio.to_thread(self._book.episodes, running=True)
            self._cast.retire(running)
            if state.release and not state.release.shadow:
                await self._report(state.release)
            if state.is_unfinished and time.monotonic() >= self._next_try:
                self._next_try = time.monotonic() + _RETRY_S
                await asyncio.to_thread(self._registry.conclude)
        except Exception as error:  # of whatever kind: the next withdrawal must be heard of
            if not self._is_away:
                _log.warning("the registry is not followed now: %s", str(error) or repr(error))
            self._is_away = True
            return
        self._is_away = False

    async def _follow(self, state: State) -> None:
        cast, release = self._cast, state.release
        cast.revoked = lambda version: state.revoked.get(version, "")
        is_other = state.champion and state.champion != cast.champion.version
        if is_other and (player := await self._player(state.champion or "")):
            _log.warning(
                "version %s acts from now on; running episodes finish with version %s",
                player.version,
                cast.champion.version,
            )
            cast.champion = player
        canary = None
        if release and not release.shadow:
            canary = await self._player(release.version)
        if canary and (
            cast.release is None or release is None or cast.release.hash != release.hash
        ):
            _log.warning("version %s is a canary", canary.version)
        if cast.canary and canary is not cast.canary and cast.canary is not cast.champion:
            _log.warning(
                "version %s is no canary any more and gets no new episodes", cast.canary.version
            )
        cast.canary, cast.release = canary, release
        await self._follow_shadow(release if release and release.shadow else None)
        self._metrics.acts("champion", cast.champion.version)
        self._metrics.acts("canary", canary.version if canary else "")

    async def _follow_shadow(self, release: Release | None) -> None:
        shadow = self._cast.shadow
        if shadow and (release is None or release.hash != shadow.release):
            _log.warning("%s", shadow.summary())
            shadow.player.end()
            self._cast.shadow = None
        if (
            release
            and self._cast.shadow is None
            and (player := await self._loaded(release.version))
        ):
            self._start(player, True)
            self._cast.shadow = Shadow(player, release.hash, self._metrics)
            _log.warning("version %s is a shadow", player.version)

    async def _player(self, version: str) -> Player | None:
        """A version, loaded if it is not yet; None if that fails."""
        for player in self._cast.players.values():
            if player.version == version:
                return player
        if player := await self._loaded(version):
            self._cast.players[player.key] = player
            self._start(player, False)
        return player

    async def _loaded(self, version: str) -> Player | None:
        """A version that is loaded anew; None if that fails."""
        if self._failed.get(version, 0.0) > time.monotonic():
            return None
        try:
            return await asyncio.to_thread(self._load, version)
        except Exception as error:  # of whatever kind: who acts now must go on
            self._failed[version] = time.monotonic() + _RETRY_S
            self._metrics.error("load")
            _log.error(
                "version %s of '%s' cannot be loaded, version %s goes on: %s",
                version,
                self._registry.name,
                self._cast.champion.version,
                error,
            )
            return None

    async def _report(self, release: Release) -> None:
        """Store the outcomes, if there are new ones."""
        episodes = await asyncio.to_thread(self._book.episodes, release.hash)
        rows = [row_of(episode) for episode in episodes]
        if self._reported == (release.hash, rows):
            return
        facts = (release.hash, release.version, self._book.id, rows)
        await asyncio.to_thread(self._registry.report, *facts)
        self._reported = (release.hash, rows)


def row_of(episode: Episode) -> dict[str, typing.Any]:
    """An episode as the registry stores it."""
    outcome = episode.outcome
    return {
        "id": episode.id,
        "number": episode.number,
        "begun": episode.begun,
        "digest": episode.actor.digest,
        "task": episode.task,
        "has_ended": outcome is not None,
        "success": outcome.success if outcome else None,
        "guards": outcome.guards if outcome else 0,
        "reason": outcome.reason if outcome else "",
    }
