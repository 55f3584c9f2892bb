"""`make flywheel`: what a deployed policy fails at makes it better, on this machine alone.

    champion      imitates demonstrations, of which one task has a single one   train-vla
    alone         simulated robots that nobody watches play it, and log         rrf serve, client
    failures      which tasks fail, and where                                   rrf logs failures
    corrected     at those tasks the scripted expert watches, and takes over    client
    retrained     the champion goes on from its own, on all of it;              retrain-on-new-data
                  gate -> registry -> canary, if it passes
    again         the flow is started again, with nothing new: skipped          retrain-on-new-data
    released      canary and champion share the episodes of robots that nobody  rrf serve, client
                  watches, until the outcomes say which is the champion

All of it happens in a workspace of its own, `.rrf/flywheel`. What is done is noted there, so an
interrupted run goes on, and a second one only shows the page. `rm -rf .rrf/flywheel` begins anew.
"""

import contextlib
import dataclasses
import itertools
import os
import re
import shutil
import subprocess
import sys
import time
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from infra import demo
from rrf import atomic, processes, workspace
from rrf.config import read_yaml

if typing.TYPE_CHECKING:
    from rrf.registry.releases import Status

MODEL, DEMOS, DEPLOYED = "arm", "arm-demos", "arm-deployed"
TASKS = ("button-press-topdown-v3", "drawer-open-v3", "plate-slide-v3", "window-open-v3")
WEAK = "window-open-v3"
DEMONSTRATIONS = 25
"""Of each task but the weak one, which has one."""
ALONE_SEED, CORRECTED_SEED, RELEASED_SEED = 11, 12, 13
"""Of the starts; demonstrations are of 777, and the protocol's, on which policies are judged, 4242.
"""
ALONE, CORRECTED, RELEASED = 10, 24, 100
"""Episodes of each task without an operator, of each task that fails with one, and the most of each
task while a canary acts."""
NUM_ROBOTS = 4
_MOST_ALONE = 0.7  # a task of which more is solved alone needs no operator
_CONFIGS = Path(__file__).with_name("flywheel_configs")
_RECORDINGS = "datasets/raw/metaworld"


class Steps:
    """What was done in a workspace, with the time that it took."""

    def __init__(self, file: Path):
        self._file = file
        self.done: dict[str, dict] = atomic.parse_json(file.read_text()) if file.exists() else {}

    def do(self, name: str, work: Callable[[], dict]) -> dict:
        """The result of a step, which is done once."""
        if name not in self.done:
            began, cpu = time.monotonic(), _cpu_s()
            result = work()
            took = {"wall_s": time.monotonic() - began, "cpu_s": _cpu_s() - cpu}
            self.done[name] = {"result": result, **took}
            atomic.write_json(self._file, self.done)
        return self.done[name]["result"]

    def total(self, what: str) -> float:
        """Of all steps together: wall_s or cpu_s."""
        return sum(step[what] for step in self.done.values())


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def make_workspace(repository: Path, home: Path) -> dict:
    """A workspace with the demonstrations of the robots, committed to git."""
    from rrf.registry import deployments

    shutil.rmtree(home, ignore_errors=True)
    dvc = [sys.executable, "-m", "dvc"]
    if not (repository / _RECORDINGS).is_dir():
        subprocess.run([*dvc, "pull", "--quiet", "datasets.dvc"], cwd=repository, check=True)
    made = [sys.executable, "-m", "rrf.cli", "init", str(home)]
    subprocess.run(made, cwd=repository, check=True, capture_output=True)
    shutil.copytree(_CONFIGS, home / "configs", dirs_exist_ok=True)
    for task in TASKS:
        out = home / "recordings" / DEMOS / f"{task}.hdf5"
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(repository / _RECORDINGS / out.name, out)
    subprocess.run([*dvc, "commit", "--quiet", "--force", "datasets.dvc"], cwd=home, check=True)
    deployments.add_to_pipeline(DEMOS)
    commit(home, "The robots, their demonstrations and their gate")
    return {}


def commit(home: Path, message: str) -> None:
    """Commit all changes of a workspace, so that lineages name a version of it."""
    author = ("-c", "user.name=flywheel", "-c", "user.email=flywheel@localhost")
    no_sign = ("-c", "commit.gpgSign=false")
    subprocess.run(["git", "add", "--all"], cwd=home, check=True)
    words = ["git", *author, *no_sign, "commit", "--quiet", "--allow-empty", "--no-verify"]
    subprocess.run([*words, "-m", message], cwd=home, check=True)


@contextlib.contextmanager
def served(reference: str) -> Iterator[str]:
    """The address of a policy server for the duration of a `with` block."""
    command = [sys.executable, "-m", "rrf.cli", "serve", reference, "--port", "0"]
    log = workspace.state() / "logs" / "serve.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        process = processes.start(command, cwd=workspace.home(), env={}, stdout=file)
    try:
        yield _address(process, log)
    finally:
        processes.stop(process, grace_s=20)


def _address(process: subprocess.Popen, log: Path) -> str:
    deadline = time.monotonic() + 300
    while not (found := re.search(r"at (wss?://\S+)", log.read_text(errors="replace"))):
        if processes.has_ended(process) or time.monotonic() > deadline:
            raise ValueError(f"the policy server did not start; see {log}")
        time.sleep(0.2)
    return found[1]


def play(
    tasks: Sequence[str],
    seed: int,
    number: int,
    store: Path,
    name: str,
    is_attended: bool = False,
    is_over: Callable[[], bool] = lambda: False,
) -> dict:
    """Let robots play what `rrf serve MODEL` serves, and send their episodes to the store.

    Args:
        tasks: The tasks.
        seed: Of the starts.
        number: Starts of each task.
        store: Where episodes are sent.
        name: Of the step.
        is_attended: Whether an operator watches.
        is_over: Whether no further episode is to begin.
    """
    from flows import progress
    from infra.simulated_robots import Shift, work
    from rrf.client import Uploader
    from rrf.data.transport.episode_store import EpisodeStore
    from rrf.envs.vec_env import InitialState

    logs = workspace.home() / "robot-logs"
    shutil.rmtree(logs, ignore_errors=True)  # what an interrupted run has not finished
    there = EpisodeStore(store)
    manifests = [there.manifest(episode) for episode in there.episodes()]
    starts = [(m["summary"]["task"], m["summary"]["start"]) for m in manifests if m]
    played = {(task, start["seed"], start["index"]) for task, start in starts}
    states = [InitialState(task, seed, index) for index in range(number) for task in tasks]
    states = [state for state in states if (state.task, state.seed, state.index) not in played]
    protocol = read_yaml(workspace.home() / f"configs/protocols/{MODEL}.yaml")
    say = progress.reporter(name)
    say("the policy server loads the champion")
    with served(MODEL) as url, Uploader(logs, there, every_s=2, say=say):
        shift = Shift(
            url,
            logs,
            NUM_ROBOTS,
            protocol["execute_steps"],
            protocol["max_episode_steps"],
            is_attended,
        )
        begun = itertools.takewhile(lambda _: not is_over(), states)
        done = work(shift, begun, lambda number: say(f"{number}/{len(states)} episodes"))
    if left := [path.name for path in logs.glob("[!.]*")]:
        raise OSError(f"{len(left)} episodes in {logs} were not sent; the same command goes on")
    return {"episodes": len(done)}


def release(store: Path) -> dict:
    """Let robots play until the outcomes of the canary and the champion decide."""
    from rrf.registry.releases import statuses
    from rrf.registry.served import ServedModel

    model = ServedModel(MODEL)
    if statuses(MODEL):
        play(
            TASKS,
            RELEASED_SEED,
            RELEASED,
            store,
            "released",
            is_over=lambda: not model.state().release,
        )
    return {"releases": [_plain_release(status) for status in statuses(MODEL)]}


def _plain_release(status: "Status") -> dict:
    assert status.decision is not None
    return {"version": status.release.version, **dataclasses.asdict(status.decision)}


def summaries(store: Path, seed: int) -> list[dict]:
    """What is in the store of the starts of a seed."""
    from rrf.data.transport.episode_store import EpisodeStore

    there = EpisodeStore(store)
    manifests = [there.manifest(episode) for episode in there.episodes()]
    return [m["summary"] for m in manifests if m and m["summary"]["start"].get("seed") == seed]


def failing(store: Path) -> list[str]:
    """The tasks that need an operator: those that the policy solves alone too rarely."""
    from rrf.evaluation.deployment.failures import by_task

    rows = by_task(summaries(store, ALONE_SEED))
    return [row.task for row in rows if row.alone <= _MOST_ALONE * row.episodes]


def turn(console: Console, steps: Steps) -> dict:
    """One turn of the flywheel, inside `infra.demo.prefect_server`."""
    from flows import progress
    from flows.retrain_on_new_data import retrain_on_new_data
    from flows.train_vla import train_vla
    from infra.display import Display

    home = workspace.home()
    store = home / ".rrf" / "store"
    gate = f"configs/gates/{MODEL}.yaml"
    asked: dict[str, typing.Any] = {
        "model": MODEL,
        "dataset": DEPLOYED,
        "demonstrations": DEMOS,
        "sft": f"configs/train/{MODEL}-again.yaml",
        "store": str(store),
        "min_episodes": 20,
        "canary": True,
    }

    def retrain() -> dict:
        return typing.cast(dict, retrain_on_new_data(**asked))

    with Display(console) as display, progress.listening(display):
        display.heading(f"1  A champion that has seen {WEAK} once: the flow train-vla")
        first = steps.do(
            "champion",
            lambda: train_vla(
                DEMOS, None, f"configs/train/{MODEL}.yaml", None, gate=gate, model=MODEL
            ),
        )
        _check_promoted(first)
        display.heading("2  Robots that nobody watches")
        steps.do("alone", lambda: play(TASKS, ALONE_SEED, ALONE, store, "alone"))
        tasks = steps.do("failures", lambda: {"tasks": failing(store)})["tasks"]
        display.heading(f"3  An operator corrects {', '.join(tasks) or 'nothing'}")
        steps.do(
            "corrected",
            lambda: play(tasks, CORRECTED_SEED, CORRECTED, store, "corrected", is_attended=True),
        )
        display.heading("4  The flow retrain-on-new-data")
        second = steps.do("retrained", retrain)
        display.heading("5  The same flow again, with nothing new")
        again = steps.do("again", retrain)
        display.heading("6  The candidate beside the champion, until their episodes decide")
        released = steps.do("released", lambda: release(store))["releases"]
    return {
        "first": first,
        "second": second,
        "again": again,
        "released": released,
        "tasks": tasks,
        "store": store,
    }


def _check_promoted(result: dict) -> None:
    if not result["promoted"]:
        raise ValueError(f"the first policy did not become the champion: {result['decision']}")


def main() -> None:
    """Run the flywheel. A known problem of user or machine ends it with exit code 2."""
    console = Console(highlight=False)
    workspace.settle_environment()
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    try:
        repository = demo.check_machine()
        home = repository / ".rrf" / "flywheel"
        with demo.only_one():
            os.environ[workspace.HOME_VARIABLE] = str(home)
            steps = Steps(home / ".rrf" / "flywheel.json")
            steps.do("workspace", lambda: make_workspace(repository, home))
            os.chdir(home)
            with demo.prefect_server(console):
                result = turn(console, steps)
            from infra.flywheel_page import write_page

            page, lines = write_page(result, steps)
    except KeyboardInterrupt:
        console.print("\ninterrupted; `make flywheel` continues from here")
        raise SystemExit(130) from None
    except (ValueError, OSError, processes.CommandError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(2) from None
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"page      {page.relative_to(repository)}", soft_wrap=True)


if __name__ == "__main__":
    main()
