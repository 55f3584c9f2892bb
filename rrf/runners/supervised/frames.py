"""The frames of a supervised run: recorded frames, split by episode for training and validation."""

import dataclasses
import typing
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rrf import workspace
from rrf.data.dataset.corrections import CorrectionsCfg
from rrf.data.dataset.held_out import held_out
from rrf.data.dataset.history import NOTHING, Past, history_options
from rrf.data.schema import ACTION, STATE, Batch, Schema
from rrf.networks.vocabulary import vocabulary_of, words_of
from rrf.policies.vla.configs import PolicyCfg
from rrf.policies.vla.robot_configs import misfits
from rrf.runners.supervised.configs import SupervisedRunnerCfg

if typing.TYPE_CHECKING:
    from rrf.data.dataset.reader import LeRobotReader


class Frames(typing.Protocol):
    """Frames that can be read in any order.

    Implemented by `rrf.data.dataset.reader.LeRobotReader` and `rrf.data.dataset.mixture.Mixture`.
    """

    @property
    def schema(self) -> Schema: ...

    @property
    def norm_stats(self) -> dict: ...

    @property
    def num_frames(self) -> int: ...

    def draw(self, batch_size: int, seed: int, step: int) -> np.ndarray: ...

    def batch(self, indices: np.ndarray) -> Batch: ...

    def chunks(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...

    def instructions_of(self, indices: np.ndarray) -> list[str]: ...

    def steps_since_start(self, indices: np.ndarray) -> np.ndarray: ...

    @property
    def identity(self) -> tuple[str, str]: ...

    @property
    def readers(self) -> "list[LeRobotReader]": ...


class WrappedFrames:
    """Frames of which a subclass changes something."""

    def __init__(self, frames: Frames):
        self._frames = frames

    @property
    def schema(self) -> Schema:
        return self._frames.schema

    @property
    def norm_stats(self) -> dict:
        return self._frames.norm_stats

    @property
    def num_frames(self) -> int:
        return self._frames.num_frames

    @property
    def identity(self) -> tuple[str, str]:
        return self._frames.identity

    @property
    def readers(self) -> "list[LeRobotReader]":
        return self._frames.readers

    def draw(self, batch_size: int, seed: int, step: int) -> np.ndarray:
        return self._frames.draw(batch_size, seed, step)

    def batch(self, indices: np.ndarray) -> Batch:
        return self._frames.batch(indices)

    def instructions_of(self, indices: np.ndarray) -> list[str]:
        return self._frames.instructions_of(indices)

    def steps_since_start(self, indices: np.ndarray) -> np.ndarray:
        return self._frames.steps_since_start(indices)

    def chunks(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._frames.chunks(indices)


@dataclasses.dataclass
class Split:
    """The frames for training and the held-out frames for validation."""

    training: Frames
    validation: Frames | None
    norm_stats: dict | None = None
    """Statistics to normalise with, those of several robots by tag; None: `training.norm_stats`."""
    policy: PolicyCfg | None = None
    """The policy, fitted to the datasets of several robots; None: they are of one."""
    validation_by_robot: dict[str, range] = dataclasses.field(default_factory=dict)
    """Which held-out frames are whose, of several robots by tag."""


def split_of(cfg: SupervisedRunnerCfg, added: Sequence[Path] = ()) -> Split:
    """The frames of the datasets in a supervised config; several datasets are mixed by weight.

    Args:
        cfg: The config.
        added: Further datasets with weight 1, of the same robot. `instructions` and
            `episodes_per_instruction` do not select among their episodes.

    Raises ValueError like `open_split`, `rrf.data.dataset.mixture.Mixture` and
    `rrf.runners.supervised.robot_frames.robot_split`.
    """
    from rrf.data.dataset.mixture import Mixture

    options = (
        cfg.policy.chunk_length,
        cfg.instructions,
        cfg.validation_fraction,
        cfg.episodes_per_instruction,
        cfg.cache_dir,
        cfg.policy.past,
        cfg.instruction_style,
        cfg.corrections,
    )
    if not cfg.mixture and not cfg.robots and not added:
        split = open_split(workspace.dataset(cfg.dataset), *options)
        texts = [text for reader in split.training.readers for text in reader.instructions]
        warn_of_lost_words(cfg.policy.words, texts)
        return split
    opened = {name: _open_readers(workspace.dataset(name), *options) for name in cfg.datasets}
    if cfg.robots:
        from rrf.runners.supervised.robot_frames import robot_split

        return Split(*robot_split(cfg, opened))
    chunk_length, _, fraction, _, cache_dir, past, style, corrections = options
    readers = [
        *opened.values(),
        *(
            _open_readers(
                root, chunk_length, None, fraction, None, cache_dir, past, style, corrections
            )
            for root in added
        ),
    ]
    validations = [validation for _, validation in readers if validation is not None]
    training = Mixture(
        [training for training, _ in readers], [*cfg.datasets.values(), *[1.0] * len(added)]
    )
    warn_of_lost_words(cfg.policy.words, training.instructions)
    return Split(training, Mixture(validations) if validations else None)


def open_split(
    root: str | Path,
    chunk_length: int,
    instructions: list[str] | None,
    validation_fraction: float,
    episodes_per_instruction: int | None = None,
    cache_dir: str | None = None,
    past: Past = NOTHING,
    instruction_style: str | None = None,
    corrections: CorrectionsCfg | None = None,
) -> Split:
    """Read a dataset's episodes with the given instructions, split into training and validation.

    Args:
        root: A published dataset: a directory or s3://bucket/prefix.
        chunk_length: Actions per frame.
        instructions: The instructions to use; None for all.
        validation_fraction: Fraction of the episodes that is held out.
        episodes_per_instruction: Use only this many episodes of each instruction, the first ones,
            and normalise with their own statistics. None uses all episodes and the dataset's
            statistics.
        cache_dir: Directory for decoded images that do not fit into memory; None for none.
        past: What each frame shows of what came before.
        instruction_style: See `SupervisedRunnerCfg.instruction_style`.
        corrections: See `SupervisedRunnerCfg.corrections`.

    Raises:
        ValueError: If the dataset is missing or damaged, if it is too small to hold out an episode,
            or if it has fewer than `episodes_per_instruction` episodes of an instruction.
    """
    training, validation = _open_readers(
        root,
        chunk_length,
        instructions,
        validation_fraction,
        episodes_per_instruction,
        cache_dir,
        past,
        instruction_style,
        corrections,
    )
    stats = None if episodes_per_instruction is None else _norm_stats_of(training)
    return Split(training, validation, stats)


def warn_of_lost_words(words: Sequence[str] | None, instructions: Sequence[str]) -> None:
    """Warn if a policy cannot tell instructions apart because it does not know their words.

    Args:
        words: The words that the policy knows; None for any.
        instructions: All instructions that it is trained on.
    """
    if words is None:
        return
    first: dict[tuple, str] = {}
    for text in instructions:
        seen = sorted(word if word in words else "" for word in words_of(text))
        known = tuple(seen) if any(seen) else ()  # the mean of any number of unknown words
        other = first.setdefault(known, text)
        if sorted(words_of(other)) != sorted(words_of(text)):
            warnings.warn(
                f"the policy cannot tell '{other}' from '{text}', because it does not know all "
                "words; to name them, set policy.instruction_encoder.vocabulary="
                f"'[{', '.join(vocabulary_of(instructions))}]'",
                stacklevel=2,
            )
            return


def _open_readers(
    root: str | Path,
    chunk_length: int,
    instructions: list[str] | None,
    validation_fraction: float,
    episodes_per_instruction: int | None,
    cache_dir: str | None,
    past: Past,
    instruction_style: str | None,
    corrections: CorrectionsCfg | None,
) -> "tuple[LeRobotReader, LeRobotReader | None]":
    """The readers of the training episodes and of the held-out episodes."""
    from rrf.data.dataset.layout import read_info
    from rrf.data.dataset.opening import open_dataset

    total = read_info(root)["total_episodes"]
    validated = held_out(total, validation_fraction)
    kept = [episode for episode in range(total) if episode not in set(validated)]
    if episodes_per_instruction is not None:
        whole = open_dataset(root, chunk_length, instructions)
        kept = [
            episode
            for instruction in whole.instructions
            for episode in _first_episodes(
                open_dataset(root, chunk_length, [instruction], kept), episodes_per_instruction
            )
        ]
    options = {
        "cache_dir": cache_dir,
        "instruction_style": instruction_style,
        "corrections": corrections,
        **history_options(past),
    }
    training = open_dataset(root, chunk_length, instructions, kept, **options)
    if not validation_fraction:
        return training, None
    try:
        validation = open_dataset(root, chunk_length, instructions, validated, **options)
    except ValueError as error:
        raise ValueError(
            f"{error}: {total} episodes are too few to hold out {validation_fraction:.0%} of them; "
            "record more episodes, or set validation_fraction=0"
        ) from error
    return training, validation


def _first_episodes(reader, count: int) -> list[int]:
    if reader.num_episodes < count:
        raise ValueError(
            f"{reader.root} has {reader.num_episodes} training episodes with the instruction "
            f"'{reader.instructions[0]}', but episodes_per_instruction is {count}; lower it"
        )
    return reader.episodes[:count]


def _norm_stats_of(frames: Frames) -> dict:
    from rrf.data.dataset.stats import describe, plain

    state, action, _ = frames.chunks(np.arange(frames.num_frames))
    values = {STATE: state, ACTION: action[:, 0]}
    return {key: plain(describe(rows)) for key, rows in values.items()}


def fitted(cfg: SupervisedRunnerCfg, split: Split) -> SupervisedRunnerCfg:
    """A copy whose policy takes from the datasets what the config leaves open."""
    return cfg.replace(policy=split.policy or cfg.policy.fitted(split.training.schema))


def check_fit(policy: PolicyCfg, schema: Schema) -> None:
    """Check that policy and dataset have the same inputs and outputs.

    Raises:
        ValueError: If they differ. The message names every difference.
    """
    wrong = misfits("policy", policy, policy.cameras, schema, "the dataset")
    if wrong:
        raise ValueError("the policy does not fit the dataset: " + "; ".join(wrong))
