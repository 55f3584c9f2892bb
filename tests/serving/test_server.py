"""The policy server and its clients, over real sockets."""

import concurrent.futures
import http.client
import socket
import threading
import time

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from rrf.client import (
    PolicyClient,
    RequestRefusedError,
    RobotHistory,
    ServerTimeoutError,
    ServerUnreachableError,
)
from rrf.client.messages import pack, unpack
from rrf.runners.checkpoints.deployed_vla import DeployedVLA
from rrf.serving.model import ServedPolicy
from rrf.serving.requests import RequestReader
from tests.serving.conftest import Running, Scripted, end, observation, request

TOKEN = "a-token-of-enough-characters"


def batch_of(one):
    return {name: np.array(value)[None] for name, value in one.items()}


def raw(running, **options):
    """A connection that has read the metadata."""
    connection = connect(running.url, compression=None, max_size=None, proxy=None, **options)
    connection.recv()
    return connection


def get(running, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=5)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def eventually(fact, seconds=5):
    deadline = time.monotonic() + seconds
    while not fact() and time.monotonic() < deadline:
        time.sleep(0.01)
    return fact()


def test_actions_over_the_network_are_those_of_the_policy(serving, checkpoint):
    policy = ServedPolicy(checkpoint, "compact")
    running = serving(policy)
    expected = DeployedVLA(checkpoint).answer(batch_of(observation()), {})[0]
    with PolicyClient(running.url) as client:
        assert client.metadata["policy"] == "compact"
        assert client.metadata["digest"] == policy.digest
        assert client.metadata["actions"] == {"dtype": "float32", "shape": [2, 4]}
        found = client.infer(observation())
    assert found.dtype == np.float32
    assert np.array_equal(found, expected)  # the same batch size, so not one bit differs
    assert np.abs(expected).max() > 0.01


def test_openpis_client_is_understood(serving, checkpoint):
    running = serving(ServedPolicy(checkpoint, "compact"), TOKEN)
    one = observation()
    theirs = {
        "observation/image": one["observation.images.corner2"],
        "observation/state": one["observation.state"].astype(np.float64),
        "prompt": one["instruction"],
    }
    connection = raw(running, additional_headers={"Authorization": f"Api-Key {TOKEN}"})
    connection.send(pack(theirs))
    answer = unpack(connection.recv(timeout=5))
    assert set(answer["server_timing"]) == {"queue_ms", "infer_ms", "total_ms", "batch_size"}
    with PolicyClient(running.url, TOKEN) as client:
        assert np.array_equal(answer["actions"], client.infer(one))
    connection.close()


def test_a_batch_of_many_clients_gives_each_its_own_actions(serving, checkpoint):
    policy = ServedPolicy(checkpoint, "compact")
    running = serving(policy, max_batch=4, max_wait_ms=200)
    alone = [DeployedVLA(checkpoint).answer(batch_of(observation(n)), {})[0] for n in range(4)]
    clients = [PolicyClient(running.url) for _ in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda n: clients[n].request(observation(n)), range(4)))
    for client in clients:
        client.close()
    assert max(a.timing["batch_size"] for a in answers) > 1
    for answer, expected in zip(answers, alone, strict=True):
        np.testing.assert_allclose(answer.actions, expected, atol=1e-5)
    assert np.abs(alone[0] - alone[1]).max() > 1e-3


def test_a_running_chunk_is_continued_as_in_process(serving, flow_checkpoint):
    policy = ServedPolicy(flow_checkpoint, "flow")
    policy.warm_up(RequestReader(policy.signature).examples(2))
    running = serving(policy)
    with PolicyClient(running.url) as client:
        assert client.metadata["can_resume"] is True
        first = client.infer(observation())
        found = client.resume(observation(1), first[1:], 2)
        assert np.array_equal(client.resume(observation(), first[:0], 0), first)
    np.testing.assert_allclose(found[:2], first[1:3], atol=1e-6)  # frozen steps are repeated
    assert np.abs(found - first).max() > 1e-3
    one = DeployedVLA(flow_checkpoint)
    expected = one.resume(batch_of(observation(1)), first[None, 1:], 2)[0]
    assert np.array_equal(found, expected)


def test_a_policy_that_cannot_continue_a_chunk_says_so(serving, checkpoint):
    policy = ServedPolicy(checkpoint, "compact")
    policy.warm_up(RequestReader(policy.signature).examples(2))
    running = serving(policy)
    with PolicyClient(running.url) as client:
        assert client.metadata["can_resume"] is False
        with pytest.raises(RequestRefusedError, match="RegressionHead cannot continue"):
            client.resume(observation(), np.zeros((1, 4), np.float32), 0)
        client.infer(observation())  # the connection is still good
    assert running.errors("unsupported") == 1


def test_an_observation_that_does_not_fit_is_refused_and_the_next_one_answered(serving):
    running = serving(Scripted())
    with PolicyClient(running.url) as client:
        with pytest.raises(RequestRefusedError, match=r"observation\.state.*float32\[2\].*\[3\]"):
            client.infer(request(1, 2))
        assert client.infer(request(1, 2, 3))[0].tolist() == [1, 2, 3]
    assert running.errors("observation") == 1


def test_an_instruction_that_the_policy_cannot_read_is_refused(serving, checkpoint):
    running = serving(ServedPolicy(checkpoint, "compact"))
    with PolicyClient(running.url) as client:
        with pytest.raises(RequestRefusedError, match="has no words"):
            client.infer({**observation(), "instruction": "?!"})
        client.infer(observation())


@pytest.mark.parametrize("message", [b"\xc1", "text", pack({"a": 1})[:-1]])
def test_a_malformed_message_ends_its_own_connection_only(serving, message):
    running = serving(Scripted())
    with PolicyClient(running.url) as other:
        connection = raw(running)
        connection.send(message)
        assert isinstance(connection.recv(timeout=5), str)
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=5)
        assert closed.value.rcvd.code == 1007
        assert other.infer(request(1, 2, 3)).shape == (2, 3)
    assert running.errors("malformed") == 1


def test_bytes_that_are_no_websocket_harm_nobody(serving):
    running = serving(Scripted(), handshake_s=0.3)
    with PolicyClient(running.url) as other:
        for junk in (b"\x16\x03\x01junk\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n", b"G"):
            with socket.create_connection(("127.0.0.1", running.port), timeout=5) as one:
                one.sendall(junk)
                try:
                    while one.recv(4096):  # the server ends it, if only because it takes too long
                        pass
                except ConnectionResetError:
                    pass
        assert other.infer(request(1, 2, 3)).shape == (2, 3)


def test_an_oversized_message_is_refused(serving):
    running = serving(Scripted(), max_message_mb=0.01)
    with PolicyClient(running.url) as client:
        with pytest.raises((RequestRefusedError, ServerUnreachableError)):
            client.infer({**request(1, 2, 3), "image": np.zeros(20_000, np.uint8)})
        assert client.infer(request(1, 2, 3)).shape == (2, 3)  # connected again
    assert eventually(lambda: running.errors("oversized") >= 1)


def test_a_client_that_takes_no_answer_is_left(serving):
    policy = Scripted(length=700_000)  # 8 MB, more than the buffers of both sides
    running = serving(policy, send_s=0.3)
    with socket.create_connection(("127.0.0.1", running.port)) as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        speak(lazy, pack(request(1, 2, 3)))
        assert eventually(lambda: running.errors("slow") == 1)
    with PolicyClient(running.url) as client:
        assert client.infer(request(1, 2, 3)).shape == (700_000, 3)


def speak(connection, message):
    """A handshake and one message over a bare socket; nothing is read."""
    connection.sendall(
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    frame = bytes([0x82, 0x80 | 126]) + len(message).to_bytes(2, "big") + b"\0\0\0\0"
    connection.sendall(frame + message)  # masked with zeros


def test_a_client_that_asks_nothing_is_left(serving):
    running = serving(Scripted(), idle_s=0.2)
    with pytest.raises(ConnectionClosed) as closed:
        raw(running).recv(timeout=5)
    assert closed.value.rcvd.code == 1008
    assert running.errors("idle") == 1


def is_taken(connection, data):
    try:
        connection.sendall(data)
    except OSError:
        return False
    return True


def test_a_client_that_sends_byte_by_byte_is_left(serving):
    running = serving(Scripted(), idle_s=0.4)
    with socket.create_connection(("127.0.0.1", running.port), timeout=5) as slow:
        speak(slow, b"")
        begin = time.monotonic()
        while is_taken(slow, b"\x02") and time.monotonic() < begin + 5:
            time.sleep(0.05)
        assert time.monotonic() - begin < 4


def test_a_client_without_a_sign_of_life_is_left(serving):
    running = serving(Scripted(), ping_s=0.2)
    with socket.create_connection(("127.0.0.1", running.port)) as dead:
        speak(dead, pack(request(1, 2, 3)))
        assert eventually(lambda: running.errors("silent") == 1)


def test_a_row_that_makes_the_policy_fail_takes_nobody_with_it(serving):
    policy = Scripted()
    running = serving(policy, max_batch=4, max_wait_ms=300)
    clients = [PolicyClient(running.url, connect_s=0.5) for _ in range(3)]
    states = [(1, 1, 1), (13, 13, 13), (14, 0, 0)]
    with concurrent.futures.ThreadPoolExecutor(3) as threads:
        asked = [
            threads.submit(client.infer, request(*state))
            for client, state in zip(clients, states, strict=True)
        ]
        assert asked[0].result()[0].tolist() == [1, 1, 1]
        for one in asked[1:]:  # a failure, and an action that is not a number
            with pytest.raises(RequestRefusedError, match="the policy failed"):
                one.result()
    assert policy.batches[0] > 1
    assert running.errors("internal") == 2
    assert clients[1].infer(request(2, 2, 2))[0].tolist() == [2, 2, 2]
    for client in clients:
        client.close()


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next_one(serving):
    policy = Scripted()
    policy.may_go.clear()
    running = serving(policy)
    with PolicyClient(running.url, timeout_s=0.2) as client:
        with pytest.raises(ServerTimeoutError, match=r"0\.2 s"):
            client.infer(request(1, 1, 1))
        policy.may_go.set()
        assert client.infer(request(2, 2, 2))[0].tolist() == [2, 2, 2]


def test_a_request_whose_client_left_is_not_computed(serving):
    policy = Scripted()
    policy.may_go.clear()
    running = serving(policy)
    busy = PolicyClient(running.url)
    thread = threading.Thread(target=busy.infer, args=(request(1, 1, 1),))
    thread.start()
    assert policy.entered.acquire(timeout=5)
    gone = raw(running)
    gone.send(pack(request(2, 2, 2)))
    gone.close()
    policy.may_go.set()
    thread.join(5)
    busy.infer(request(3, 3, 3))
    assert sum(policy.batches) == 2
    busy.close()


def test_a_client_waits_for_a_server_that_was_replaced(serving):
    first = Running(Scripted())
    client = PolicyClient(first.url, connect_s=5)
    client.infer(request(1, 1, 1))
    end(first, None)
    threading.Timer(0.3, lambda: serving(Scripted(length=5), port=first.port)).start()
    assert client.infer(request(1, 1, 1)).shape == (5, 3)
    client.close()


def test_no_server_is_an_error_that_says_how_to_start_one():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(ServerUnreachableError, match=r"rrf serve"):
        PolicyClient(f"ws://127.0.0.1:{port}", connect_s=0.2)
    with pytest.raises(ValueError, match="expected ws://"):
        PolicyClient("http://127.0.0.1")


def test_no_more_clients_than_the_limit(serving):
    running = serving(Scripted(), max_connections=1)
    with PolicyClient(running.url) as client:
        with pytest.raises(ServerUnreachableError, match="503"):
            PolicyClient(running.url, connect_s=5.0)
        client.infer(request(1, 1, 1))
    assert running.errors("overloaded") >= 1
    assert eventually(lambda: len(running.server._open) == 0)
    PolicyClient(running.url).close()


def test_without_the_token_nobody_is_served(serving):
    running = serving(Scripted(), TOKEN)
    for token in (None, "wrong", TOKEN + "x", "ü"):
        with pytest.raises(ServerUnreachableError, match="token") as refused:
            PolicyClient(running.url, token, connect_s=0.2)
        assert TOKEN not in str(refused.value)
    with pytest.raises(InvalidStatus):
        raw(running, additional_headers={"Authorization": f"Basic {TOKEN}"})
    assert running.errors("unauthorized") >= 4
    assert get(running, "/metrics")[0] == 401
    assert get(running, "/healthz") == (200, "OK\n")
    assert get(running, "/metrics", Authorization=f"Bearer {TOKEN}")[0] == 200


def test_a_page_in_a_browser_is_refused(serving):
    running = serving(Scripted())
    with pytest.raises(InvalidStatus) as refused:
        raw(running, origin="http://example.org")
    assert refused.value.response.status_code == 403
    # A page whose name was made to lead here, and a person.
    assert get(running, "/metrics", **{"Sec-Fetch-Site": "same-origin"})[0] == 403
    assert get(running, "/metrics", **{"Sec-Fetch-Site": "none"})[0] == 200


def test_metrics_count_what_happened(serving):
    running = serving(Scripted())
    with PolicyClient(running.url) as client:
        for _ in range(3):
            client.infer(request(1, 2, 3))
        with pytest.raises(RequestRefusedError):
            client.infer({})
        status, text = get(running, "/metrics")
    assert status == 200
    for line in (
        "rrf_requests_total 3.0",
        "rrf_connections 1.0",
        'rrf_errors_total{kind="observation"} 1.0',
        'rrf_errors_total{kind="oversized"} 0.0',
        'rrf_batch_size_bucket{le="1.0"} 3.0',
        "rrf_queue_seconds_count 3.0",
        "rrf_inference_seconds_count 3.0",
    ):
        assert line in text.splitlines()


def test_a_server_that_stops_answers_what_it_accepted_and_nothing_else(serving):
    policy = Scripted()
    policy.may_go.clear()
    running = serving(policy)
    idle, busy = raw(running), PolicyClient(running.url, connect_s=0.3)
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        accepted = thread.submit(busy.infer, request(1, 2, 3))
        assert policy.entered.acquire(timeout=5)
        running.stop()
        with pytest.raises(ConnectionClosed) as closed:
            idle.recv(timeout=5)
        assert closed.value.rcvd.code == 1001
        with pytest.raises(ServerUnreachableError):
            PolicyClient(running.url, connect_s=0.2)
        policy.may_go.set()
        assert accepted.result(timeout=5)[0].tolist() == [1, 2, 3]
    with pytest.raises(ServerUnreachableError):
        busy.infer(request(1, 2, 3))
    assert running.stopped()


def test_a_policy_that_hangs_delays_the_end_no_longer_than_the_limit(serving):
    policy = Scripted()
    policy.may_go.clear()
    running = serving(policy, drain_s=0.3)
    connection = raw(running)
    connection.send(pack(request(1, 2, 3)))
    assert policy.entered.acquire(timeout=5)
    begin = time.monotonic()
    running.stop()
    assert running.stopped(5)
    assert time.monotonic() - begin < 3


def test_a_robot_keeps_what_the_policy_sees_of_the_past_while_the_server_is_away(serving, looking):
    policy, running = DeployedVLA(looking), serving(ServedPolicy(looking, "looking back"))
    past, answers = None, []
    with PolicyClient(running.url) as client:
        assert client.metadata["past"] == {"images": 1, "states": 1, "stride": 2}
        past = RobotHistory(client.metadata["past"])
        for seed in range(4):
            if seed == 2:  # the connection breaks, and the client connects again
                client.close()
            answers.append(client.infer(past.seen(observation(seed))))
        with pytest.raises(RequestRefusedError, match=r"'observation.images.corner2@1' is missing"):
            client.infer(observation())
    camera, state = "observation.images.corner2", "observation.state"
    for now, before in ((0, 0), (1, 0), (2, 0), (3, 1)):
        one, old = observation(now), observation(before)
        one = {**one, f"{camera}@1": old[camera], state: np.append(one[state], old[state])}
        assert np.allclose(policy.answer(batch_of(one), {})[0], answers[now], atol=1e-6)
    assert not np.allclose(answers[2], answers[3])
