"""Training, evaluation, and moving data: work that is killed and started again."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import typing
from pathlib import Path

from flows import dvc_command
from flows.share import share
from rrf import atomic, cli
from rrf.data import episode_log
from rrf.data.transport.episode_store import EpisodeStore
from rrf.run_directory import UNSENT
from tests.faults.kills import Killed

_TIMES = ("wall_s", "cpu_s", "seconds", "time", "date", "per_s", "created")
GIT = ("-c", "user.name=test", "-c", "user.email=test@localhost")


def rrf(*words: str) -> None:
    """Run a command of `rrf` in this process."""
    sys.argv = ["rrf", *words]
    try:
        cli.main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    assert code == 0, f"rrf {' '.join(words)}: {code}"


def timeless(data: typing.Any) -> typing.Any:
    """Plain data without what is measured by a clock."""
    if isinstance(data, dict):
        kept = {k: v for k, v in data.items() if not any(word in k for word in _TIMES)}
        return {key: timeless(value) for key, value in kept.items()}
    return [timeless(each) for each in data] if isinstance(data, list) else data


class Training(Killed):
    """PPO on CartPole; its state is that of a store of MLflow, too."""

    name = "training"
    words = (
        *("cartpole-ppo", "max_iterations=60", "num_steps_per_env=8", "env.num_envs=4"),
        *("algorithm.num_learning_epochs=2", "save_interval=10"),
    )

    def prepare(self, home: Path) -> None:
        from rrf.mlflow_store import store

        store.connect()

    def work(self, home: Path) -> None:
        rrf("train", *self.words, "--run-dir", str(home / "run"))

    def look(self, home: Path) -> None:
        for folder in (home / "run").glob("global_step_*"):
            atomic.check_manifest(folder)
        for file in (home / "run").glob("*.json"):
            if file.name != UNSENT:  # in which a line may be half
                json.loads(file.read_text())

    def state(self, home: Path) -> typing.Any:
        from rrf.mlflow_store import store

        self.look(home)
        folders = sorted(path.name for path in (home / "run").glob("global_step_*"))
        manifest = atomic.check_manifest(home / "run" / folders[-1])
        client = store.connect()
        ids = [e.experiment_id for e in client.search_experiments()]
        runs = client.search_runs(ids)
        series = {
            f"{number} {key}": [
                *{(m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)}
            ]
            for number, run in enumerate(runs)
            for key in run.data.metrics
            if key.startswith("loss/")
        }
        files = {
            name: digest for name, digest in manifest["files"].items() if "safetensors" in name
        }
        return {
            "files": files,
            "runs": [run.info.status for run in runs],
            "series": {key: sorted(points) for key, points in series.items()},
        }


class ImageTraining(Training):
    """Imitation from images, which a dataset on the disk has."""

    name = "training from images"

    def prepare(self, home: Path) -> None:
        from tests.runners.supervised.conftest import write_synthetic

        super().prepare(home)
        write_synthetic(home / "datasets/squares", 16)

    def work(self, home: Path) -> None:
        from rrf.cli.training_run import run_training
        from tests.runners.supervised.conftest import tiny_run_cfg

        run_training(tiny_run_cfg(home / "datasets/squares", trackers=["mlflow"]), home / "run")


class Evaluation(Killed):
    """Episodes on CartPole in simulation."""

    name = "evaluation"

    def prepare(self, home: Path) -> None:
        from rrf.lineage import DatasetLineage, Lineage
        from tests.evaluation.control.control_checkpoints import write_control_checkpoint

        write_control_checkpoint(home / "run", "CartPole-v1", Lineage((DatasetLineage("demo"),)))
        (home / "p.yaml").write_text(
            'name: p\nenv: {type: "rrf.envs.gymnasium.configs:GymnasiumEnvCfg", '
            "task: CartPole-v1, num_envs: 4}\nseed: 4242\nepisodes_per_task: 64\n"
            "max_episode_steps: 200\nsuccess: {return: {min: 20}}\n"
        )

    def work(self, home: Path) -> None:
        words = ("--protocol", str(home / "p.yaml"), "--out", str(home / "out"))
        rrf("eval", str(home / "run"), *words)

    def look(self, home: Path) -> None:
        from rrf.evaluation.results import Evaluation as Result

        file = home / "out/evaluation.json"
        if file.exists():
            assert len(Result.load(file).episodes) == 64

    def state(self, home: Path) -> typing.Any:
        self.look(home)
        names = sorted(p.relative_to(home).as_posix() for p in (home / "out").rglob("*"))
        kept = timeless(json.loads((home / "out/evaluation.json").read_text()))
        return {"evaluation": kept, "files": names}


class LogUpload(Killed):
    """Episodes of a robot on their way to the store."""

    name = "log upload"
    episodes, steps = 30, 20

    def prepare(self, home: Path) -> None:
        from rrf.client import EpisodeLogger
        from tests.client.logging import log_episode

        with EpisodeLogger(home / "logs", "arm-1") as log:
            for number in range(self.episodes):
                log_episode(log, first=100 * number, steps=self.steps)
        (home / "digests.json").write_text(
            json.dumps(
                {p.name: episode_log.read_manifest(p)["digest"] for p in (home / "logs").iterdir()}
            )
        )

    def work(self, home: Path) -> None:
        rrf("logs", "upload", "--folder", str(home / "logs"), "--store", str(home / "store"))

    def look(self, home: Path) -> None:
        store = EpisodeStore(home / "store")
        with tempfile.TemporaryDirectory() as scratch:
            for name in store.episodes():
                store.get(name, Path(scratch))
        local = {path.name for path in (home / "logs").glob("[!.]*")}
        known = json.loads((home / "digests.json").read_text())
        assert {*store.episodes(), *local} == {*known}, "an episode is lost"

    def state(self, home: Path) -> typing.Any:
        store = EpisodeStore(home / "store")
        left = sorted(path.name for path in (home / "logs").iterdir())
        return {
            "sent": {name: store.manifest(name)["digest"] for name in store.episodes()},
            "left": left,
        }


class Ingest(LogUpload):
    """Episodes of the store on their way into a dataset's recordings."""

    name = "log ingest"

    def prepare(self, home: Path) -> None:
        from rrf.mlflow_store import store
        from tests.registry.test_deployments import PIPELINE

        super().prepare(home)
        super().work(home)
        store.connect()
        (home / "dvc.yaml").write_text(PIPELINE)

    def work(self, home: Path) -> None:
        words = ("--store", str(home / "store"), "--allow", "arm-policy")
        rrf("logs", "ingest", "deployed", *words)

    def look(self, home: Path) -> None:
        from rrf.registry import deployments

        for summary in deployments.summaries_here("deployed"):
            assert summary["steps"] == self.steps
        for folder in (home / "recordings/deployed").glob("[!.]*"):
            atomic.check_manifest(folder)

    def state(self, home: Path) -> typing.Any:
        self.look(home)
        files = [p for p in home.rglob("*") if p.is_file() and ".rrf" not in p.parts]
        return {p.relative_to(home).as_posix(): atomic.sha256(p) for p in files}


class Push(Killed):
    """A dataset on its way to a remote of DVC."""

    name = "DVC push (rrf data share)"
    files, size = 150, 100_000

    def prepare(self, home: Path) -> None:
        import numpy as np

        data = home / "data"
        data.mkdir()
        rng = np.random.default_rng(0)
        for number in range(self.files):
            (data / f"{number}.bin").write_bytes(rng.bytes(self.size))
        (home / "remote").mkdir()
        for words in (
            ("git", "init", "-q", "--template="),
            ("dvc", "init", "-q"),
            ("dvc", "remote", "add", "-q", "-d", "here", str(home / "remote")),
            ("dvc", "add", "-q", "data"),
            ("git", "add", "."),
            ("git", *GIT, "commit", "-qm", "data"),
        ):
            subprocess.run(words, cwd=home, check=True)

    def work(self, home: Path) -> None:
        _remember_here()
        share(home)

    def look(self, home: Path) -> None:
        for file in (home / "remote").rglob("*"):
            if file.is_file() and len(file.name.removesuffix(".dir")) == 30:
                name = file.parent.name + file.name.removesuffix(".dir")
                assert _md5(file) == name, f"{file} is half"

    def state(self, home: Path) -> typing.Any:
        self.look(home)
        clone = home / "clone"
        subprocess.run(["git", "clone", "-q", str(home), str(clone)], check=True)
        os.chdir(clone)
        _dvc("pull", "-q")
        remote = [p for p in (home / "remote").rglob("*") if p.is_file() and p.suffix != ".tmp"]
        return {
            "pulled": {p.name: atomic.sha256(p) for p in (clone / "data").iterdir()},
            "remote": sorted(p.relative_to(home).as_posix() for p in remote),
        }


class Pull(Push):
    """`dvc pull` of a dataset into a fresh clone, as flows run it."""

    name = "DVC pull"

    def prepare(self, home: Path) -> None:
        super().prepare(home)
        subprocess.run(["dvc", "push", "-q"], cwd=home, check=True)
        subprocess.run(["git", "clone", "-q", str(home), str(home / "clone")], check=True)

    def work(self, home: Path) -> None:
        os.chdir(home / "clone")
        for file in Path("data").glob(".*.tmp"):  # as `flows.commands.dvc` does
            file.unlink()
        _remember_here()
        code, errors = dvc_command.run(["pull"])
        assert code == 0, f"dvc pull: {errors}"

    def state(self, home: Path) -> typing.Any:
        return {p.name: atomic.sha256(p) for p in (home / "clone/data").iterdir()}


def _dvc(*words: str) -> None:
    from dvc.cli import main

    _remember_here()
    assert main(list(words)) == 0, f"dvc {' '.join(words)}"


def _remember_here() -> None:
    """Let DVC write what it remembers of a remote beside the repository, not into the user's."""
    os.environ["DVC_SITE_CACHE_DIR"] = str(Path(os.environ["RRF_HOME"]) / "site")


def _md5(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()
