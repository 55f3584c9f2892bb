"""TCP ports on this machine's loopback interface."""

import os
import socket

HOST = "127.0.0.1"


def read(variable: str, default: int) -> int:
    """The port in an environment variable, or `default`. Raises ValueError if it is not a port."""
    text = os.environ.get(variable) or str(default)
    if not (text.isdigit() and 0 < int(text) < 65536):
        raise ValueError(f"{variable}={text!r} is not a port number (1 to 65535)")
    return int(text)


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
    """A port on which no program is listening now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]
