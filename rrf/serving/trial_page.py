"""The operator's page of a study, for phones and tablets: what to set up, Start, and how it ended.

`GET /` is the page, which holds no secret. Everything else needs the token as `Authorization:
Bearer`, so no other page can ask for it: a browser adds such a header by itself nowhere, and pages
of other servers may not add it. `rrf.service_guard.Guard` stands before it and refuses foreign
names and pages. The link that the command prints has the token behind a `#`, which browsers keep to
themselves.

    GET  /api/view                    what the operator sees (`rrf.serving.trials.Session.view`)
    POST /api/start|score|invalid|undo   {"trial": "7", …}; the answer is the new view

An answer is on the disk before it is confirmed. 409: it is about another trial than the one of the
moment, and nothing was written.
"""

import asyncio
import json
import os
import secrets
import socket
import ssl
import threading
import typing
from collections.abc import Callable, Mapping
from pathlib import Path

from rrf import atomic
from rrf.evaluation.trials.record import ConflictError
from rrf.pages.page import render
from rrf.service_guard import Guard, drain
from rrf.serving.access import is_allowed
from rrf.serving.trials import Session

_MOST_BYTES = 64_000
_JSON, _TEXT = b"application/json", b"text/plain; charset=utf-8"
_PLAIN_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class Page:
    """The page and its questions as an ASGI application.

    Args:
        session: The study.
        token: What the page's user must know.
    """

    def __init__(self, session: Session, token: str):
        self._session, self._token = session, token
        self._posts: dict[str, Callable[[str, Mapping], None]] = {
            "/api/start": session.start,
            "/api/score": session.score,
            "/api/invalid": session.invalid,
            "/api/undo": session.undo,
        }

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        status, kind, body, headers = await self._answer(scope, receive)
        headers = [(b"content-type", kind), *_PLAIN_HEADERS, *headers]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: dict, receive: Callable) -> tuple[int, bytes, bytes, list]:
        method, path = scope["method"], scope["path"]
        if (method, path) == ("GET", "/"):
            return self._page()
        if (method, path) != ("GET", "/api/view") and not (
            method == "POST" and path in self._posts
        ):
            return 404, _TEXT, b"there is nothing here\n", []
        given = [value for key, value in scope["headers"] if key == b"authorization"]
        authorization = given[0].decode("latin-1") if len(given) == 1 else None
        if not is_allowed(authorization, self._token):
            await drain(receive)
            return 401, _TEXT, b"open the link that `rrf trial serve` has printed\n", []
        if method == "GET":
            return 200, _JSON, await asyncio.to_thread(self._view), []
        try:
            content = await _content(receive)
            trial = content.get("trial")
            if not isinstance(trial, str):
                raise ValueError("'trial' names the trial that is meant")
            await asyncio.to_thread(self._posts[path], trial, content)
        except ConflictError as error:
            return 409, _TEXT, f"{error}\n".encode(), []
        except ValueError as error:
            return 400, _TEXT, f"{error}\n".encode(), []
        except OSError as error:
            return 507, _TEXT, f"not written down, say it again: {error}\n".encode(), []
        return 200, _JSON, await asyncio.to_thread(self._view), []

    def _page(self) -> tuple[int, bytes, bytes, list]:
        nonce = secrets.token_urlsafe(16)
        page = render("serving/trial.html", title="Trial", nonce=nonce)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        headers = [(b"content-security-policy", policy.encode())]
        return 200, b"text/html; charset=utf-8", page.encode(), headers

    def _view(self) -> bytes:
        return json.dumps(self._session.view()).encode()


async def _content(receive: Callable) -> dict[str, typing.Any]:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > _MOST_BYTES:
            if message.get("more_body"):
                await drain(receive)
            raise ValueError(f"an answer has at most {_MOST_BYTES} bytes")
        if not message.get("more_body"):
            break
    content = atomic.parse_json(body)
    if not isinstance(content, dict):
        raise ValueError("an answer is a JSON object")
    return content


def token_in(file: Path) -> str:
    """The token in a file that only this user can read; made if there is none, so that tablets find
    the page again after a restart.

    Raises:
        ValueError: If others can read it.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(secrets.token_urlsafe(32))
    if file.stat().st_mode & 0o077:
        raise ValueError(f"others can read {file}; remove it, a new token is made then")
    return file.read_text().strip()


class PageServer:
    """Serves the page in a thread of its own within a `with` block.

    Args:
        page: The page.
        host: Address to listen on.
        port: 0 for any free one.
        names: Names and addresses of this machine that tablets reach it by.
        tls: Certificate and key in PEM form; None for no TLS.

    Raises:
        OSError: If nobody can listen there.
    """

    def __init__(
        self, page: Page, host: str, port: int, names: list[str], tls: tuple[str, str] | None
    ):
        import uvicorn

        config = uvicorn.Config(
            Guard(page, names=[host, *names]), log_level="warning", lifespan="off", access_log=False
        )
        if tls:
            config.ssl_certfile, config.ssl_keyfile = tls
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*tls)
            except ssl.SSLError as error:
                raise ValueError(
                    f"{tls[0]} and {tls[1]} are no certificate and key: {error}"
                ) from error
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._listener = socket.socket(family)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind(address)
        except OSError as error:
            self._listener.close()
            raise OSError(
                f"cannot listen at {host}:{port} ({error.strerror}); choose another place with "
                "--port or --host"
            ) from error
        self._listener.listen()
        self.port: int = self._listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if tls else 'http'}://{shown}:{self.port}/"
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],))

    def __enter__(self) -> "PageServer":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()
