"""The exporter: one page with all numbers, on 127.0.0.1, for who knows the workspace's login.

Whoever asks sooner than `FRESH_S` after the last one gets the same text: several Prometheus servers
cost no more than one.
"""

import asyncio
import threading
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

FRESH_S = 10.0
PAGE, HEALTH = "/metrics", "/health"
HOST = "127.0.0.1"


class Exporter:
    """The text of several collectors.

    Args:
        collectors: Each is asked in turn.
        clock: Seconds.
    """

    def __init__(self, *collectors: Collector, clock: Callable[[], float] = time.monotonic):
        self._registry, self._clock = CollectorRegistry(auto_describe=False), clock
        for collector in collectors:
            self._registry.register(collector)
        self._lock, self._text, self._read_s = threading.Lock(), b"", -FRESH_S

    def text(self) -> bytes:
        """All numbers in Prometheus' text format."""
        with self._lock:
            if self._clock() - self._read_s >= FRESH_S:
                self._text = generate_latest(self._registry)
                self._read_s = self._clock()
            return self._text

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        """Answer as an ASGI application."""
        asked = (scope["method"], scope["path"]) if scope["type"] == "http" else ()
        is_page, is_health = asked == ("GET", PAGE), asked == ("GET", HEALTH)
        body = await asyncio.to_thread(self.text) if is_page else f"see {PAGE}\n".encode()
        kind = CONTENT_TYPE_LATEST if is_page else "text/plain; charset=utf-8"
        headers = [(b"content-type", kind.encode())]
        status = 200 if is_page or is_health else 404
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def serve(exporter: Exporter, port: int, on_ready: Callable[[int], None]) -> None:
    """Serve the page until SIGTERM or Ctrl-C.

    Args:
        exporter: The numbers.
        port: 0 for any free one.
        on_ready: Called with the port when the page can be read.

    Raises:
        ValueError: If the port is in use.
    """
    import socket

    import uvicorn

    from rrf import service_guard

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with listener:
        try:
            listener.bind((HOST, port))
        except OSError as error:
            raise ValueError(
                f"port {port} cannot be used ({error.strerror}); choose another one: rrf metrics "
                f"--port {port + 1}"
            ) from error
        listener.listen()
        app = service_guard.Guard(exporter, service_guard.login())
        config = uvicorn.Config(app, log_level="warning", lifespan="off", access_log=False)
        on_ready(listener.getsockname()[1])
        uvicorn.Server(config).run(sockets=[listener])
