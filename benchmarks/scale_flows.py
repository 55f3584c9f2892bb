"""The flows of `benchmarks.scale`: one that does nothing, and one that converts shards in parts."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

_PART = """
import sys
from benchmarks.scale_flows import part_cfg
from rrf.data.conversion.convert import convert
convert(part_cfg(), sys.argv[1], sys.argv[2])
"""


@flow
def nothing() -> None:
    """What a queue costs."""


def part_cfg():
    """The dataset of a part: it has some of the shards that its `dataset_info.json` names."""
    from benchmarks.data_recordings import dataset_cfg  # not for `nothing`, which imports this file

    cfg = dataset_cfg("video")
    return cfg.replace(source=cfg.source.replace(options={"skip_missing_shards": True}))


@task(cache_policy=NO_CACHE)
def convert_part(raw: str, out: str) -> int:
    """Convert a folder of shards in a process; returns the number of frames."""
    subprocess.run([sys.executable, "-c", _PART, raw, out], check=True)
    return json.loads(Path(out, "meta/info.json").read_text())["total_frames"]


@flow
def convert_all(raw: str, out: str, num_parts: int) -> int:
    """Convert the shards below `raw` in parts, each of which is a dataset; returns all frames."""
    shards = sorted(Path(raw).glob("*.tfrecord-*"))
    parts = []
    for part in range(num_parts):
        folder = Path(out, f"raw-{part}")
        folder.mkdir(parents=True)
        for path in (*Path(raw).glob("*.json"), *shards[part::num_parts]):
            shutil.copy2(path, folder)
        parts.append(str(folder))
    outs = [str(Path(out, f"part-{part}")) for part in range(num_parts)]
    return sum(convert_part.map(parts, outs).result())
