"""Batches of observations: choose rows, join batches, compute digests, send them to processes."""

import hashlib
import typing
from collections.abc import Sequence

import numpy as np

from rrf.data.schema import Observation

_IMAGE, _MAP = "image/", "map/"
_WORDS = ("instruction", "robots")
_NUMBERS = ("advantage", "seen_steps_ago")  # of each row, or None


def rows_of(observation: Observation, rows: np.ndarray | Sequence[int]) -> Observation:
    """The given rows of an observation, copied."""
    rows = np.asarray(rows, dtype=np.int64)
    robots = observation.robots
    return Observation(
        images={camera: images[rows] for camera, images in observation.images.items()},
        state=observation.state[rows],
        instruction=[observation.instruction[row] for row in rows],
        maps={name: values[rows] for name, values in observation.maps.items()},
        robots=None if robots is None else [robots[row] for row in rows],
        **{name: values[rows] for name, values in _numbers(observation).items()},
    )


def _numbers(observation: Observation) -> dict[str, np.ndarray]:
    """The optional fields with a number for each row, without those that are None."""
    given = {name: getattr(observation, name) for name in _NUMBERS}
    return {name: values for name, values in given.items() if values is not None}


def join(observations: Sequence[Observation]) -> Observation:
    """All rows of the given observations (at least one), one after another. They have the same
    fields."""
    first = observations[0]
    tags = [part.robots for part in observations if part.robots is not None]
    given = [_numbers(part) for part in observations]
    assert len(tags) in (0, len(observations)), "only some of them say of which robot they are"
    assert all(part.keys() == given[0].keys() for part in given), "they have different fields"
    return Observation(
        images={
            camera: np.concatenate([part.images[camera] for part in observations])
            for camera in first.images
        },
        state=np.concatenate([part.state for part in observations]),
        instruction=[text for part in observations for text in part.instruction],
        maps={
            name: np.concatenate([part.maps[name] for part in observations]) for name in first.maps
        },
        robots=[tag for part in tags for tag in part] if tags else None,
        **{name: np.concatenate([part[name] for part in given]) for name in given[0]},
    )


def padded(observation: Observation, num_rows: int) -> Observation:
    """The observation with its first row repeated at the end, up to `num_rows`."""
    missing = num_rows - len(observation)
    assert missing >= 0, "there are more rows than asked for"
    return rows_of(observation, [*range(len(observation)), *[0] * missing])


def digest(observation: Observation, row: int) -> str:
    """Hex digest of everything that a policy sees in one row."""
    content = hashlib.blake2b(digest_size=16)
    for camera in sorted(observation.images):
        content.update(np.ascontiguousarray(observation.images[camera][row]).tobytes())
    content.update(observation.state[row].tobytes())
    content.update(observation.instruction[row].encode())
    for name, values in sorted((observation.maps | _numbers(observation)).items()):
        content.update(f"{name}\n".encode() + np.ascontiguousarray(values[row]).tobytes())
    if observation.robots is not None:
        content.update(observation.robots[row].encode())
    return content.hexdigest()


def to_plain(observation: Observation) -> dict[str, typing.Any]:
    """An observation as builtins and arrays."""
    images = {f"{_IMAGE}{camera}": images for camera, images in observation.images.items()}
    maps = {f"{_MAP}{name}": values for name, values in observation.maps.items()}
    plain = {"state": observation.state, "instruction": observation.instruction}
    robots = {} if observation.robots is None else {"robots": observation.robots}
    return images | maps | plain | robots | _numbers(observation)


def from_plain(plain: dict[str, typing.Any]) -> Observation:
    """The inverse of `to_plain`."""
    images, maps = (
        {name.removeprefix(kind): values for name, values in plain.items() if name.startswith(kind)}
        for kind in (_IMAGE, _MAP)
    )
    words = {name: [str(text) for text in plain[name]] for name in _WORDS if name in plain}
    return Observation(
        images, plain["state"], maps=maps, **words, **{n: plain[n] for n in _NUMBERS if n in plain}
    )
