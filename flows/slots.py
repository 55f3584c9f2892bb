"""Slots that flows wait for: the GPUs, the DVC repository, a model's registry.

A slot is a lease on a Prefect global concurrency limit. A holder that dies stops renewing it, and
the slot is free again after at most `LEASE_S` seconds (Prefect's minimum). A limit that does not
exist yet is made on first use, because Prefect otherwise lets everybody in.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

GPU = "gpu"
DVC = "dvc"
LEASE_S = 60


@contextlib.contextmanager
def slot(name: str, limit: int = 1) -> Iterator[None]:
    """Hold one of the `limit` slots called `name`, waiting for it as long as it takes.

    A failed renewal of the lease (the server restarts) does not end hours of training.
    """
    create(name, limit)
    with concurrency(
        name, occupy=1, strict=True, lease_duration=LEASE_S, raise_on_lease_renewal_failure=False
    ):
        yield


def gpu_slot() -> contextlib.AbstractContextManager[None]:
    """A GPU, or without one the right to be the one heavy job on this machine."""
    return slot(GPU, num_gpus())


def create(name: str, limit: int) -> None:
    """Make the limit unless it exists; an existing one keeps the value somebody gave it."""
    wanted = GlobalConcurrencyLimitCreate(name=name, limit=limit, active=True)
    with get_client(sync_client=True) as client:
        try:
            client.read_global_concurrency_limit_by_name(name)
        except ObjectNotFound:
            with contextlib.suppress(ObjectAlreadyExists):  # somebody else was faster
                client.create_global_concurrency_limit(wanted)


def free_all() -> None:
    """Empty every limit. Only for a server that nobody else uses, after its users were killed."""
    with get_client(sync_client=True) as client:
        for limit in client.read_global_concurrency_limits(limit=200):
            client.request(
                "PATCH",
                "/v2/concurrency_limits/{id_or_name}",
                path_params={"id_or_name": limit.name},
                json={"active_slots": 0},
            )


def num_gpus() -> int:
    """How many jobs may use accelerators at once: the NVIDIA devices here, at least one."""
    return len(list(Path("/dev").glob("nvidia[0-9]*"))) or 1
