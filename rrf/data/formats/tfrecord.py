"""TFRecord files, without TensorFlow.

A record consists of a uint64 length, the length's masked CRC-32C as uint32, the data, and the
data's masked CRC-32C, all little-endian (https://www.tensorflow.org/tutorials/load_data/tfrecord).
Both checksums are verified. A file that is compressed as a whole (GZIP, ZLIB) is not read.

CRC-32C (Castagnoli, RFC 3720 appendix B.4) is computed in numpy. Over GF(2) a message is a
polynomial, and its CRC is a remainder modulo P. Adding a multiple of P does not change the
remainder. So a sparse multiple of P can move the front of a message backwards with a few XORs of
whole blocks, without any table look-up. The idea is from Chorba (arXiv:2412.16398), whose multiples
belong to another P. For this P, multiples with four terms start at degree 5275. We use

    x^5685 + x^1362 + x^426 + 1 = 0 (mod P)

which we found by searching for a wide gap below the leading term: the gap is the block that is
moved at once. Squaring keeps it true, x^(5685 w) + x^(1362 w) + x^(426 w) + 1 = 0 for every w that
is a power of 2, so the same exponents also count bytes, or 64 bytes. The last 5685 bytes are
multiplied bit by bit with the remainders of their powers of x.
"""

import functools
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

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


_POLYNOMIAL = 0x82F63B78  # P without x^32, lowest bit first
_ALL_ONES = 0xFFFFFFFF
_DEGREE = 5685
_SHIFTS = (_DEGREE - 1362, _DEGREE - 426, _DEGREE)  # how far back a moved block is added
_WIDTHS = (64, 16, 4, 1)  # bytes that one exponent stands for, in turn
_SHORT = 64  # bytes; below, one look-up per byte is as fast


def crc32c(data: bytes) -> int:
    """The checksum of some bytes, 0xE3069283 for b"123456789"."""
    if len(data) <= _SHORT:
        return _crc32c_of_few(data)
    rest = np.frombuffer(data, np.uint8).copy()
    rest[:4] ^= 0xFF  # the register starts with all ones
    for width in _WIDTHS:
        rest = _move_front_back(rest, width)
    bits = np.unpackbits(rest, bitorder="little")
    remainders = _remainders_of_powers()[-len(bits) :]
    return int(np.bitwise_xor.reduce(bits * remainders)) ^ _ALL_ONES


def masked_crc32c(data: bytes) -> int:
    """The checksum as the TFRecord format stores it, rotated and shifted."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & _ALL_ONES


def _move_front_back(rest: np.ndarray, width: int) -> np.ndarray:
    """Move the front of `rest` backwards, in place, so that the remainder stays the same.

    Returns the last bytes, at most 5685 * width.
    """
    shifts = [shift * width for shift in _SHIFTS]
    end = len(rest) - _DEGREE * width
    start = 0
    while start < end:
        stop = min(start + shifts[0], end)
        block = rest[start:stop]
        for shift in shifts:
            rest[start + shift : stop + shift] ^= block
        start = stop
    return rest[start:]


def _crc32c_of_few(data: bytes) -> int:
    table, crc = _remainders_of_bytes(), _ALL_ONES
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ _ALL_ONES


@functools.cache
def _remainders_of_bytes() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = _times_x(value)
        table.append(value)
    return table


@functools.cache
def _remainders_of_powers() -> np.ndarray:
    """x^(32 + n) mod P for n = 8 * 5685 - 1 down to 0, uint32."""
    remainders = np.empty(8 * _DEGREE, np.uint32)
    value = _POLYNOMIAL
    for index in reversed(range(len(remainders))):
        remainders[index] = value
        value = _times_x(value)
    return remainders


def _times_x(value: int) -> int:
    return (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
