"""`rrf data`: record demonstrations; convert, edit, validate, publish and inspect datasets."""

from pathlib import Path
from typing import Annotated

import typer

from rrf.cli.data_display import plain, print_stats, progress_bars, say, shown
from rrf.cli.data_download import bring, download, push, share
from rrf.cli.data_edit import edit as declare_edit
from rrf.cli.data_record import record_policy
from rrf.cli.data_views import card, diff, report, show
from rrf.cli.data_views import view as view_episodes
from rrf.cli.listing import complete_dataset
from rrf.cli.options import Imports, import_modules, words_of
from rrf.cli.result_file import with_result_file

app = typer.Typer(
    help="Robot data: collect, convert, validate, publish (stats), look at it.",
    no_args_is_help=True,
)

Name = Annotated[
    str,
    typer.Argument(
        help="Dataset NAME, as in configs/datasets/NAME.yaml.", autocompletion=complete_dataset
    ),
]


@app.command()
@with_result_file
def collect(
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Fields of the simulator: effects=false")
    ] = None,
    tasks: Annotated[
        str,
        typer.Option(
            help="Tasks, separated by commas, or 'all'; by default the ten of Meta-World's demo. "
            "With --policy: one task, by default that of its training."
        ),
    ] = "",
    changes: Annotated[
        str,
        typer.Option(
            help="Record each task with one of these changed, instead of as it is, separated by "
            "commas: camera,light"
        ),
    ] = "",
    env: Annotated[str, typer.Option(help="The simulator: metaworld, robosuite, …")] = "metaworld",
    episodes: Annotated[int, typer.Option(help="Successful demonstrations to keep per task.")] = 25,
    demonstrations: Annotated[
        int | None,
        typer.Option(
            help="Episodes that the expert shows; the others repeat them in other initial states."
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            help="With --demonstrations: bend them at random, at most this often in an initial "
            "state, until the task is solved; nothing else is asked of the simulator."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the initial states and the noise.")] = 777,
    noise: Annotated[
        list[float],
        typer.Option(help="Noise of executed actions; attempts take several --noise in turn."),
    ] = [0.0, 0.4],  # noqa: B006 (typer does not change it)
    out: Annotated[
        Path | None,
        typer.Option(help="Directory for the recordings; by default datasets/raw/ENV."),
    ] = None,
    max_steps: Annotated[
        int, typer.Option(help="Actions after which an attempt counts as failed.")
    ] = 50,
    action_repeat: Annotated[
        int | None,
        typer.Option(help="Control steps an action is held for; by default the simulator's."),
    ] = None,
    workers: Annotated[
        int, typer.Option(help="Number of processes; each records whole tasks.")
    ] = 2,
    image_size: Annotated[int, typer.Option(help="Height and width of images in pixels.")] = 64,
    cameras: Annotated[
        str,
        typer.Option(help="Cameras to record, separated by commas; by default the simulator's."),
    ] = "",
    force: Annotated[bool, typer.Option(help="Record existing tasks again.")] = False,
    imports: Imports = None,
    policy: Annotated[
        str,
        typer.Option(
            help="Record a state-based policy instead: its checkpoint, or with --tasks ID 'random' "
            "for uniformly random actions, 'maze' or 'push' for our controllers of PointMaze and "
            "FetchPush."
        ),
    ] = "",
    steps: Annotated[int, typer.Option(help="With --policy: transitions to record.")] = 100_000,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="With --policy: do not sample its actions.")
    ] = False,
    replay: Annotated[
        bool,
        typer.Option("--replay", help="With --policy: what its training has observed until then."),
    ] = False,
) -> None:
    """Record demonstrations of a simulator's scripted experts, one HDF5 file per task, or
    transitions of a state-based policy: --out FILE.hdf5 in the layout of D4RL, --out NAME-v0 as a
    dataset of Minari."""
    if policy:
        if overrides:
            raise ValueError(f"{overrides[0]}: --policy records in the environment of its training")
        record_policy(policy, tasks, out, steps, seed, greedy, replay, imports)
        return
    from rich.table import Table

    from rrf import workspace
    from rrf.config import parse_overrides
    from rrf.envs import ENVS
    from rrf.envs.demonstrations.collect import CollectCfg, Progress, collect
    from rrf.envs.metaworld.tasks import DEMO_TASKS

    import_modules(imports)
    simulator = ENVS.get(env)(max_episode_steps=max_steps, image_size=image_size)
    simulator = simulator.override(parse_overrides(overrides or []))
    if action_repeat is not None:
        simulator = simulator.replace(action_repeat=action_repeat)
    if cameras:
        simulator = simulator.replace(cameras=words_of(cameras))
    if not tasks and env != "metaworld":
        raise ValueError(f"name tasks of {env}: --tasks {','.join(simulator.tasks[:3])}")
    as_they_are = [task for task in simulator.expert_tasks if "@" not in task]
    named = as_they_are if tasks == "all" else words_of(tasks)
    named = named or list(DEMO_TASKS)
    if changes:
        named = [f"{task}@{change}" for change in words_of(changes) for task in named]
    _check_experts(simulator, named)
    cfg = CollectCfg(
        env=simulator,
        tasks=named,
        episodes=episodes,
        demonstrations=demonstrations,
        trials=trials,
        seed=seed,
        action_noise=noise,
        out=str(out or workspace.home() / "datasets" / "raw" / env),
        num_workers=workers,
        force=force,
    )
    with progress_bars(*cfg.tasks) as bars:

        def on_progress(progress: Progress) -> None:
            bars[progress.task](progress.episodes, progress.wanted, f"{progress.frames} frames")

        recorded = collect(cfg, on_progress)
    table = Table(title=f"recordings in {shown(Path(cfg.out))}")
    table.add_column("task")
    for column in ("episodes", "frames", "attempts", "MB"):
        table.add_column(column, justify="right")
    for task in recorded:
        size = f"{task.path.stat().st_size / 1e6:.2f}"
        attempts = "kept" if task.is_reused else str(task.attempts)
        table.add_row(task.task, str(task.episodes), str(task.frames), attempts, size)
    say(table)


@app.command()
@with_result_file
def convert(
    name: Name,
    out: Annotated[
        Path | None, typer.Option(help="Where to write; by default datasets/converted/NAME.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Number of processes; each converts whole recordings.")
    ] = 2,
    fps: Annotated[
        float | None,
        typer.Option(
            help="Frame rate to use instead of the config's; keeps every k-th frame, unless the "
            "config has resample."
        ),
    ] = None,
    image_size: Annotated[
        str, typer.Option(help="Image size to use instead of the config's: 224, or HEIGHTxWIDTH.")
    ] = "",
    storage: Annotated[
        str, typer.Option(help="Storage to use instead of the config's: image or video.")
    ] = "",
) -> None:
    """Convert raw recordings to LeRobot v3. An earlier conversion is replaced when this is done.

    If it is interrupted, run it again; the finished part is not converted again.
    """
    from rrf.data.conversion.convert import convert
    from rrf.data.conversion.dataset_cfg import DatasetCfg, MergeCfg, dataset_paths, load_any_cfg
    from rrf.data.conversion.edit import edit
    from rrf.data.conversion.merge import merge

    cfg = load_any_cfg(name)
    paths = dataset_paths(cfg)
    out = out or paths.converted
    changes = _conversion_changes(fps, image_size, storage)
    if isinstance(cfg, DatasetCfg):
        bring(cfg.source.path)
    elif changes:
        how, parts = "edited from another", "origin"
        if isinstance(cfg, MergeCfg):
            how, parts = "merged from other datasets", "parts"
        raise ValueError(
            f"{name} is {how}; use these options to convert its {parts} instead: "
            f"{', '.join(changes)}"
        )
    with progress_bars("converting") as bars:
        if isinstance(cfg, DatasetCfg):
            done = convert(
                cfg.replace(**changes),
                paths.raw,
                out,
                lambda at: bars["converting"](at.episodes, at.total, str(at)),
                workers,
            )
            frames, warnings = done.frames, done.warnings
        elif isinstance(cfg, MergeCfg):
            frames, warnings = merge(cfg, paths.raw, out, bars["converting"]), []
        else:
            frames, warnings = edit(cfg, paths.raw, out, bars["converting"])
    for warning in warnings:
        say(f"[yellow]warning:[/] {plain(warning)}")
    say(f"{frames} frames in {shown(out)}")


def _conversion_changes(fps: float | None, image_size: str, storage: str) -> dict:
    changes: dict = {}
    if fps is not None:
        changes["fps"] = fps
    if image_size:
        numbers = image_size.lower().split("x")
        if len(numbers) > 2 or not all(number.isdigit() for number in numbers):
            raise ValueError(f"--image-size is '{image_size}', but must be like 224 or 240x320")
        changes["image_size"] = [int(numbers[0]), int(numbers[-1])]
    if storage:
        changes["storage"] = storage
    return changes


@app.command()
@with_result_file
def validate(name: Name) -> None:
    """Check the converted dataset and write a report as JSON and HTML.

    The exit code is 1 if the dataset must not be used.
    """
    from rrf.data.conversion.dataset_cfg import dataset_paths, load_any_cfg
    from rrf.data.validation.validate import HTML_NAME, validate

    cfg = load_any_cfg(name)
    paths = dataset_paths(cfg)
    with progress_bars("validating") as bars:
        report = validate(
            name,
            paths.converted,
            cfg.checks,
            paths.reports,
            bars["validating"],
            published=paths.published,
        )
    _print_checks(report)
    say(f"report: {shown(paths.reports / HTML_NAME)}")
    if not report.passed:
        failed = [check.check for check in report.checks if check.status == "fail"]
        only = f", where checks: {{severity: {{{failed[0]}: warn}}}} lets it only warn"
        say(
            f"to go on: mend the recordings, or configs/datasets/{name}.yaml"
            f"{only if failed else ''}; then: dvc repro publish@{name}"
        )
        raise typer.Exit(1)


@app.command()
@with_result_file
def stats(name: Name) -> None:
    """Publish the converted dataset if it passed validation.

    The statistics that training uses for normalisation are written beside it.
    """
    from rrf.data.conversion.dataset_cfg import dataset_paths, load_any_cfg
    from rrf.data.transport.publish import publish
    from rrf.data.validation.summary import read_summary

    paths = dataset_paths(load_any_cfg(name))
    publish(paths.converted, paths.reports, paths.published)
    print_stats(read_summary(paths.published))


app.command("edit")(declare_edit)
app.command()(download)
app.command()(push)
app.command()(share)


@app.command()
def score(
    target: Annotated[
        str, typer.Argument(help="Dataset NAME, or the directory of any LeRobot dataset.")
    ],
    model: Annotated[
        Path, typer.Option(help="lerobot's folder of a reward model, with config.json.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="File to write; by default DATASET.scores.parquet here.")
    ] = None,
    backbone: Annotated[
        Path | None,
        typer.Option(help="Directory of the model within, if not the one config.json names."),
    ] = None,
    camera: Annotated[
        str | None, typer.Option(help="Camera that robometer or topreward sees.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda.")] = "cpu",
) -> None:
    """Score every frame of a dataset by a reward model, for training with
    advantage.source=score. The dataset is not changed."""
    from rrf.data.dataset.opening import open_dataset
    from rrf.data.dataset.scores import write_scores
    from rrf.data.validation.summary import find_dataset
    from rrf.policies.vla.lerobot.rewards import RewardModel

    place = find_dataset(target)
    out = out or Path(f"{place.root.name}.scores.parquet")
    judge = RewardModel(model, backbone, camera, device)
    reader, scores = open_dataset(place.root, chunk_length=1), {}
    with progress_bars("scoring") as bars:
        for number, episode in enumerate(reader.episodes):
            scores[episode] = judge.scores(reader.episode(number))
            bars["scoring"](number + 1, reader.num_episodes, f"episode {episode}")
    write_scores(out, place.root.name, scores, {"type": judge.type, "config": judge.digest})
    means = [score_t.mean() for score_t in scores.values()]
    say(
        f"{plain(place.root.name)}: {reader.num_frames} frames of {reader.num_episodes} episodes, "
        f"mean score {sum(means) / len(means):.3f} by {judge.type}; scores: {shown(out)}"
    )


app.command("view")(view_episodes)
for view in (show, report, diff, card):
    app.command()(view)


def _check_experts(simulator, tasks: list[str]) -> None:
    """Raise ValueError for a task that cannot be played here, or that no expert shows."""
    for task in tasks:
        simulator.check_task(task)
        if simulator.has_expert and task not in simulator.expert_tasks:
            raise ValueError(
                f"no expert shows '{task}' of {simulator.simulator}, so it cannot be recorded; of "
                f"these there are experts: {', '.join(simulator.expert_tasks[:5])}"
                f"{', …' if len(simulator.expert_tasks) > 5 else ''}"
            )


def _print_checks(report) -> None:
    from rich.table import Table

    colours = {"pass": "green", "warn": "yellow", "fail": "red", "crashed": "magenta"}
    wrong = [check for check in report.checks if check.status != "pass"]
    table = Table(title=f"{report.name}: {'passed, with warnings' if report.passed else 'FAILED'}")
    for column in ("result", "check", "what must hold", "where it does not"):
        table.add_column(column, overflow="fold")
    for check in wrong:
        places = [str(finding) for finding in check.findings[:3]]
        places += [f"and {check.num_bad - 3} more"] * (check.num_bad > 3)
        result = f"[{colours[check.status]}]{check.status}"
        table.add_row(result, check.check, check.title, plain("\n".join(places)))
    if wrong:
        say(table)
    say(f"{report.name}: {len(report.checks) - len(wrong)} of {len(report.checks)} checks hold")
