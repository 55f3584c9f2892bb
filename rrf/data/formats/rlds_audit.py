"""What RLDS datasets claim and do not hold, as seen in published ones: splits that share their
episodes, flags that deny images which are there, cameras that were never connected, numbers of
episodes that are not unique.
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


def shared_records(shards: Mapping[str, Sequence[Path]]) -> list[str]:
    """Pairs of splits that hold the same records, in a sentence each.

    Records are told apart by length and CRC-32C, which stand in a tfrecord file beside the content,
    so none of it is read.

    Args:
        shards: Split -> its tfrecord files.
    """
    prints = {
        split: [mark for path in paths if path.is_file() for mark in fingerprints(path)]
        for split, paths in shards.items()
    }
    found = []
    for one, other in itertools.combinations(prints, 2):
        known = set(prints[one])
        shared = sum(mark in known for mark in prints[other])
        if shared:
            found.append(
                f"{shared} of the {len(prints[other])} episodes of split '{other}' are in split "
                f"'{one}' too"
            )
    return found


class Metadata:
    """What stands beside the steps of a shard's episodes, and contradicts them or itself.

    Args:
        columns: All keys of the dataset.
        asked: Those that are read.
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
        """What `oddities` needs."""
        return [column for column, _ in self.flags] + self.numbers

    def oddities(self, values: Mapping[str, typing.Any], number: int) -> Iterator[str]:
        """What is odd about an episode, the same words for the same fault.

        Args:
            values: Key -> items of the `columns`, as far as the episode has them.
            number: Of the episode, within the shard.
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


def unconnected_cameras(columns: Sequence[Column], example: Mapping[str, Feature]) -> Iterator[str]:
    """Which of the cameras, which nobody asked for, show one colour throughout an episode."""
    for column in columns:
        blobs = example[column.name].blobs() if column.name in example else []
        if blobs and all(blob == blobs[0] for blob in blobs) and _shows_one_colour(blobs[0]):
            yield f"{column.key}, which is not read, shows nothing but one colour"


def _shows_one_colour(blob: bytes) -> bool:
    try:
        image = decode_image(blob)
    except ValueError:
        return False  # damage is told when it is asked for
    return bool((image == image[0, 0]).all())


def _last(column: Column) -> str:
    return column.key.rpartition("/")[2]
