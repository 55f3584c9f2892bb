"""Where a supervised run gets its batches: recorded frames, split by episode."""

import dataclasses
import typing
from pathlib import Path

import numpy as np

from rrf import workspace
from rrf.components.configs import PolicyCfg
from rrf.data.schema import ACTION, STATE, Batch, Schema
from rrf.runners.configs import SupervisedRunnerCfg


class Frames(typing.Protocol):
    """Frames that can be read in any order, as from `rrf.data.lerobot_reader.LeRobotReader`."""

    @property
    def schema(self) -> Schema: ...

    @property
    def norm_stats(self) -> dict: ...

    @property
    def num_frames(self) -> int: ...

    def batch(self, indices: np.ndarray) -> Batch: ...


@dataclasses.dataclass
class Split:
    """The frames a run learns from, and those it only measures itself on."""

    training: Frames
    validation: Frames | None
    norm_stats: dict | None = None  # of the frames learned from; None: those of the dataset


def is_held_out(episode: int, fraction: float) -> bool:
    """Whether an episode is for validation: every (1 / fraction)-th, the same ones in every run."""
    if fraction == 0:
        return False
    interval = round(1 / fraction)
    return episode % interval == interval - 1


def split_of(cfg: SupervisedRunnerCfg) -> Split:
    """The frames a supervised config names; raises ValueError as `open_split` does."""
    return open_split(
        workspace.dataset(cfg.dataset),
        cfg.policy.chunk_length,
        cfg.instructions,
        cfg.validation_fraction,
        cfg.episodes_per_instruction,
    )


def open_split(
    root: str | Path,
    chunk_length: int,
    instructions: list[str] | None,
    validation_fraction: float,
    episodes_per_instruction: int | None = None,
) -> Split:
    """Read a dataset's episodes with the given instructions, held-out ones apart.

    Args:
        root: A published dataset.
        chunk_length: Actions per frame.
        instructions: None takes all.
        validation_fraction: Share of the episodes held out.
        episodes_per_instruction: Only the first ones of each instruction, normalised by their own
            statistics; None takes all, normalised by those of the dataset.

    Raises:
        ValueError: If the dataset is missing or damaged, too small to hold out an episode, or has
            fewer episodes of an instruction than asked for.
    """
    from rrf.data.lerobot_reader import LeRobotReader

    whole = LeRobotReader(root, chunk_length, instructions)
    total = LeRobotReader(root, chunk_length).num_episodes
    held_out = [episode for episode in range(total) if is_held_out(episode, validation_fraction)]
    kept = [episode for episode in range(total) if not is_held_out(episode, validation_fraction)]
    if episodes_per_instruction is not None:
        kept = [
            episode
            for instruction in whole.instructions
            for episode in _first_episodes(
                LeRobotReader(root, chunk_length, [instruction], kept), episodes_per_instruction
            )
        ]
    training = LeRobotReader(root, chunk_length, instructions, kept)
    stats = None if episodes_per_instruction is None else _norm_stats_of(training)
    if not validation_fraction:
        return Split(training, None, stats)
    try:
        validation = LeRobotReader(root, chunk_length, instructions, held_out)
    except ValueError as error:
        raise ValueError(
            f"{error}: {total} episodes are too few to hold out {validation_fraction:.0%} of them; "
            "record more, or set validation_fraction=0"
        ) from error
    return Split(training, validation, stats)


def _first_episodes(reader, count: int) -> list[int]:
    if reader.num_episodes < count:
        raise ValueError(
            f"{reader.root} has {reader.num_episodes} episodes to train on for "
            f"'{reader.instructions[0]}', {count} are asked for; lower episodes_per_instruction"
        )
    return reader.episodes[:count]


def _norm_stats_of(frames: Frames) -> dict:
    from rrf.data.stats import describe, plain

    batch = frames.batch(np.arange(frames.num_frames))
    values = {STATE: batch.observation.state, ACTION: batch.action[:, 0]}
    return {key: plain(describe(rows)) for key, rows in values.items()}


def check_fit(policy: PolicyCfg, schema: Schema) -> None:
    """Raise ValueError naming every input or output on which policy and dataset disagree."""
    pairs = {
        "image_size": (tuple(policy.image_size), tuple(schema.image_size)),
        "state_dim": (policy.state_dim, len(schema.state.names)),
        "action_dim": (policy.action_dim, len(schema.action.names)),
    }
    wrong = [
        f"policy.{name} is {mine}, the dataset has {its}"
        for name, (mine, its) in pairs.items()
        if mine != its
    ]
    wrong += [
        f"policy.cameras names '{camera}', the dataset has {', '.join(schema.cameras)}"
        for camera in policy.cameras
        if camera not in schema.cameras
    ]
    if wrong:
        raise ValueError("the policy does not fit the dataset: " + "; ".join(wrong))
