"""`rrf train`: train a preset or training file; writes a run directory with checkpoints and
result.json.
"""

from pathlib import Path
from typing import Annotated

import typer

from rrf.cli.listing import complete_override, complete_target
from rrf.cli.options import (
    AlgorithmOption,
    Imports,
    TaskOption,
    import_modules,
    is_first_process,
    is_given,
)


def train(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            help="A preset, or a YAML file with a preset and overrides.",
            autocompletion=complete_target,
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="Dotted overrides: optimizer.lr=1e-3", autocompletion=complete_override
        ),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(help="Directory of the run; by default .rrf/runs/<experiment>-<key>."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            help="Continue from the newest checkpoint of the run, or reuse the finished run. "
            "--no-resume deletes an existing run and starts over."
        ),
    ] = True,
    video: Annotated[
        bool,
        typer.Option(
            help="Film the trained policy; the override video_interval=N films during training too."
        ),
    ] = False,
    task: TaskOption = None,
    algorithm: AlgorithmOption = None,
    imports: Imports = None,
) -> dict:
    """Train a policy. SIGTERM or Ctrl-C saves a checkpoint first; the same command resumes it."""
    from rrf.cli.task_config import config_of
    from rrf.cli.training_run import run_training
    from rrf.cli.trainings import training_of

    import_modules(imports)
    cfg = config_of(target, overrides or [], task, algorithm)
    expects_run = resume and is_given(context, "resume")
    result = run_training(cfg, run_dir, resume, video, expects_run)
    if not is_first_process():
        return {}
    verb = "reused" if result.reused else "trained"
    typer.echo(
        f"{verb} {cfg.experiment_name}: {training_of(cfg).outcome(result)}, "
        f"{result.wall_s:.0f} s wall, {result.cpu_s:.0f} s CPU"
    )
    if result.video:
        typer.echo(f"video {result.video}")
    typer.echo(f"checkpoint {result.checkpoint}")
    return result.to_dict()
