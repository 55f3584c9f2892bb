"""Who answers: the champion, a canary beside it, and versions that finish their episodes."""

import logging
import typing
from collections.abc import Callable, Sequence

from rrf.serving.book import Actor, Episode
from rrf.serving.player import Player
from rrf.serving.shadow import Shadow

_log = logging.getLogger("rrf.serving")


class Release(typing.Protocol):
    """A release that runs; `rrf.registry.served.ReleaseState` is one."""

    @property
    def hash(self) -> str:
        """Names it."""
        ...

    @property
    def version(self) -> str:
        """The version that is released."""
        ...

    @property
    def champion(self) -> str:
        """The version that it is compared with."""
        ...

    @property
    def shadow(self) -> bool:
        """Whether it only computes."""
        ...

    def is_canary(self, id: str) -> bool:
        """Whether the canary acts in the episode of this id."""
        ...


class Cast:
    """Who answers now.

    Args:
        champion: Who answers if nothing else is said.
        revoked: Why a version is not allowed any more, or "".
    """

    def __init__(self, champion: Player, revoked: Callable[[str], str] = lambda _: ""):
        self.champion, self.revoked = champion, revoked
        self.canary: Player | None = None
        self.release: Release | None = None
        self.shadow: Shadow | None = None
        self.players: dict[tuple[str, str], Player] = {champion.key: champion}
        """Version and digest -> all that are loaded."""

    def choose(self, id: str) -> Actor:
        """Who acts in a new episode. It counts for a release only while both of its versions are
        those that are loaded."""
        release, canary, champion = self.release, self.canary, self.champion
        if release is None or canary is None or release.champion != champion.version:
            return champion.acts("champion")
        if release.is_canary(id):
            return canary.acts("canary", release.hash)
        return champion.acts("champion", release.hash)

    def told(self, episode: Episode) -> dict[str, str]:
        """What the client of an episode is told."""
        return episode.told()

    def player_of(self, episode: Episode) -> Player:
        """Who answers in an episode. Raises ValueError if it is not loaded any more."""
        if player := self.players.get((episode.actor.version, episode.actor.digest)):
            return player
        what = f"version {episode.actor.version}" if episode.actor.version else "checkpoint"
        raise ValueError(
            f"episode '{episode.id}' began with {what} ({episode.actor.digest[:12]}), which this "
            "server does not serve any more; end it and begin another one"
        )

    def retire(self, running: Sequence[Episode]) -> None:
        """End the players that neither act nor have one of these episodes to finish."""
        kept = {(episode.actor.version, episode.actor.digest) for episode in running}
        kept |= {player.key for player in (self.champion, self.canary) if player}
        for key in self.players.keys() - kept:
            self.players.pop(key).end()
            _log.info("version %s has finished its episodes and is not loaded any more", key[0])
