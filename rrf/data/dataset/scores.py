"""Scores of frames: a number for each frame of a dataset, in a file of its own, so that a published
dataset stays as it is.

    scores.parquet      one row per frame: episode_index, frame_index, score
                        in its metadata: the dataset's name, and what gave the scores

Legend: N frames, T frames of an episode.
"""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rrf import atomic

_FACTS = b"rrf.scores"


def write_scores(
    file: Path, dataset: str, scores: Mapping[int, np.ndarray], facts: Mapping[str, str]
) -> None:
    """Write the scores of a dataset.

    Args:
        file: Replaced if it exists.
        dataset: The name of the dataset's directory.
        scores: Episode index -> a score for each of its frames, [T].
        facts: What gave them.
    """
    parts = [
        pd.DataFrame(
            {"episode_index": episode, "frame_index": np.arange(len(score_t)), "score": score_t}
        )
        for episode, score_t in scores.items()
    ]
    table = pa.Table.from_pandas(pd.concat(parts, ignore_index=True), preserve_index=False)
    content, facts_json = io.BytesIO(), json.dumps({"dataset": dataset, **facts})
    pq.write_table(table.replace_schema_metadata({_FACTS: facts_json}), content)
    atomic.write_bytes(file, content.getvalue())


def read_scores(
    files: Sequence[str | Path], dataset: str, lengths: Mapping[int, int]
) -> list[np.ndarray]:
    """The scores of some episodes of a dataset, in their order.

    Args:
        files: Among which the dataset's is looked for.
        dataset: The name of the dataset's directory.
        lengths: Episode index -> its number of frames.

    Raises:
        ValueError: If no file is of this dataset, or it has other episodes or lengths.
    """
    names = {}
    for file in map(Path, files):
        if not file.is_file():
            raise ValueError(f"there is no {file}; write it: rrf data score DATASET --out {file}")
        facts_json = (pq.read_schema(file).metadata or {}).get(_FACTS)
        if facts_json is None:
            raise ValueError(f"{file} holds no scores; `rrf data score` writes such a file")
        names[atomic.parse_json(facts_json)["dataset"]] = file
    if dataset not in names:
        raise ValueError(
            f"no scores of the dataset {dataset}: {', '.join(map(str, files)) or 'no file'} is of "
            f"{', '.join(names) or 'nothing'}; write them: rrf data score {dataset} --out FILE"
        )
    table = pd.read_parquet(names[dataset])
    of_episode = {
        episode: part["score"].to_numpy() for episode, part in table.groupby("episode_index")
    }
    for episode, length in lengths.items():
        num_scores = len(of_episode.get(episode, ()))
        if num_scores != length:
            raise ValueError(
                f"{names[dataset]} has {num_scores} scores of episode {episode}, which has "
                f"{length} frames: the dataset has changed; write it again: "
                f"rrf data score {dataset}"
            )
    return [of_episode[episode] for episode in lengths]
