"""A policy server that speaks vla-eval's protocol, so that its benchmarks can run our policies.

`rrf serve POLICY --protocol vla-eval`; then `vla-eval run --server-url ws://HOST:PORT`. The
benchmark asks with every observation for one action. The policy answers with chunks: the first
`execute_steps` actions of one are executed, then it is asked again. Episodes and their outcomes are
noted in the book, as those of robots are.

vla-eval's clients send no token, so this server is for the same machine, or for everybody who
reaches it (`--insecure`).
"""

import http
import time
import typing
import uuid

import numpy as np
from websockets.asyncio.server import ServerConnection
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.protocol import State

from rrf.client import vla_eval
from rrf.client.messages import MessageError
from rrf.client.vla_eval import Frame
from rrf.data.schema import IMAGE_PREFIX
from rrf.serving.episodes import Conversation
from rrf.serving.player import Player
from rrf.serving.server import PolicyServer

_MOST_REASON = 1_000


class VlaEvalServer(PolicyServer):
    """See the module; arguments are those of `PolicyServer`."""

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.path.partition("?")[0] == "/health":
            return connection.respond(http.HTTPStatus.OK, '{"status": "ok"}\n')
        return super()._admit(connection, request)

    async def _greet(self, connection: ServerConnection) -> None:
        """The client speaks first."""

    async def _reply(
        self, connection: ServerConnection, talk: Conversation, message: str | bytes
    ) -> bool:
        try:
            frame = vla_eval.unpack(message)
        except MessageError as error:
            self.metrics.error("malformed")
            await connection.close(CloseCode.INVALID_DATA, str(error)[:100])
            return False
        try:
            if frame.type == vla_eval.HELLO:
                await self._say(connection, vla_eval.HELLO, self._about(frame), frame.seq)
            elif frame.type == vla_eval.START:
                await self._begin(frame, talk)
            elif frame.type == vla_eval.OBSERVATION:
                actions = await self._act(connection, talk, frame)
                await self._say(connection, vla_eval.ACTION, {"actions": actions}, frame.seq)
                self.metrics.requests.inc()
            elif frame.type == vla_eval.END:
                await self._end(frame, talk)
        except (ValueError, OSError, NotImplementedError) as error:
            self.metrics.error("observation")
            await self._say(connection, vla_eval.ERROR, {"error": str(error)}, frame.seq)
        return True

    async def _say(self, connection: ServerConnection, type: str, payload: dict, seq: int) -> None:
        await self._send(connection, vla_eval.pack(Frame(type, payload, seq)))  # type: ignore[arg-type]

    def _about(self, frame: Frame) -> dict[str, typing.Any]:
        if (version := frame.payload.get("protocol_version", vla_eval.VERSION)) != vla_eval.VERSION:
            raise ValueError(f"version {version!r} of the protocol, known is {vla_eval.VERSION}")
        told = self._cast.champion.metadata
        return {
            "harness_version": vla_eval.HARNESS,
            "protocol_version": vla_eval.VERSION,
            "model_server": f"rrf {told['policy']}",
            "capabilities": {},
        }

    async def _begin(self, frame: Frame, talk: Conversation) -> None:
        talk.actions.clear()
        if self._episodes is None:
            return
        task = frame.payload.get("task")
        name = task.get("name") or task.get("task") if isinstance(task, dict) else task
        text = "".join(c for c in str(name or "")[:512] if c.isprintable())
        about = {"id": uuid.uuid4().hex, "task": text}
        episode = await self._episodes.begin(about, self._choose)
        self._episodes.take(talk, episode, self._cast.player_of(episode))

    async def _end(self, frame: Frame, talk: Conversation) -> None:
        if self._episodes is None or talk.episode is None:
            return
        metrics = frame.payload.get("metrics")
        success = metrics.get("success") if isinstance(metrics, dict) else None
        solved = bool(success) if success in (0, 1) else None  # a part of it is none of them
        reason = str(frame.payload.get("failure_reason") or "")[:_MOST_REASON]
        reason = "".join(c for c in reason if c.isprintable())
        end = {"id": talk.episode.id, "success": solved, "reason": reason, "guards": 0}
        await self._episodes.end(end, talk)

    async def _act(
        self, connection: ServerConnection, talk: Conversation, frame: Frame
    ) -> np.ndarray:
        """The next action, [A]."""
        player, begin = talk.player or self._cast.champion, time.perf_counter()
        if revoked := self._cast.revoked(player.version):  # no client could be told beside actions
            raise ValueError(revoked)
        if talk.actions:
            return talk.actions.popleft()
        row = player.read(self._observation(player, frame.payload))
        result = await player.batcher.submit(row, lambda: connection.state is State.OPEN)
        talk.actions.extend(np.atleast_2d(result.actions)[: self.cfg.execute_steps])
        if self._episodes and talk.episode:
            self._episodes.heard(talk.episode)
            talk.see(row.inputs)
        total_s = time.perf_counter() - begin
        await self._violations(talk, row, result.actions, total_s, None)
        return talk.actions.popleft()

    def _observation(self, player: Player, payload: typing.Mapping) -> dict[str, typing.Any]:
        """vla-eval's names for ours: a camera that we do not know by its name stands for the only
        one of ours, and pictures are resized where `resize` says so.
        """
        seen: dict[str, typing.Any] = {
            key: value
            for key, value in payload.items()
            if key not in ("images", "task_description")
        }
        if (text := payload.get("task_description")) is not None:
            seen["prompt"] = text
        images = payload.get("images")
        images = dict(images) if isinstance(images, typing.Mapping) else {}
        wanted = {
            name.removeprefix(IMAGE_PREFIX): told["shape"]
            for name, told in player.metadata["inputs"].items()
            if name.startswith(IMAGE_PREFIX)
        }
        if len(wanted) == 1 == len(images):
            images = {next(iter(wanted)): next(iter(images.values()))}
        for name, shape in wanted.items() if self.cfg.resize else ():
            if isinstance(image := images.get(name), np.ndarray):
                images[name] = _resized(name, image, shape)
        return {**seen, "images": images}


def _resized(name: str, image: np.ndarray, shape: typing.Sequence[int]) -> np.ndarray:
    """A picture [H, W, 3] of another size, as an area average or bilinearly."""
    from PIL import Image

    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(f"'{name}' is {image.dtype}{list(image.shape)}, expected uint8[H, W, 3]")
    if list(image.shape) == list(shape):
        return image
    picture = Image.fromarray(np.ascontiguousarray(image))
    return np.asarray(picture.resize((shape[1], shape[0]), Image.Resampling.BILINEAR))
