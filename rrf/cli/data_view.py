"""`rrf data view`: episodes of a dataset or of its raw recordings, frame by frame."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from rrf.cli.data_display import say, shown
from rrf.cli.data_download import bring
from rrf.cli.data_edit import episode_list


def view(
    target: Annotated[
        str,
        typer.Argument(
            help="Dataset NAME, as in configs/datasets/NAME.yaml, or the directory of any LeRobot "
            "dataset."
        ),
    ],
    episode: Annotated[str, typer.Option(help="Episodes to show: 3, or 0-4,9.")] = "0",
    raw: Annotated[
        bool, typer.Option("--raw", help="Show the raw recordings, before they are converted.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write; by default datasets/reports/NAME/episodes.html, or a file in the "
            "working directory if the dataset is given as a directory."
        ),
    ] = None,
    browse: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page if there is a display.")
    ] = True,
) -> None:
    """Show episodes in the browser: images, curves, instruction and keys, frame by frame.

    The page is one HTML file that needs no network. Of a dataset that was published, that version
    is shown, or else what was converted; --raw shows the recordings in their own terms.
    """
    from rrf.data.conversion.dataset_cfg import dataset_paths, load_dataset_cfg
    from rrf.data.pages.episode_view import view_dataset, view_recordings
    from rrf.data.validation.summary import find_dataset

    episodes = episode_list(episode)
    if raw:
        cfg = load_dataset_cfg(target)
        paths = dataset_paths(cfg)
        bring(cfg.source.path)
        out = out or paths.reports / "recordings.html"
        view_recordings(cfg, paths.raw, episodes, out)
    else:
        place = find_dataset(target)
        usual = place.reports / "episodes.html" if place.reports else None
        out = out or usual or Path(f"{place.name}-episodes.html")
        view_dataset(place.root, place.name, episodes, out)
    say(f"page: {shown(out)}")
    has_display = (
        sys.platform != "linux" or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    )
    if browse and has_display:
        import webbrowser

        webbrowser.open(out.resolve().as_uri())
