"""Whether a served version may still be used: the registry is asked again and again.

Somebody withdraws a version, or rolls it back, because a robot must not use it any more. A server
that serves a version by name learns of it within `ServingCfg.registry_s` and tells every client
with its next answer. While the registry cannot be asked, what was known last holds: a registry that
is away must not stop robots, and nobody stops them by damaging it.
"""

import asyncio
import logging
from collections.abc import Callable

_log = logging.getLogger("rrf.serving")


class Standing:
    """What is known of a version.

    Args:
        name: The registered model, or a study of several.
        version: The version that is served; "" for a study.
        every_s: Seconds between two questions.
        ask: Says why the version is not allowed any more, or ""; for the registry,
            `rrf.registry.standing.standing_of`.
    """

    def __init__(
        self,
        name: str,
        version: str,
        every_s: float,
        ask: Callable[[str, str], str],
    ):
        self.name, self.version, self._every_s, self._ask = name, version, every_s, ask
        self._is_away = False
        self.revoked = ""
        """Why the version is not allowed any more; "" while it is."""

    async def watch(self) -> None:
        """Ask until the task is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._every_s)

    async def look(self) -> None:
        """Ask once."""
        try:
            revoked = await asyncio.to_thread(self._ask, self.name, self.version)
        except Exception as error:  # of whatever kind: the next withdrawal must be heard of
            if not self._is_away:
                why = str(error) or repr(error)
                _log.warning("the registry does not say whether the policy is allowed: %s", why)
            self._is_away = True
            return
        self._is_away = False
        if revoked != self.revoked:
            what = f"version {self.version} of " if self.version else ""
            _log.warning("%s", revoked or f"{what}'{self.name}' is allowed")
        self.revoked = revoked
