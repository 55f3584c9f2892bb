"""Reproduce a version: its commits, its data by DVC, its trainings and its evaluation once more.

    INTO/reproduction.json   which version, and, in the end, every stage and the verdict
    INTO/recorded/           the version's checkpoint, as it is in the registry
    INTO/code-COMMIT/        a clone of the workspace at a commit; the stages run in it, by its code
    INTO/training-N/         the run directory of a training
    INTO/evaluation/         the evaluation
    INTO/logs/               what the commands printed

A second call with the same INTO goes on where the first one stopped: a clone is there as a whole or
not at all, `rrf train` reuses or resumes a run, `rrf eval` reuses an evaluation.

Checkpoints are compared by their weights, statistics and config, not by their digest: a config
names places (`init_from`), which are others here. Of a checkpoint that is not here any more, the
digest is known: the one that the new checkpoint would have with the old config.yaml must be equal.
"""

import dataclasses
import importlib.metadata
import json
import os
import shutil
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import yaml

from rrf import atomic, processes, workspace
from rrf.evaluation.intervals import noninferiority_p, paired_difference
from rrf.evaluation.nightly.differences import differences
from rrf.evaluation.results import Evaluation, wins_and_losses
from rrf.mlflow_store.dvc_dataset import directory_md5
from rrf.registry.lineage_sources import LOCK_FILE, git
from rrf.registry.reproduction_plan import Plan, Training, digest_with, normalised
from rrf.run_directory import TrainingResult
from rrf.runners.checkpoints import checkpoint as checkpoints

RECORD = "reproduction.json"
RECORDED = "recorded"
BOUND = 0.05
Outcome = typing.Literal["same", "differs", "unknown"]
Say = Callable[[str], None]
_TRAIN = """
import sys
from pathlib import Path
from rrf import workspace
from rrf.cli.options import import_modules
from rrf.cli.training_run import run_training
from rrf.config import parse_overrides
from rrf.runners.configs import RunnerCfg

config, run_dir, overrides, imports = sys.argv[1:5]
workspace.settle_environment()
import_modules(imports.split(",") if imports else None)
cfg = RunnerCfg.from_yaml(Path(config).read_text())
Path(config).with_suffix(".original").write_text(cfg.to_yaml())
run_training(cfg.override(parse_overrides(overrides.split("\\n"))), Path(run_dir))
"""
"""Run by the code of the commit: a training file names a preset, and here is a resolved config."""
_DIGEST = "from rrf import code_digest; print(code_digest.source_digest())"


@dataclasses.dataclass(frozen=True)
class Stage:
    """One thing that was done again, beside how it was."""

    name: str
    outcome: Outcome
    what: str

    def __str__(self) -> str:
        return f"{self.name}: {self.outcome}, {self.what}"


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """What came out."""

    stages: tuple[Stage, ...]
    verdict: typing.Literal["bit-identical", "within the bound", "different"]
    why: str
    notes: tuple[str, ...]
    """What is otherwise than then and may be the cause."""

    @property
    def first_difference(self) -> Stage | None:
        """The first stage that differs."""
        return next((stage for stage in self.stages if stage.outcome == "differs"), None)


def begin(into: Path, identity: Mapping[str, typing.Any]) -> None:
    """Take a folder for a reproduction, or go on with the one that is in it.

    Raises:
        ValueError: If it holds something else, or another reproduction.
    """
    record = into / RECORD
    known = atomic.parse_json(record.read_bytes(), record) if record.is_file() else {}
    if not known and not atomic.is_vacant(into):
        raise ValueError(f"--into {into} holds something else; give a new or empty folder")
    if any(key in known and known[key] != value for key, value in identity.items()):
        raise ValueError(
            f"--into {into} holds the reproduction of {known['model']} version {known['version']}, "
            "or one with another --set; give another folder"
        )
    atomic.write_json(record, {**known, **identity})


@dataclasses.dataclass(frozen=True)
class Reproducer:
    """Carries out a plan in a folder."""

    plan: Plan
    into: Path
    say: Say
    bound: float = BOUND
    locked: bool = False
    """Run in an environment of the commit's lock, which uv makes, instead of this one."""
    imports: tuple[str, ...] = ()

    def run(self) -> Reproduction:
        """Do everything again that is not done yet, and compare.

        Raises:
            ValueError: If data cannot be had, or `into` holds something else.
            processes.CommandError: If a stage fails.
        """
        begin(self.into, self.plan.identity)
        notes: list[str] = list(self.plan.warnings)
        homes = {commit: self._clone(commit) for commit in self.plan.commits}
        pythons = {commit: self._python(commit, home) for commit, home in homes.items()}
        for commit, home in homes.items():
            notes += self._conditions(commit, home, pythons[commit])
        for note in notes:
            self.say(f"note: {note}")
        stages: list[Stage] = []
        made: dict[int, Path] = {}
        for stage in self._stages(homes, pythons, made):
            self.say(str(stage))
            stages.append(stage)
        verdict, why = self._verdict(stages)
        result = Reproduction(tuple(stages), verdict, why, tuple(notes))
        atomic.write_json(self.into / RECORD, self.plan.identity | dataclasses.asdict(result))
        return result

    def _clone(self, commit: str) -> Path:
        """The workspace at a commit, in a clone of its repository; made if it is not here yet."""
        home = workspace.home()
        top, prefix = (
            git(home, "rev-parse", "--show-toplevel"),
            git(home, "rev-parse", "--show-prefix"),
        )
        assert top is not None
        assert prefix is not None
        clone = self.into / f"code-{commit[:12]}"
        if not clone.exists():
            self.say(f"cloning {top} at {commit[:12]}")
            with atomic.directory(clone) as root:
                log = self.into / "logs" / "git.log"
                words = ["git", "clone", "--quiet", "--shared", "--no-checkout", top, str(root)]
                processes.run(words, log)
                checkout = ["git", "checkout", "--quiet", "--detach", commit]
                processes.run(checkout, log, cwd=root)
        here = clone / prefix
        if (here / ".dvc").is_dir():
            self._share_cache(home, here)
        return here

    def _share_cache(self, home: Path, clone: Path) -> None:
        """Let DVC in a clone use the cache and the private settings of the workspace."""
        private = home / ".dvc/config.local"
        if private.is_file():
            shutil.copyfile(private, clone / ".dvc/config.local")
        cache = [line for line in self._dvc(home, "cache", "dir") if line.strip()]
        self._dvc(
            clone, "cache", "dir", "--local", cache[-1] if cache else str(home / ".dvc/cache")
        )

    def _python(self, commit: str, home: Path) -> str:
        """The interpreter that runs the stages of a commit."""
        if not self.locked:
            return sys.executable
        lock = home / LOCK_FILE
        if not lock.is_file():
            raise ValueError(f"commit {commit[:12]} has no {LOCK_FILE}; leave out --locked")
        uv = shutil.which(
            "uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        )
        if uv is None:
            raise ValueError("--locked needs uv: pip install uv")
        folder = self.into / f"environment-{atomic.sha256(lock)[:12]}"
        python, complete = folder / "bin/python", folder / "complete"
        if not complete.is_file():
            self.say(f"installing {lock}")
            log, to = self.into / "logs" / "uv.log", ["--python", str(python)]
            processes.run([uv, "venv", "--clear", "--python", sys.executable, str(folder)], log)
            processes.run([uv, "pip", "sync", *to, str(lock)], log, cwd=home)
            if (home / "rrf/__init__.py").is_file():
                processes.run([uv, "pip", "install", *to, "--no-deps", "-e", "."], log, cwd=home)
            complete.touch()
        return str(python)

    def _conditions(self, commit: str, home: Path, python: str) -> Iterator[str]:
        """What is otherwise than when it was trained, besides data and config."""
        shown = f"commit {commit[:12]}"
        training = next(t for t in self.plan.trainings if t.commit == commit)
        lock = home / LOCK_FILE
        if training.lock_hash and lock.is_file() and atomic.sha256(lock) != training.lock_hash:
            yield f"{LOCK_FILE} of {shown} is not the one that was recorded"
        if lock.is_file() and not self.locked:
            others = packages_unlike(lock.read_text())
            if others:
                more = f" and {len(others) - 5} more" if len(others) > 5 else ""
                yield (
                    f"the running packages are not those of {LOCK_FILE}: {', '.join(others[:5])}"
                    f"{more}; to install them: --locked"
                )
        if training.source_digest:
            [digest] = self._lines(home, python, "-c", _DIGEST)[-1:]
            if digest != training.source_digest:
                yield f"the code of rrf at {shown} is not the one that trained"

    def _stages(
        self, homes: dict[str, Path], pythons: dict[str, str], made: dict[int, Path]
    ) -> Iterator[Stage]:
        brought: set[tuple[str, str]] = set()
        for training in self.plan.trainings:
            home, python = homes[training.commit], pythons[training.commit]
            for dataset in training.datasets:
                if (training.commit, dataset.name) not in brought:
                    brought.add((training.commit, dataset.name))
                    yield self._bring(home, python, dataset.name, dataset.md5)
            yield from self._train(training, home, python, made)
        last = self.plan.trainings[-1]
        yield self._evaluate(homes[last.commit], pythons[last.commit], made[last.number])

    def _bring(self, home: Path, python: str, dataset: str, md5: str | None) -> Stage:
        from rrf.registry import reproduction_data

        name = f"data {dataset}"
        if "://" in dataset:
            return Stage(name, "unknown", "it is in a bucket, and what is there now was read")
        if md5 is None:
            return Stage(name, "unknown", "no version of it was recorded")
        folder = home / (dataset if "/" in dataset else f"datasets/{dataset}")
        if not folder.is_dir():
            self.say(f"bringing {dataset} by DVC")
            reproduction_data.bring(
                dataset,
                folder.relative_to(home),
                md5,
                lambda *words: self._dvc(home, *words, python=python),
            )
        found = directory_md5(folder)
        if found == md5:
            return Stage(name, "same", f"md5 {md5}")
        return Stage(name, "differs", f"md5 {found} instead of {md5}")

    def _train(
        self, training: Training, home: Path, python: str, made: dict[int, Path]
    ) -> Iterator[Stage]:
        name = f"training {training.number} ({training.name})"
        run_dir = self.into / f"training-{training.number}"
        config = self.into / f"training-{training.number}.yaml"
        atomic.write_text(config, yaml.safe_dump(training.config, sort_keys=False))
        changes: dict[str, typing.Any] = {"trackers": []} | training.overrides
        for key, place in training.places.items():
            changes[key] = str(made[place]) if isinstance(place, int) else place
        words = "\n".join(f"{key}={json.dumps(value)}" for key, value in changes.items())
        self.say(f"{name} begins or goes on")
        self._lines(
            home, python, "-c", _TRAIN, str(config), str(run_dir), words, ",".join(self.imports),
            log=f"training-{training.number}.log", shown=True,
        )  # fmt: skip
        result = TrainingResult.read(run_dir)
        assert result is not None  # else the command has failed
        made[training.number] = path = run_dir / Path(result.checkpoint).name
        yield _compare_configs(name, training, path)
        yield _compare_weights(name, training, path, config.with_suffix(".original"))

    def _evaluate(self, home: Path, python: str, checkpoint: Path) -> Stage:
        then = self.plan.evaluation
        if then is None:
            return Stage("evaluation", "unknown", "the version was never evaluated")
        folder = self.into / "evaluation"
        protocol = self.into / "protocol.yaml"
        atomic.write_text(protocol, yaml.safe_dump(then.protocol, sort_keys=False))
        imports = [word for name in self.imports for word in ("--import", name)]
        self.say("the evaluation begins or goes on")
        self._lines(
            home, python, "-m", "rrf.cli", "eval", str(checkpoint), "--protocol", str(protocol),
            "--out", str(folder), "--num-videos", "0", *imports,
            log="evaluation.log", shown=True,
        )  # fmt: skip
        return _compare_evaluations(then, Evaluation.load(folder))

    def _verdict(self, stages: list[Stage]) -> tuple[typing.Any, str]:
        results = [stage for stage in stages if stage.outcome != "unknown"]
        first = next((stage for stage in stages if stage.outcome == "differs"), None)
        if first is None:
            unknown = [stage.name for stage in stages if stage.outcome == "unknown"]
            but = f"; not compared: {', '.join(unknown)}" if unknown else ""
            return "bit-identical", f"{len(results)} stages are the same{but}"
        begins = f"the first stage that differs is {first.name}"
        then = self.plan.evaluation
        if then is None:
            return "different", f"{begins}; there is no evaluation to compare"
        is_within, how = compared(then, Evaluation.load(self.into / "evaluation"), self.bound)
        return "within the bound" if is_within else "different", f"{begins}; {how}"

    def _dvc(self, home: Path, *words: str, python: str = sys.executable) -> list[str]:
        return self._lines(home, python, "-m", "dvc", *words, log="dvc.log")

    def _lines(
        self, home: Path, python: str, *words: str, log: str = "commands.log", shown: bool = False
    ) -> list[str]:
        """Run Python in a workspace, by the code that is there; returns what it printed."""
        lines: list[str] = []

        def on_line(line: str) -> None:
            lines.append(line)
            if shown:
                self.say(f"  {line}")

        given = os.environ.get("PYTHONPATH")
        env = {
            **workspace.TELEMETRY_OFF,
            "PYTHONPATH": f"{home}{os.pathsep}{given}" if given else str(home),
            "PATH": f"{Path(python).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            workspace.HOME_VARIABLE: str(home),
            "MLFLOW_TRACKING_URI": f"sqlite:///{self.into / 'mlflow.db'}",
            "COLUMNS": "120",
        }
        processes.run(
            [python, *words], self.into / "logs" / log, on_line, cwd=home, env=env, grace_s=30.0
        )
        return lines


def packages_unlike(lock: str) -> list[str]:
    """The pins of a lock that the running packages do not fit, e.g. "torch 2.9.0, locked 2.8.0"."""
    from packaging.requirements import InvalidRequirement, Requirement

    others = []
    for line in lock.splitlines():
        try:
            pin = Requirement(line.partition(" #")[0].strip(" \\"))
        except InvalidRequirement:  # a comment, a hash, an option of pip
            continue
        versions = [each.version for each in pin.specifier if each.operator == "=="]
        if len(versions) != 1 or (pin.marker and not pin.marker.evaluate()):
            continue
        try:
            running = importlib.metadata.version(pin.name)
        except importlib.metadata.PackageNotFoundError:
            running = "absent"
        if running.partition("+")[0] != versions[0].partition("+")[0]:
            others.append(f"{pin.name} {running}, locked {versions[0]}")
    return others


def compared(then: Evaluation, now: Evaluation, bound: float) -> tuple[bool, str]:
    """Whether the success of two evaluations differs by less than `bound`, and a sentence.

    It does if a loss and a gain of `bound` can both be ruled out, each with an exact test of pairs
    of episodes from the same initial state at 5 %.
    """
    solved = then.successes
    pairs = [e for e in now.episodes if e.initial_state in solved]
    wins, losses = wins_and_losses(pairs, solved)
    difference, low, high = paired_difference(wins, losses, len(pairs))
    p = max(
        noninferiority_p(*counts, len(pairs), bound) for counts in ((wins, losses), (losses, wins))
    )
    is_within = p <= 0.05
    rates = f"success {now.overall.rate:.3f} instead of {then.overall.rate:.3f}"
    says = "is ruled out" if is_within else "is not ruled out"
    return is_within, (
        f"{rates}, difference {difference:+.3f} [{low:+.3f}, {high:+.3f}] on {len(pairs)} initial "
        f"states; more than {bound:g} {says} (p {p:.2g})"
    )


def _compare_configs(name: str, training: Training, path: Path) -> Stage:
    then, now = normalised(training.config), normalised(checkpoints.load_config(path))
    changed = checkpoints.config_differences(then, now)
    if changed:
        return Stage(f"{name}, config", "differs", "; ".join(changed[:8]))
    return Stage(f"{name}, config", "same", "every field but places")


def _compare_weights(name: str, training: Training, path: Path, original: Path) -> Stage:
    name = f"{name}, weights"
    if digest_with(path, original.read_text()) == training.digest:
        return Stage(name, "same", f"with its config it is checkpoint {training.digest[:12]}")
    if training.checkpoint is None:
        what = f"it is not checkpoint {training.digest[:12]}, which is not here to say how"
        return Stage(name, "differs", what)
    then, now = (atomic.check_manifest(each)["files"] for each in (training.checkpoint, path))
    others = sorted(
        file
        for file in {*then, *now}
        if not file.startswith("trainer_state/") and file != checkpoints.CONFIG
        if then.get(file) != now.get(file)
    )
    if not others:
        return Stage(name, "same", "weights and statistics, file by file")
    largest = _largest_difference(training.checkpoint, path)
    return Stage(name, "differs", f"{', '.join(others)}{largest}")


def _largest_difference(then: Path, now: Path) -> str:
    old, new = checkpoints.read_weights(then), checkpoints.read_weights(now)
    if {k: v.shape for k, v in old.items()} != {k: v.shape for k, v in new.items()}:
        return "; the tensors have other names or shapes"
    largest = max(
        ((old[k].double() - new[k].double()).abs().max().item(), k) for k in old if old[k].numel()
    )
    return f"; weights differ by up to {largest[0]:.3g} ({largest[1]})"


def _compare_evaluations(then: Evaluation, now: Evaluation) -> Stage:
    name = f"evaluation {then.protocol['name']}"
    if then.protocol_hash != now.protocol_hash:
        return Stage(name, "differs", "the protocol, or the version of its simulator, is another")
    facts = differences(dataclasses.replace(now, checkpoint_digest=then.checkpoint_digest), then)
    if not facts.otherwise and not facts.differently and facts.pairs == len(then.episodes):
        return Stage(name, "same", f"{facts.pairs} episodes, to the last digit")
    changed = f"; changed: {', '.join(facts.changed)}" if facts.changed else ""
    return Stage(
        name,
        "differs",
        f"{facts.otherwise} of {facts.pairs} episodes end otherwise, {facts.differently} more run "
        f"differently{changed}",
    )
