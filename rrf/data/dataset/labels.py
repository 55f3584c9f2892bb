"""Labels of frames or of whole episodes, which people add to a LeRobot dataset: true or false.

A label of frames is a feature of `meta/info.json` with a column in the data files; a label of
episodes is a column of the episode table.

Legend: N frames, E episodes.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rrf.data.dataset import layout, parquet
from rrf.data.files import RemotePath


def read_labels(root: str | Path | RemotePath, name: str, episodes: Sequence[int]) -> np.ndarray:
    """The label of each frame of some episodes, bool [N], in the order of the episodes.

    Raises:
        ValueError: If neither frames nor episodes have the label (with the names that they have),
            or it holds something else than true and false (0 and 1).
    """
    table = parquet.read_episodes(root).iloc[list(episodes)]
    starts, stops = table["dataset_from_index"].to_numpy(), table["dataset_to_index"].to_numpy()
    features = layout.read_info(root)["features"]
    if name in features:
        values = parquet.read_columns(root, [name])[name]
        rows = [np.arange(a, b) for a, b in zip(starts, stops, strict=True)]
        values = values[np.concatenate(rows)]
    elif name in table:
        values = np.repeat(table[name].to_numpy(), stops - starts)
    else:
        raise ValueError(
            f"{root} has no label '{name}': neither its frames ({', '.join(features)}) nor its "
            f"episode table ({', '.join(map(str, table.columns))}) have it; add a boolean column, "
            "or name another one"
        )
    if values.size != len(values) or not np.isin(values, (0, 1)).all():
        raise ValueError(
            f"label '{name}' of {root} must be true or false for each frame or episode, but it "
            f"holds {values.dtype} like {values[:1].tolist()}"
        )
    return values.reshape(-1).astype(bool)
