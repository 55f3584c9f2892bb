"""`rrf eval`: a policy closed loop under a fixed protocol, and what a gate says to the result."""

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rrf.cli import control_evaluation, image_evaluation
from rrf.cli.control_evaluation import LoadedControl
from rrf.cli.evaluation_display import summary
from rrf.cli.image_evaluation import LoadedImagePolicy

if TYPE_CHECKING:
    from rrf.evaluation.gates import GateCfg
    from rrf.evaluation.protocol import BaseProtocolCfg
    from rrf.evaluation.results import EpisodeResult, EvaluationReport

_PROTOCOLS, _GATES = Path("configs/protocols"), Path("configs/gates")
PolicyArgument = Annotated[
    str, typer.Argument(help="A checkpoint or run directory, NAME@champion, or models:/NAME@alias.")
]
_Loaded = LoadedImagePolicy | LoadedControl


@dataclasses.dataclass(frozen=True)
class _Options:
    """How to evaluate; nothing of it changes a result."""

    workers: int
    renderer: str
    num_videos: int | None = None


def eval_(
    checkpoint: PolicyArgument,
    protocol: Annotated[
        Path | None,
        typer.Option(
            help="A file of configs/protocols/; by default the gate's, or the one for its task."
        ),
    ] = None,
    gate: Annotated[
        Path | None, typer.Option(help="A file of configs/gates/, to judge the result by.")
    ] = None,
    champion: Annotated[
        str | None, typer.Option(help="Registered model whose champion the gate compares with.")
    ] = None,
    register: Annotated[
        str | None, typer.Option(help="Make it a version of this registered model, @candidate.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory of the result; .rrf/evaluations/... by default.", file_okay=False
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            help="Processes that simulate, for policies that see images; 0 for none.", min=0
        ),
    ] = 2,
    slots: Annotated[
        int | None, typer.Option(help="Episodes side by side, for policies that see images.", min=1)
    ] = None,
    num_videos: Annotated[
        int | None,
        typer.Option(help="Episodes shown in the report; 12, or 6 if state-based.", min=0),
    ] = None,
    extra_episodes: Annotated[
        int, typer.Option(help="More initial states per task than the protocol has.", min=0)
    ] = 0,
    baselines: Annotated[
        bool, typer.Option(help="Also run the random and the mean-action policy.")
    ] = False,
    renderer: Annotated[str, typer.Option(help="warp, egl, osmesa or auto.")] = "warp",
    imports: Annotated[
        list[str] | None,
        typer.Option("--import", help="A module that registers tasks. May be repeated."),
    ] = None,
) -> None:
    """Evaluate a policy under a fixed protocol: evaluation.json, videos and report.html.

    An evaluation of the same checkpoint under the same protocol that is already at --out is reused.
    With --gate its verdict is printed, and written beside the evaluation.
    """
    from rrf.cli import judging
    from rrf.cli.control_training import import_modules
    from rrf.evaluation.gates import load_gate
    from rrf.evaluation.report import FILE_NAME, write_report

    import_modules(imports or [])
    if champion and not gate:
        raise ValueError("--champion is for a gate to compare with; give --gate too")
    if champion and champion != register:  # that one may be about to get its first version
        judging.require_model(champion)
    loaded = _load(checkpoint)
    if isinstance(loaded, LoadedControl):
        _refuse(loaded.label, {"--slots": slots, "--baselines": baselines})
    if register:
        judging.require_registrable(loaded.path, register, loaded.lineage)
    gate_cfg = load_gate(_at_home(gate, _GATES)) if gate else None
    cfg = _protocol(loaded, protocol, gate_cfg, slots).extended(extra_episodes)
    folder = out or _default_folder(loaded.digest, cfg)
    folder.mkdir(parents=True, exist_ok=True)  # what cannot be written is said before the episodes
    options = _Options(workers, renderer, num_videos)
    is_shown = _reuse(loaded, cfg, folder) and (folder / FILE_NAME).is_file() and not baselines
    if not is_shown:
        _complete(loaded, cfg, folder, options)
        if baselines:
            _run_baselines(loaded, cfg, folder, options)
        # What is there may know more: the gate's verdict, training curves.
        write_report(folder, loaded.lineage, config=loaded.config)
    verdict = None
    if gate_cfg:
        other = functools.partial(_evaluate_other, cfg=cfg, options=options)
        facts = (loaded.lineage, loaded.config)
        verdict = judging.judged(folder, gate_cfg, champion, other, *facts)
    if register:
        judging.registered(loaded.path, register, folder, verdict)
    typer.echo(f"report {folder / FILE_NAME}")


def _load(reference: str) -> _Loaded:
    from rrf.cli.policy_reference import locate
    from rrf.runners.deployable import is_control_checkpoint

    path, label = locate(reference)
    kind = control_evaluation if is_control_checkpoint(path) else image_evaluation
    return kind.load(path, label)


def _refuse(label: str, options: dict[str, Any]) -> None:
    """Raise ValueError for options that a state-based policy would not hear."""
    if given := [flag for flag, value in options.items() if value]:
        raise ValueError(
            f"{', '.join(given)}: for policies that see images; {label} is a state-based one"
        )


def _at_home(path: Path, usual: Path) -> Path:
    """A file here, or else of the repository.

    Raises:
        ValueError: If there is none, and the folder where such files usually lie has one of that
            name.
    """
    from rrf import workspace
    from rrf.config import closest

    if path.is_file() or path.is_absolute():
        return path
    if not (workspace.home() / path).is_file():
        names = [file.stem for file in (workspace.home() / usual).glob("*.yaml")]
        if near := closest(path.name.removesuffix(".yaml"), names):
            raise ValueError(f"no file '{path}'; did you mean '{usual / near}.yaml'?")
    return workspace.home() / path


def _protocol(
    loaded: _Loaded, protocol: Path | None, gate: "GateCfg | None", slots: int | None
) -> "BaseProtocolCfg":
    """The protocol asked for, the gate's, or the usual one for such a policy."""
    from rrf import workspace
    from rrf.evaluation.control_protocol import ControlProtocolCfg
    from rrf.evaluation.protocols import load_protocol

    if protocol and gate:
        raise ValueError("a gate names its protocol; give --gate or --protocol, not both")
    if gate:
        cfg = gate.protocol
        cfg = cfg.extended(max(0, gate.looks[0] - cfg.episodes_per_task))
    else:
        usual = loaded.default_protocol(workspace.home() / _PROTOCOLS) if not protocol else None
        cfg = load_protocol(usual or _at_home(protocol or Path(), _PROTOCOLS))
    if isinstance(cfg, ControlProtocolCfg) != isinstance(loaded, LoadedControl):
        kinds = ("a policy that sees images", "a state-based policy")
        kinds = kinds if isinstance(loaded, LoadedControl) else kinds[::-1]
        raise ValueError(f"protocol '{cfg.name}' is for {kinds[0]}, {loaded.label} is {kinds[1]}")
    return cfg.replace(num_slots=slots) if slots else cfg


def _reuse(loaded: _Loaded, cfg: "BaseProtocolCfg", folder: Path) -> bool:
    """Whether the evaluation asked for is at `folder`; it is printed then."""
    report = _finished(folder, loaded, cfg)
    if report is not None:
        typer.echo(f"reused {summary(report)}")
    return report is not None


def _complete(loaded: _Loaded, cfg: Any, folder: Path, options: _Options) -> None:
    """Evaluate, unless that was done; evaluation.json and videos."""
    if _finished(folder, loaded, cfg) is not None:
        return
    known, limit = _known(folder.parent, loaded, cfg), options.num_videos
    if isinstance(loaded, LoadedControl):
        report = control_evaluation.evaluate(loaded, cfg, folder, limit, known)
    else:
        how = (options.workers, options.renderer)
        report = image_evaluation.evaluate(loaded, cfg, folder, limit, known, *how)
    report.save(folder / "evaluation.json")
    typer.echo(summary(report))


def _run_baselines(loaded: _Loaded, cfg: Any, folder: Path, options: _Options) -> None:
    assert isinstance(loaded, LoadedImagePolicy)  # else refused
    image_evaluation.run_baselines(loaded, cfg, folder, options.workers, options.renderer)


def _evaluate_other(reference: str, cfg: "BaseProtocolCfg", options: _Options) -> Path:
    """The directory with an evaluation of another policy under the same protocol."""
    other = _load(reference)
    folder = _default_folder(other.digest, cfg)
    if not _reuse(other, cfg, folder):
        _complete(other, cfg, folder, dataclasses.replace(options, num_videos=0))
    return folder


def _default_folder(digest: str, cfg: "BaseProtocolCfg") -> Path:
    from rrf import workspace

    return workspace.state() / "evaluations" / f"{digest[:12]}-{cfg.hash[:12]}"


def _finished(folder: Path, loaded: _Loaded, cfg: Any) -> "EvaluationReport | None":
    """The evaluation at `folder` if it is the one asked for; one that cannot be read is not."""
    from rrf.evaluation.results import EvaluationReport

    try:
        report = EvaluationReport.load(folder)
    except (OSError, ValueError):
        return None  # `_known` says why
    found = (report.checkpoint_digest, report.protocol_hash, report.source_digest)
    return report if found == (loaded.digest, cfg.hash, loaded.source_under(cfg)) else None


def _known(parent: Path, loaded: _Loaded, cfg: Any) -> "list[EpisodeResult]":
    """Episodes of the same policy, by the same code and under the same conditions, in sibling
    evaluations, e.g. of an earlier look. One that this version cannot read is named and left out.
    """
    from rrf.config import first_error
    from rrf.evaluation.protocols import parse_protocol
    from rrf.evaluation.results import EvaluationReport

    wanted = (loaded.digest, cfg.replace(episodes_per_task=1).hash, loaded.source_under(cfg))
    found = {}
    for path in sorted(parent.glob("*/evaluation.json")):
        try:
            report = EvaluationReport.load(path)
            theirs = parse_protocol(report.protocol).replace(episodes_per_task=1)
        except (OSError, ValueError) as error:
            problem = " ".join(first_error(error).split())
            typer.echo(f"not reusing the episodes of {path}: {problem}")
            continue
        if (report.checkpoint_digest, theirs.hash, report.source_digest) == wanted:
            found |= {e.initial_state: e for e in report.episodes}
    return list(found.values())
