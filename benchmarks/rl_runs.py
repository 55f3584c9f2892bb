"""Runs of presets that a benchmark trains with the words of its command."""

import argparse
import typing
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.vla_experiments import train
from rrf import workspace


def called(main: Callable[[Sequence[int], Sequence[str]], None], description: str | None) -> None:
    """Call `main` with the seeds and the words of the command."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("words", nargs="*", help="overrides for all runs")
    given = parser.parse_args()
    main(given.seeds, given.words)


def trained(
    name: str, seed: int, words: Sequence[str], other: str | None = None
) -> dict[str, typing.Any]:
    """Run the preset that `name` begins with; returns the content of result.json, with the
    checkpoint where it is found now. The metrics of its iterations are in tensorboard's files.

    Args:
        other: A further override, e.g. with the checkpoint of another run.
    """
    folder = "-".join([name.replace(" ", "-"), str(seed), *(w.replace("/", "_") for w in words)])
    run_dir = workspace.state() / "benchmarks" / folder
    overrides = [f"seed={seed}", *words, *([other] if other else [])]
    result = train(name.split()[0], run_dir, overrides, trackers=["tensorboard"])
    return result | {"checkpoint": str(run_dir / Path(result["checkpoint"]).name)}
