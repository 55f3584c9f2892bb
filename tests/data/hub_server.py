"""A server on 127.0.0.1 that answers as the Hugging Face hub does to what a download asks.

`hub_uploads.py` adds what an upload asks.
"""

import hashlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from rrf.data.transport import hub as module

PAGE = 2  # entries of a tree per answer


def git_id(content: bytes) -> str:
    """What git names a file of this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class HubServer:
    """Repositories by name: revision -> commit, commit -> files."""

    handler: "type[_Handler]"

    def __init__(self):
        self.revisions: dict[str, dict[str, str]] = {}
        self.commits: dict[str, dict[str, bytes]] = {}
        self.large: set[str] = set()  # files kept as the hub keeps large ones
        self.gated: set[str] = set()
        self.gated_contents: set[str] = set()  # repositories whose files may be listed, not read
        self.damaged: set[str] = set()  # files served with another content than is listed
        self.cuts: dict[str, int] = {}  # file -> bytes after which the server vanishes
        self.breaks: dict[str, int] = {}  # file -> bytes after which only the connection breaks
        self.refused: set[str] = set()  # large files whose address has expired
        self.knows_ranges = True
        self.contents: list[tuple[str, str]] = []  # file and range of each content asked for
        self.status: int | None = None  # answer everything so
        self._port = 0
        self._stopping: threading.Thread | None = None
        self.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def add(self, repo: str, revision: str, files: dict[str, bytes]) -> str:
        """Commit files and let `revision` lead to them."""
        described = json.dumps([repo, *sorted((k, git_id(v)) for k, v in files.items())])
        commit = hashlib.sha1(described.encode()).hexdigest()
        self.commits[commit] = files
        self.revisions.setdefault(repo, {}).update({revision: commit, commit: commit})
        return commit

    def start(self) -> None:
        """Begin to serve, on the same port as before."""
        hub = self
        if self._stopping:
            self._stopping.join()

        class Handler(self.handler):
            server_state = hub

        self.is_gone = False
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def vanish(self) -> None:
        """Stop from within an answer, which a thread of the server gives."""
        self.is_gone = True
        self._stopping = threading.Thread(target=self.stop, daemon=True)
        self._stopping.start()

    def stop(self) -> None:
        """Refuse and drop all connections."""
        self.is_gone = True
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: HubServer

    def do_GET(self):
        self._answer()

    def log_message(self, *_):
        pass

    def _answer(self) -> None:
        hub, path = self.server_state, urlsplit(self.path).path.strip("/")
        if hub.is_gone:
            self._drop()
        elif hub.status is not None:
            self._send(hub.status, {}, b"")
        elif path.startswith("api/"):
            self._answer_api(path.partition("/")[2].partition("/")[2])
        elif "/resolve/" in path:
            self._answer_file(path.removeprefix("datasets/"))
        else:  # where large files are kept
            self._send_content(unquote(path.removeprefix("large/")), {})

    def _answer_api(self, path: str) -> None:
        repo, revision, kind = self._split(path, ("revision", "tree"))
        commit = self._commit(repo, revision)
        if commit is None:
            return
        if kind != "tree":
            self._send(200, {}, json.dumps({"id": repo, "sha": commit, "siblings": []}).encode())
            return
        files = sorted(self.server_state.commits[commit].items())
        entries = [self._entry(name, content) for name, content in files]
        folders = sorted({name.rpartition("/")[0] for name, _ in files} - {""})
        entries += [{"type": "directory", "path": one, "oid": "0" * 40} for one in folders]
        first = int(parse_qs(urlsplit(self.path).query).get("cursor", ["0"])[0])
        headers = {}
        if first + PAGE < len(entries):
            kind = urlsplit(self.path).path.split("/")[2]  # datasets or models
            url = f"{self.server_state.endpoint}/api/{kind}/{repo}/tree/{commit}"
            headers["Link"] = f'<{url}?recursive=True&cursor={first + PAGE}>; rel="next"'
        self._send(200, headers, json.dumps(entries[first : first + PAGE]).encode())

    def _entry(self, name: str, content: bytes) -> dict:
        entry = {"type": "file", "path": name, "size": len(content), "oid": git_id(content)}
        if name in self.server_state.large:
            digest = hashlib.sha256(content).hexdigest()
            entry["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 130}
        return entry

    def _answer_file(self, path: str) -> None:
        repo, rest, _ = self._split(path, ("resolve",))
        revision, _, name = rest.partition("/")
        commit = self._commit(repo, revision)
        if commit is None:
            return
        if repo in self.server_state.gated_contents:
            self._send(401, {"X-Error-Code": "GatedRepo"}, b"")
            return
        name = unquote(name)
        content = self.server_state.commits[commit][name]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{git_id(content)}"'}
        if name not in self.server_state.large:
            self._send_content(f"{commit}/{name}", headers)
            return
        headers["X-Linked-Etag"] = f'"{hashlib.sha256(content).hexdigest()}"'
        headers["X-Linked-Size"] = str(len(content))
        signed = f"{commit}/{name}?X-Amz-Signature=secret&Expires=1"
        headers["Location"] = f"{self.server_state.endpoint}/large/{signed}"
        self._send(302, headers, b"")

    def _split(self, path: str, words: tuple[str, ...]) -> tuple[str, str, str]:
        """Repository, what follows the word after it (main if nothing does), and that word."""
        for word in words:
            repo, found, rest = path.partition(f"/{word}/")
            if found:
                return repo, unquote(rest) if word != "resolve" else rest, word
        return path, "main", ""

    def _commit(self, repo: str, revision: str) -> str | None:
        hub = self.server_state
        if repo not in hub.revisions:
            self._send(404, {"X-Error-Code": "RepoNotFound"}, b"")
        elif repo in hub.gated:
            self._send(403, {"X-Error-Code": "GatedRepo"}, b"")
        elif revision not in hub.revisions[repo]:
            self._send(404, {"X-Error-Code": "RevisionNotFound"}, b"")
        else:
            return hub.revisions[repo][revision]
        return None

    def _send_content(self, place: str, headers: dict) -> None:
        hub = self.server_state
        commit, _, name = place.partition("/")
        content, status = hub.commits[commit][name], 200
        if name in hub.damaged:
            content = bytes(len(content))
        if name in hub.refused:
            self._send(403, {}, b"")
            return
        asked = self.headers.get("Range", "")
        hub.contents.append((name, asked))
        if asked and hub.knows_ranges:
            first, last = map(int, asked.removeprefix("bytes=").split("-"))
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            content, status = content[first : last + 1], 206
        is_end = name in hub.cuts
        cut = (hub.cuts if is_end else hub.breaks).pop(name, None)
        self._send(status, headers, content, cut, is_end)

    def _send(
        self,
        status: int,
        headers: dict,
        content: bytes,
        cut: int | None = None,
        is_end: bool = False,
    ) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(content[:cut])
        if is_end:
            self.server_state.vanish()
        if cut is not None:
            self._drop()

    def _drop(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


HubServer.handler = _Handler


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """An empty hub, where nobody is logged in."""
    yield from serve(HubServer, monkeypatch, tmp_path)


def serve(kind: type[HubServer], monkeypatch, tmp_path):
    """A server while a test runs. The client knows since its import whether it may use the network,
    which other tests forbid.
    """
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(module, "_BLOCK_BYTES", 1000)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    server = kind()
    yield server
    if not server.is_gone:
        server.stop()
