"""A websocket server for policies. It speaks the messages of openpi's client.

The conversation, all messages msgpack with numpy arrays (`rrf.client.messages`):

    client  connects, with the header `Authorization: Bearer TOKEN` or `Api-Key TOKEN`
    server  metadata: the policy's inputs and actions
    client  an observation (`rrf.serving.requests`)        } any number of times,
    server  {"actions": [H, A], "server_timing": {...}}    } one after another

An answer also has "revoked" with the reason once the registry allows the version no more
(`rrf.serving.standing`). Between observations, a client may announce that an episode begins and say
how it ended (`rrf.serving.book`). One that never does so is answered all the same.

A request that is refused is answered by a text message that says why, which openpi's client raises
as an error. The connection stays open after an observation that does not fit, and is closed after
a message that cannot be read.

On the same port, HTTP GET /healthz answers OK, and /metrics (which needs the token) has numbers for
Prometheus. Browsers are refused: no page that somebody visits may use the robot's policy.
"""

import asyncio
import http
import logging
import signal
import time
import typing
from collections.abc import Callable, Coroutine, Sequence

import numpy as np
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.protocol import State

from rrf.client.messages import (
    ACTIONS,
    EPISODE,
    EPISODE_BEGIN,
    EPISODE_END,
    EPISODES,
    GUARDS,
    RECORDED,
    REVOKED,
    TIMING,
    MessageError,
    pack,
    unpack,
)
from rrf.serving.access import is_allowed, tls_context
from rrf.serving.batching import Result, Row
from rrf.serving.book import Actor, Book
from rrf.serving.cast import Cast
from rrf.serving.configs import ServingCfg
from rrf.serving.episodes import Conversation, Episodes
from rrf.serving.guards import violations
from rrf.serving.metrics import CONTENT_TYPE, Metrics
from rrf.serving.player import Player

_CLOSE_S = 2.0  # the longest time that a client may take to confirm that it is over
_log = logging.getLogger("rrf.serving")


class PolicyServer:
    """Serves policies that are warmed up.

    Args:
        cfg: Where it listens and what it allows.
        cast: Who answers.
        token: What clients must know; None for everybody.
        book: Where announced episodes are noted; None to refuse announcements.
    """

    def __init__(
        self, cfg: ServingCfg, cast: Cast, token: str | None = None, book: Book | None = None
    ):
        self.cfg, self._cast, self._token = cfg, cast, token
        self.metrics = Metrics(cfg.max_batch)
        self._episodes = Episodes(book, self.metrics, cfg.outcome_s) if book else None
        self._open: dict[ServerConnection, Conversation] = {}
        self._idle: set[ServerConnection] = set()
        self._comparing: set[asyncio.Task] = set()
        self._is_draining = False

    def start(self, player: Player, is_shadow: bool = False) -> None:
        """Let a player answer, or only compute. Only in the loop of the server."""

        def num_clients() -> int:
            talks = self._open.values()
            return sum((talk.player or self._cast.champion) is player for talk in talks)

        if is_shadow:
            player.start(self.cfg, lambda: 1, None, is_idle=True)
        else:
            player.start(self.cfg, num_clients, self.metrics)

    async def run(
        self,
        stop: asyncio.Event,
        on_ready: Callable[[str, int], None] = lambda *_: None,
        beside: Sequence[Coroutine] = (),
    ) -> None:
        """Serve until `stop` is set, then answer what was accepted, and return.

        Args:
            stop: Ends the server. SIGTERM and SIGINT set it if `stop_on_signals` was called.
            on_ready: Called with the server's url and port when it listens.
            beside: What runs meanwhile, e.g. what follows the registry.
        """
        cfg, tls = self.cfg, tls_context(self.cfg)
        self.start(self._cast.champion)
        tasks = [asyncio.create_task(each) for each in beside]
        if self._episodes:
            tasks.append(asyncio.create_task(self._episodes.watch()))
        server = await serve(
            self._converse,
            cfg.host,
            cfg.port,
            ssl=tls,
            origins=[None],
            compression=None,
            process_request=self._admit,
            open_timeout=cfg.handshake_s,
            ping_interval=cfg.ping_s,
            ping_timeout=cfg.ping_s,
            close_timeout=_CLOSE_S,
            max_size=int(cfg.max_message_mb * 1e6),
            max_queue=1,
            server_header=None,
            logger=_quiet_log(),
        )
        try:
            port = next(iter(server.sockets)).getsockname()[1]
            host = f"[{cfg.host}]" if ":" in cfg.host else cfg.host
            on_ready(f"{'wss' if tls else 'ws'}://{host}:{port}", port)
            await stop.wait()
            await self._drain(server)
        finally:
            server.close(close_connections=False)
            for task in tasks:
                task.cancel()
            for player in self._cast.players.values():
                player.end()
            if self._cast.shadow:
                self._cast.shadow.player.end()
                _log.warning("%s", self._cast.shadow.summary())

    async def _drain(self, server: Server) -> None:
        """Accept nothing more, answer what was accepted, but for no longer than `drain_s`."""
        self._is_draining = True
        server.close(close_connections=False)
        goodbyes = [asyncio.create_task(_bye(connection)) for connection in self._idle]
        try:
            async with asyncio.timeout(self.cfg.drain_s):
                await asyncio.gather(*goodbyes)
                await server.wait_closed()
        except TimeoutError:
            _log.warning(
                "%d clients were still waiting after %g s and were left",
                len(self._open),
                self.cfg.drain_s,
            )
            for connection in self._open:
                connection.transport.abort()

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer plain HTTP requests, and let clients with the token connect."""
        if request.headers.get("Sec-Fetch-Site", "none") != "none":  # a page asks, not a person
            return connection.respond(http.HTTPStatus.FORBIDDEN, "not for pages\n")
        path = request.path.partition("?")[0]
        if path == "/healthz":
            return connection.respond(http.HTTPStatus.OK, "OK\n")
        authorizations = request.headers.get_all("Authorization")
        if not is_allowed(authorizations[0] if authorizations else None, self._token):
            self.metrics.error("unauthorized")
            response = connection.respond(
                http.HTTPStatus.UNAUTHORIZED, "the token is missing or wrong\n"
            )
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        if path == "/metrics":
            response = connection.respond(http.HTTPStatus.OK, self.metrics.text())
            del response.headers["Content-Type"]
            response.headers["Content-Type"] = CONTENT_TYPE
            return response
        if len(self._open) >= self.cfg.max_connections:
            self.metrics.error("overloaded")
            return connection.respond(
                http.HTTPStatus.SERVICE_UNAVAILABLE,
                f"the server has {self.cfg.max_connections} clients and takes no more\n",
            )
        return None

    async def _converse(self, connection: ServerConnection) -> None:
        """Everything that is said to one client."""
        if len(self._open) >= self.cfg.max_connections or self._is_draining:
            await _bye(connection)
            return
        talk = self._open[connection] = Conversation()
        self.metrics.connections.inc()
        try:
            await self._greet(connection)
            while (message := await self._receive(connection)) is not None:
                if not await self._reply(connection, talk, message):
                    return
        except ConnectionClosed as error:
            self._count_closed(error)
        except _NotTakenError:
            self.metrics.error("slow")
            connection.transport.abort()
        finally:
            self._open.pop(connection)
            self.metrics.connections.dec()

    async def _greet(self, connection: ServerConnection) -> None:
        metadata = {**self._cast.champion.metadata, EPISODES: self._episodes is not None}
        await self._send(connection, pack(metadata))

    async def _receive(self, connection: ServerConnection) -> str | bytes | None:
        """The next message; None after a goodbye."""
        if self._is_draining:
            await _bye(connection)
            return None
        self._idle.add(connection)
        try:
            async with asyncio.timeout(self.cfg.idle_s):
                return await connection.recv()
        except TimeoutError:
            self.metrics.error("idle")
            why = f"no complete request within {self.cfg.idle_s:g} s"
            await connection.close(CloseCode.POLICY_VIOLATION, why)
            return None
        finally:
            self._idle.discard(connection)

    async def _reply(
        self, connection: ServerConnection, talk: Conversation, message: str | bytes
    ) -> bool:
        """Answer one request. Returns whether the conversation goes on."""
        begin = time.perf_counter()
        if self._is_draining:
            self.metrics.error("draining")
            await _bye(connection)
            return False
        try:
            content = unpack(_binary(message))
            if isinstance(content, dict) and (EPISODE_BEGIN in content or EPISODE_END in content):
                await self._take_announcement(connection, talk, content)
                return True
            player = (talk.player or self._cast.champion).asked_by(content)
            row = player.read(content)
            revoked = self._cast.revoked(player.version)
            if revoked and self.cfg.on_revoked == "refuse":
                await self._refuse(connection, "revoked", revoked)
                return True
        except MessageError as error:
            await self._refuse(connection, "malformed", str(error))
            await connection.close(CloseCode.INVALID_DATA, "the message cannot be read")
            return False
        except ValueError as error:
            await self._refuse(connection, "observation", str(error))
            return True
        try:
            result = await player.batcher.submit(row, lambda: connection.state is State.OPEN)
        except NotImplementedError as error:
            await self._refuse(connection, "unsupported", str(error))
            return True
        except ValueError as error:  # what only the policy can see, e.g. a text without words
            await self._refuse(connection, "observation", str(error))
            return True
        except Exception:  # a failure of the policy must not end the server
            _log.exception("the policy failed; the client was told that it did, and nothing else")
            await self._refuse(connection, "internal", "the policy failed; see the server's log")
            await connection.close(CloseCode.INTERNAL_ERROR, "the policy failed")
            return False
        if self._episodes and talk.episode:
            self._episodes.heard(talk.episode)
            talk.see(row.inputs)
        total_s = time.perf_counter() - begin
        answer = _answer(result, total_s)
        period_s = None if talk.asked_s is None else begin - talk.asked_s
        talk.asked_s = begin
        if violated := await self._violations(talk, row, result.actions, total_s, period_s):
            answer[GUARDS] = violated
        if revoked := self._cast.revoked(player.version):
            answer[REVOKED] = revoked
        await self._send(connection, pack(answer))
        self.metrics.requests.inc()
        shadow = self._cast.shadow
        if shadow and player is self._cast.champion:
            task = asyncio.create_task(shadow.compare(content, player, result.actions))
            self._comparing.add(task)
            task.add_done_callback(self._comparing.discard)
        return True

    async def _violations(
        self,
        talk: Conversation,
        row: Row,
        actions: np.ndarray,
        total_s: float,
        period_s: float | None,
    ) -> list[str]:
        """What the guards say of an answer; the episode and the metrics keep it."""
        violated = violations(self.cfg, row, actions, total_s, period_s)
        if violated and self._episodes:
            await self._episodes.violated(talk, len(violated))
        for kind in violated:
            self.metrics.guards.labels(kind).inc()
        return list(violated.values())

    async def _take_announcement(
        self, connection: ServerConnection, talk: Conversation, content: dict
    ) -> None:
        """Answer what a client says about an episode."""
        if self._episodes is None:
            await self._refuse(connection, "episode", "this server keeps no book of episodes")
            return
        try:
            if EPISODE_BEGIN in content:
                talk.leave()
                episode = await self._episodes.begin(content[EPISODE_BEGIN], self._choose)
                self._episodes.take(talk, episode, self._cast.player_of(episode))
                answer = {EPISODE: self._cast.told(episode)}
            else:
                id = await self._episodes.end(content[EPISODE_END], talk)
                answer = {RECORDED: True, "id": id}
        except _RevokedError as error:
            await self._send(connection, pack({REVOKED: str(error)}))
        except ValueError as error:
            await self._refuse(connection, "episode", str(error))
        except OSError as error:
            _log.error("%s", error)
            why = "the server cannot write the episode down now; say it again later"
            await self._refuse(connection, "book", why)
        else:
            await self._send(connection, pack(answer))

    def _choose(self, id: str) -> Actor:
        """Who acts in a new episode."""
        actor = self._cast.choose(id)
        if revoked := self._cast.revoked(actor.version):
            raise _RevokedError(revoked)
        return actor

    async def _refuse(self, connection: ServerConnection, kind: str, why: str) -> None:
        self.metrics.error(kind)
        await self._send(connection, why)

    async def _send(self, connection: ServerConnection, message: str | bytes) -> None:
        try:
            async with asyncio.timeout(self.cfg.send_s):
                await connection.send(message)
        except TimeoutError as error:
            raise _NotTakenError from error

    def _count_closed(self, error: ConnectionClosed) -> None:
        """Count a connection that the server closed because of what its client did."""
        code = error.sent.code if error.sent is not None else None
        if code == CloseCode.MESSAGE_TOO_BIG:
            self.metrics.error("oversized")
        elif code == CloseCode.INTERNAL_ERROR:  # websockets' keepalive
            self.metrics.error("silent")
        elif code in (CloseCode.PROTOCOL_ERROR, CloseCode.INVALID_DATA):
            self.metrics.error("malformed")


class _RevokedError(ValueError):
    """No episode begins with a version that is not allowed any more."""


class _NotTakenError(Exception):
    """A client does not take what it is sent."""


async def _bye(connection: ServerConnection) -> None:
    await connection.close(CloseCode.GOING_AWAY, "the server shuts down")


def _binary(message: str | bytes) -> bytes:
    if isinstance(message, str):
        raise MessageError("a text; requests are binary messages of msgpack")
    return message


def _answer(result: Result, total_s: float) -> dict[str, typing.Any]:
    return {
        ACTIONS: result.actions,
        TIMING: {
            "queue_ms": result.queue_s * 1000,
            "infer_ms": result.infer_s * 1000,
            "total_ms": total_s * 1000,
            "batch_size": result.batch_size,
        },
    }


def stop_on_signals(stop: asyncio.Event) -> None:
    """Let SIGTERM and SIGINT set `stop`. Only in the main thread of a process."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


def _quiet_log() -> logging.Logger:
    """The log of websockets without a traceback for everybody who scans the port."""
    log = logging.getLogger("rrf.serving.websockets")
    log.setLevel(logging.CRITICAL)
    return log
