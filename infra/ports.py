"""TCP ports on this machine's loopback interface."""

import secrets
import socket

HOST = "127.0.0.1"
_FIRST, _FIRST_OUTGOING = 20000, 32768


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free() -> int:
    """A port on which no program is listening now. It lies below those that Linux gives to outgoing
    connections, so that none of them takes it before it is used."""
    while not is_free(port := _FIRST + secrets.randbelow(_FIRST_OUTGOING - _FIRST)):
        pass
    return port
