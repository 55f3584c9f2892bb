"""Slots that flows wait for: a GPU, the DVC repository, or the registry of a model.

A slot is a lease on a Prefect global concurrency limit. If its holder dies, the lease is no longer
renewed, and the slot is free again after at most `LEASE_S` seconds (Prefect's minimum). A limit
that does not exist yet is created on first use, because Prefect does not restrict unknown limits.

Every machine has a limit of its own for its GPUs, `gpu-NAME`. Prefect counts slots but does not
tell which card is whose, and does not know who is more important. So who wants a GPU first locks a
file of this machine for a card, and the system frees the lock when the process ends:

    card-0      held by the run that has the card
    waiting-1   held by one of the runs with priority 1 that wait; a run of a lower priority that
                sees this takes no card, and a nightly one that has a card gives it back

The priority is that of the run's queue in the work pool, 1 before 2 before 3.
"""

import contextlib
import dataclasses
import fcntl
import functools
import itertools
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TypeVar
from uuid import UUID

import httpx
import platformdirs
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate
from prefect.concurrency.sync import concurrency
from prefect.exceptions import MissingContextError, ObjectAlreadyExists, ObjectNotFound
from prefect.logging import get_run_logger
from prefect.runtime import flow_run

from rrf import processes

Result = TypeVar("Result")

DVC = "dvc"
MACHINE = "RRF_MACHINE"
USUAL, NIGHTLY = "default", "nightly"
PRIORITIES = {"high": 1, USUAL: 2, NIGHTLY: 3}
"""Queue of the work pool -> its priority, where nobody has set another one. 1 goes first."""
LEASE_S = 60
VISIBLE = "CUDA_VISIBLE_DEVICES"
_OWN = ("SLURM_JOB_ID", "RRF_OWN_GPUS")
_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # the numbers that nvidia-smi shows
_DEVICES = Path("/dev")
_WAIT_S, _TRY_S = 0.2, 5.0
_NO_CARD = "none"
_GIVES_WAY = "a run of a higher priority waits for a card"


@contextlib.contextmanager
def slot(name: str, limit: int = 1) -> Iterator[None]:
    """Hold one of the `limit` slots called `name`; waits for it as long as needed.

    If a renewal of the lease fails, e.g. because the server restarts, the block continues.
    """
    create(name, limit)
    with _lease(name):
        yield


def _lease(name: str, timeout_seconds: float | None = None):
    return concurrency(
        name,
        occupy=1,
        strict=True,
        timeout_seconds=timeout_seconds,
        lease_duration=LEASE_S,
        raise_on_lease_renewal_failure=False,
    )


def _never() -> str:
    return ""


@dataclasses.dataclass(frozen=True)
class Card:
    """The GPU that a run holds, or the right to be the only heavy job of a machine without GPUs."""

    env: Mapping[str, str]
    """The variables with which a command sees this card and no other."""
    wanted: Callable[[], str] = _never
    """Why the run has to give it back now; empty while it may go on."""
    num_gpus: int = 0
    """How many cards it is."""


def on_gpu(work: Callable[[Card], Result]) -> Result:
    """`work(card)`, begun again each time that its command was stopped to give the card back."""
    while True:
        with gpu_slot() as card:
            try:
                return work(card)
            except processes.StoppedError as stopped:
                if stopped.why != _GIVES_WAY:
                    raise
        _say(f"{_GIVES_WAY}; this one waits for a card and goes on then")


@contextlib.contextmanager
def gpu_slot() -> Iterator[Card]:
    """Hold a GPU of this machine; waits for it as long as needed.

    On a machine without a GPU, this is the right to be the only heavy job, and the variables are
    none. A job of Slurm, or of Kubernetes (`RRF_OWN_GPUS`), has its cards already and does not
    wait.

    Raises:
        ValueError: If `RRF_MACHINE` is no name for a machine.
    """
    if any(os.environ.get(name) for name in _OWN):
        yield Card({}, num_gpus=len(cards()) if os.environ.get(VISIBLE) else 0)
        return
    names, (priority, gives_way) = cards(), _priority()
    create(gpu_limit(), num_gpus())
    with contextlib.ExitStack() as held:
        name = _take(held, names or [_NO_CARD], priority)
        wanted = functools.partial(_wanted, priority) if gives_way else _never
        if name == _NO_CARD:
            yield Card({}, wanted)
            return
        _say(f"holds GPU {name} of {machine()}")
        yield Card({VISIBLE: name} | _ORDER, wanted, num_gpus=1)


def _take(held: contextlib.ExitStack, names: Sequence[str], priority: int) -> str:
    """Wait for one of the cards; it is given back with `held`."""
    with _locks(f"waiting-{priority}") as waiting:
        for name in itertools.cycle(names):
            _lock(waiting, fcntl.LOCK_EX)  # one is enough for all that wait with this priority
            with contextlib.ExitStack() as own:
                file = own.enter_context(_locks(f"card-{name.replace('/', '_')}"))
                if not _wanted(priority) and _lock(file, fcntl.LOCK_EX):
                    with contextlib.suppress(TimeoutError):  # of another user, or of a dead one
                        own.enter_context(_lease(gpu_limit(), timeout_seconds=_TRY_S))
                        held.push(own.pop_all())
                        return name
            time.sleep(_WAIT_S / len(names))
    raise AssertionError("the cycle has no end")


def _wanted(priority: int) -> str:
    """Why a run of this priority may not have a card: one before it waits. Empty if none does."""
    for path in _folder().glob("waiting-*"):
        if int(path.name.removeprefix("waiting-")) < priority:
            with path.open("a") as file:
                if not _lock(file, fcntl.LOCK_SH):
                    return _GIVES_WAY
    return ""


def _locks(name: str) -> IO[str]:
    return (_folder() / name).open("a")


def _lock(file: IO[str], how: int) -> bool:
    """Whether the lock is held now; the one who looks does not wait."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _folder() -> Path:
    """Of this user on this machine, whose workspaces share its cards."""
    folder = platformdirs.user_state_path("rrf") / "gpus" / machine()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _priority() -> tuple[int, bool]:
    """The priority of the flow run that this code belongs to, and whether it gives way.

    It is that of its queue, or of the queue that one of its tags names.
    """
    if not flow_run.id:
        return PRIORITIES[USUAL], False
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(UUID(flow_run.root_flow_run_id or flow_run.id))
        queues = dict(PRIORITIES)
        if run.work_pool_name:
            answer = client.request(
                "POST",
                "/work_pools/{work_pool_name}/queues/filter",
                path_params={"work_pool_name": run.work_pool_name},
                json={},
            )
            queues |= {queue["name"]: queue["priority"] for queue in answer.json()}
    tagged = [tag for tag in run.tags if tag in queues]
    name = min(tagged, key=lambda tag: queues[tag], default=run.work_queue_name or USUAL)
    return queues.get(name, PRIORITIES[USUAL]), name == NIGHTLY


def _say(text: str) -> None:
    with contextlib.suppress(MissingContextError):  # outside of flows
        get_run_logger().info("%s", text)


def machine() -> str:
    """The name of this machine on Prefect's server: RRF_MACHINE, or else its host name.

    Raises:
        ValueError: If it is not made of letters, digits, dots, dashes and underscores.
    """
    name = os.environ.get(MACHINE) or socket.gethostname()
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ValueError(
            f"{name!r} is no name for a machine (letters, digits, dots, dashes and underscores);"
            f" type: export {MACHINE}=NAME"
        )
    return name


def gpu_limit() -> str:
    """The name of the limit for the GPUs of this machine."""
    return f"gpu-{machine()}"


def create(name: str, limit: int) -> None:
    """Create the limit unless it exists; an existing limit keeps its value."""
    wanted = GlobalConcurrencyLimitCreate(name=name, limit=limit, active=True)
    with get_client(sync_client=True) as client:
        try:
            client.read_global_concurrency_limit_by_name(name)
        except ObjectNotFound:
            try:
                client.create_global_concurrency_limit(wanted)
            except (ObjectAlreadyExists, httpx.HTTPStatusError):  # another process was faster
                client.read_global_concurrency_limit_by_name(name)


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


def cards() -> list[str]:
    """The GPUs of this machine as CUDA names them: those of CUDA_VISIBLE_DEVICES if it is set, else
    the numbers of all NVIDIA devices.
    """
    if (visible := os.environ.get(VISIBLE)) is not None:
        return [name for name in (part.strip() for part in visible.split(",")) if name]
    return [str(number) for number in range(len(list(_DEVICES.glob("nvidia[0-9]*"))))]


def num_gpus() -> int:
    """How many jobs may use a GPU at once: the number of cards, but at least one."""
    return len(cards()) or 1
