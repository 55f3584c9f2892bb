"""Claims of RLDS datasets that do not match their content.

These were seen in published datasets: splits that share their episodes, flags that deny images
which exist, cameras that were never connected, and episode numbers that are not unique.
"""

import itertools
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from rrf.data.formats.rlds_features import Column
from rrf.data.formats.tf_example import Feature
from rrf.data.formats.tfrecord import fingerprints
from rrf.data.images import decode_image

_FLAG = "has_"
_NUMBER = "_id"
_SUCCESS = ("success", "is_success")


def shared_records(shards: Mapping[str, Sequence[Path]]) -> list[str]:
    """Pairs of splits that hold the same records, one sentence for each pair.

    Records are identified by length and CRC-32C. A tfrecord file stores both beside the content, so
    no content is read.

    Args:
        shards: Split -> its tfrecord files.
    """
    prints = {
        split: [mark for path in paths if path.is_file() for mark in fingerprints(path)]
        for split, paths in shards.items()
    }
    messages = []
    for first, second in itertools.combinations(prints, 2):
        known = set(prints[first])
        shared = sum(mark in known for mark in prints[second])
        if shared:
            messages.append(
                f"{shared} of the {len(prints[second])} episodes of split '{second}' are in split "
                f"'{first}' too"
            )
    return messages


class Metadata:
    """Finds values beside the steps of a shard's episodes that contradict the steps or each other.

    Args:
        columns: All keys of the dataset.
        asked: The columns that are read.
    """

    def __init__(self, columns: Mapping[str, Column], asked: Sequence[Column]):
        beside = [column for column in columns.values() if not column.is_step]
        names = {column.key.rpartition("/")[2]: column for column in asked if column.is_image}
        self.flags = [
            (column, names[_last(column).removeprefix(_FLAG)].key)
            for column in beside
            if _last(column).startswith(_FLAG) and _last(column).removeprefix(_FLAG) in names
        ]
        self.numbers = [column for column in beside if _last(column).endswith(_NUMBER)]
        self._seen: dict[tuple[str, str], int] = {}

    @property
    def columns(self) -> list[Column]:
        """The columns that `oddities` needs."""
        return [column for column, _ in self.flags] + self.numbers

    def oddities(self, values: Mapping[str, typing.Any], number: int) -> Iterator[str]:
        """What is odd about an episode. The same fault always gives the same words.

        Args:
            values: Key -> items, for those of the `columns` that the episode has.
            number: The episode's number within the shard.
        """
        said = {key: np.asarray(items).tolist() for key, items in values.items() if len(items)}
        for column, image in self.flags:
            if column.key in said and not any(said[column.key]):
                yield f"{column.key} is false for episodes whose {image} is there"
        for column in self.numbers:
            if column.key in said:
                mark = (column.key, str(said[column.key]))
                first = self._seen.setdefault(mark, number)
                if first != number:
                    yield f"{column.key} is the same for several episodes"


def success_signs(columns: Mapping[str, Column], has_reward: bool) -> list[Column]:
    """The columns, of steps or beside them, that say of an episode whether it succeeded."""
    names = (*_SUCCESS, "reward") if has_reward else _SUCCESS
    flags = [column for column in columns.values() if _last(column) in names]
    return [column for column in flags if column.kind == "numbers" and not any(column.shape)]


def unconnected_cameras(columns: Sequence[Column], example: Mapping[str, Feature]) -> Iterator[str]:
    """The cameras that are not read and show a single colour throughout an episode."""
    for column in columns:
        blobs = example[column.name].blobs() if column.name in example else []
        if blobs and all(blob == blobs[0] for blob in blobs) and _shows_one_colour(blobs[0]):
            yield f"{column.key}, which is not read, shows nothing but one colour"


def _shows_one_colour(blob: bytes) -> bool:
    try:
        image = decode_image(blob)
    except ValueError:
        return False  # damage is reported when the image is read
    return bool((image == image[0, 0]).all())


def _last(column: Column) -> str:
    return column.key.rpartition("/")[2]
