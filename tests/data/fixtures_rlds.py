"""Small TFDS directories, written byte by byte from the documented formats: TFRecord framing,
protobuf wire format of `tf.train.Example`, features.json and dataset_info.json.
"""

import io
import json
import struct
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = 8
PREFIX = "tensorflow_datasets.core.features."


def crc32c_byte_by_byte(data: bytes) -> int:
    """RFC 3720's checksum by the usual table."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _divide(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value


TABLE = [_divide(value) for value in range(256)]


def frame(data: bytes) -> bytes:
    """A record of a TFRecord file."""
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def encode_example(values: dict[str, list]) -> bytes:
    """A `tf.train.Example` with a list of bytes, floats or integers under each name."""
    entries = b""
    for name, items in values.items():
        if items and isinstance(items[0], bytes):
            kind, content = 1, b"".join(_field(1, item) for item in items)
        elif items and isinstance(items[0], float):
            kind, content = 2, _field(1, struct.pack(f"<{len(items)}f", *items))
        else:
            kind, content = 3, _field(1, b"".join(_varint(int(item) % 2**64) for item in items))
        feature = _field(kind, content)
        entries += _field(1, _field(1, name.encode()) + _field(2, feature))
    return _field(1, entries)


def draw_jpeg(value: int, size: int = SIZE, file_format: str = "jpeg") -> bytes:
    """An image of one grey."""
    file = io.BytesIO()
    Image.fromarray(np.full((size, size, 3), value, np.uint8)).save(file, file_format)
    return file.getvalue()


def tensor(dtype: str, *shape: int, encoding: str = "none") -> dict:
    dimensions = {"dimensions": [str(size) for size in shape]} if shape else {}
    return {
        "pythonClassName": PREFIX + ("tensor_feature.Tensor" if shape else "scalar.Scalar"),
        "tensor": {"shape": dimensions, "dtype": dtype, "encoding": encoding},
    }


def image(*shape: int, dtype: str = "uint8") -> dict:
    dimensions = {"dimensions": [str(size) for size in shape or (SIZE, SIZE, 3)]}
    return {
        "pythonClassName": PREFIX + "image_feature.Image",
        "image": {"shape": dimensions, "dtype": dtype, "encodingFormat": "jpeg"},
    }


def text() -> dict:
    return {"pythonClassName": PREFIX + "text_feature.Text", "text": {}}


def video() -> dict:
    return {"pythonClassName": PREFIX + "video_feature.Video", "video": {"shape": {}}}


def features_dict(features: dict) -> dict:
    return {
        "pythonClassName": PREFIX + "features_dict.FeaturesDict",
        "featuresDict": {"features": features},
    }


def sequence(feature: dict, length: int = -1, name: str = "sequence_feature.Sequence") -> dict:
    return {
        "pythonClassName": PREFIX + name,
        "sequence": {"feature": feature, "length": str(length)},
    }


def episodes_of(steps: dict, **others: dict) -> dict:
    """features.json of episodes with these steps."""
    steps = sequence(features_dict(steps), name="dataset_feature.Dataset")
    return features_dict({"steps": steps, **others})


TOY = episodes_of(
    {
        "action": tensor("float32", 3),
        "is_first": tensor("bool"),
        "language_instruction": text(),
        "observation": features_dict({"front": image(), "state": tensor("float64", 2)}),
        "phase": tensor("int32"),
    },
    episode_metadata=features_dict({"file_path": text(), "success": tensor("bool")}),
)


def toy_episode(index: int, num_steps: int, **changes: list) -> dict[str, list]:
    """The Example of an episode of `TOY`; `changes` has "__" for "/"."""
    steps = range(num_steps)
    values = {
        "steps/action": [value for t in steps for value in (t / 4, -float(index), 0.5)],
        "steps/is_first": [int(t == 0) for t in steps],
        "steps/language_instruction": [f"öffne {index}".encode()] * num_steps,
        "steps/observation/front": [draw_jpeg(10 * index + t) for t in steps],
        "steps/observation/state": [value for t in steps for value in (float(t), index + 0.25)],
        "steps/phase": [-3 if t % 2 else 300 * t for t in steps],
        "episode_metadata/file_path": [f"/recordings/{index}.npy".encode()],
        "episode_metadata/success": [1],
    }
    return values | {name.replace("__", "/"): items for name, items in changes.items()}


def write_rlds(
    directory: Path, splits: dict[str, list[list[dict]]], features: dict = TOY, **info
) -> Path:
    """A version directory: `splits` has, for each split, shards of Examples' values.

    Args:
        directory: Where to.
        splits: Split -> shards -> episodes.
        features: Content of features.json.
        info: What dataset_info.json has beside or instead of the defaults.
    """
    directory.mkdir(parents=True)
    described = []
    for split, shards in splits.items():
        lengths = [str(len(episodes)) for episodes in shards]
        described.append({"name": split, "shardLengths": lengths})
        for index, episodes in enumerate(shards):
            file = directory / f"toy-{split}.tfrecord-{index:05d}-of-{len(shards):05d}"
            file.write_bytes(b"".join(frame(encode_example(values)) for values in episodes))
    content = {"name": "toy", "version": "1.0.0", "fileFormat": "tfrecord", "splits": described}
    (directory / "dataset_info.json").write_text(json.dumps(content | info))
    (directory / "features.json").write_text(json.dumps(features))
    return directory


def _masked(data: bytes) -> bytes:
    crc = crc32c_byte_by_byte(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
