"""An S3 server on 127.0.0.1 (moto's), which notes what is asked for and can vanish."""

import functools
import socket
import threading
from pathlib import Path

import pytest

HOST = "127.0.0.1"


class S3Server:
    """Objects by `s3://bucket/key`. Needs the environment that the fixture `s3` sets."""

    def __init__(self):
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self._application = DomainDispatcherApplication(create_backend_app)
        self._port = 0
        self._is_gone = False
        self.vanishes_after: int | None = None  # so many more contents, and half of one
        self.holds_after: int | None = None  # so many contents; those beyond wait until released
        self.released = threading.Event()
        self.contents: list[tuple[str, str]] = []  # "bucket/key" and range of each content asked
        self.start()

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self._port}"

    def start(self) -> None:
        """Begin to serve, on the same port as before; objects are kept."""
        from moto.moto_server.werkzeug_app import MotoRequestHandler
        from werkzeug.serving import make_server

        class Quiet(MotoRequestHandler):
            def log(self, *_):
                pass

        self._is_gone, self.vanishes_after = False, None
        self._server = make_server(HOST, self._port, self._serve, True, request_handler=Quiet)
        self._port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Refuse and drop all connections."""
        self._is_gone = True
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def put(self, url: str, content: bytes, **extra) -> None:
        """Write one object, and its bucket if there is none."""
        bucket, _, key = url.removeprefix("s3://").partition("/")
        client = self._client
        client.create_bucket(Bucket=bucket)
        client.put_object(Bucket=bucket, Key=key, Body=content, **extra)

    def put_in_parts(self, url: str, parts: list[bytes]) -> None:
        """Write one object by a multipart upload."""
        bucket, _, key = url.removeprefix("s3://").partition("/")
        client, place = self._client, {"Bucket": bucket, "Key": key}
        upload = client.create_multipart_upload(**place)["UploadId"]
        etags = [
            client.upload_part(**place, UploadId=upload, PartNumber=number, Body=part)["ETag"]
            for number, part in enumerate(parts, start=1)
        ]
        listed = [{"PartNumber": n, "ETag": etag} for n, etag in enumerate(etags, start=1)]
        client.complete_multipart_upload(
            **place, UploadId=upload, MultipartUpload={"Parts": listed}
        )

    def put_tree(self, folder: Path, url: str) -> None:
        """Write all files of a directory."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{url}/{path.relative_to(folder).as_posix()}", path.read_bytes())

    def delete(self, url: str) -> None:
        bucket, _, key = url.removeprefix("s3://").partition("/")
        self._client.delete_object(Bucket=bucket, Key=key)

    def num_bytes_asked(self) -> int:
        """Total length of the ranges asked for."""
        total = 0
        for _, asked in self.contents:
            first, last = asked.removeprefix("bytes=").split("-")
            total += int(last) - int(first) + 1
        return total

    @functools.cached_property
    def _client(self):
        import boto3

        return boto3.client("s3", endpoint_url=self.endpoint)

    def _serve(self, environ, start_response):
        if self._is_gone:
            self._drop(environ)
        path, asked = environ["PATH_INFO"].strip("/"), environ.get("HTTP_RANGE", "")
        is_content = environ["REQUEST_METHOD"] == "GET" and "list-type" not in environ.get(
            "QUERY_STRING", ""
        )
        answer = self._application(environ, start_response)
        if not is_content or path.startswith("moto-api"):
            return answer
        self.contents.append((path, asked))
        if self.holds_after is not None and len(self.contents) > self.holds_after:
            self.released.wait(600)
        if self.vanishes_after is None:
            return answer
        self.vanishes_after -= 1
        return self._half(b"".join(answer), environ) if self.vanishes_after < 0 else answer

    def _half(self, content: bytes, environ):
        yield content[: len(content) // 2]
        if not self._is_gone:
            self._is_gone = True
            threading.Thread(target=self.stop, daemon=True).start()
        self._drop(environ)

    def _drop(self, environ) -> None:
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        raise ConnectionError("the server is gone")


@pytest.fixture
def s3(monkeypatch, tmp_path):
    """An empty server, which the AWS variables lead to."""
    reason = "the S3 tests need moto: uv pip install -e '.[dev]'"
    pytest.importorskip("moto.moto_server.werkzeug_app", reason=reason)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL_S3", "FSSPEC_S3_ANON"):
        monkeypatch.delenv(name, raising=False)
    server = S3Server()
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    yield server
    from moto.backends import get_backend

    get_backend("s3").reset()
    if not server._is_gone:
        server.stop()
