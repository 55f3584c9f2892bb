import numpy as np
import pytest

from rrf.data.formats.tfrecord import crc32c, masked_crc32c
from tests.data.fixtures_rlds import crc32c_byte_by_byte


@pytest.mark.parametrize(
    ("data", "checksum"),
    [  # RFC 3720, appendix B.4, and the check value of the CRC catalogue
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
    ],
)
def test_published_checksums(data, checksum):
    assert crc32c(data) == checksum


@pytest.mark.parametrize("size", [64, 65, 5685, 5686, 22_741, 90_961, 363_841])
def test_every_way_of_folding_agrees_with_the_table(size):
    data = np.random.default_rng(size).bytes(size)
    assert crc32c(data) == crc32c_byte_by_byte(data)


def test_one_flipped_bit_anywhere_changes_the_checksum():
    data = bytearray(np.random.default_rng(0).bytes(30_000))
    whole = crc32c(bytes(data))
    for at in (0, 3, 4, 7_000, 24_315, 29_999):
        data[at] ^= 1
        assert crc32c(bytes(data)) != whole
        data[at] ^= 1


def test_the_mask_is_tfrecords():
    # first 12 bytes of a file that TensorFlow wrote, bridge_dataset-train of Octo's debug set
    assert masked_crc32c(bytes.fromhex("0435020000000000")) == 0xA2CF1F8C
