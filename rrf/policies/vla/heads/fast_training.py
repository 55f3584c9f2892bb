"""Trains a FAST tokenizer on what a policy predicts for the actions of a dataset."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from rrf import workspace
from rrf.atomic import write_text
from rrf.data.dataset.action_representation import PREDICTED, Representation
from rrf.data.dataset.floors import FloorsCfg, raised
from rrf.data.dataset.opening import open_dataset
from rrf.data.dataset.predicted_stats import with_predicted
from rrf.data.dataset.transforms import Mode, ModeOfDimension, Normalize
from rrf.data.schema import ACTION
from rrf.policies.vla.heads.fast_tokenizer import FILE, FastTokenizer
from rrf.policies.vla.losses import held


def train(
    dataset: str,
    folder: str | Path,
    chunk_length: int,
    normalization: Mode = "quantile",
    scale: float = 10.0,
    num_tokens: int = 1024,
    representation: Representation = Representation(),
    modes: Mapping[int, ModeOfDimension] | None = None,
    floors: FloorsCfg = FloorsCfg(),
) -> FastTokenizer:
    """Train a tokenizer on every chunk of a dataset and write it into a directory.

    Its actions are expressed and normalised as the policy does it, so that the tokens are those
    that the policy's head is trained on.

    Args:
        dataset: Name or path of a published dataset.
        folder: Where fast_tokenizer.json is written; it is `policy.head.files` of a training.
        chunk_length: H, as the policy's.
        normalization: As the policy's `action_normalization`.
        scale: See `FastTokenizer.train`.
        num_tokens: See `FastTokenizer.train`.
        representation: The policy's `representation` (`relative_actions`, `delta_actions`).
        modes: As the policy's `action_modes`.
        floors: As the training's `floors`.

    Raises:
        ValueError: If the dataset is missing, or if `FastTokenizer.train` refuses its actions.
    """
    reader = open_dataset(workspace.dataset(dataset), chunk_length, cameras=[])
    norm_stats = with_predicted(reader.norm_stats, representation, reader)
    key = ACTION if representation.is_absolute else PREDICTED
    normalize = Normalize(raised(norm_stats[key], floors)[0], normalization, modes or {})
    state_bd, action_bha, is_pad_bh = reader.chunks(np.arange(reader.num_frames))
    chunks_bha = normalize.apply(representation.apply(action_bha, state_bd))
    filled_bha = held(torch.from_numpy(chunks_bha), torch.from_numpy(is_pad_bh)).numpy()
    tokenizer = FastTokenizer.train(filled_bha, scale, num_tokens)
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_text(Path(folder) / FILE, tokenizer.to_json())
    return tokenizer
