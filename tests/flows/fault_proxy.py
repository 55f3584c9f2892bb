"""`python fault_proxy.py HOST PORT FILE`: passes requests on to a server, or spoils them.

It listens on port 8080. FILE says what happens: `500` answers so, `slow` waits five seconds first,
and anything else passes on. It runs in an image of the stack and needs nothing but Python.
"""

import http.client
import http.server
import sys
import time
from pathlib import Path

HOST, PORT, FILE = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
SLOW_S = 5.0
_OF_THE_WAY = ("connection", "transfer-encoding", "keep-alive")


class Proxy(http.server.BaseHTTPRequestHandler):
    """One request and its answer."""

    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        mode = FILE.read_text().strip()
        if mode == "500":
            self._answer(500, [], b"<Error><Code>InternalError</Code></Error>")
            return
        if mode == "slow":
            time.sleep(SLOW_S)
        server = http.client.HTTPConnection(HOST, PORT, timeout=300)
        try:
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                server.putheader(name, value)
            server.endheaders(body)
            answer = server.getresponse()
            content = answer.read()
        except OSError:
            self._answer(502, [], b"")
            return
        finally:
            server.close()
        self._answer(answer.status, answer.getheaders(), content)

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        is_head = self.command == "HEAD"
        for name, value in headers:
            if name.lower() not in _OF_THE_WAY and (is_head or name.lower() != "content-length"):
                self.send_header(name, value)
        if not is_head and status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if not is_head:
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("0.0.0.0", 8080), Proxy).serve_forever()
