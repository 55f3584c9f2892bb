"""`tf.train.Example` messages, without TensorFlow.

An Example is a map from names to lists of bytes, floats or integers. Its protobuf classes are built
here from the field numbers in tensorflow/core/example/{example,feature}.proto.
"""

import functools
from collections.abc import Iterator, Mapping

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

_FIELD = descriptor_pb2.FieldDescriptorProto
_LISTS = {  # name in Feature -> its message, the type of its items
    "bytes_list": ("BytesList", _FIELD.TYPE_BYTES),
    "float_list": ("FloatList", _FIELD.TYPE_FLOAT),
    "int64_list": ("Int64List", _FIELD.TYPE_INT64),
}


def parse_example(data: bytes) -> Mapping[str, "Feature"]:
    """The lists of an Example, by name. Raises ValueError if the bytes are not an Example."""
    example = _example_class()()
    try:
        example.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"{len(data)} bytes that are not a tf.train.Example ({error})") from error
    return _Features(example)


class Feature:
    """One of an Example's lists."""

    def __init__(self, message):
        self.kind: str = message.WhichOneof("kind") or "empty"
        self._list = None if self.kind == "empty" else getattr(message, self.kind)

    def __len__(self) -> int:
        return 0 if self._list is None else len(self._list.value)

    def blobs(self) -> list[bytes]:
        """The items of a bytes_list."""
        return [] if self._list is None else list(self._list.value)

    def numbers(self) -> np.ndarray:
        """The items of a float_list as float32, or of an int64_list as int64; maybe read-only.

        Both lists are taken from their serialised form. For floats, and for integers from 0 to 127,
        this form contains the array itself, so no item becomes a Python object.
        """
        count = len(self)
        if self._list is None or count == 0:
            return np.empty(0, np.float32 if self.kind == "float_list" else np.int64)
        wire = self._list.SerializeToString()
        if self.kind == "float_list":
            return np.frombuffer(wire, "<f4", offset=len(wire) - 4 * count)
        if len(wire) == 1 + (count.bit_length() + 6) // 7 + count:  # tag, size, a byte per item
            return np.frombuffer(wire, np.uint8, offset=len(wire) - count).astype(np.int64)
        return np.fromiter(self._list.value, np.int64, count)


class _Features(Mapping[str, Feature]):
    def __init__(self, example: Message):
        self._features = example.features.feature  # type: ignore[attr-defined]

    def __getitem__(self, name: str) -> Feature:
        if name not in self._features:  # a look-up in the map would create an empty one
            raise KeyError(name)
        return Feature(self._features[name])

    def __contains__(self, name: object) -> bool:
        return name in self._features

    def __iter__(self) -> Iterator[str]:
        return iter(self._features)

    def __len__(self) -> int:
        return len(self._features)


@functools.cache
def _example_class() -> type[Message]:
    file = descriptor_pb2.FileDescriptorProto(
        name="rrf_example.proto", package="rrf", syntax="proto3"
    )
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, (list_name, item)) in enumerate(_LISTS.items(), start=1):
        message = file.message_type.add(name=list_name)
        message.field.add(name="value", number=1, type=item, label=_FIELD.LABEL_REPEATED)
        _add_message(feature, name, number, list_name, oneof_index=0)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
    _add_message(entry, "value", 2, "Feature")
    _add_message(features, "feature", 1, "Features.FeatureEntry", label=_FIELD.LABEL_REPEATED)
    _add_message(file.message_type.add(name="Example"), "features", 1, "Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("rrf.Example"))


def _add_message(
    owner: descriptor_pb2.DescriptorProto, name: str, number: int, type_name: str, **attributes
) -> None:
    attributes = {"label": _FIELD.LABEL_OPTIONAL} | attributes
    owner.field.add(
        name=name,
        number=number,
        type=_FIELD.TYPE_MESSAGE,
        type_name=f".rrf.{type_name}",
        **attributes,
    )
