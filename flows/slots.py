"""Slots that flows wait for: a GPU, the DVC repository, or the registry of a model.

A slot is a lease on a Prefect global concurrency limit. If its holder dies, the lease is no longer
renewed, and the slot is free again after at most `LEASE_S` seconds (Prefect's minimum). A limit
that does not exist yet is created on first use, because Prefect does not restrict unknown limits.
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
    """Hold one of the `limit` slots called `name`; waits for it as long as needed.

    If a renewal of the lease fails, e.g. because the server restarts, the block continues.
    """
    create(name, limit)
    with concurrency(
        name, occupy=1, strict=True, lease_duration=LEASE_S, raise_on_lease_renewal_failure=False
    ):
        yield


def gpu_slot() -> contextlib.AbstractContextManager[None]:
    """Hold a GPU. On a machine without a GPU, this is the right to be the only heavy job."""
    return slot(GPU, num_gpus())


def create(name: str, limit: int) -> None:
    """Create the limit unless it exists; an existing limit keeps its value."""
    wanted = GlobalConcurrencyLimitCreate(name=name, limit=limit, active=True)
    with get_client(sync_client=True) as client:
        try:
            client.read_global_concurrency_limit_by_name(name)
        except ObjectNotFound:
            with contextlib.suppress(ObjectAlreadyExists):  # another process was faster
                client.create_global_concurrency_limit(wanted)


def free_all() -> None:
    """Free the slots of every limit. Only for a server without other users, after a killed run."""
    with get_client(sync_client=True) as client:
        for limit in client.read_global_concurrency_limits(limit=200):
            client.request(
                "PATCH",
                "/v2/concurrency_limits/{id_or_name}",
                path_params={"id_or_name": limit.name},
                json={"active_slots": 0},
            )


def num_gpus() -> int:
    """How many jobs may use a GPU at once: the number of NVIDIA devices, but at least one."""
    return len(list(Path("/dev").glob("nvidia[0-9]*"))) or 1
