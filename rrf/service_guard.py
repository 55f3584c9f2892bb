"""Who may use the servers of `rrf services up`: this user, with programs, and with a browser on the
servers' own pages.

The login is one line, `rrf:SECRET`, in `.rrf/login`, which only this user can read. What this user
starts on this machine finds it there. `Guard` stands before Prefect's server and MLflow's, and
refuses

- a name in the `Host` header that is not this machine's: a foreign page whose name was made to lead
  here (DNS rebinding);
- an `Origin`, or a `Sec-Fetch-Site`, of another page: browsers send them, and pages cannot change
  them. A link that somebody clicks is let through;
- for MLflow, whoever does not know the login. Prefect asks for it by itself.

No other page may show one of the servers in a frame.

Where a server runs for a team (`infra/compose.yaml`), `$RRF_LOGIN` is the login, and
`$RRF_SERVER_NAMES` has the names, separated by commas, that it is reached by beside this machine's.
"""

import asyncio
import base64
import contextlib
import hmac
import http.client
import os
import re
import secrets
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rrf import service_records, workspace

LOGIN_VARIABLE, NAMES_VARIABLE = "RRF_LOGIN", "RRF_SERVER_NAMES"
MLFLOW_CERTIFICATES = "MLFLOW_TRACKING_SERVER_CERT_PATH"
MLFLOW_LOGIN = (
    "check user and password in MLFLOW_TRACKING_URI, or in MLFLOW_TRACKING_USERNAME and "
    "MLFLOW_TRACKING_PASSWORD"
)
PREFECT_CERTIFICATES = "PREFECT_API_SSL_CERT_FILE"
NO_ANSWER = (OSError, http.client.HTTPException)
"""What urllib raises if a server is away, or answers with something else than HTTP."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MOST_DRAINED, _DRAIN_S = 1 << 20, 5.0
_OPEN_TO_ALL = ("/health", "/version")  # of MLflow: whether it works
_App = Callable[[dict, Callable, Callable], Awaitable[None]]


def login_file() -> Path:
    """Where the login of this workspace's servers is."""
    return workspace.state() / "login"


def login() -> str:
    """The login as `USER:SECRET`; it is made when it is asked for the first time.

    Raises:
        ValueError: If others can read the file, or it holds no login.
        OSError: If it cannot be read, for instance because it is another user's.
    """
    if given := os.environ.get(LOGIN_VARIABLE):
        if not all(given.partition(":")):
            raise ValueError(f"{LOGIN_VARIABLE} holds no USER:SECRET")
        return given
    path = login_file()
    if not path.exists():
        _make(path)
    if path.stat().st_mode & 0o077:
        raise ValueError(
            f"others can read {path}; if nobody has, type: chmod 600 {path}; else remove it and "
            "type: rrf services down; rrf services up"
        )
    text = path.read_text().strip()
    if not all(text.partition(":")):
        raise ValueError(f"{path} holds no USER:SECRET; remove it, then type: rrf services up")
    return text


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"rrf:{secrets.token_urlsafe(32)}\n")
    with contextlib.suppress(FileExistsError):  # another process was faster
        path.hardlink_to(new)
    new.unlink()


def login_of(url: str) -> str | None:
    """The login for `url` if a running server of this workspace has that address; else None."""
    parts = urlsplit(url)
    for name in service_records.PORTS:
        record = service_records.read(name)
        if record and record.is_running and record.port == parts.port:
            is_ours = parts.hostname in _LOOPBACK and login_file().exists()
            return login() if is_ours else None
    return None


def certificates(variable: str) -> ssl.SSLContext | None:
    """What the certificate of a server is compared with: the file that MLflow's or Prefect's
    variable names, as their own clients do; None for those that this machine knows.

    Raises:
        OSError: If there is no such file, or nothing of that kind in it.
    """
    file = os.environ.get(variable)
    if file and not Path(file).is_file():
        raise FileNotFoundError(f"{variable} names {file}, and there is no such file")
    return ssl.create_default_context(cafile=file) if file else None


def hint(error: str, variable: str) -> str:
    """What to type if `error` is about the certificate or the login of the server whose
    certificates `variable` names; empty for other errors."""
    if "certificate verify failed" in error:
        return f"name the file that vouches for its certificate; type: export {variable}=FILE"
    if not re.search(r"\b401\b", error):
        return ""
    if variable == MLFLOW_CERTIFICATES:
        return MLFLOW_LOGIN
    return (
        "it asks for a login; type: export PREFECT_API_AUTH_STRING=USER:PASSWORD (of a workspace, "
        "it is in .rrf/login)"
    )


def authorization(name: str) -> dict[str, str]:
    """The header with the login that the environment has for the server `prefect` or `mlflow`; it
    is empty where there is none."""
    if name == "prefect":
        _, user, password = workspace.split_login(os.environ.get("PREFECT_API_URL") or "")
        known = f"{user}:{password}" if user else os.environ.get("PREFECT_API_AUTH_STRING")
    else:
        if token := os.environ.get("MLFLOW_TRACKING_TOKEN"):
            return {"Authorization": f"Bearer {token}"}
        workspace.tracking_uri()  # moves a login in the address to the variables
        user = os.environ.get("MLFLOW_TRACKING_USERNAME")
        known = user and f"{user}:{os.environ.get('MLFLOW_TRACKING_PASSWORD', '')}"
    coded = known and base64.b64encode(known.encode()).decode()
    return {"Authorization": f"Basic {coded}"} if coded else {}


def give_mlflow_login(uri: str) -> None:
    """Let MLflow's clients in this process log in at `uri`, if it is this workspace's server."""
    variables = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_TOKEN")
    if not uri.startswith(workspace.SERVERS) or any(os.environ.get(each) for each in variables):
        return
    if known := login_of(uri):
        user, _, secret = known.partition(":")
        os.environ |= {"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": secret}


def mlflow_app() -> _App:
    """MLflow's server behind a guard: the app `rrf` of `mlflow server --app-name`."""
    from mlflow.server.fastapi_app import app

    return Guard(app, login())


class Guard:
    """An ASGI application that passes on what may pass to another one.

    Args:
        app: The server.
        login: `USER:SECRET` that requests must bring; None if the server checks that.
        names: Names of this machine that it may be reached by, beside those of `$RRF_SERVER_NAMES`.
    """

    def __init__(self, app: _App, login: str | None = None, names: Sequence[str] = ()):
        self._app = app
        named = [*names, *os.environ.get(NAMES_VARIABLE, "").split(",")]
        self._names = [name.strip().lower() for name in named if name.strip()]
        self._login = None if login is None else b"Basic " + base64.b64encode(login.encode())

    async def __call__(self, scope: dict[str, Any], receive: Callable, send: Callable) -> None:
        """Answer one request, or one websocket."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        if refusal := self._refusal(scope):
            await _refuse(scope, receive, send, *refusal)
            return

        async def framed(message: dict) -> None:
            if message["type"] == "http.response.start":
                policy = (b"content-security-policy", b"frame-ancestors 'self'")
                message = {**message, "headers": [*message.get("headers", ()), policy]}
            await send(message)

        await self._app(scope, receive, framed)

    def _refusal(self, scope: dict[str, Any]) -> tuple[int, str] | None:
        """Status and reason of the refusal of a request; None if it may pass."""

        def header(name: bytes) -> list[bytes]:
            return [value for key, value in scope["headers"] if key == name]

        hosts = header(b"host")
        if len(hosts) != 1 or _hostname(hosts[0]) not in (*_LOOPBACK, *self._names):
            return 403, (
                "this server answers to 127.0.0.1 only; reach it through a tunnel, or name it in "
                f"{NAMES_VARIABLE}\n"
            )
        if any(origin.partition(b"://")[2] != hosts[0] for origin in header(b"origin")):
            return 403, "pages of other servers may not use this one\n"
        is_link = scope.get("method") == "GET" and header(b"sec-fetch-mode") == [b"navigate"]
        if not is_link and set(header(b"sec-fetch-site")) - {b"same-origin", b"none"}:
            return 403, "pages of other servers may not use this one\n"
        if self._login is None or scope["path"] in _OPEN_TO_ALL:
            return None
        given = header(b"authorization")
        if len(given) == 1 and hmac.compare_digest(given[0], self._login):
            return None
        return 401, f"user and password are in {login_file()}, before and after the colon\n"


def _hostname(host: bytes) -> str | None:
    """The name in a `Host` header, without the port."""
    try:
        return urlsplit(f"//{host.decode('ascii')}").hostname
    except ValueError:
        return None


async def drain(receive: Callable) -> None:
    """Take what a refused request still sends: a connection that is closed with unread bytes is
    reset, and the answer may be lost. At most `_MOST_DRAINED` bytes, for at most `_DRAIN_S`.
    """

    async def take() -> None:
        left = _MOST_DRAINED
        while left > 0:
            message = await receive()
            left -= len(message.get("body", b""))
            if not message.get("more_body"):
                return

    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(take(), _DRAIN_S)


async def _refuse(
    scope: dict[str, Any], receive: Callable, send: Callable, status: int, reason: str
) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    await drain(receive)
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    if status == 401:
        headers.append((b"www-authenticate", b'Basic realm="rrf", charset="UTF-8"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": reason.encode()})
