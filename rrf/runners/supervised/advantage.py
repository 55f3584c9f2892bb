"""Frames that say whether their recorded action was better than usual, for
advantage-conditioned training (`rrf.algorithms.vla.advantage`).

The labels of all frames are computed once, before the first step, and kept beside the checkpoints:

    advantage.parquet   one row per frame: split, dataset, episode_index, frame_index, is_positive;
                        with a return, also return, value, advantage (in lengths of the longest
                        episode, or largest returns)

A resumed run reads the file, unless data or config have changed.

People may add labels to a LeRobot dataset: a label of frames is a feature of `meta/info.json` with
a column in the data files; a label of episodes is a column of the episode table.

Legend: N frames, E episodes, B batch.
"""

import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rrf import atomic
from rrf.algorithms.vla import advantage as recap
from rrf.algorithms.vla.advantage_configs import AdvantageCfg
from rrf.data.dataset import layout, parquet
from rrf.data.dataset.reader import LeRobotReader
from rrf.data.dataset.scores import read_scores
from rrf.data.files import RemotePath
from rrf.data.schema import REWARD, STATE, SUCCESS, Batch
from rrf.runners import process_group
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.supervised.frames import Frames, Split, WrappedFrames

FILE = "advantage.parquet"
_KEY = b"rrf.key"
_RECORD = {
    "success": (SUCCESS, "whether the task was solved, after each frame"),
    "reward": (REWARD, "the reward of each frame"),
}


class AdvantageFrames(WrappedFrames):
    """Frames whose observations tell the advantage.

    Args:
        frames: The frames.
        is_positive_n: Whether each is positive, bool [N].
    """

    def __init__(self, frames: Frames, is_positive_n: np.ndarray):
        super().__init__(frames)
        self._advantage_n = np.where(is_positive_n, 1, -1).astype(np.int8)

    def batch(self, indices: np.ndarray) -> Batch:
        return _replaced(self._frames.batch(indices), self._advantage_n[indices])


def with_advantage(
    split: Split, cfg: SupervisedRunnerCfg, run_dir: Path
) -> tuple[Split, dict[str, str]]:
    """The frames of a split with their advantage, and the digest of the file in `run_dir` that
    holds it.

    Raises:
        ValueError: If the datasets lack what the advantage is computed from, or have too few
            episodes.
    """
    assert cfg.advantage is not None
    parts = {"training": split.training}
    if split.validation is not None:
        parts["validation"] = split.validation
    path, key = run_dir / FILE, _key(parts, cfg)
    if process_group.rank() == 0 and not _is_current(path, key):
        table = pa.Table.from_pandas(
            _computed(parts, cfg.advantage, cfg.seed), preserve_index=False
        )
        content = io.BytesIO()
        pq.write_table(table.replace_schema_metadata({_KEY: key}), content)
        atomic.write_bytes(path, content.getvalue())
    process_group.wait()
    stored = pq.read_table(path).to_pandas()
    parts_with_advantage = {
        name: AdvantageFrames(frames, stored["is_positive"][stored["split"] == name].to_numpy())
        for name, frames in parts.items()
    }
    digest = {"file": FILE, "sha256": atomic.sha256(path)}
    return (
        dataclasses.replace(
            split,
            training=parts_with_advantage["training"],
            validation=parts_with_advantage.get("validation"),
        ),
        digest,
    )


def with_dropout(batch: Batch, probability: float, rng: np.random.Generator) -> Batch:
    """A copy of a batch in which some rows do not tell the advantage."""
    advantage_b = batch.observation.advantage
    assert advantage_b is not None
    is_dropped_b = rng.random(len(advantage_b)) < probability
    return _replaced(batch, np.where(is_dropped_b, 0, advantage_b).astype(np.int8))


def _replaced(batch: Batch, advantage_b: np.ndarray) -> Batch:
    observation = dataclasses.replace(batch.observation, advantage=advantage_b)
    return dataclasses.replace(batch, observation=observation)


def _key(parts: dict[str, Frames], cfg: SupervisedRunnerCfg) -> str:
    """Digest of everything that decides the labels."""
    assert cfg.advantage is not None
    facts = cfg.advantage.replace(dropout=0.0).to_dict() | {"seed": cfg.seed}
    facts["scores"] = [atomic.sha256(Path(file)) for file in cfg.advantage.scores]
    return atomic.digest_of([facts, *(list(frames.identity) for frames in parts.values())])


def _is_current(path: Path, key: str) -> bool:
    return path.is_file() and (pq.read_schema(path).metadata or {}).get(_KEY) == key.encode()


def _computed(parts: dict[str, Frames], cfg: AdvantageCfg, seed: int) -> pd.DataFrame:
    """The table of the file."""
    readers = [(name, reader) for name, frames in parts.items() for reader in frames.readers]
    table = pd.concat([_frames_of(name, reader) for name, reader in readers], ignore_index=True)
    is_labelled_n = np.zeros(len(table), bool)
    if cfg.label is not None:
        labels = [read_labels(reader.root, cfg.label, reader.episodes) for _, reader in readers]
        is_labelled_n = np.concatenate(labels)
    if cfg.source == "label":
        return table.assign(is_positive=is_labelled_n)
    start_e = np.flatnonzero(table["frame_index"] == 0)
    instructions = [  # of each episode, by its first frame
        text for _, reader in readers for text in reader.instructions_of(reader.bounds[:-1])
    ]
    instruction_e = np.unique(instructions, return_inverse=True)[1]
    length_e = np.diff(start_e, append=len(table))
    instruction_n = np.repeat(instruction_e, length_e)
    recorded_n = np.concatenate([_recorded(reader, cfg) for _, reader in readers])
    return_n = _returns(np.split(recorded_n, start_e[1:]), instruction_e, cfg)
    states_n = np.concatenate([reader.vectors(STATE) for _, reader in readers])
    inputs_ni = np.concatenate(
        [
            (states_n - states_n.mean(0)) / (states_n.std(0) + 1e-6),
            np.eye(instruction_e.max() + 1)[instruction_n],
        ],
        axis=1,
    )
    fold_e = recap.folds(instruction_e, min(cfg.num_folds, len(start_e)), seed)
    value_n = recap.values_of_others(inputs_ni, return_n, np.repeat(fold_e, length_e), seed)
    pairs = zip(np.split(return_n, start_e[1:]), np.split(value_n, start_e[1:]), strict=True)
    advantage_n = np.concatenate([recap.advantages(r, v, cfg.horizon) for r, v in pairs])
    is_high_n = recap.highest(advantage_n, instruction_n, cfg.positive_fraction)
    numbers = {"return": return_n, "value": value_n, "advantage": advantage_n}
    return table.assign(**numbers, is_positive=is_high_n | is_labelled_n)


def _returns(
    recorded: list[np.ndarray], instruction_e: np.ndarray, cfg: AdvantageCfg
) -> np.ndarray:
    """Returns to go of all frames, each divided by the scale of its instruction, [N]."""
    if len(recorded) < 3:
        raise ValueError(
            f"advantage estimates the value of an episode from at least two others, but there are "
            f"only {len(recorded)} episodes; record more, or use advantage.source=label"
        )
    returns_of: list[np.ndarray] = [np.empty(0)] * len(recorded)
    for instruction in np.unique(instruction_e):
        episodes = np.flatnonzero(instruction_e == instruction).tolist()
        if cfg.source == "success":
            scale = max(len(recorded[e]) for e in episodes)
            cost = cfg.failure_penalty * scale
            rewards = {e: recap.success_rewards(recorded[e].astype(bool), cost) for e in episodes}
            returns = {e: recap.returns_to_go(reward_t) for e, reward_t in rewards.items()}
        else:
            returns = {e: recap.returns_to_go(recorded[e]) for e in episodes}
            scale = max(np.abs(return_t).max() for return_t in returns.values()) or 1.0
        for e in episodes:
            returns_of[e] = returns[e] / scale
    return np.concatenate(returns_of)


def _frames_of(split: str, reader: LeRobotReader) -> pd.DataFrame:
    length_e = np.diff(reader.bounds)
    return pd.DataFrame(
        {
            "split": split,
            "dataset": str(reader.root),
            "episode_index": np.repeat(reader.episodes, length_e),
            "frame_index": np.concatenate([np.arange(length) for length in length_e]),
        }
    )


def _recorded(reader: LeRobotReader, cfg: AdvantageCfg) -> np.ndarray:
    """next.success, next.reward, or the rise of the score to the next frame, of all frames, [N]."""
    source = cfg.source
    if source == "score":
        lengths = dict(zip(reader.episodes, np.diff(reader.bounds).tolist(), strict=True))
        scores = read_scores(cfg.scores, Path(str(reader.root)).name, lengths)
        return np.concatenate([np.diff(score_t, append=score_t[-1]) for score_t in scores])
    key, what = _RECORD[source]
    has = {SUCCESS: reader.schema.has_success, REWARD: reader.schema.has_reward}
    if not has[key]:
        others = [name for name, (other, _) in _RECORD.items() if has[other]]
        choices = "".join(f"use advantage.source={name}, or " for name in others)
        raise ValueError(
            f"advantage.source is {source}, but {reader.root} has no feature '{key}' ({what}); "
            f"{choices}record it, or give labels: advantage.source=label advantage.label=<a "
            "boolean feature>"
        )
    return reader.vectors(key)


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
