"""Who may use a policy server: the token, and TLS."""

import hmac
import os
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

from rrf.serving.configs import ServingCfg

TOKEN_VARIABLE = "RRF_SERVE_TOKEN"
_SCHEMES = ("bearer", "api-key")  # openpi's client writes Api-Key
_MIN_TOKEN = 16


def read_token(file: Path | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The token of a file, or else of the environment variable RRF_SERVE_TOKEN, if there is one.

    Raises:
        ValueError: If it is too short to be secret, or has characters that no header can carry.
        OSError: If the file cannot be read.
    """
    where = str(file) if file else TOKEN_VARIABLE
    token = file.read_text(encoding="utf-8") if file else environment.get(TOKEN_VARIABLE)
    if token is None:
        return None
    token = token.strip()
    if len(token) < _MIN_TOKEN or not (token.isascii() and token.isprintable()) or " " in token:
        raise ValueError(
            f"the token in {where} must have {_MIN_TOKEN} or more printable ASCII characters "
            "without spaces; make one with: python -c 'import secrets; "
            "print(secrets.token_urlsafe(32))'"
        )
    return token


def check_exposure(cfg: ServingCfg, token: str | None) -> None:
    """Raise ValueError if everybody on the network could use the server."""
    if cfg.is_public and token is None and not cfg.insecure:
        raise ValueError(
            f"--host {cfg.host} lets other machines use the policy without a token; give "
            f"--token-file FILE or set {TOKEN_VARIABLE}, or say --insecure if you mean it"
        )


def is_allowed(authorization: str | None, token: str | None) -> bool:
    """Whether the header `Authorization` of a request has the token."""
    if token is None:
        return True
    scheme, _, given = (authorization or "").partition(" ")
    is_equal = hmac.compare_digest(given.strip().encode(errors="surrogateescape"), token.encode())
    return is_equal and scheme.lower() in _SCHEMES


def check_place(cfg: ServingCfg) -> None:
    """Check where a server shall listen, before its policy is loaded.

    Raises:
        ValueError: If certificate and key do not fit.
        OSError: If a file cannot be read, or the place is taken or none of this machine.
    """
    tls_context(cfg)
    try:
        family, kind, *_, address = socket.getaddrinfo(
            cfg.host, cfg.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind) as place:
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            place.bind(address)
    except OSError as error:
        raise OSError(
            f"cannot listen at {cfg.host}:{cfg.port} ({error.strerror}); choose another place with "
            "--port or --host"
        ) from error


def tls_context(cfg: ServingCfg) -> ssl.SSLContext | None:
    """The server's side of TLS, or None without a certificate.

    Raises:
        ValueError: If certificate and key do not fit, or are not in PEM form.
        OSError: If one of the files cannot be read.
    """
    if cfg.certificate is None or cfg.key is None:
        return None
    for file in (cfg.certificate, cfg.key):
        Path(file).open("rb").close()  # an error that names the file
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cfg.certificate, cfg.key)
    except ssl.SSLError as error:
        raise ValueError(
            f"{cfg.certificate} and {cfg.key} are not a certificate and its key in PEM form: "
            f"{error.reason}"
        ) from error
    return context
