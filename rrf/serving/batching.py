"""Dynamic batching: requests that wait at the same time share one pass of the policy.

A batch starts as soon as it is full, or every connected client waits, or its oldest request has
waited long enough. The policy runs in one thread of its own, so that the server keeps reading,
answering and timing out while it computes.

A row is checked before it comes here. Should a batch fail nevertheless, its rows are tried one by
one, so that one of them cannot take the others with it.
"""

import asyncio
import collections
import dataclasses
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rrf.serving.metrics import Metrics

_LOWEST = 19  # of Linux's priorities


@dataclasses.dataclass(frozen=True)
class Row:
    """One checked request: a row of a batch."""

    inputs: Mapping[str, np.ndarray]
    """Without the batch dimension; a text is an array without dimensions."""
    running: np.ndarray | None = None
    """float32 [K, A], the rest of the running chunk that the answer continues."""
    num_frozen: int = 0

    @property
    def batch_key(self) -> tuple[int, int] | None:
        """Rows may share a batch if this is equal."""
        return None if self.running is None else (len(self.running), self.num_frozen)


Infer = Callable[[Sequence[Row]], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Result:
    """The answer to one request."""

    actions: np.ndarray
    queue_s: float
    infer_s: float
    batch_size: int


@dataclasses.dataclass(frozen=True)
class _Waiting:
    row: Row
    is_wanted: Callable[[], bool]
    since: float
    result: asyncio.Future[Result]


class Batcher:
    """Collects requests and runs the policy.

    Args:
        infer: The policy. Its batches have rows of one `batch_key`.
        max_batch: The most rows of a batch.
        max_wait_s: How long the oldest request waits for others at most.
        num_clients: The number of clients that could ask.
        metrics: Where batches are counted; None: nowhere.
        is_idle: Whether the policy's thread has the lowest priority.
    """

    def __init__(
        self,
        infer: Infer,
        max_batch: int,
        max_wait_s: float,
        num_clients: Callable[[], int],
        metrics: Metrics | None,
        is_idle: bool = False,
    ):
        self._thread = _Thread(infer, is_idle)
        self._max_batch, self._max_wait_s = max_batch, max_wait_s
        self._num_clients, self._metrics = num_clients, metrics
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._arrived, self._is_over = asyncio.Event(), False

    async def submit(self, row: Row, is_wanted: Callable[[], bool]) -> Result:
        """The answer to a row.

        Args:
            row: A checked request.
            is_wanted: Asked before the row is computed: whether somebody still waits for it.

        Raises what the policy raised; ValueError if the answer is not finite.
        """
        result = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(row, is_wanted, time.perf_counter(), result))
        self._arrived.set()
        return await result

    def end(self) -> None:
        """Answer what waits, and nothing more."""
        self._is_over = True
        self._arrived.set()

    async def run(self) -> None:
        """Answer requests until `end`, or until the task is cancelled."""
        try:
            while True:
                while not self._waiting:
                    if self._is_over:
                        return
                    self._arrived.clear()
                    await self._arrived.wait()
                await self._gather()
                if batch := self._take():
                    await self._compute(batch)
        finally:
            self._thread.end()

    async def _gather(self) -> None:
        """Wait for requests that can share the batch of the oldest one."""
        oldest = self._waiting[0]
        deadline = oldest.since + self._max_wait_s
        while True:
            num_alike = sum(each.row.batch_key == oldest.row.batch_key for each in self._waiting)
            left_s = deadline - time.perf_counter()
            is_everybody = len(self._waiting) >= self._num_clients()
            if num_alike >= self._max_batch or is_everybody or left_s <= 0:
                return
            self._arrived.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._arrived.wait()
            except TimeoutError:
                return

    def _take(self) -> list[_Waiting]:
        """The oldest request and those that share its batch, but for abandoned ones."""
        key, batch, others = self._waiting[0].row.batch_key, [], collections.deque()
        for request in self._waiting:
            if not request.is_wanted():
                request.result.cancel()
            elif request.row.batch_key == key and len(batch) < self._max_batch:
                batch.append(request)
            else:
                others.append(request)
        self._waiting = others
        return batch

    async def _compute(self, batch: list[_Waiting]) -> None:
        begin = time.perf_counter()
        try:
            actions = await self._thread.infer([request.row for request in batch])
        except Exception as error:  # whatever a policy raises is the answer to the request
            if len(batch) > 1 and not isinstance(error, NotImplementedError):
                for request in batch:
                    await self._compute([request])
                return
            for request in batch:
                _fail(request, error)
            return
        infer_s = time.perf_counter() - begin
        if self._metrics:
            self._metrics.batch_size.observe(len(batch))
            self._metrics.infer_s.observe(infer_s)
        for request, row_actions in zip(batch, actions, strict=True):
            if self._metrics:
                self._metrics.queue_s.observe(begin - request.since)
            if not np.isfinite(row_actions).all():
                _fail(request, ArithmeticError("the policy's actions are not finite numbers"))
            elif not request.result.done():
                result = Result(row_actions, begin - request.since, infer_s, len(batch))
                request.result.set_result(result)


def _fail(request: _Waiting, error: Exception) -> None:
    if not request.result.done():
        request.result.set_exception(error)


class _Thread:
    """Runs the policy. A daemon: a policy that hangs does not keep the process alive."""

    def __init__(self, infer: Infer, is_idle: bool):
        self._infer, self._is_idle = infer, is_idle
        self._jobs: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self._run_jobs, name="policy", daemon=True).start()

    async def infer(self, rows: Sequence[Row]) -> np.ndarray:
        loop = asyncio.get_running_loop()
        result = loop.create_future()
        self._jobs.put((rows, loop, result))
        return await result

    def end(self) -> None:
        self._jobs.put(None)

    def _run_jobs(self) -> None:
        if self._is_idle:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)  # of this thread
        while job := self._jobs.get():
            rows, loop, result = job
            try:
                actions, error = self._infer(rows), None
            except Exception as caught:  # raised where the answer is awaited
                actions, error = None, caught
            if not loop.is_closed():
                loop.call_soon_threadsafe(_set_result, result, actions, error)


def _set_result(
    result: asyncio.Future, actions: np.ndarray | None, error: Exception | None
) -> None:
    if result.done():
        return
    if error is None:
        result.set_result(actions)
    else:
        result.set_exception(error)
