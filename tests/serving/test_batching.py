"""Which requests share a pass of the policy."""

import asyncio
import threading
import time

import numpy as np
import pytest

from rrf.serving.batching import Batcher, Row
from rrf.serving.metrics import Metrics


class Policy:
    """Answers with its input, after the test has said so; keeps its batches."""

    def __init__(self):
        self.batches, self.may_go = [], threading.Event()
        self.may_go.set()

    def __call__(self, rows):
        assert self.may_go.wait(5)
        self.batches.append([int(row.inputs["x"]) for row in rows])
        return np.array([[row.inputs["x"]] for row in rows])


def row(x, running=None, frozen=0):
    return Row({"x": np.array(x)}, running, frozen)


def play(policy, rows, *, max_batch=8, max_wait_s=0.0, num_clients=99, wanted=None):
    """Submit rows at once; their results."""

    async def run():
        batcher = Batcher(policy, max_batch, max_wait_s, lambda: num_clients, Metrics(max_batch))
        task = asyncio.create_task(batcher.run())
        wants = wanted or [True] * len(rows)
        asked = [
            asyncio.create_task(batcher.submit(one, lambda want=want: want))
            for one, want in zip(rows, wants, strict=True)
        ]
        results = await asyncio.gather(*asked, return_exceptions=True)
        task.cancel()
        return results

    return asyncio.run(run())


def test_requests_that_wait_together_share_batches_no_larger_than_allowed():
    policy = Policy()
    results = play(policy, [row(x) for x in range(5)], max_batch=2)
    assert policy.batches == [[0, 1], [2, 3], [4]]
    assert [one.actions.tolist() for one in results] == [[0], [1], [2], [3], [4]]
    assert [one.batch_size for one in results] == [2, 2, 2, 2, 1]


def test_what_waits_when_a_policy_ends_is_answered():
    policy = Policy()
    policy.may_go.clear()

    async def run():
        batcher = Batcher(policy, 1, 0.0, lambda: 99, None)
        task = asyncio.create_task(batcher.run())
        asked = [asyncio.create_task(batcher.submit(row(x), lambda: True)) for x in range(2)]
        await asyncio.sleep(0)  # both wait
        batcher.end()
        policy.may_go.set()
        async with asyncio.timeout(60):
            results = await asyncio.gather(*asked)
            await task
        return [one.actions.tolist() for one in results]

    assert asyncio.run(run()) == [[0], [1]]


def test_requests_with_other_running_chunks_wait_for_their_own_batch():
    policy, rest = Policy(), np.zeros((2, 1), np.float32)
    rows = [row(0), row(1, rest, 1), row(2), row(3, rest, 2), row(4, rest, 1)]
    play(policy, rows)
    assert policy.batches == [[0, 2], [1, 4], [3]]


def test_a_lone_client_does_not_wait_for_others():
    begin = time.perf_counter()
    play(Policy(), [row(1)], max_wait_s=5, num_clients=1)
    assert time.perf_counter() - begin < 1


def test_nobody_waits_longer_than_allowed():
    begin = time.perf_counter()
    (result,) = play(Policy(), [row(1)], max_wait_s=0.1, num_clients=2)
    assert 0.09 < result.queue_s < 1
    assert time.perf_counter() - begin < 1


def test_requests_that_nobody_waits_for_are_not_computed():
    policy = Policy()
    results = play(policy, [row(0), row(1), row(2)], wanted=[True, False, True])
    assert policy.batches == [[0, 2]]
    assert isinstance(results[1], asyncio.CancelledError)


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyError("x"), MemoryError("full")])
def test_what_the_policy_raises_is_the_answer(error):
    def fail(rows):
        raise error

    assert play(fail, [row(0)]) == [error]
