"""Raw recordings to a LeRobot v3 dataset, as `configs/datasets/NAME.yaml` says.

    for file in sorted(recordings):        # one task each
        for demo in file:                  # read_robomimic: keys, shapes, finite numbers
            check_episode(demo, schema)
            writer.add(demo)
    rename the finished directory into place

Killed at any moment it leaves the old dataset; run again it gives the same bytes.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from rrf.data.dataset_cfg import DatasetCfg
from rrf.data.lerobot_writer import write_dataset
from rrf.data.robomimic import count_demos, read_robomimic
from rrf.data.schema import Episode

OnProgress = Callable[[int, int, str], None]  # done, total, what is being worked on


def convert(
    cfg: DatasetCfg,
    raw: str | Path,
    out: str | Path,
    on_progress: OnProgress = lambda done, total, what: None,
) -> int:
    """Convert all recordings under `raw` into a dataset at `out`, replacing what stood there.

    Returns:
        The number of frames written.

    Raises:
        ValueError: If there are no recordings, or naming file, demo, key and frame of the first
            thing that is wrong. What stood at `out` is unchanged.
    """
    paths = recordings(cfg, raw)
    total = sum(count_demos(path) for path in paths)
    done = 0

    def episodes() -> Iterator[Episode]:
        nonlocal done
        for path in paths:
            for episode in read_robomimic(path, cfg):
                on_progress(done, total, path.stem)
                yield episode
                done += 1
        on_progress(done, total, "done")

    return write_dataset(
        out,
        cfg.schema(),
        episodes(),
        storage=cfg.storage,
        robot_type=cfg.robot_type,
        provenance={"name": cfg.name, "licence": cfg.licence, "provenance": cfg.provenance},
    )


def recordings(cfg: DatasetCfg, raw: str | Path) -> list[Path]:
    """The raw files of a dataset in order.

    Raises ValueError with the commands that bring them if there are none.
    """
    paths = sorted(path for path in Path(raw).glob(cfg.source.pattern) if path.is_file())
    if not paths:
        raise ValueError(
            f"no recordings {cfg.source.pattern} in {raw}; "
            "run: dvc pull, or record them: rrf data collect"
        )
    return paths
