"""The worker of `python -m infra.worker`."""

import asyncio
import types
import uuid

import anyio
import pytest
from prefect.workers.base import BaseWorker

from infra import worker


def of_run(id: uuid.UUID) -> types.SimpleNamespace:
    return types.SimpleNamespace(flow_run=types.SimpleNamespace(id=id))


def test_a_run_that_is_resumed_before_its_process_has_ended_waits(monkeypatch):
    ended, running = uuid.uuid4(), uuid.uuid4()

    async def submitted() -> set[uuid.UUID]:
        limiter = anyio.CapacityLimiter(5)
        limiter.acquire_on_behalf_of_nowait(running)
        async with anyio.create_task_group() as tasks:
            prefects = types.SimpleNamespace(
                _limiter=limiter, _submitting_flow_run_ids=set(), name="a", backend_id=None,
                _cancelling_observer=None, _runs_task_group=tasks,
                get_flow_run_logger=lambda run: types.SimpleNamespace(info=lambda line: None),
                _submit_run=lambda run: anyio.sleep(0),
            )  # fmt: skip
            await BaseWorker._submit_scheduled_flow_runs(
                prefects, flow_run_response=[of_run(running), of_run(ended)]
            )
        return prefects._submitting_flow_run_ids

    monkeypatch.setattr(
        BaseWorker, "_submit_scheduled_flow_runs", BaseWorker._submit_scheduled_flow_runs
    )
    with pytest.raises(ExceptionGroup, match="unhandled errors"):  # as long as Prefect's does this
        asyncio.run(submitted())
    worker.resume_after_the_process()
    assert asyncio.run(submitted()) == {ended}
