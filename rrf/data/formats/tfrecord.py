"""TFRecord files, without TensorFlow.

A record consists of a uint64 length, the length's masked CRC-32C as uint32, the data, and the
data's masked CRC-32C, all little-endian (https://www.tensorflow.org/tutorials/load_data/tfrecord).
Both checksums are verified. A file that is compressed as a whole (GZIP, ZLIB) is not read.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from rrf.data.formats.crc32c import masked_crc32c

_HEADER = struct.Struct("<QI")  # length, its checksum
_CHECKSUM = struct.Struct("<I")
_AGAIN = "copy the file again from where it came"


def read_tfrecord(path: Path) -> Iterator[bytes]:
    """The records of a file, one in memory at a time.

    Raises:
        ValueError: For a file that ends within a record, and for a wrong checksum; the message
            names file, record and byte offset.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        offset = number = 0
        while offset < size:
            where = f"{path}: record {number} at byte {offset}"
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                raise ValueError(f"{where} is cut off within its length; {_AGAIN}")
            length, checksum = _HEADER.unpack(header)
            if masked_crc32c(header[:8]) != checksum:
                raise ValueError(
                    f"{where}: the length {length} does not match its CRC, so this is not a "
                    f"tfrecord file, or a damaged one; {_AGAIN}"
                )
            missing = offset + _HEADER.size + length + _CHECKSUM.size - size
            if missing > 0:
                raise ValueError(f"{where} is cut off, {missing} bytes are missing; {_AGAIN}")
            data = file.read(length)
            (checksum,) = _CHECKSUM.unpack(file.read(_CHECKSUM.size))
            if masked_crc32c(data) != checksum:
                raise ValueError(f"{where}: {length} bytes do not match their CRC; {_AGAIN}")
            yield data
            offset += _HEADER.size + length + _CHECKSUM.size
            number += 1


def fingerprints(path: Path) -> Iterator[tuple[int, int]]:
    """Length and checksum of the data of each record, up to where the file is cut off.

    The data are not read, and nothing is verified.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        while len(head := file.read(_HEADER.size)) == _HEADER.size:
            length, _ = _HEADER.unpack(head)
            if file.tell() + length + _CHECKSUM.size > size:
                return
            file.seek(length, os.SEEK_CUR)
            yield length, _CHECKSUM.unpack(file.read(_CHECKSUM.size))[0]
