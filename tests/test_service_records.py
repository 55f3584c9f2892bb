"""Records of services, on a file system that machines share."""

import dataclasses
import json
import os
import socket

import pytest
from rich.console import Console

from infra import services
from rrf import service_records


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    return tmp_path


def written(node: str | None = None) -> service_records.Record:
    """The record of this process as a worker, maybe from another node."""
    service_records.write("worker", os.getpid(), 0, "mark")
    record = service_records.read("worker")
    assert record is not None
    if node is not None:
        record = dataclasses.replace(record, node=node)
        service_records.path("worker").write_text(json.dumps(dataclasses.asdict(record)))
    return record


def test_services_of_another_machine_are_neither_started_again_nor_forgotten(home):
    written("node7 12345678-1234-1234-1234-123456789abc")
    for command in (services.up, services.down):
        with pytest.raises(ValueError, match="'worker' of this workspace was started on node7, wh"):
            command(Console(quiet=True))
    assert service_records.path("worker").is_file()
    assert services._owner("worker") == "started on node7, which shares this folder"


def test_a_machine_that_booted_or_got_another_name_is_this_one(home):
    record = written()
    assert record.is_running
    name, boot = record.node.split()
    assert name == socket.gethostname()
    for node in (f"{name} 12345678-1234-1234-1234-123456789abc", f"other {boot}", ""):
        assert written(node).other_node is None
    service_records.require_this_node(["worker", "prefect"])
