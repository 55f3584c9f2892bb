"""Flows for the tests: one that only ends, one that trains like ours, with a
counter as policy, and one that holds a GPU until it is told to end."""

import json
import os
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


HOLDER = """
import os, signal, sys, time
folder, run = sys.argv[1:]
path = os.path.join(folder, run)
def end(*_):
    os.unlink(path)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
with open(path + ".new", "w") as file:
    file.write(" ".join([os.environ["RRF_MACHINE"], os.environ["CUDA_VISIBLE_DEVICES"]]))
os.rename(path + ".new", path)
while not os.path.exists(os.path.join(folder, "end")):
    time.sleep(0.1)
end()
"""


@task
def hold(folder: str, run: str) -> None:
    command = [sys.executable, "-c", HOLDER, folder, run]
    slots.on_gpu(
        lambda card: processes.run(command, env=card.env, stop_when=card.wanted, grace_s=20)
    )


@flow
def holding(folder: str, run: str) -> None:
    (Path(folder) / f"{run}.pid").write_text(str(os.getpid()))
    hold(folder, run)


holding_at_night = flow(name="holding-at-night")(holding.fn)
