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


@pytest.fixture
def refusing_port():
    """A port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


@pytest.fixture
def no_cluster(monkeypatch, tmp_path):
    """No cluster that `auto` finds; the folder in which Ray notes the address of the latest one."""
    running = [process.info["name"] or "" for process in psutil.process_iter(["name"])]
    if any("gcs_server" in name for name in running):
        pytest.skip("a Ray cluster runs on this machine, which 'auto' finds")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    return tmp_path / "ray"


def test_a_cluster_that_is_not_there_is_named(no_cluster):
    with pytest.raises(ValueError, match=r"no Ray cluster runs on this .*: ray start --head, or"):
        ray_cluster.Cluster("auto")


def test_the_latest_cluster_of_this_machine_has_ended(no_cluster, refusing_port):
    (no_cluster / "ray_current_cluster").write_text(f"127.0.0.1:{refusing_port}")
    with pytest.raises(
        ValueError, match=rf"no Ray cluster answers at .*:{refusing_port}' .*refused"
    ):
        ray_cluster.Cluster("auto")


def test_a_cluster_of_the_environment_that_refuses_is_named(no_cluster, refusing_port, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{refusing_port}")
    with pytest.raises(
        ValueError, match=rf"no Ray cluster answers at .*:{refusing_port}' .*refused"
    ):
        ray_cluster.Cluster("auto")


def test_an_address_that_refuses_is_named(refusing_port):
    with pytest.raises(
        ValueError, match=rf"'127.0.0.1:{refusing_port}' \(.*refused.*start one there with"
    ):
        ray_cluster.Cluster(f"127.0.0.1:{refusing_port}")


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
