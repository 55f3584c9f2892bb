"""GR00T's meta/modality.json: which parts of the state and action vectors are which limb.

    {"state":  {"left_arm": {"start": 0, "end": 7}, ...},      slices of observation.state
     "action": {"left_arm": {"start": 0, "end": 7}, ...},      slices of action
     "video":  {"front": {"original_key": "observation.images.front"}},
     "annotation": {"human.task_description": {"original_key": "task_index"}}}

A slice may also name `original_key` (another feature), `rotation_type`, `absolute`, `dtype` and
`range`; they are kept as they are. Defaults and names are those of gr00t/data/schema.py (N1.5).
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from rrf import atomic
from rrf.data.formats.json_files import read_object
from rrf.data.schema import ACTION, IMAGE_PREFIX, STATE, Schema

PATH = "meta/modality.json"
TASK_ANNOTATION = "human.task_description"
Groups = Mapping[str, Sequence[int]]  # name -> (start, end)


@dataclasses.dataclass(frozen=True)
class Part:
    """A named slice of a vector feature."""

    start: int
    end: int  # exclusive
    original_key: str  # the feature
    rotation_type: str | None = None  # "quaternion", "axis_angle", ...
    absolute: bool = True
    dtype: str = "float64"
    range: tuple[float, float] | None = None  # smallest and largest value


@dataclasses.dataclass(frozen=True)
class Modality:
    """What a modality.json says."""

    state: dict[str, Part]
    action: dict[str, Part]
    video: dict[str, str]  # name -> feature
    annotation: dict[str, str]  # name -> column of task indices


def read_modality(root: str | Path) -> Modality | None:
    """`meta/modality.json` of a dataset, None if it has none.

    Raises ValueError naming file and entry if it is damaged.
    """
    path = Path(root) / PATH
    if not path.is_file():
        return None
    data = read_object(path)
    entries = {kind: _entries(data, kind, path) for kind in ("state", "action", "video")}
    entries["annotation"] = _entries(data, "annotation", path, is_required=False)
    return Modality(
        state=_parts(entries["state"], "state", STATE, path),
        action=_parts(entries["action"], "action", ACTION, path),
        video=_original_keys(entries["video"], "video", IMAGE_PREFIX, path),
        annotation=_original_keys(entries["annotation"], "annotation", "annotation.", path),
    )


def write_modality(root: str | Path, modality: Modality) -> None:
    """Write `meta/modality.json`; what equals GR00T's defaults is left out."""
    data = {
        "state": {name: _plain(part, STATE) for name, part in modality.state.items()},
        "action": {name: _plain(part, ACTION) for name, part in modality.action.items()},
        "video": {name: {"original_key": key} for name, key in modality.video.items()},
        "annotation": {name: {"original_key": key} for name, key in modality.annotation.items()},
    }
    atomic.write_json(Path(root) / PATH, data)


def modality_of(
    schema: Schema, state_groups: Groups | None = None, action_groups: Groups | None = None
) -> Modality:
    """The modality of a dataset of `schema`.

    Args:
        schema: What the dataset holds.
        state_groups: Name -> (start, end) of the state's parts; by default neighbours whose names
            agree up to the last "_" ("left_arm_0", "left_arm_1") are a part.
        action_groups: The same for the action.

    Raises:
        ValueError: If groups lie outside the vector, or if a default part is in two pieces.
    """
    return Modality(
        state=_group(schema.state.names, state_groups, STATE),
        action=_group(schema.action.names, action_groups, ACTION),
        video={camera: f"{IMAGE_PREFIX}{camera}" for camera in schema.cameras},
        annotation={TASK_ANNOTATION: "task_index"},
    )


def _group(names: tuple[str, ...], groups: Groups | None, key: str) -> dict[str, Part]:
    parts: dict[str, Part] = {}
    if groups is not None:
        for name, bounds in groups.items():
            if len(bounds) != 2 or not 0 <= bounds[0] < bounds[1] <= len(names):
                raise ValueError(
                    f"part '{name}' of {key} is {list(bounds)}, must be [start, end] within "
                    f"0..{len(names)}"
                )
            parts[name] = Part(bounds[0], bounds[1], key)
        return parts
    start = 0
    for prefix, members in itertools.groupby(names, key=_prefix):
        end = start + len(list(members))
        if prefix in parts:
            raise ValueError(
                f"the names of {key} begin with '{prefix}_' in two places (dimensions "
                f"{parts[prefix].start} and {start}); give the parts as name: [start, end]"
            )
        parts[prefix] = Part(start, end, key)
        start = end
    return parts


def _prefix(name: str) -> str:
    """ "left_arm_0" -> "left_arm", "gripper" -> "gripper", numbered dimensions -> "all"."""
    return name.rpartition("_")[0] or ("all" if name.isdigit() else name)


def _entries(data: dict, kind: str, path: Path, is_required: bool = True) -> dict[str, dict]:
    entries = data.get(kind, None if is_required else {})
    if not isinstance(entries, dict):
        raise ValueError(f"{path} has no mapping '{kind}'")
    for name, entry in entries.items():
        if not isinstance(entry, dict):
            raise ValueError(f"{path}: {kind}.{name} must be a mapping, found {entry!r}")
    return entries


def _parts(entries: dict[str, dict], kind: str, feature: str, path: Path) -> dict[str, Part]:
    parts = {}
    for name, entry in entries.items():
        start, end = entry.get("start"), entry.get("end")
        if type(start) is not int or type(end) is not int or not 0 <= start < end:
            raise ValueError(
                f"{path}: {kind}.{name} goes from {start!r} to {end!r}, must be whole numbers with "
                "0 <= start < end"
            )
        limits = entry.get("range")
        if limits is not None and not (
            isinstance(limits, list)
            and len(limits) == 2
            and all(type(limit) in (int, float) for limit in limits)
        ):
            raise ValueError(f"{path}: range of {kind}.{name} is {limits!r}, must be two numbers")
        parts[name] = Part(
            start=start,
            end=end,
            original_key=_text(entry, "original_key", f"{path}: {kind}.{name}") or feature,
            rotation_type=_text(entry, "rotation_type", f"{path}: {kind}.{name}"),
            absolute=bool(entry.get("absolute", True)),
            dtype=_text(entry, "dtype", f"{path}: {kind}.{name}") or "float64",
            range=(limits[0], limits[1]) if limits is not None else None,
        )
    return parts


def _original_keys(entries: dict[str, dict], kind: str, prefix: str, path: Path) -> dict[str, str]:
    return {
        name: _text(entry, "original_key", f"{path}: {kind}.{name}") or f"{prefix}{name}"
        for name, entry in entries.items()
    }


def _text(entry: dict, key: str, where: str) -> str | None:
    value = entry.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{where}: {key} is {value!r}, must be text")
    return value


def _plain(part: Part, feature: str) -> dict:
    default = Part(part.start, part.end, feature)
    fields = {"start": part.start, "end": part.end}
    return fields | {
        field.name: getattr(part, field.name)
        for field in dataclasses.fields(part)
        if getattr(part, field.name) != getattr(default, field.name)
    }
