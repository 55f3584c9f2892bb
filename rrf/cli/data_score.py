"""`rrf data score`: scores of a dataset's frames by a reward model of lerobot."""

from pathlib import Path
from typing import Annotated

import typer

from rrf.cli.data_display import plain, progress_bars, say, shown


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
