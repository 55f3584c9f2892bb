"""A robot and a policy server with a release, between which messages are lost, come twice, late, or
are forged.

Server, book, registry, ledger and robot are the real ones; the policies answer with the number of
their version. The canary solves nothing, the champion everything, so the release ends by itself.
"""

import contextlib
import random
import socket
import threading
import typing
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.sync.server import ServerConnection, serve

from rrf.client import PolicyClient
from rrf.client.messages import EPISODE_BEGIN, EPISODE_END, pack, unpack
from rrf.serving.book import NOT_REPORTED, open_book
from tests.faults.attacks import Attacked
from tests.faults.canary import check_release, patiently
from tests.registry import conftest as registry
from tests.waiting import wait_for

NAME = registry.NAME
_STEPS, _MOST, _PATIENCE_S = 2, 400, 300.0
_OPTIONS: dict = {"compression": None, "proxy": None, "max_size": None}
_BOUNDS = {"timeout_s": _PATIENCE_S, "connect_s": _PATIENCE_S}


def prepare_release(home: Path) -> None:
    """A workspace whose model has a champion and a canary."""
    from rrf.mlflow_store import store
    from rrf.registry import promotion, releases

    registry.new_repository(home)
    rules = home / f"configs/releases/{NAME}.yaml"
    rules.parent.mkdir(parents=True)
    rules.write_text("share: 0.5\nmargin: 0.2\n")
    run_id = registry.new_run(store.connect())
    for seed in (1, 2):
        registry.register(home, NAME, run_id, seed, 18)
    promotion.promote(NAME, "1")
    releases.begin(NAME, "2")


@contextlib.contextmanager
def served(outcome_s: float = 3600.0) -> Iterator[str]:
    """A server that follows the registry; yields its address."""
    from rrf.registry import promotion
    from rrf.registry.served import ServedModel
    from tests.serving.conftest import Running
    from tests.serving.test_following import Version

    class Model(ServedModel):
        now = property(ServedModel.state)

        def load(self, version: str) -> Version:
            policy = Version(int(version))
            policy.digest = promotion.ledger_of(NAME).checkpoint_of(version)
            return policy

    model = Model(NAME)
    with open_book(NAME) as book:
        champion = model.load(model.now.champion)
        running = Running(champion, book=book, follow=(model, 0.05), outcome_s=outcome_s)
        try:
            yield running.url
        finally:
            running.stop()
            assert running.stopped(_PATIENCE_S), "the server does not stop"
            assert running.failure is None, running.failure


class Network:
    """Passes the messages of robots on to a server, and harms them.

    Args:
        url: The server's address.
        rng: Draws the harm.
        share: Of messages that are harmed.
    """

    def __init__(self, url: str, rng: random.Random, share: float):
        self._url, self._rng, self._share = url, rng, share
        self.faults = 0
        self.heard: list[bytes] = []
        """What robots have said about episodes."""

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        """Yields the address for robots."""
        with serve(self._pass_on, "127.0.0.1", 0, compression=None, max_size=None) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
            finally:
                server.shutdown()
                thread.join()

    def _pass_on(self, robot: ServerConnection) -> None:
        with connect(self._url, **_OPTIONS) as server:
            robot.send(server.recv())
            with contextlib.suppress(ConnectionClosed):
                for message in robot:
                    if not self._tell(robot, server, typing.cast(bytes, message)):
                        return

    def _tell(self, robot: ServerConnection, server: ClientConnection, message: bytes) -> bool:
        """Whether the connection goes on."""
        harm = ""
        if self._rng.random() < self._share:
            harm = self._rng.choice(("request lost", "answer lost", "twice", "late"))
            self.faults += 1
        if harm == "request lost":
            return False
        if harm == "late" and self.heard:  # again what was said before, by another way
            say(self._url, self._rng.choice(self.heard))
        for _ in range(1 + (harm == "twice")):
            server.send(message)
        answers = [server.recv() for _ in range(1 + (harm == "twice"))]
        if {EPISODE_BEGIN, EPISODE_END} & unpack(message).keys():
            self.heard.append(message)
        if harm == "answer lost":
            return False
        robot.send(answers[0])
        return True


def say(url: str, message: bytes | str) -> typing.Any:
    """What the server answers on a connection of its own: a text is a refusal, None the end."""
    with connect(url, **_OPTIONS) as connection:
        connection.recv()
        connection.send(message)
        try:
            answer = connection.recv(timeout=_PATIENCE_S)
        except ConnectionClosed:
            return None
    return answer if isinstance(answer, str) else unpack(answer)


class LostOutcomes(Attacked):
    """Messages are lost, come twice and late, and some robots never say how an episode ended."""

    name = "outcomes lost, twice and late"
    share = 0.25

    def prepare(self, home: Path) -> None:
        prepare_release(home)

    def play(self, home: Path, rng: random.Random) -> int:
        with served() as url:
            network = Network(url, rng, self.share)
            with network.running() as address:
                told, forged = self._episodes(address, url, rng, network)
        lost = [id for id, (_, success) in told.items() if success is None]
        with served(outcome_s=0.2), open_book_of_server() as book:
            wait_for(lambda: not book.episodes(running=True), _PATIENCE_S)
            assert all(book.find(id).outcome.reason == NOT_REPORTED for id in lost)
        check_release(NAME, told)
        return network.faults + forged + len(lost)

    def _episodes(
        self, address: str, url: str, rng: random.Random, network: Network
    ) -> tuple[dict[str, list], int]:
        """Play until the canary is pulled; returns what the robot was told and what it said for
        each episode, and how many messages were forged."""
        from rrf.registry.served import ServedModel

        told, forged = {}, 0
        with PolicyClient(address, **_BOUNDS) as robot:
            for number in range(_MOST):
                id = f"episode-{number}"
                role = patiently(lambda id=id: robot.begin_episode(id))["role"]
                version = {"champion": 1, "canary": 2}[role]
                for _ in range(_STEPS):
                    actions = patiently(lambda: robot.infer({"observation.state": STATE, **GO}))
                    assert (actions == version).all(), f"version {version} did not act in {id}"
                forged += self.forge(url, rng, network, told, id)
                success: bool | None = role == "champion"
                if rng.random() < 0.1:
                    success = None  # nobody says so
                else:
                    patiently(lambda s=success: robot.end_episode(success=s))
                told[id] = [role, success]
                if number % 10 == 9 and "2" in ServedModel(NAME).state().revoked:
                    return told, forged
        raise AssertionError(f"the canary acts after {_MOST} episodes")

    def forge(
        self, url: str, rng: random.Random, network: Network, told: dict[str, list], id: str
    ) -> int:
        """What somebody else says meanwhile; returns how many messages it was."""
        return 0


class ForgedMessages(LostOutcomes):
    """Somebody else on the network says what is not so, and again what was said before."""

    name = "outcomes forged, replayed and reordered"
    share = 0.0

    def forge(
        self, url: str, rng: random.Random, network: Network, told: dict[str, list], id: str
    ) -> int:
        ended = [(name, said) for name, (_, said) in told.items() if said is not None]
        (name, said) = rng.choice(ended) if ended else ("nobody", True)
        begin, end = {"id": id, "task": ""}, {"id": name, "success": not said}
        never = {"id": f"never-{rng.random()}", "success": True}
        refused = [
            {EPISODE_END: never},  # before its beginning
            {EPISODE_END: end},  # another outcome
            {EPISODE_BEGIN: begin | {"task": "another"}},
            {EPISODE_BEGIN: begin | {"id": rng.choice(["", "x" * 129, "a\nb", 7, None])}},
            {EPISODE_END: {"id": id, "success": rng.choice([1, "yes", [True]])}},
            {EPISODE_END: {"id": id}},
            {EPISODE_END: {"id": id, "success": True, "guards": rng.choice([-1, 1e9, True])}},
            {EPISODE_END: rng.choice([None, [], id])},
            *([{EPISODE_BEGIN: {"id": name, "task": ""}}] if ended else []),  # it is over
        ]
        forgery = rng.choice([*refused, "bytes", "replay", "hang up"])
        if forgery == "bytes":
            answer = say(url, rng.randbytes(rng.randrange(1, 200)))
            assert answer is None or isinstance(answer, str), answer
        elif forgery == "replay":
            for message in rng.sample(network.heard, min(3, len(network.heard))):
                say(url, message)
        elif forgery == "hang up":
            host, _, port = url.removeprefix("ws://").partition(":")
            with socket.create_connection((host, int(port))) as connection:
                connection.send(rng.randbytes(50))
        else:
            answer = say(url, pack(forgery))
            assert isinstance(answer, str), f"{forgery} was answered {answer}"
        return 1


@contextlib.contextmanager
def open_book_of_server():
    """The book of the one server of this workspace, to look at beside it."""
    from rrf import workspace
    from rrf.serving.book import Book

    with contextlib.closing(Book(workspace.state() / f"episodes/{NAME}/1/book.sqlite")) as book:
        yield book


STATE = np.array([1, 2, 3], np.float32)
GO = {"prompt": "go"}
