"""Heads of Ray that do not answer, or are none: an error within the time limit."""

import contextlib
import socket
import threading

import psutil
import pytest

ray_cluster = pytest.importorskip("rrf.orchestra.ray_cluster", reason="Ray is not installed")


@contextlib.contextmanager
def server(answer: bytes | None):
    """The address of a server that sends this to its client; None never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        kept = []

        def serve():
            with contextlib.suppress(OSError):
                connection, _ = listening.accept()
                kept.append(connection)
                if answer is not None:
                    connection.sendall(answer)
                    connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.close()
        thread.join()
        for connection in kept:
            connection.close()


def test_a_cluster_that_is_not_there_is_named(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if any("gcs_server" in process.name() for process in psutil.process_iter()):
        pytest.skip("a Ray cluster runs on this machine, which 'auto' finds")
    with pytest.raises(ValueError, match="no Ray cluster answers at 'auto'; start one with"):
        ray_cluster.Cluster("auto")


def test_an_address_that_refuses_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(ValueError, match=rf"'127.0.0.1:{port}' \(.*refused.*start one there with"):
        ray_cluster.Cluster(f"127.0.0.1:{port}")


def test_a_head_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr(ray_cluster, "_REACH_TIMEOUT_S", 0.2)
    with server(None) as address, pytest.raises(ValueError, match=r"no Ray .*\(timed out\)"):
        ray_cluster.Cluster(address)


def test_a_server_of_another_kind_is_told_apart():
    with (
        server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        pytest.raises(ValueError, match=r"is not the head of a Ray cluster; `ray status`"),
    ):
        ray_cluster.Cluster(address)


@pytest.mark.parametrize("address", ["10.0.0.1", "ray://10.0.0.1:10001", ":6379"])
def test_an_address_of_another_form_is_refused(address):
    with pytest.raises(ValueError, match="must be HOST:PORT of the cluster's head"):
        ray_cluster.Cluster(address)
