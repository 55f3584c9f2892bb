"""One training in its run directory: started, continued, or reused if it is finished.

The name of the run directory contains a key: a digest of everything that decides the result
(config, dataset, source, parent). So the same command, run again, reuses a finished run and resumes
an interrupted one.
"""

import contextlib
import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rrf.cli import quick_imports
from rrf.cli.options import is_first_process
from rrf.cli.recording import open_run
from rrf.cli.trainings import Training, training_of
from rrf.lineage import Lineage
from rrf.run_directory import (
    ENV_ERROR,
    RESULT,
    RUN,
    UNSENT,
    TrainingResult,
    read_facts,
    write_facts,
)

if TYPE_CHECKING:
    from rrf.runners.configs import RunnerCfg

_PATIENCE_S = 20.0  # time for another training to save a checkpoint when it was told to stop
_ASIDE = ".replaced"  # folder in the run directory with the files that --no-resume will delete


def run_training(
    cfg,
    run_dir: Path | None = None,
    resume: bool = True,
    video: bool = False,
    expects_run: bool = False,
) -> TrainingResult:
    """Train what `cfg` describes, or reuse a finished run of the same key.

    Args:
        video: Film a state-based policy at the end.
        expects_run: If there is no run to continue, print how the newest run differs.
    """
    from rrf import ctrl_c
    from rrf.registry.lineage_sources import with_remote
    from rrf.runners.checkpoints import checkpoint

    training = training_of(cfg)
    if video and not training.can_film:
        raise ValueError(
            "--video films only state-based policies; see `rrf play --help` for other policies"
        )
    lineage, inputs, usual_dir = _identified(training)
    run_dir = run_dir or usual_dir
    if not (resume and (run_dir / RESULT).is_file()):  # a finished run needs nothing any more
        training.check()
    if expects_run and not run_dir.exists():
        _tell_newest(run_dir, training)
    answers = _Answers(run_dir, resume)
    with training.processes(), _alone(run_dir), ctrl_c.answered(answers):
        result = None
        if resume:
            _require_same_inputs(run_dir, inputs, training)
        _announce(cfg, run_dir, resume)
        if not resume:
            _send_kept_records(run_dir, cfg.experiment_name)
        if resume and (result := _finished(run_dir)):
            result = _with_kept_records(cfg, run_dir, lineage, inputs, result)
        if result is None:
            if resume and (newest := checkpoint.latest(run_dir)):
                _require_intact(run_dir, newest)
            lineage = with_remote(lineage)
            result = _train(training, run_dir, lineage, inputs, resume, video, answers)
            if is_first_process():
                result.write(run_dir)
        elif video and (path := training.film_finished(result, run_dir)):
            result = result.replace(video=str(path))
    return result


def finished_training(cfg: "RunnerCfg") -> TrainingResult | None:
    """What `run_training(cfg)` would return without any work; None if it would train, send records
    that MLflow lacks, or say what is wrong.
    """
    try:
        _, inputs, run_dir = _identified(training_of(cfg))
        is_same = read_facts(run_dir / RUN).get("inputs") == inputs
        return _finished(run_dir) if is_same and not (run_dir / UNSENT).is_file() else None
    except (ValueError, OSError, ImportError):
        return None


def _identified(training: Training) -> tuple[Lineage, dict, Path]:
    """Lineage of a training, digests of all that decides its result, and its usual directory."""
    from rrf import atomic, workspace
    from rrf.runners.checkpoints import checkpoint
    from rrf.runners.checkpoints.deployable import deployable_digest

    cfg = training.cfg
    parent = checkpoint.find(cfg.init_from) if cfg.init_from else None
    lineage, inputs = training.depends_on(parent, deployable_digest(parent) if parent else None)
    name = f"{cfg.experiment_name}-{atomic.digest_of(inputs)[:12]}"
    return lineage, inputs, workspace.state() / "runs" / name


@contextlib.contextmanager
def _alone(run_dir: Path) -> Iterator[None]:
    """Lock the run directory for the block; with torchrun, the first process does it for all.

    Raises:
        ValueError: If another training is running there, or the directory holds something else.
    """
    from rrf import atomic

    if not is_first_process():
        _wait_for_others()
        yield
        return
    _require_run_or_nothing(run_dir)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--run-dir {run_dir} cannot be created: {error.strerror}") from error
    busy = f"another `rrf train` is at work in {run_dir}; wait for it, or give another --run-dir"
    with atomic.alone(run_dir, busy, _PATIENCE_S):
        _wait_for_others()  # they read the directory only from here on
        yield


def _wait_for_others() -> None:
    """Wait for the other processes of torchrun."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from rrf.runners import process_group

        process_group.wait()


def _announce(cfg: "RunnerCfg", run_dir: Path, resume: bool) -> None:
    """Say what runs, on what, where, and from where it goes on; before anything slow."""
    from rrf.runners.checkpoints import checkpoint

    if not is_first_process():
        return
    newest = checkpoint.latest(run_dir) if resume else None
    if resume and (run_dir / RESULT).is_file():
        how = "finished before"
    else:
        how = f"resuming from {newest.name}" if newest else "starts anew"
    device = getattr(cfg, "device", "cpu")
    typer.echo(f"training {cfg.experiment_name} on {device} in {run_dir}: {how}")


def _require_run_or_nothing(run_dir: Path) -> None:
    """Raise ValueError for a directory that holds anything but a run; training may delete files."""
    from rrf import atomic
    from rrf.runners.checkpoints import checkpoint

    if run_dir.exists() and not run_dir.is_dir():
        raise ValueError(f"--run-dir {run_dir} is a file; give a directory")
    checkpoints = checkpoint.steps(run_dir).values()
    names = (RUN, f"{_ASIDE}/{RUN}", ENV_ERROR)
    marks = [*(run_dir / name for name in names), *(path / atomic.MANIFEST for path in checkpoints)]
    is_run = any(mark.is_file() for mark in marks)
    if run_dir.is_dir() and any(run_dir.iterdir()) and not is_run:
        raise ValueError(
            f"--run-dir {run_dir} contains files, but not a run of `rrf train` (no {RUN}); give a "
            "directory that is new or empty"
        )


def _require_same_inputs(run_dir: Path, inputs: dict, training: Training) -> None:
    run = read_facts(run_dir / RUN)
    known = run.get("inputs", inputs)
    changed = [name for name, value in inputs.items() if known.get(name) != value]
    if not changed:
        return
    if changed == ["config"] and _makes_longer(run_dir, run, training):
        (run_dir / RESULT).unlink(missing_ok=True)  # it is of the shorter run
        return
    differences = _differences(run, training)
    shown = f" ({'; '.join(differences)})" if differences else ""
    raise ValueError(
        f"{run_dir} holds a run with another {', '.join(changed)}{shown}; give another --run-dir, "
        "or start over with --no-resume"
    )


def _makes_longer(run_dir: Path, run: dict, training: Training) -> bool:
    """Whether the config only makes the run longer.

    Raises:
        ValueError: If a longer run would not be the continuation of the shorter one.
    """
    from rrf.runners.checkpoints.checkpoint import config_differences

    cfg, field = training.cfg, training.cfg.extends
    saved, config = run.get("config") or {}, cfg.to_dict()
    if config_differences(saved, config, {*training.free(), field}):
        return False
    if isinstance(saved.get(field), int) and saved[field] < config[field]:
        if why := cfg.spread_over_run():
            raise ValueError(
                f"{run_dir} cannot be made longer by {field}={config[field]}: {why}, whose course "
                f"is that of a run of {saved[field]}. Train the longer one in another --run-dir, "
                f"or go on from the weights with init_from={run_dir}"
            )
        return True
    return False


def _tell_newest(run_dir: Path, training: Training) -> None:
    runs = run_dir.parent.glob(f"{training.cfg.experiment_name}-*/{RUN}")
    newest = max(runs, key=lambda path: path.stat().st_mtime, default=None)
    if newest is not None:
        run, field = read_facts(newest), training.cfg.extends
        differences = _differences(run, training) or ["its source, data or parent"]
        is_length = [difference.partition(":")[0] for difference in differences] == [field]
        hint = f"; to make that run longer, add --run-dir {newest.parent}" if is_length else ""
        typer.echo(
            f"no run to continue: {newest.parent} differs in {'; '.join(differences)}. "
            f"A new training starts{hint}",
            err=True,
        )


def _differences(run: dict, training: Training) -> list[str]:
    """The differences between the config of a run and this config, except for free fields."""
    from rrf.runners.checkpoints.checkpoint import config_differences

    config = training.cfg.to_dict()
    return config_differences(run.get("config", config), config, training.free())


def _require_intact(run_dir: Path, path: Path) -> None:
    """Check a checkpoint of a run against its manifest.

    Raises:
        ValueError: For a damaged checkpoint. The message names the newest intact one and what to
            type.
        NewerFormatError: For one that a newer rrf wrote, which is not damaged.
    """
    from rrf import atomic, formats

    try:
        atomic.check_manifest(path)
    except formats.NewerFormatError:
        raise
    except ValueError as error:
        raise ValueError(f"{error}. {_how_to_continue(run_dir, path)}") from error


def _how_to_continue(run_dir: Path, damaged: Path) -> str:
    """What to type to continue a run whose checkpoint `damaged` cannot be read."""
    from rrf import atomic
    from rrf.runners.checkpoints import checkpoint

    to_remove: list[Path] = []
    for path in reversed(checkpoint.steps(run_dir).values()):
        try:
            atomic.check_manifest(path)
        except ValueError:
            to_remove.append(path)
            continue
        if damaged.exists() and damaged.resolve() not in [p.resolve() for p in to_remove]:
            break  # a newer one is intact, but the run needs the damaged one too
        if (run_dir / RESULT).is_file():  # it names a checkpoint that is about to be removed
            to_remove.append(run_dir / RESULT)
        words = shlex.join(map(str, to_remove))
        return f"{path} is intact; to continue from it: rm -r {words}, then the same command again"
    return "No other checkpoint can replace it; start over with --no-resume"


def _finished(run_dir: Path) -> TrainingResult | None:
    from rrf.runners.checkpoints.deployable import deployable_digest

    result = TrainingResult.read(run_dir)
    if result is None:
        return None
    # the run may have been moved
    path = run_dir / Path(result.checkpoint).name
    video = str(run_dir / "videos" / Path(result.video).name) if result.video else None
    _require_intact(run_dir, path)
    if deployable_digest(path) != result.checkpoint_digest:
        raise ValueError(
            f"{path} is not the checkpoint that {run_dir / RESULT} describes; start over with "
            "--no-resume"
        )
    return result.replace(checkpoint=str(path), video=video, reused=True)


def _with_kept_records(
    cfg: "RunnerCfg", run_dir: Path, lineage: Lineage, inputs: dict, result: TrainingResult
) -> TrainingResult:
    """The result of a finished run, whose records that MLflow did not get are sent now."""
    from rrf.registry.lineage_sources import with_remote

    if not (run_dir / UNSENT).is_file() or not is_first_process():
        return result
    try:
        only = cfg.replace(trackers=["mlflow"])
        run_id = result.run_id or read_facts(run_dir / RUN).get("run_id")
        tracker = open_run(only, run_dir, with_remote(lineage), inputs, run_id)
    except OSError as error:
        typer.echo(f"warning: records of this run wait in {run_dir / UNSENT}: {error}", err=True)
        return result
    tracker.close("FINISHED")
    result = result.replace(run_id=tracker.run_id)
    result.write(run_dir)
    return result


def _send_kept_records(run_dir: Path, experiment: str) -> None:
    """Send what MLflow did not get of a run that is about to be replaced.

    Raises:
        ValueError: If it still does not get them.
    """
    from rrf.tracking.mlflow_run import MLflowTracker

    file = run_dir / UNSENT
    if not file.is_file() or not is_first_process():
        return
    problem = "MLflow did not take them"
    try:
        run_id = read_facts(run_dir / RUN).get("run_id")
        tracker = MLflowTracker(experiment, run_dir.name, run_dir, run_id)
        tracker.log_metrics({}, 0)  # which begins to send
        tracker.close("FINISHED" if (run_dir / RESULT).is_file() else "KILLED")
    except OSError as error:
        problem = str(error)
    if file.is_file():
        raise ValueError(
            f"records of the run in {run_dir} wait to be sent ({problem}), and --no-resume would "
            f"delete them; repeat the command when the store is back, or give them up: rm "
            f"{shlex.quote(str(file))}"
        )


class _Answers:
    """What a training answers to Ctrl-C."""

    def __init__(self, run_dir: Path, resume: bool):
        from rrf.runners.checkpoints import checkpoint

        self._steps, self._run_dir, self.may_resume = checkpoint.steps, run_dir, resume
        self.runner: Any = None  # when it runs
        self.is_saved = False  # all that was trained

    def __call__(self, count: int) -> str:
        if not is_first_process():
            return ""
        steps = [*self._steps(self._run_dir)] if self.may_resume else []
        newest = steps[-1] if steps else None
        if self.is_saved and newest is not None:
            return f"Ctrl-C: stopped at once; global_step_{newest} is saved, nothing is lost"
        if self.runner is None:
            what = "nothing to save yet" if newest is None else "nothing new to save"
            after = "starts anew" if newest is None else f"goes on from global_step_{newest}"
            return f"stopped by Ctrl-C: {what}; the same command {after}"
        at = self.runner.position
        return at.first(newest) if count == 1 else at.second(newest)


def _train(
    training: Training,
    run_dir: Path,
    lineage: Lineage,
    inputs: dict,
    resume: bool,
    video: bool,
    answers: _Answers,
) -> TrainingResult:
    from rrf.runners.interruption import Interrupted, SignalWatch, ending_on_sigterm
    from rrf.runners.tracker import closing

    cfg = training.cfg
    runner = training.runner(run_dir, lineage)
    quick_imports.work_begins()
    with ending_on_sigterm():
        with _prepared(run_dir, resume):  # only now: building the runner may fail
            run_id = read_facts(run_dir / RUN).get("run_id")
            if is_first_process():  # before the tracker, which may put another id there
                run = {"run_id": run_id, "inputs": inputs, "config": cfg.to_dict()}
                write_facts(run_dir / RUN, run)
            tracker = open_run(cfg, run_dir, runner.lineage, inputs, run_id)
        answers.may_resume = True
        with closing(tracker):
            try:
                with training.shown() as on_progress:
                    tracker.log_config(cfg.to_dict())
                    tracker.log_dataset(runner.lineage)
                    with SignalWatch(answers) as signals:
                        answers.runner = runner
                        finished = runner.run(tracker, _shown_if_read(on_progress), signals)
                answers.is_saved = True
            except Interrupted as stop:
                answers.is_saved = True
                if is_first_process():
                    typer.echo(f"{stop}; the same command continues from there", err=True)
                raise
            result = TrainingResult(**finished)
            tracker.set_tags({"checkpoint_digest": result.checkpoint_digest})
            if video and (path := training.film(runner, tracker)):
                result = result.replace(video=str(path))
        return result.replace(run_id=tracker.run_id)


def _shown_if_read(show: Callable[[Any], None] | None) -> Callable[[Any], None]:
    """`show`, which a Ctrl-C that also ended the reader of a pipe (`| tee log`) does not make fail:
    the checkpoint is saved after it."""

    def show_progress(progress: Any) -> None:
        with contextlib.suppress(BrokenPipeError):
            if show:
                show(progress)

    return show_progress


@contextlib.contextmanager
def _prepared(run_dir: Path, resume: bool) -> Iterator[None]:
    """Prepare the run directory for the block: it gets a run.json, and with `resume` keeps its
    files.

    Without `resume`, the old files are set aside. They are restored if the block fails, and deleted
    otherwise.
    """

    if not is_first_process():
        _wait_for_others()
        yield
        return
    aside = run_dir / _ASIDE
    if not resume:
        _move(run_dir, aside)
    if not (run_dir / RUN).is_file():  # from now on the directory counts as a run
        write_facts(run_dir / RUN, {})
    _wait_for_others()
    try:
        yield
    except BaseException:
        if not resume:
            _move(aside, run_dir)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _move(source: Path, destination: Path) -> None:
    """Replace the content of `destination` by that of `source`; one may be inside the other."""
    for path in destination.iterdir() if destination.is_dir() else ():
        if path != source:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    destination.mkdir(exist_ok=True)
    # run.json is moved last. If the process is killed before, the directory still counts as a run.
    for path in sorted(source.iterdir(), key=lambda path: path.name == RUN):
        if path != destination:
            path.rename(destination / path.name)
