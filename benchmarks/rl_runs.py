"""Runs of state-based control in benchmarks: configs, training, its pace, and evaluation."""

import tempfile
import typing
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.clock import Pace, pace_between, seconds
from benchmarks.harness import parser_of, train
from benchmarks.record import ROOT
from rrf import workspace
from rrf.config import parse_overrides
from rrf.presets import resolve

if typing.TYPE_CHECKING:
    from rrf.evaluation.control.configs import ControlProtocolCfg
    from rrf.evaluation.results import Evaluation
    from rrf.runners.control.configs import ControlRunnerCfg

TASK = "HalfCheetah-v5"
SEED = 0


def preset(name: str, overrides: Sequence[str]) -> "ControlRunnerCfg":
    """The config of a preset of state-based control."""
    from rrf.runners.control.configs import ControlRunnerCfg

    cfg = resolve(name, parse_overrides([*overrides, f"seed={SEED}"]))
    assert isinstance(cfg, ControlRunnerCfg)
    return cfg


def protocol_of(name: str) -> "ControlProtocolCfg":
    """A protocol of state-based control from `configs/protocols`."""
    from rrf.evaluation.control.configs import ControlProtocolCfg
    from rrf.evaluation.protocols.files import load_protocol

    protocol = load_protocol(ROOT / "configs" / "protocols" / f"{name}.yaml")
    assert isinstance(protocol, ControlProtocolCfg)
    return protocol


def judged(checkpoint: Path, protocol: "ControlProtocolCfg") -> "Evaluation":
    """Evaluate a trained policy under a protocol."""
    from rrf.evaluation.control.evaluate import evaluate_control
    from rrf.runners.checkpoints.control import load_control_policy

    policy, interface = load_control_policy(checkpoint)
    return evaluate_control(policy, interface, protocol)


def of_training(cfg: "ControlRunnerCfg", warm_up: int, iterations: int) -> Pace:
    """The pace of acting and learning together: the median over iterations after a warm-up.

    Args:
        warm_up: First iterations that are not counted, at least one.
        iterations: Iterations that are timed.
    """
    total = warm_up + iterations
    cfg = cfg.replace(
        max_iterations=total, save_interval=total, log_interval=1, video_interval=None, trackers=[]
    )
    marks: list[tuple[int, float, float]] = []

    def on_progress(progress: typing.Any) -> None:
        marks.append((progress.num_steps, *seconds()))

    with tempfile.TemporaryDirectory() as scratch:
        cfg.build(scratch).run(on_progress=on_progress)
    return pace_between(marks[warm_up - 1 :])


def called(main: Callable[[Sequence[int], Sequence[str]], None], description: str | None) -> None:
    """Call `main` with the seeds and the words of the command."""
    workspace.settle_environment()
    parser = parser_of(description, seeds=(0, 1, 2))
    parser.add_argument("words", nargs="*", help="overrides for all runs")
    options = parser.parse_args()
    main(options.seeds, options.words)


def trained(
    name: str, seed: int, words: Sequence[str], other: str | None = None
) -> dict[str, typing.Any]:
    """Run the preset that `name` begins with; returns the content of result.json, with the path of
    the checkpoint as it is today. The metrics of its iterations are in tensorboard's files.

    Args:
        other: A further override, e.g. with the checkpoint of another run.
    """
    folder = "-".join([name.replace(" ", "-"), str(seed), *(w.replace("/", "_") for w in words)])
    run_dir = workspace.state() / "benchmarks" / folder
    overrides = [f"seed={seed}", *words, *([other] if other else [])]
    result = train(name.split()[0], run_dir, overrides, trackers=["tensorboard"])
    return result | {"checkpoint": str(run_dir / Path(result["checkpoint"]).name)}
