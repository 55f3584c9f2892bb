"""Flows for the tests: one that only ends, one that trains like ours, with a counter as policy."""

import json
import sys
from pathlib import Path

from prefect import flow, task

from flows import progress, slots
from rrf import processes

TRAINER = """
import json, os, signal, sys, time
path, steps = sys.argv[1], int(sys.argv[2])
state = json.load(open(path)) if os.path.exists(path) else {"step": 0, "starts": []}
state["starts"].append(state["step"])
state["pid"], state["parent"] = os.getpid(), os.getppid()
def save():
    json.dump(state, open(path + ".new", "w"))
    os.replace(path + ".new", path)
def stop(*_):
    state["saved_on_signal"] = True
    save()
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
save()
while state["step"] < steps:
    time.sleep(0.1)
    state["step"] += 1
    if state["step"] % 10 == 0:
        save()
    print(f"step {state['step']}/{steps}", flush=True)
save()
"""


@flow
def tick() -> str:
    return "tock"


@task
def train(checkpoint: str, steps: int) -> int:
    with slots.gpu_slot():
        command = [sys.executable, "-c", TRAINER, checkpoint, str(steps)]
        processes.run(command, on_line=progress.reporter("training"), grace_s=20)
    return json.loads(Path(checkpoint).read_text())["step"]


@flow
def training(checkpoint: str, steps: int = 600) -> int:
    return train(checkpoint, steps)
