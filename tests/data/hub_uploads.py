"""What an upload asks of the Hugging Face hub, on 127.0.0.1: a repository, how each file goes up,
large files by git's LFS protocol, one commit, and tags.
"""

import base64
import json
from urllib.parse import unquote, urlsplit

import pytest

from tests.data.hub_server import HubServer, _Handler, git_id, serve

TOKEN = "hf_test"
LARGE_SUFFIXES = (".parquet", ".mp4")


class _UploadHandler(_Handler):
    server_state: "UploadHub"

    def do_POST(self):  # noqa: N802 (http.server names it)
        content = self.rfile.read(int(self.headers["Content-Length"]))
        path = urlsplit(self.path).path.strip("/")
        if self.server_state.is_gone:
            self._drop()
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, {}, b"{}")
        elif path == "api/validate-yaml":
            self._say({"errors": [], "warnings": []})
        elif path == "api/repos/create":
            self._create(json.loads(content))
        elif path.endswith(".git/info/lfs/objects/batch"):
            self._batch(json.loads(content))
        else:
            repo, _, rest = path.removeprefix("api/datasets/").partition("/")
            name, _, rest = rest.partition("/")
            verb = rest.partition("/")[0]
            getattr(self, f"_{verb}")(f"{repo}/{name}", rest, content)

    def do_PUT(self):  # noqa: N802 (http.server names it)
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server_state.stored[self.path.rpartition("/")[2]] = content
        self._say({})

    def do_DELETE(self):  # noqa: N802 (http.server names it)
        repo, _, tag = urlsplit(self.path).path.removeprefix("/api/datasets/").partition("/tag/")
        if self.server_state.revisions[repo].pop(tag, None) is None:
            self._send(404, {"X-Error-Code": "RevisionNotFound"}, b"")
        else:
            self._say({})

    def _create(self, asked: dict) -> None:
        hub, repo = self.server_state, f"{asked['organization']}/{asked['name']}"
        if asked["organization"] in hub.foreign:
            self._send(403, {}, b'{"error": "no rights"}')
            return
        if repo in hub.revisions:
            self._say({"url": f"{hub.endpoint}/datasets/{repo}"}, 409)
            return
        hub.is_private[repo] = asked["visibility"] == "private"
        hub.add(repo, "main", {".gitattributes": b"*.parquet lfs\n"})
        self._say({"url": f"{hub.endpoint}/datasets/{repo}"})

    def _preupload(self, repo: str, rest: str, content: bytes) -> None:
        files = self.server_state.commits[self.server_state.revisions[repo]["main"]]
        answer = []
        for file in json.loads(content)["files"]:
            path = file["path"]
            mode = "lfs" if path.endswith(LARGE_SUFFIXES) else "regular"
            known = git_id(files[path]) if path in files and mode == "regular" else None
            answer.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": known})
        self._say({"files": answer})

    def _batch(self, asked: dict) -> None:
        hub, objects = self.server_state, []
        for one in asked["objects"]:
            entry = {"oid": one["oid"], "size": one["size"]}
            if one["oid"] not in hub.stored:
                entry["actions"] = {"upload": {"href": f"{hub.endpoint}/lfs/{one['oid']}"}}
                hub.sent.append(one["oid"])
            objects.append(entry)
        self._say({"objects": objects})

    def _commit(self, repo: str, rest: str, content: bytes | None = None):
        if content is None:  # asked for by a download
            return super()._commit(repo, rest)
        hub = self.server_state
        files = dict(hub.commits[hub.revisions[repo]["main"]])
        for line in content.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = hub.stored[value["oid"]]
                hub.large.add(value["path"])
            elif entry["key"] == "deletedFile":
                del files[value["path"]]
            elif entry["key"] == "header":
                hub.messages.append(value["summary"])
        for name in hub.spoiled & set(files):
            files[name] += b"?"
        oid = hub.add(repo, "main", files)
        self._say({"commitUrl": f"{hub.endpoint}/datasets/{repo}/commit/{oid}", "commitOid": oid})
        return None

    def _tag(self, repo: str, rest: str, content: bytes) -> None:
        tags = self.server_state.revisions[repo]
        tags[json.loads(content)["tag"]] = unquote(rest.partition("/")[2])
        self._say({})

    def _say(self, answer: dict, status: int = 200) -> None:
        self._send(status, {"Content-Type": "application/json"}, json.dumps(answer).encode())


class UploadHub(HubServer):
    """A hub that can be written to with TOKEN."""

    handler = _UploadHandler

    def __init__(self):
        self.stored: dict[str, bytes] = {}  # large files by their SHA-256
        self.sent: list[str] = []  # those that were asked for
        self.is_private: dict[str, bool] = {}
        self.messages: list[str] = []
        self.foreign: set[str] = set()  # owners that TOKEN may not write for
        self.spoiled: set[str] = set()  # files that are stored wrongly
        super().__init__()


@pytest.fixture
def upload_hub(monkeypatch, tmp_path):
    """An empty hub, where we are logged in. Xet, a protocol of its own, is not spoken here."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    generator = serve(UploadHub, monkeypatch, tmp_path)
    server = next(generator)
    monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
    address = server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    yield server
    next(generator, None)
