"""Registry operations in processes of their own, killed at a chosen write or started all at once.

    python -m tests.registry.processes kill OPERATION SNAPSHOT
    python -m tests.registry.processes race COUNT

The first kills an operation before each of its writes in turn, the second starts COUNT promotions
at the same time. MLflow is imported once; each operation runs in a fork that opens the store
itself. The result is JSON on stdout.
"""

import dataclasses
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from mlflow import MlflowClient

from rrf import workspace
from rrf.lineage import Lineage
from rrf.mlflow_store import store
from rrf.registry import cards, listing, promotion, registration

NAME = "policy"
WRITES = (
    "create_registered_model",
    "delete_registered_model",
    "create_logged_model",
    "log_model_artifacts",
    "finalize_logged_model",
    "create_model_version",
    "log_artifact",
    "set_model_version_tag",
    "set_registered_model_tag",
    "set_registered_model_alias",
    "delete_registered_model_alias",
    "update_model_version",
    "update_registered_model",
)


def promote() -> None:
    promotion.promote(NAME, "2")


def rollback() -> None:
    promotion.rollback(NAME, "drops the cup", version="1")


def register() -> None:
    checkpoints = workspace.home() / "checkpoints"
    run_id = (workspace.home() / "run_id").read_text()
    lineage = Lineage.from_dict(json.loads((workspace.home() / "lineage.json").read_text()))
    registration.register(checkpoints / "9", NAME, run_id, lineage, checkpoints / "evaluation-9")


def promote_number(number: int) -> None:
    promotion.promote(NAME, str(number))


def in_fork(work, kill_at: int | None = None) -> int:
    """Run `work` in a fork, with SIGKILL before write number `kill_at`; returns the wait status."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        if kill_at is not None:
            arm(kill_at)
        work()
        os._exit(0)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        os._exit(3)
    finally:
        os._exit(4)


def arm(kill_at: int) -> None:
    """Kill this process before write number `kill_at`: what lies between two writes does not
    count.
    """
    count = 0

    def counted(write):
        def call(*args, **kwargs):
            nonlocal count
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return write(*args, **kwargs)

        return call

    for name in WRITES:
        setattr(MlflowClient, name, counted(getattr(MlflowClient, name)))


def end_state() -> dict:
    """Everything that counts: versions, aliases, ledger, descriptions, documents, which must be
    those of the ledger; without times.
    """
    entries = [dataclasses.asdict(e) for e in promotion.ledger_of(NAME).entries]
    return {
        "versions": [
            {
                "version": v.version,
                "aliases": v.aliases,
                "tags": v.tags,
                "description": timeless(v.description),
            }
            for v in listing.versions(NAME)
        ],
        "description": timeless(store.connect().get_registered_model(NAME).description),
        "ledger": [
            {k: v for k, v in e.items() if k not in ("time", "hash", "parent")}
            | {"documents": sorted(e["documents"] or ())}  # there are times in them
            for e in entries
        ],
        "documents": [sorted(cards.fetched(v)) for v in listing.versions(NAME)],
        "champion_alias": store.connect().get_registered_model(NAME).aliases.get("champion"),
    }


def end_state_after(operation) -> dict:
    """Run `operation` in a fork, then read the end state."""
    reader, writer = os.pipe()

    def work() -> None:
        operation()
        with os.fdopen(writer, "w") as file:
            file.write(json.dumps(end_state()))

    pid = os.fork()
    if not pid:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(4)
    os.close(writer)
    with os.fdopen(reader) as file:
        found = file.read()
    assert os.waitpid(pid, 0)[1] == 0
    return json.loads(found)


def timeless(description: str) -> str:
    """A description without the times in it, and without the digest at its end."""
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d|\([0-9a-f]{8}\)\.\*$", "", description)


def warm_up() -> None:
    """Import and configure in a throwaway home what each fork would otherwise do anew."""
    import mlflow.pyfunc  # noqa: F401

    home = os.environ["RRF_HOME"]
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(workspace.state(), Path(scratch) / ".rrf")
        os.environ["RRF_HOME"] = scratch
        listing.versions()
        os.environ["RRF_HOME"] = home


def import_what_registering_needs() -> None:
    """What a registration imports beyond `warm_up` and would import anew in each fork: 8 s."""
    import matplotlib.figure  # noqa: F401
    import mlflow.store.tracking.sqlalchemy_store  # noqa: F401

    import rrf.runners.checkpoints.deployed_vla  # noqa: F401


def kill_everywhere(operation, snapshot: Path, stride: int) -> list[dict]:
    """The end state of the undisturbed operation, then after a kill before each `stride`th write
    and a rerun.
    """
    state = workspace.state()
    states = []
    for kill_at in range(0, 100, stride):
        shutil.rmtree(state)
        shutil.copytree(snapshot, state)
        if kill_at:
            status = in_fork(operation, kill_at)
            if status == 0:
                return states
            assert os.WIFSIGNALED(status), status
        states.append(end_state_after(operation))
    raise AssertionError("more than 100 writes")


def race(count: int) -> dict:
    """`count` processes promote versions 2, 3, ... at once, all judged against no champion."""
    pids = []
    for number in range(1, count + 1):
        pid = os.fork()
        if not pid:
            try:
                promote_number(number)
                os._exit(0)
            except ValueError:
                os._exit(3)
            finally:
                os._exit(4)
        pids.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    return {"codes": codes, "state": end_state_after(lambda: None)}


if __name__ == "__main__":
    warm_up()
    assert "torch" not in sys.modules, "the registry loaded torch"
    if sys.argv[1] == "kill":
        if sys.argv[2] == "register":
            import_what_registering_needs()
        operations = {"promote": promote, "rollback": rollback, "register": register}
        result = kill_everywhere(operations[sys.argv[2]], Path(sys.argv[3]), int(sys.argv[4]))
    else:
        result = race(int(sys.argv[2]))
    sys.stdout.write(json.dumps(result))
