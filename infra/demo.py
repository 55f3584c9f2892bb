"""`make demo`: from the raw recordings to a champion in use, on this machine alone.

The demo starts a Prefect server for its own duration, or uses the one of `rrf services up`. MLflow
writes to SQLite and local files, and DVC pulls from a remote inside the repository. Every step
recognises what an earlier demo has finished. So a second run only checks the results, and an
interrupted demo continues.
"""

import contextlib
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rich.console import Console
from rich.table import Table

from infra import services
from rrf import processes, workspace
from rrf.evaluation.results import Evaluation
from rrf.lineage import Lineage

if TYPE_CHECKING:
    from rrf.policies.policy import Policy

MODEL = "metaworld-compact"
GATE = "configs/gates/metaworld-rl.yaml"
PLAYED_TASK = "drawer-open-v3"
MIN_FREE_BYTES = 10**9


def check_machine() -> Path:
    """Check that this machine can run the demo, and return the workspace.

    Raises:
        ValueError: Outside the repository or on a full disk.
    """
    home = workspace.home()
    if not (home / "infra/demo.py").is_file():
        raise ValueError(f"{Path.cwd()} is not inside the repository of rrf; cd into it")
    free = shutil.disk_usage(home).free
    if free < MIN_FREE_BYTES:
        raise ValueError(
            f"{free / 1e9:.1f} GB free on the disk of {home}, but the demo needs"
            f" {MIN_FREE_BYTES / 1e9:.1f} GB; free some space, e.g. with: make clean"
        )
    return home


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Hold the lock of the demo in this checkout. The system releases it when this process ends.

    Raises:
        ValueError: If another demo is running here.
    """
    path = services.demo_lock()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ValueError(
                f"another `make demo` (pid {file.read()}) is running in this checkout"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextlib.contextmanager
def prefect_server(console: Console) -> Iterator[None]:
    """Connect this process to the workspace's Prefect server, or to one for the block only."""
    if services.is_running(services.prefect_service(services.prefect_port())):
        os.environ.update(services.environment(services.prefect_port()))
        yield
        return
    with contextlib.ExitStack() as stack:
        with console.status("Prefect server is starting"):
            env = stack.enter_context(services.temporary_prefect(workspace.state() / "prefect"))
        os.environ.update(env)
        from flows import slots  # imports Prefect, which reads the variables set above

        slots.free_all()
        try:
            yield
        finally:
            _deliver_events()


def _deliver_events() -> None:
    """Let Prefect's background threads send their last messages before the server stops."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (EventsWorker, APILogWorker):
        worker.drain_all(timeout=10)


def run(console: Console) -> None:
    """Run the demo inside `prefect_server`."""
    from flows import progress
    from flows.train_vla import train_vla
    from infra.display import Display

    with Display(console) as display, progress.listening(display):
        display.heading("1-4  Data, training, evaluation, gate and registry: the flow train-vla")
        first = train_vla(model=MODEL, gate=GATE)
        display.heading("4    A second candidate, deliberately under-trained: the same flow")
        weak = "compact-vla-undertrained"
        second = train_vla(pretrain=None, sft=weak, rl=None, model=MODEL)
        display.heading("5    The champion in use")
        used = use_champion()
    console.print(summary(first, second, used))
    console.print(where_to_look(first, used), soft_wrap=True)
    if second["promoted"]:
        raise ValueError("the under-trained candidate was promoted; see its report for why")


def use_champion() -> dict:
    """Fetch the champion, make a video of it, and compare its actions with MLflow's copy."""
    from flows import commands

    folder = workspace.state() / "demo"
    video = folder / "champion.mp4"
    commands.rrf("fetch", "models", "fetch", f"{MODEL}@champion", "--out", folder / "champion")
    commands.rrf("play", "play", folder / "champion", "--task", PLAYED_TASK, "--out", video)
    return {"folder": folder / "champion", "video": video, "error": difference_to_mlflow(folder)}


def difference_to_mlflow(folder: Path) -> float:
    """Largest difference between the actions of the fetched policy and of MLflow's copy.

    The observations are frames of the dataset.

    Raises:
        ValueError: If the actions are not identical.
    """
    import mlflow.pyfunc
    import numpy as np

    from rrf.data.dataset.opening import open_dataset
    from rrf.data.schema import IMAGE_PREFIX, STATE
    from rrf.runners.checkpoints.checkpoint import load_policy

    frames = open_dataset(workspace.home() / "datasets" / "metaworld-demo", chunk_length=2)
    obs = frames.batch(np.arange(0, frames.num_frames, max(1, frames.num_frames // 8))).observation
    named = {f"{IMAGE_PREFIX}{camera}": image for camera, image in obs.images.items()}
    named |= {STATE: obs.state, "instruction": np.asarray(obs.instruction)}
    mlflow.set_tracking_uri(workspace.tracking_uri())
    mlflow_actions = mlflow.pyfunc.load_model(f"models:/{MODEL}@champion").predict(named)
    policy = cast("Policy", load_policy(folder / "champion"))
    fetched_actions = policy.sample(obs, greedy=True).actions
    error = float(np.abs(fetched_actions - mlflow_actions).max())
    if error != 0:
        raise ValueError(
            f"MLflow's copy of the champion gives other actions; they differ by up to {error:g}"
        )
    return error


def summary(first: dict, second: dict, used: dict) -> Table:
    """The final table of the demo."""
    table = Table(title="What happened", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    [dataset] = Lineage.from_dict(first["lineage"]).datasets
    table.add_row(
        "data",
        f"{dataset.name}: {dataset.num_episodes} episodes, {dataset.num_frames} frames,"
        f" validation {dataset.validation}, DVC md5 {dataset.md5}",
    )
    for stage, result in first["training"].items():
        reused = ", reused" if result["reused"] else ""
        unit = "rounds of rollout and update" if "validations" in result else "steps"
        text = f"{result['steps']} {unit}, {result['wall_s']:.0f} s{reused}"
        table.add_row(stage, f"{text}; MLflow run {result['run_id']}")
    before = Evaluation.load(first["before"]).overall
    table.add_row("before rl", f"{before.rate:.0%} of {before.episodes} held-out episodes solved")
    table.add_row("after rl", _success(first))
    table.add_row("gate", f"[green]{first['verdict']}[/]: {first['decision']}")
    table.add_row("under-trained", _success(second))
    reason = second["reasons"][0].removeprefix("fail: ")
    table.add_row("gate", f"[red]{second['verdict']}[/]: not promoted, {reason}")
    use = f"{_shown(used['folder'])} and MLflow's models:/{MODEL}@champion give the same actions"
    table.add_row("use", use)
    return table


def where_to_look(first: dict, used: dict) -> str:
    """The last lines of the demo: what to open next."""
    evaluation = _shown(Path(first["evaluation"]))
    prefect, mlflow = services.prefect_port(), services.mlflow_port()
    return (
        f"report    {evaluation}/report.html\n"
        f"videos    {evaluation}/videos and {_shown(used['video'])}\n"
        "registry  rrf models list\n"
        f"web UIs   rrf services up (Prefect http://127.0.0.1:{prefect},"
        f" MLflow http://127.0.0.1:{mlflow})"
    )


def _shown(path: Path) -> Path:
    return path.relative_to(workspace.home())


def _success(result: dict) -> str:
    rate = result["success"]
    return (
        f"{rate['rate']:.0%} of {rate['episodes']:.0f} held-out episodes solved"
        f" (95 % bounds {rate['low']:.0%} to {rate['high']:.0%})"
    )


def main() -> None:
    """Run the demo. A known problem of user or machine ends it with an error and exit code 2."""
    console, began = Console(highlight=False), time.monotonic()
    workspace.settle_environment()
    # All of Prefect's messages go to its server; none should appear between the progress bars.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    try:
        os.chdir(check_machine())
        with only_one(), prefect_server(console):
            run(console)
    except KeyboardInterrupt:
        console.print("\ninterrupted; `make demo` continues from here")
        raise SystemExit(130) from None
    except (ValueError, OSError, processes.CommandError) as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(2) from None
    console.print(f"[green]done[/] in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
