"""A registered model as a policy server follows it: who acts, and what becomes of its outcomes.

`rrf.serving.following` asks for it by these names; the server itself knows no registry.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rrf import workspace
from rrf.evaluation.gates.release import EpisodeRow, is_canary
from rrf.notifications import Event, tell
from rrf.registry import ledger as ledgers
from rrf.registry import listing, releases, standing
from rrf.registry.client import connect
from rrf.registry.ledger import Ledger
from rrf.registry.releases import Release, Status, running_in
from rrf.registry.rules import NotPromotedError
from rrf.registry.versions import check_exists, find

if TYPE_CHECKING:
    from mlflow import MlflowClient

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class ReleaseState:
    """The release that runs."""

    hash: str
    version: str
    champion: str
    """The version that it is compared with."""
    shadow: bool
    share: float

    def is_canary(self, id: str) -> bool:
        """Whether the canary acts in the episode of this id."""
        return not self.shadow and is_canary(id, self.hash, self.share)


@dataclasses.dataclass(frozen=True)
class State:
    """Who acts by the ledger."""

    champion: str | None
    revoked: Mapping[str, str]
    """Version -> why it is not allowed any more."""
    release: ReleaseState | None
    is_unfinished: bool = False
    """Whether the end of a release is to be written: a good canary is not the champion yet, since a
    process was killed before that, or the version that is released must not go on."""


class ServedModel:
    """A registered model.

    Args:
        name: Its name.

    Raises:
        ValueError: If there is no such model.
    """

    def __init__(self, name: str):
        self.name = name
        self._said: set[tuple[str, str]] = set()
        self._barred: dict[str, str] = {}  # release -> why its version must not go on
        check_exists(listing.connect(), name)

    def state(self) -> State:
        """Who acts now.

        Raises:
            ValueError: If the ledger cannot be believed.
            OSError: If the store cannot be reached.
        """
        client = listing.connect()
        ledger = ledgers.read(client, self.name)
        revoked = {
            version: standing.revoked_because(self.name, version, entry)
            for version, entry in ledger.revoked.items()
        }
        release = running_in(ledger)
        running, why = None, self._why_barred(client, ledger, release)
        if release and why and not release.facts.shadow:
            revoked[release.version] = standing.must_not_act(self.name, release.version, why)
        if release and not why and release.version not in revoked:
            facts, rules = release.facts, release.rules
            running = ReleaseState(
                release.hash, release.version, facts.champion, facts.shadow, rules.share
            )
        last = ledger.entries[-1].conclusion if ledger.entries else None
        is_unfinished = (last or {}).get("outcome") == "good"
        return State(ledger.champion, revoked, running, is_unfinished or bool(why))

    def fetch(self, version: str) -> tuple[Path, str]:
        """The checkpoint of a version in a folder of this workspace, and a label for people.

        Raises:
            ValueError: If a file was changed.
            OSError: If the artifacts are gone or cannot be reached.
        """
        from rrf.registry import loading

        path = workspace.state() / "fetched" / f"{self.name}-{version}"
        loading.fetch(f"{self.name}/{version}", path)
        return path, f"{self.name} version {version}"

    def report(self, release: str, version: str, book: str, rows: Sequence[Mapping]) -> None:
        """Store the episodes of a release, and do what its rules say about all that are stored.

        Args:
            release: The release.
            version: The version that it releases.
            book: The server's book.
            rows: Its episodes, as `EpisodeRow`s in plain data, without the book.

        Raises:
            ValueError: If outcomes need a signature and there is no key for it, or the ledger
                cannot be believed.
            OSError: If the store cannot be reached.
        """
        from rrf.registry import outcomes

        client = connect()
        found = find(f"{self.name}/{version}", client)
        episodes = [EpisodeRow(book=book, **row) for row in rows]
        outcomes.store(client, found, release, book, episodes)
        self.conclude()

    def conclude(self) -> Status | None:
        """Do what the rules of the release say, and tell people, once each time."""
        why = ""
        try:
            status = releases.conclude(self.name)
        except NotPromotedError as error:  # also while it waits for approvals
            why, status = str(error), releases.statuses(self.name)[-1]
        if status and status.stored:
            for problem in status.stored.problems:
                self._say(status.release, problem, problem)
        if status and status.decision and status.decision.verdict != "running":
            key = f"{status.decision.verdict}{why}"
            self._say(status.release, key, status.decision.text, why or status.advice)
        return status

    def _why_barred(self, client: "MlflowClient", ledger: Ledger, release: Release | None) -> str:
        """Why the version that is released must not go on, or ""; what was known last, if it is not
        known now: a damaged list of taints must not keep a withdrawal from being heard of."""
        if release is None:
            return ""
        try:
            self._barred[release.hash] = releases.barred(client, ledger, release)
        except ValueError as error:
            self._say(release, str(error), f"whether it may go on is not known: {error}")
        why = self._barred.get(release.hash, "")
        if why:
            self._say(release, why, f"it must not go on: {why}")
        return why

    def _say(self, release: Release, key: str, text: str, more: str = "") -> None:
        """Tell people about a release, unless this process has told them."""
        if (release.hash, key) in self._said:
            return
        self._said.add((release.hash, key))
        title = f"release of {self.name} version {release.version}: {text}"
        _log.warning("%s%s", title, f"; {more}" if more else "")
        tell(Event("canary", title, more, self.name, release.version))
