"""The connection of a robot to a policy server: one request at a time, reconnecting."""

import dataclasses
import ssl
import threading
import time
import typing
import uuid
from collections.abc import Callable, Mapping

import numpy as np
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.sync.client import ClientConnection, connect

from rrf.client.messages import (
    ACTIONS,
    EPISODE,
    EPISODE_BEGIN,
    EPISODE_END,
    EPISODES,
    FROZEN,
    GUARDS,
    REVOKED,
    RUNNING,
    TIMING,
    pack,
    unpack,
)
from rrf.data.episode_log import FAILURE, FALLBACK, POLICY, SUCCESS, UNKNOWN, is_id

if typing.TYPE_CHECKING:
    from rrf.client.episode_logger import EpisodeLogger

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0


class ServerUnreachableError(ConnectionError):
    """There is no policy server, it went away, or it refuses this client."""


class ServerTimeoutError(TimeoutError):
    """The server is there, but its answer took too long."""


class PolicyRevokedError(RuntimeError):
    """The policy was withdrawn or rolled back; the robot must not use it any more."""


class RequestRefusedError(ValueError):
    """The server refused the request; the message is the server's."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the server answered."""

    actions: np.ndarray
    """float32 [H, A], physical units."""
    timing: Mapping[str, float]
    """Milliseconds on the server: queue_ms, infer_ms; and batch_size."""
    latency_s: float
    """Seconds from the request to the answer, as the client saw them."""
    revoked: str = ""
    """Why the registry does not allow this policy any more; "" while it does."""
    guards: tuple[str, ...] = ()
    """What violates the server's guards, in sentences. It belongs to the episode's outcome."""


class PolicyClient:
    """A client of `rrf serve`, and of openpi's servers.

    Several threads may use one client; their requests go one after another.

    Args:
        url: Like ws://127.0.0.1:8000, or wss://… for TLS.
        token: The server's token, if it asks for one.
        timeout_s: The longest time that an answer may take.
        connect_s: The longest time that is spent on connecting, and on connecting again after the
            server went away.
        on_revoked: When the server says that its policy was withdrawn or rolled back: "finish" the
            episode, and raise PolicyRevokedError when the next one begins (`begin_episode`); or
            "stop", and raise it at once.
        fallback: Instead of raising, what acts from then on: an observation in, actions [H, A] out.
        ca_file: For wss://, a file with the certificate that the server's must be signed by; by
            default those that the system trusts.
        log: Logs the episodes on this machine: which policy acted, how late its answers came, how
            each ended. The control loop adds what it sees and does (`EpisodeLogger.step`).

    Raises:
        ServerUnreachableError: If no server answers there in time, or it refuses this client.
        ValueError: If the url is not one.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_s: float = 10.0,
        connect_s: float = 10.0,
        on_revoked: typing.Literal["finish", "stop"] = "finish",
        fallback: Callable[[Mapping[str, typing.Any]], np.ndarray] | None = None,
        ca_file: str | None = None,
        log: "EpisodeLogger | None" = None,
    ):
        if not url.startswith(("ws://", "wss://")):
            raise ValueError(f"the url is '{url}', expected ws://HOST:PORT, or wss:// for TLS")
        self.url, self.timeout_s, self.connect_s = url, timeout_s, connect_s
        self.log = log
        self._headers = {"Authorization": f"Bearer {token}"} if token else None
        self._tls = ssl.create_default_context(cafile=ca_file) if url[:3] == "wss" else None
        if on_revoked not in ("finish", "stop"):
            raise ValueError(f"on_revoked is {on_revoked!r}, allowed: 'finish' or 'stop'")
        self._on_revoked, self._fallback, self._is_over = on_revoked, fallback, False
        self.revoked = ""
        """Why the policy is not allowed any more, as the server said last; "" while it is."""
        self._lock = threading.Lock()
        self._connection: ClientConnection | None = None
        self.episode: Mapping[str, str] = {}
        """What the server said of the episode that runs (`begin_episode`); empty without one."""
        self._task = ""
        self.metadata: Mapping[str, typing.Any] = {}
        """What the server says about itself and its policy."""
        self._connect()

    def __enter__(self) -> "PolicyClient":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. A later request opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def begin_episode(
        self, id: str | None = None, task: str = "", **about: typing.Any
    ) -> Mapping[str, str]:
        """Call this where an episode begins: a policy that is not allowed any more does not begin
        one, and the server says which version answers the observations until it ends.

        Args:
            id: Names the episode: up to 128 characters, never used before. By default a random one.
                To go on with an episode in another process, begin it with the same id again.
            task: What the robot is to do; at most 512 characters.
            about: What the log is told besides (`EpisodeLogger.begin`): fps, instruction, start, …

        Returns:
            id, version, digest and role ("champion" or "canary"). Empty if the server takes no
            announcements, as openpi's do not, or the fallback acts.

        Raises:
            PolicyRevokedError: If the server says so, unless there is a `fallback`.
            RequestRefusedError: If the server refuses the episode, e.g. because it is over.
            ServerTimeoutError, ServerUnreachableError: Like `request`.
        """
        self.episode = {}
        if not self._is_over and self.metadata.get(EPISODES):
            begin = {"id": uuid.uuid4().hex if id is None else id, "task": task}
            content = self._exchange({EPISODE_BEGIN: begin})
            self.revoked = str(content.get(REVOKED, ""))
            self.episode = dict(content.get(EPISODE, {}))
            self._task = task
        if self.revoked:
            self._end_use()
        if self.log is not None:
            name = self.episode.get("id", id)
            about["episode"] = name if is_id(name) else None
            self.log.begin(task, policy=self._policy(), **about)
        return self.episode

    def _policy(self) -> dict[str, typing.Any]:
        """What a log says of the policy."""
        name, _, version = str(self.metadata.get("policy", "")).partition(" version ")
        said = {"name": name, "version": version, "digest": self.metadata.get("digest")}
        announced = {"announced" if k == "id" else k: v for k, v in self.episode.items()}
        return said | {"url": self.url} | announced

    def end_episode(self, success: bool | None, reason: str = "", guards: int = 0) -> None:
        """Say how the episode ended; returns once the server has written it to its disk. Without an
        episode that a server knows, it does nothing.

        After an error, say it again: the server counts it once.

        Args:
            success: Whether the task was solved; None if nobody can tell, which counts as not. If
                the log says that an operator acted, the server is told that the policy has not
                solved it; the log keeps the outcome.
            reason: A line about it, at most 1024 characters.
            guards: How often the robot's own guard has stopped it.

        Raises:
            RequestRefusedError: If the server has another outcome of this episode.
            ServerTimeoutError, ServerUnreachableError: Like `request`.
        """
        if self.log is not None and self.log.episode is not None:
            outcome = UNKNOWN if success is None else SUCCESS if success else FAILURE
            self.log.end(outcome, reason)
        if not self.episode:
            return
        if success and self.log is not None and self.log.is_corrected:
            success = False
            reason = "; ".join(filter(None, ("an operator corrected it", reason)))[:1024]
        end = {"id": self.episode["id"], "success": success, "reason": reason, "guards": guards}
        self._exchange({EPISODE_END: end})
        self.episode = {}

    def _end_use(self) -> None:
        self._is_over = True
        if self._fallback is None:
            raise PolicyRevokedError(f"{self.url} serves what is not allowed: {self.revoked}")

    def infer(self, observation: Mapping[str, typing.Any]) -> np.ndarray:
        """The actions for an observation, float32 [H, A]; see `request`."""
        return self.request(observation).actions

    def resume(
        self, observation: Mapping[str, typing.Any], running: np.ndarray, num_frozen: int
    ) -> np.ndarray:
        """The actions that continue a running chunk (real-time chunking), float32 [H, A].

        Args:
            observation: What the robot sees now.
            running: float32 [K, A], the rest of the running chunk. Its element 0, like that of the
                answer, is the action that is executed next. Without any, this is `infer`.
            num_frozen: How many of the rest will be over when the answer arrives.

        Raises like `request`; RequestRefusedError if the policy cannot continue chunks.
        """
        if len(running) == 0:
            return self.infer(observation)
        rest = np.ascontiguousarray(running, np.float32)
        return self.request({**observation, RUNNING: rest, FROZEN: int(num_frozen)}).actions

    def request(self, observation: Mapping[str, typing.Any]) -> Answer:
        """Send an observation and wait for the answer.

        If the server went away, it is waited for and asked again, once.

        Args:
            observation: Arrays and texts without a batch dimension; `metadata` has their shapes.

        Raises:
            RequestRefusedError: If the server refuses the observation.
            ServerTimeoutError: If the answer takes longer than `timeout_s`.
            ServerUnreachableError: If the server cannot be reached within `connect_s`.
            PolicyRevokedError: If the policy is not allowed any more, see `on_revoked`.
        """
        if self._is_over:
            self._end_use()
            return self._instead(observation)
        answer = self._requested(observation)
        if self.log is not None and answer.revoked and not self.revoked:
            self.log.event("revoked", reason=answer.revoked)
        self.revoked = answer.revoked
        if answer.revoked and self._on_revoked == "stop":
            self._end_use()
            return self._instead(observation)
        if self.log is not None:
            self.log.answered(answer.latency_s, POLICY)
        return answer

    def _instead(self, observation: Mapping[str, typing.Any]) -> Answer:
        """What the fallback does."""
        assert self._fallback is not None
        begin = time.perf_counter()
        seen = {key: value for key, value in observation.items() if key not in (RUNNING, FROZEN)}
        actions = np.asarray(self._fallback(seen), np.float32)
        latency_s = time.perf_counter() - begin
        if self.log is not None:
            self.log.answered(latency_s, FALLBACK)
        return Answer(actions, {}, latency_s, self.revoked)

    def _requested(self, observation: Mapping[str, typing.Any]) -> Answer:
        begin = time.perf_counter()
        content = self._exchange(dict(observation))
        latency_s = time.perf_counter() - begin
        revoked = str(content.get(REVOKED, ""))
        guards = tuple(map(str, content.get(GUARDS, ())))
        return Answer(content[ACTIONS], content.get(TIMING, {}), latency_s, revoked, guards)

    def _exchange(self, content: dict[str, typing.Any]) -> dict[str, typing.Any]:
        """Send a message and wait for the answer; if the server went away, wait for it, go on with
        the episode, and send the message once more."""
        message = pack(content)
        with self._lock:
            if self._connection is not None:
                try:
                    return self._ask(self._connection, message)
                except ServerUnreachableError:
                    pass  # connect again, below
            connection = self._connect()
            if self.episode and EPISODE_END not in content:
                begin = {"id": self.episode["id"], "task": self._task}
                told = self._ask(connection, pack({EPISODE_BEGIN: begin}))
                self.episode = dict(told.get(EPISODE, self.episode))
            return self._ask(connection, message)

    def _ask(self, connection: ClientConnection, message: bytes) -> dict[str, typing.Any]:
        try:
            connection.send(message)
            reply = connection.recv(timeout=self.timeout_s)
        except TimeoutError as error:
            self.close()  # a late answer must not be taken for that of the next request
            raise ServerTimeoutError(
                f"{self.url} did not answer within {self.timeout_s:g} s"
            ) from error
        except ConnectionClosed as error:
            self.close()
            raise _closed(self.url, error) from error
        if isinstance(reply, str):
            raise RequestRefusedError(f"{self.url} refused the request: {reply}")
        return unpack(reply)

    def _connect(self) -> ClientConnection:
        """Connect, trying again until `connect_s` have passed."""
        deadline, pause_s = time.monotonic() + self.connect_s, _FIRST_PAUSE_S
        self.close()
        refusal: InvalidStatus | None = None  # says more than that the last attempt was too short
        while True:
            left_s = max(0.01, deadline - time.monotonic())
            try:
                self._connection = connect(
                    self.url,
                    ssl=self._tls,
                    additional_headers=self._headers,
                    open_timeout=left_s,
                    compression=None,
                    max_size=None,
                    proxy=None,
                )
                first = self._connection.recv(timeout=left_s)
                self.metadata = unpack(first) if isinstance(first, bytes) else {}
                return self._connection
            except InvalidURI as error:
                raise ValueError(f"the url '{self.url}' is not one: {error}") from error
            except ssl.SSLError as error:
                raise ServerUnreachableError(f"{self.url}: {_about_tls(error)}") from error
            except (OSError, InvalidHandshake, ConnectionClosed) as error:
                self.close()
                if isinstance(error, InvalidStatus):
                    refusal = error
                    if error.response.status_code in (401, 403):
                        raise ServerUnreachableError(
                            f"{self.url} refuses this client: the token is missing or wrong"
                        ) from error
                if time.monotonic() + pause_s > deadline:
                    raise ServerUnreachableError(
                        f"no policy server answered at {self.url} within {self.connect_s:g} s "
                        f"({refusal or error}); start one with `rrf serve`"
                    ) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _about_tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}); give ca_file"
    return f"no TLS there ({error.reason}); use ws:// for a server without"


def _closed(url: str, error: ConnectionClosed) -> Exception:
    """What a closed connection means to the one who asked."""
    received = error.rcvd
    if received is not None and received.code in (1007, 1009):  # invalid data, too big
        return RequestRefusedError(f"{url} refused the request: {received.reason or error}")
    return ServerUnreachableError(f"{url} closed the connection: {error}")
