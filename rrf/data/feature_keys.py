"""The names of a dataset's features: our own names, or the names that a reader is given.

Datasets of others may call the state "state", the action "actions", or a camera "image".
"""

import dataclasses
from collections.abc import Mapping, Sequence

from rrf.config import did_you_mean
from rrf.data import lerobot_layout as layout
from rrf.data.depth import is_depth
from rrf.data.image_store import Cameras
from rrf.data.schema import ACTION, IMAGE_PREFIX, SCALARS, STATE, Schema

_VECTORS = (STATE, ACTION, *SCALARS)


@dataclasses.dataclass(frozen=True)
class FeatureKeys:
    """The features of a dataset that are read."""

    schema: Schema
    own: Mapping[str, str]  # our key -> the dataset's
    cameras: Cameras


def feature_keys(
    info: dict, keys: Mapping[str, str] | None = None, cameras: Sequence[str] | None = None
) -> FeatureKeys:
    """Find the features in an info.json.

    Args:
        info: The info.json.
        keys: Our key -> the dataset's key, where they differ: {"action": "actions",
            "observation.images.front": "image"}.
        cameras: Only these cameras; all by default.

    Raises:
        ValueError: For a key or camera that does not exist (with the closest one that does), if
            state or action is missing, or if cameras differ in size.
    """
    features, own = info["features"], dict(keys or {})
    for ours, theirs in own.items():
        if ours not in _VECTORS and not ours.startswith(IMAGE_PREFIX):
            hint = did_you_mean(ours, (*_VECTORS, f"{IMAGE_PREFIX}NAME"))
            raise ValueError(f"keys: '{ours}' is not one of our keys{hint}")
        if theirs not in features:
            hint = did_you_mean(theirs, features)
            raise ValueError(f"keys: {ours}: the dataset has no feature '{theirs}'{hint}")
        if ours not in _VECTORS:
            _check_rgb(ours.removeprefix(IMAGE_PREFIX), theirs, features[theirs])
    taken = set(own.values())
    for key in features:
        if key not in own and key not in taken and (key in _VECTORS or _is_image(features, key)):
            own[key] = key
    known = [key.removeprefix(IMAGE_PREFIX) for key in own if key.startswith(IMAGE_PREFIX)]
    for camera in cameras or ():
        key = f"{IMAGE_PREFIX}{camera}"
        if key not in own and key in features:
            _check_rgb(camera, key, features[key])
        if camera not in known:
            raise ValueError(f"no camera '{camera}'{did_you_mean(camera, known)}")
    if cameras is not None:
        dropped = {f"{IMAGE_PREFIX}{camera}" for camera in known if camera not in cameras}
        own = {ours: theirs for ours, theirs in own.items() if ours not in dropped}
    for key in (STATE, ACTION):
        if key not in own:
            raise ValueError(
                f"the dataset has no feature '{key}'; it has: {', '.join(features)}. If one of "
                f"these is meant, write: keys={{'{key}': ...}}"
            )
    schema = layout.schema_of(
        info | {"features": {o: features[theirs] for o, theirs in _in_order(own, features)}}
    )
    places = {camera: own[f"{IMAGE_PREFIX}{camera}"] for camera in schema.cameras}
    return FeatureKeys(schema, own, Cameras(places, schema.image_size, schema.fps))


def _is_image(features: dict, key: str) -> bool:
    is_image = key.startswith(IMAGE_PREFIX) and features[key]["dtype"] in ("image", "video")
    return is_image and not is_depth(features[key])


def _check_rgb(camera: str, key: str, feature: Mapping) -> None:
    if is_depth(feature):
        raise ValueError(
            f"camera '{camera}' is {key}, a depth map, which no policy sees; leave it out of the "
            f"cameras (LeRobotReader(maps=['{key.removeprefix(IMAGE_PREFIX)}']) gives its depth)"
        )


def _in_order(own: Mapping[str, str], features: dict) -> list[tuple[str, str]]:
    """Pairs in the order of the dataset's features."""
    order = list(features)
    return sorted(own.items(), key=lambda pair: order.index(pair[1]))
