"""`rrf eval`: run a policy closed loop under a fixed protocol, and let a gate judge the result."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rrf.cli.listing import complete_dataset
from rrf.cli.options import DeviceOption, Imports, MaxMemory, Offload, PolicyArgument
from rrf.cli.profiling import Profile

if TYPE_CHECKING:
    from rrf.evaluation.candidate import Candidate
    from rrf.evaluation.directory import Evaluator
    from rrf.evaluation.gates.gate import GateCfg
    from rrf.evaluation.protocols.base import BaseProtocolCfg, OnEpisode
    from rrf.evaluation.results import EpisodeResult, Evaluation

ProtocolFile = Annotated[
    Path | None,
    typer.Option(
        help="A file in configs/protocols/; by default the gate's protocol, or the one that fits "
        "the policy."
    ),
]
GateFile = Annotated[
    Path | None, typer.Option(help="A file in configs/gates/ with the gate that judges the result.")
]
Champion = Annotated[
    str | None,
    typer.Option(
        help="Registered model whose champion the gate compares with; by default the one of "
        "--register."
    ),
]
Register = Annotated[
    str | None,
    typer.Option(help="Registered model to which the policy is added as a version, @candidate."),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Directory for the result; by default .rrf/evaluations/...", file_okay=False),
]
Workers = Annotated[
    int,
    typer.Option(
        help="Number of simulation processes, for policies that see images; 0 simulates in this "
        "process.",
        min=0,
    ),
]
Slots = Annotated[
    int | None,
    typer.Option(help="Number of episodes side by side, for policies that see images.", min=1),
]
NumVideos = Annotated[
    int | None,
    typer.Option(
        help="Number of episodes shown in the report; by default 12, or 6 for state-based "
        "policies.",
        min=0,
    ),
]
ExtraEpisodes = Annotated[
    int,
    typer.Option(help="Number of initial states per task beyond those of the protocol.", min=0),
]
Baselines = Annotated[
    bool,
    typer.Option(
        help="Also evaluate a random and a mean-action policy, for policies that see images."
    ),
]
Renderer = Annotated[
    str, typer.Option(help="Renderer of camera images: warp, egl, osmesa or auto.")
]

Sign = Annotated[
    bool,
    typer.Option(
        help="Sign the result with your key (rrf keys), so that a registry can tell who made it."
    ),
]
HeldOut = Annotated[
    str | None,
    typer.Option(
        help="Instead of a simulation: a dataset (a name or a path), on whose episodes that were "
        "held out of the training predicted actions are compared with the demonstrated ones.",
        autocompletion=complete_dataset,
    ),
]
FittedQData = Annotated[
    str | None,
    typer.Option(
        help="Instead of a simulation: a dataset of states (a name or a path), from whose "
        "transitions the policy's return is estimated."
    ),
]


def eval_(
    checkpoint: PolicyArgument,
    protocol: ProtocolFile = None,
    gate: GateFile = None,
    champion: Champion = None,
    register: Register = None,
    out: Out = None,
    workers: Workers = 2,
    slots: Slots = None,
    num_videos: NumVideos = None,
    extra_episodes: ExtraEpisodes = 0,
    baselines: Baselines = False,
    renderer: Renderer = "warp",
    held_out: HeldOut = None,
    fitted_q: FittedQData = None,
    profile: Profile = None,
    sign: Sign = False,
    device: DeviceOption = "cpu",
    max_memory: MaxMemory = None,
    offload: Offload = None,
    imports: Imports = None,
) -> dict | None:
    """Evaluate a policy under a fixed protocol; writes evaluation.json, videos and report.html.

    With --held-out, errors on recorded episodes are written instead of episodes in simulation; with
    --fitted-q, an estimate of the return, which no gate uses.
    If --out already has an evaluation of the same checkpoint under the same protocol, it is reused.
    With --gate, the verdict is printed and written beside the evaluation.
    """
    from rrf.cli import judging, profiling, recorded_evaluation
    from rrf.cli.options import check_device, check_output, check_renderer, import_modules
    from rrf.cli.trainings import require_datasets
    from rrf.evaluation.directory import Evaluator
    from rrf.evaluation.protocols.base import Resources
    from rrf.evaluation.reports.report import write_report
    from rrf.identity import keys
    from rrf.registry import evidence
    from rrf.registry.links import policy_links, report_links
    from rrf.registry.versions import is_reference
    from rrf.runners.checkpoints.placement import choose

    import_modules(imports)
    check_device(device)
    check_renderer(renderer)
    if held_out or fitted_q:
        if protocol or gate or register or profile or device != "cpu" or max_memory or offload:
            option = "--held-out" if held_out else "--fitted-q"
            raise ValueError(
                f"{option} runs no simulation; leave out --protocol, --gate, --register, "
                "--profile, --device"
            )
        require_datasets([name for name in (held_out, fitted_q) if name])
        candidate = _candidate(checkpoint)
        if held_out:
            recorded_evaluation.open_loop(candidate, held_out, out)
        if fitted_q:
            recorded_evaluation.fitted_q(candidate, fitted_q, out)
        return None
    if checkpoint.startswith("vla-eval://") and (register or baselines or profile or sign):
        raise ValueError(
            f"{checkpoint} is a server, of which nobody knows the weights; leave out --register, "
            "--baselines, --profile, --sign"
        )
    gate = _file(gate, "gates") if gate else None
    gate_cfg = _gate(gate, champion, register)
    candidate = _candidate(checkpoint)
    profiling.given(profile, candidate.checkpoint_digest)
    cfg = _protocol(candidate, protocol, gate_cfg)
    place = choose(device, max_memory or [], offload)
    given = {"slots": slots, "baselines": baselines, "device": place if place != "cpu" else None}
    cfg = cfg.with_options(**given).extended(extra_episodes)
    if register:
        judging.require_registrable(candidate.checkpoint, register, candidate.lineage, gate)
    evaluator = Evaluator(cfg, Resources(workers, renderer, place), showing, echo)
    folder = out or evaluator.folder(candidate)
    check_output(folder / "evaluation.json")
    signer = keys.find() if sign else None
    named = checkpoint if is_reference(checkpoint) else str(candidate.checkpoint.resolve())
    links = policy_links(named) | report_links(None, candidate.lineage, folder=folder)
    count = len(evaluator.protocol.initial_states())
    how = ": evaluated before" if evaluator.finished(candidate, folder) else ""
    typer.echo(
        f"evaluating {candidate.label} under {cfg.name} ({count} episodes) on {device} in "
        f"{folder}{how}"
    )
    _write(evaluator, candidate, folder, links, num_videos, baselines)
    if profiling.keep(folder, candidate, profile, gate_cfg, device, imports or ()):
        write_report(folder, candidate.lineage, config=candidate.config, links=links)
    if signer:
        evidence.sign(folder, signer)
        typer.echo(f"signed by {signer.name} ({signer.public})")
    verdict = None
    if gate_cfg:
        other = functools.partial(_evaluate_other, evaluator)
        facts = (candidate.lineage, candidate.config, links)
        model = champion or _model_if_registered(register)
        verdict = judging.judged(folder, gate_cfg, model, other, *facts, store=model == register)
    if register:
        judging.registered(candidate.checkpoint, register, folder, gate, verdict, imports or ())
    typer.echo(f"report {folder / 'report.html'}")
    return {"evaluation": str(folder), "verdict": verdict.outcome if verdict else None}


def _gate(path: Path | None, champion: str | None, register: str | None) -> "GateCfg | None":
    """Load the gate from a file, and check that the model in `champion` is registered."""
    from rrf.cli import judging
    from rrf.evaluation.gates.gate import load_gate

    if champion and not path:
        raise ValueError("--champion is used by a gate only; give --gate too")
    if champion and champion != register:  # --register may be about to create the model
        judging.require_model(champion)
    return load_gate(path) if path else None


def _model_if_registered(model: str | None) -> str | None:
    """The model if it is registered already."""
    from rrf.mlflow_store import store
    from rrf.registry.versions import exists

    return model if model and exists(store.connect(), model) else None


def _candidate(reference: str) -> "Candidate":
    from rrf.cli.policy_reference import locate
    from rrf.evaluation.candidate import candidate_at

    if reference.startswith("vla-eval://"):
        from rrf.evaluation.vla.remote import candidate_of

        return candidate_of(reference)
    return candidate_at(*locate(reference))


def _protocol(
    candidate: "Candidate", path: Path | None, gate: "GateCfg | None"
) -> "BaseProtocolCfg":
    """The protocol in the file, or the gate's protocol, or the default one for this policy."""
    from rrf.envs.configs import trust_task
    from rrf.evaluation.protocols.files import find_protocol, load_protocol

    if path and gate:
        raise ValueError("a gate has its own protocol; give --gate or --protocol, not both")
    if gate:
        cfg = gate.protocol
        cfg = cfg.extended(max(0, gate.looks[0] - cfg.episodes_per_task))
    elif path:
        cfg = load_protocol(_file(path, "protocols"))
    else:
        cfg = load_protocol(find_protocol(candidate))
    cfg.check_kind(candidate.kind, candidate.label)
    trust_task(getattr(cfg, "env", None))
    return cfg.here(candidate.checkpoint)


def _write(
    evaluator: "Evaluator",
    candidate: "Candidate",
    folder: Path,
    links: dict[str, str],
    num_videos: int | None,
    baselines: bool,
) -> None:
    """Write evaluation, videos and report to `folder`, unless they exist already."""
    from rrf.evaluation.reports.report import write_report
    from rrf.evaluation.results import REPORT
    from rrf.registry import evidence
    from rrf.run_directory import mlflow_run_of

    finished = evaluator.finished(candidate, folder)
    if finished is None:
        evaluation = evaluator.evaluate(candidate, folder)
        typer.echo(summary(evaluation))
        evaluator.film(candidate, evaluation, folder, num_videos)
        if run_id := mlflow_run_of(candidate.checkpoint):
            evidence.show_in_run(run_id, evaluation)
    else:
        typer.echo(f"reused {summary(finished)}")
        if not (folder / REPORT).is_file():  # it was killed before its videos, or between them
            evaluator.film(candidate, finished, folder, num_videos)
    for report in evaluator.baselines(candidate, folder) if baselines else ():
        typer.echo(summary(report))
    # An existing report is kept, because it may show more: the gate's verdict, training curves.
    if finished is None or baselines or not (folder / REPORT).is_file():
        write_report(folder, candidate.lineage, config=candidate.config, links=links)


def _evaluate_other(evaluator: "Evaluator", reference: str) -> Path:
    """Evaluate another policy under the same protocol; returns the directory of the result."""

    other = _candidate(reference)
    folder = evaluator.folder(other)
    if finished := evaluator.finished(other, folder):
        typer.echo(f"reused {summary(finished)}")
    else:
        typer.echo(summary(evaluator.evaluate(other, folder)))
    return folder


def _file(path: Path, kind: str) -> Path:
    """The file of a config of this kind, as `workspace.find` finds it.

    Raises:
        ValueError: If there is no such file, but one with a similar name.
    """
    from rrf import workspace
    from rrf.config import closest

    path = workspace.find(path)
    if not path.is_file() and not path.is_absolute():
        names = workspace.configs(kind)
        if near := closest(path.name.removesuffix(".yaml"), names):
            raise ValueError(f"no file '{path}'; did you mean 'configs/{kind}/{near}.yaml'?")
    return path


@contextlib.contextmanager
def showing(title: str, total: int, known: "Sequence[EpisodeResult]" = ()) -> "Iterator[OnEpisode]":
    """Yield an `on_episode` that shows progress: a live bar on a terminal, lines in a log. The
    episodes that are known count, too."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console()
    counts = {"solved": sum(episode.success for episode in known), "done": len(known)}

    def count(episode) -> str:
        counts["solved"] += episode.success
        counts["done"] += 1
        return f"success {counts['solved'] / counts['done']:.1%}"

    if not console.is_interactive:
        every = max(1, total // 20)

        def line(episode, done: int, of: int) -> None:
            text = count(episode)
            if done % every == 0 or done == of:
                typer.echo(f"episode {done}/{of} {text}")

        yield line
        return
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=total, text="")
        yield lambda episode, done, of: bar.update(task, completed=done, text=count(episode))


def echo(line: str) -> None:
    """Print a line; warnings go to stderr."""
    typer.echo(line, err=line.startswith("warning:"))


def summary(evaluation: "Evaluation") -> str:
    """A report as text: success overall and by task, mean metrics, and the time it took."""
    from rrf.evaluation.protocols.files import parse_protocol

    protocol, timings = parse_protocol(evaluation.protocol), evaluation.timings
    units = protocol.measures
    lines = [f"{evaluation.policy}: success {evaluation.overall}"]
    for metric, largest in protocol.with_bounds.items():
        mean, low, high = evaluation.bounds_of(metric, largest)
        lines.append(f"  mean {metric} {mean:.3f} [{low:.3f}, {high:.3f}] of {largest:g}")
    lines += [f"  {task}: {rate}" for task, rate in evaluation.per_task.items()]
    lines += [f"  all of {group}: {rate}" for group, rate in evaluation.per_group.items()]
    if evaluation.worst_group:
        lines.append(f"  worst group: {evaluation.worst_group}")
    lines += [
        f"  {name} {mean:.4g} ({units[name]})" for name, mean in evaluation.mean_metrics().items()
    ]
    if evaluation.profile:
        lines.append(f"  served: {evaluation.profile}")
    if not timings["episodes_per_s"]:
        lines.append("  no episode was played: all were known from an earlier evaluation")
    else:
        lines.append(
            f"  {timings['wall_s']:.1f} s wall, {timings['cpu_s']:.1f} s CPU, "
            f"{timings['episodes_per_s']:.2f} episodes/s"
        )
    return "\n".join(lines)
