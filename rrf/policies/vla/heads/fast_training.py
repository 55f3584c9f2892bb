"""Trains a FAST tokenizer on the actions of a dataset."""

from pathlib import Path

import numpy as np

from rrf import workspace
from rrf.atomic import write_text
from rrf.data.lerobot_reader import LeRobotReader
from rrf.data.schema import ACTION
from rrf.data.transforms import Mode, Normalize
from rrf.policies.vla.heads.fast_tokenizer import FILE, FastTokenizer


def train(
    dataset: str,
    folder: str | Path,
    chunk_length: int,
    normalization: Mode = "quantile",
    scale: float = 10.0,
    num_tokens: int = 1024,
) -> FastTokenizer:
    """Train a tokenizer on every chunk of a dataset and write it into a directory.

    Args:
        dataset: Name or path of a published dataset.
        folder: Where fast_tokenizer.json is written; it is `policy.head.files` of a training.
        chunk_length: H, as the policy's.
        normalization: As the policy's `action_normalization`.
        scale: See `FastTokenizer.train`.
        num_tokens: See `FastTokenizer.train`.

    Raises:
        ValueError: If the dataset is missing, or if `FastTokenizer.train` refuses its actions.
    """
    reader = LeRobotReader(workspace.dataset(dataset), chunk_length, cameras=[])
    normalize = Normalize(reader.norm_stats[ACTION], normalization)
    _, chunks_bha, _ = reader.chunks(np.arange(reader.num_frames))
    tokenizer = FastTokenizer.train(normalize.apply(chunks_bha), scale, num_tokens)
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_text(Path(folder) / FILE, tokenizer.to_json())
    return tokenizer
