"""RLDS: episodes of steps in a TFDS directory (Open X-Embodiment, Bridge, DROID), without
TensorFlow.

    NAME/[CONFIG/]VERSION/
        dataset_info.json                     splits, their shards and how many episodes each holds
        features.json                         the type of every key, see `rlds_features`
        NAME-SPLIT.tfrecord-00000-of-00003    an episode per record; or .array_record-...

Layout: https://www.tensorflow.org/datasets/external_tfrecord, https://github.com/google-research/rlds.

A key is a path below `steps`: "action", "observation/state", "is_first". A value beside the steps
keeps its path, such as "episode_metadata/file_path". It is repeated for every step, whether it is a
number or a text. If a key exists in both places, it means the one of the steps. The instruction is
the first step's "language_instruction", or, if that is absent or blank, the first step's
"observation/natural_language_instruction". The format tells neither the frames per second nor the
convention of a quaternion, so keys are returned as recorded.

A path in the metadata must not lead out of the directory ("..", or an absolute path). Symbolic
links in the directory are followed, because hub caches consist of them.

Legend: T steps of an episode.
"""

import functools
import itertools
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from rrf.config import Cfg, configclass, did_you_mean
from rrf.data.formats.array_record import read_array_record
from rrf.data.formats.json_files import read_object
from rrf.data.formats.rlds_audit import (
    Metadata,
    shared_records,
    success_signs,
    unconnected_cameras,
)
from rrf.data.formats.rlds_features import Column, read_features
from rrf.data.formats.source_audit import failures
from rrf.data.formats.tf_example import Feature, parse_example
from rrf.data.formats.tfrecord import read_tfrecord
from rrf.data.raw import FailedEpisodeError, OneByOne, RawEpisode, Recording
from rrf.data.schema import EncodedImages

_INFO = "dataset_info.json"
_FEATURES = "features.json"
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_READERS = {"tfrecord": read_tfrecord, "array_record": read_array_record}
_INSTRUCTIONS = ("language_instruction", "observation/natural_language_instruction")
_AGAIN = "copy the dataset again from where it came"


@configclass
class RLDSOptions(Cfg):
    """Options of the format rlds."""

    split: str | list[str] | None = None
    """Which splits to read: one name or several; all if not set."""
    only_successful: bool = True
    """Leave out episodes whose flag success or is_success, of the episode or of its steps, is never
    true."""
    reward_means_success: bool = False
    """Count an episode without any reward above 0 as failed, for files with no such flag."""
    skip_missing_shards: bool = False
    """Read the shards that exist, for a dataset that was downloaded only in part."""


class RLDSSource(OneByOne):
    """Reads a TFDS directory of episodes. Each shard is a recording.

    Args:
        path: The directory of a version, or a directory above it that holds exactly one version.
        options: Fields of `RLDSOptions`.
    """

    def __init__(self, path: Path, options: dict):
        self._options = RLDSOptions.from_dict(options)
        self._directory = _version_directory(Path(path))
        self._info = _read_info(self._directory / _INFO)
        self._read_records = _reader(self._info, self._directory / _INFO)
        features = self._directory / _FEATURES
        self._columns, self._refused = read_features(read_object(features), features)
        steps = [column for column in self._columns.values() if column.is_step]
        if not steps:
            raise ValueError(
                f"{features}: no key of the steps can be read: "
                + "; ".join(f"{key} {why}" for key, why in self._refused.items())
            )
        self._warnings: dict[str, None] = {}
        self._failed: dict[Path, tuple[int, int]] = {}  # shard -> episodes that failed, all so far
        self._signs = success_signs(self._columns, self._options.reward_means_success)
        self._clock = min(steps, key=lambda column: (len(column.shape), column.kind != "numbers"))

    @property
    def warnings(self) -> list[str]:
        """What was odd about the episodes read so far, naming the shard."""
        failed = [
            f"{file}: {failures(count, total, self._options.only_successful)}"
            for file, (count, total) in self._failed.items()
            if count
        ]
        return [*self._warnings, *failed]

    def audit(self) -> list[str]:
        """Episodes that several splits hold, also splits that are not read. For tfrecord only."""
        if self._info["fileFormat"] != "tfrecord":
            return []
        shards = {
            str(split["name"]): [self._directory / name for name, _ in self._shards(split)]
            for split in self._info["splits"]
        }
        return [f"{self._directory}: {text}" for text in shared_records(shards)]

    def recordings(self) -> list[Recording]:
        """All shards of the wanted splits, in the order of dataset_info.json.

        Raises:
            ValueError: For an unknown split, a missing shard or a path that leaves the directory,
                and if there are no episodes at all.
        """
        recordings: list[Recording] = []
        missing: list[str] = []
        for split in self._splits():
            for name, num_episodes in self._shards(split):
                file = self._directory / name
                if file.is_file():
                    recordings.append(Recording(name, (file,), num_episodes, str(split["name"])))
                else:
                    missing.append(name)
        if missing and not (recordings and self._options.skip_missing_shards):
            first = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
            raise ValueError(
                f"{self._directory} lacks {len(missing)} of {len(missing) + len(recordings)} "
                f"shards that {_INFO} names: {first}; copy them, or read what is there with the "
                "option skip_missing_shards: true"
            )
        if sum(recording.num_episodes for recording in recordings) == 0:
            raise ValueError(
                f"{self._directory / _INFO} names no episodes in "
                f"{', '.join(split['name'] for split in self._splits()) or 'any split'}; {_AGAIN}"
            )
        return recordings

    def keys(self) -> dict[str, str]:
        """The keys that have an array form, with their types."""
        return {key: str(column) for key, column in self._columns.items()}

    def readers(
        self, recording: Recording, keys: Sequence[str]
    ) -> Iterator[Callable[[], RawEpisode]]:
        """Of the episodes of a shard, one in memory at a time."""
        columns = [self._column(key) for key in keys]
        (file,) = recording.paths
        metadata = Metadata(self._columns, columns)
        unread = [c for c in self._columns.values() if c.kind == "images" and c not in columns]
        num_records = 0

        def read(data: bytes, number: int) -> RawEpisode:
            where = f"{file}:record_{number}"
            try:
                example = parse_example(data)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from error
            said = {
                column.key: _read(example, column, where)
                for column in metadata.columns
                if column.name in example
            }
            odd = itertools.chain(
                metadata.oddities(said, number + 1), unconnected_cameras(unread, example)
            )
            for text in odd:
                self._warnings[f"{file}: {text}"] = None
            has_failed = self._has_failed(example, where)
            count, total = self._failed.get(file, (0, 0)) if number else (0, 0)
            self._failed[file] = count + has_failed, total + 1
            if has_failed and self._options.only_successful:
                raise FailedEpisodeError(where)
            return self._episode(example, columns, where)

        for data in self._read_records(file):
            num_records += 1
            if num_records > recording.num_episodes:
                break
            yield functools.partial(read, data, num_records - 1)
        if num_records != recording.num_episodes:
            several = "or more " if num_records > recording.num_episodes else ""
            raise ValueError(
                f"{file} holds {num_records} {several}episodes, but shardLengths in {_INFO} says "
                f"{recording.num_episodes}; one of the two is of another version: {_AGAIN}"
            )

    def _has_failed(self, example: Mapping[str, Feature], where: str) -> bool:
        """Whether an episode has signs of success, and none of them is there."""
        said = [
            np.asarray(_read(example, column, where)) > 0
            for column in self._signs
            if column.name in example
        ]
        return any(len(flags) > 0 for flags in said) and not any(flags.any() for flags in said)

    def _splits(self) -> list[dict]:
        splits = {str(split.get("name")): split for split in self._info["splits"]}
        wanted = self._options.split
        if wanted is None:
            return list(splits.values())
        wanted = [wanted] if isinstance(wanted, str) else wanted
        for name in wanted:
            if name not in splits:
                raise ValueError(
                    f"{self._directory} has no split '{name}'{did_you_mean(name, splits)}"
                )
        return [split for name, split in splits.items() if name in wanted]

    def _shards(self, split: Mapping) -> Iterator[tuple[str, int]]:
        """File name and number of episodes of each shard of a split."""
        path, lengths = self._directory / _INFO, split.get("shardLengths", [])
        if not isinstance(lengths, list) or not all(str(n).isdecimal() for n in lengths):
            raise ValueError(f"{path}: shardLengths of {split['name']} are not numbers: {lengths}")
        digits = max(5, len(str(len(lengths))))
        for index, length in enumerate(lengths):
            part, parts = f"{index:0{digits}}", f"{len(lengths):0{digits}}"
            template = str(split.get("filepathTemplate") or _TEMPLATE)
            names = {
                "DATASET": str(self._info.get("name", "")),
                "SPLIT": str(split["name"]),
                "FILEFORMAT": self._info["fileFormat"],
                "SHARD_INDEX": part,
                "NUM_SHARDS": parts,
                "SHARD_X_OF_Y": f"{part}-of-{parts}",
            }
            yield _fill_in(template, names, path), int(length)

    def _column(self, key: str) -> Column:
        if key in self._columns:
            return self._columns[key]
        if key in self._refused:
            raise ValueError(
                f"{self._directory / _FEATURES}: '{key}' cannot be read: it {self._refused[key]}"
            )
        raise ValueError(f"{self._directory} has no key '{key}'{did_you_mean(key, self._columns)}")

    def _episode(
        self, example: Mapping[str, Feature], columns: list[Column], where: str
    ) -> RawEpisode:
        length = _num_steps(example, self._clock, where)
        if length == 0:
            raise ValueError(f"{where} has no steps ({self._clock.key} is empty)")
        arrays: dict[str, np.ndarray] = {}
        images: dict[str, np.ndarray | EncodedImages] = {}
        for column in columns:
            expected = length if column.is_step else 1
            num_steps = _num_steps(example, column, where)
            if num_steps != expected:
                what = f"{self._clock.key} has {length}" if column.is_step else "it should have 1"
                raise ValueError(f"{where}: {column.key} has {num_steps} steps, but {what}")
            values = _read(example, column, where)
            if column.is_image:
                images[column.key] = values
                continue
            assert isinstance(values, np.ndarray)
            arrays[column.key] = values if column.is_step else np.repeat(values, length, axis=0)
        return RawEpisode(arrays, images, self._instruction(example, where), source=where)

    def _instruction(self, example: Mapping[str, Feature], where: str) -> str | None:
        for key in _INSTRUCTIONS:
            column = self._columns.get(key)
            if column is not None and column.kind == "text" and column.shape == ():
                _num_steps(example, column, where)
                texts = _read(example, column, where)
                assert isinstance(texts, np.ndarray)
                if len(texts) and texts[0].strip():
                    return str(texts[0])
        return None


def _num_steps(example: Mapping[str, Feature], column: Column, where: str) -> int:
    if column.name not in example:
        near = did_you_mean(column.name, example)
        raise ValueError(f"{where}: {column.key} is missing, there is no '{column.name}'{near}")
    try:
        return column.num_steps(example[column.name])
    except ValueError as error:
        raise ValueError(f"{where}: {column.key} {error}") from error


def _read(example: Mapping[str, Feature], column: Column, where: str) -> np.ndarray | EncodedImages:
    try:
        return column.read(example[column.name])
    except ValueError as error:
        raise ValueError(f"{where}: {column.key} {error}") from error


def _version_directory(path: Path) -> Path:
    if not path.is_dir():
        raise ValueError(f"no directory {path}; it should hold {_INFO} and {_FEATURES}")
    if (path / _INFO).is_file() or (path / _FEATURES).is_file():
        return path
    below = [
        file.parent for stars in ("*", "*/*", "*/*/*") for file in path.glob(f"{stars}/{_INFO}")
    ]
    if not below:
        raise ValueError(f"no {_INFO} in {path} or up to three levels below, so this is not TFDS")
    if len(below) > 1:
        raise ValueError(
            f"{path} holds {len(below)} datasets or versions; name one: "
            + ", ".join(str(directory) for directory in sorted(below))
        )
    return below[0]


def _read_info(path: Path) -> dict:
    info = read_object(path)
    splits = info.get("splits", [])
    if not isinstance(splits, list) or not all(isinstance(s, dict) and "name" in s for s in splits):
        raise ValueError(f"{path}: 'splits' is not a list of splits with names; {_AGAIN}")
    return {**info, "splits": splits, "fileFormat": info.get("fileFormat") or "tfrecord"}


def _reader(info: Mapping, path: Path) -> typing.Callable[[Path], Iterator[bytes]]:
    name = info["fileFormat"]
    if name not in _READERS:
        raise ValueError(
            f"{path}: files of the format '{name}' are not read{did_you_mean(name, _READERS)}"
        )
    return _READERS[name]


def _fill_in(template: str, names: Mapping[str, str], path: Path) -> str:
    def value(match: re.Match) -> str:
        if match[1] not in names:
            raise ValueError(
                f"{path}: filepathTemplate has the unknown part {match[0]}"
                f"{did_you_mean(match[1], names)}"
            )
        return names[match[1]]

    name = re.sub(r"\{(\w*)\}", value, template)
    parts = PurePosixPath(name).parts
    if not parts or parts[0] == "/" or ".." in parts or "\0" in name:
        raise ValueError(f"{path} names the file {name!r}, which lies outside the dataset")
    return name
