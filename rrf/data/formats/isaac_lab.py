"""Isaac Lab HDF5: demonstrations of its recorder and of Isaac Lab Mimic.

    /                attrs: format_version
    /data            attrs: total, env_args (JSON {"env_name", "type": 2, "sim_args": {dt, ...}})
    /data/demo_<i>   attrs: num_samples, seed, success
        actions [T, A]   processed_actions [T, P]   obs/<term> [T, ...]
        states/{articulation,rigid_object}/<name>/{root_pose, root_velocity, joint_position, ...}
        initial_state/...                           the same tree with one row; not offered

Layout: isaaclab.utils.datasets.HDF5DatasetFileHandler. A reset right after another one leaves a
demonstration with `num_samples` 0, which is left out.

The recorder writes `obs` and `actions` before the step and `states` after it (PreStep- and
PostStep- terms of isaaclab.envs.mdp.recorders), so row t of `states` is what the action of row t
led to. Row t as we return it is what was there before: `initial_state`, then `states` without its
last row. Other tools write `states` before the step, too. In their files every demonstration
begins with its `initial_state`; the states then stay as they are, with a warning, as in files
without `initial_state`. The option `states` says it instead. Validation's `alignment` looks at what
came of it.

The frame rate is the attribute `fps` or
1 / (dt * decimation) of `env_args.sim_args`. The attribute `success` is offered as the key
"success". It is false in every frame but the last one, which has the attribute's value.

Quaternions are always returned as WXYZ (w first). In the file they are XYZW if the attribute
`format_version` of the file or of /data is 1, and WXYZ if it is 0 or missing. In files with
`schema_version` 1.0 the attribute `pose_order` ("xyz_wxyz", "x,y,z,qx,qy,qz,qw") of the dataset, or
of the nearest group above it, decides. These values are reordered:

    root_pose, and what has a `pose_order` of its own   [T, ..., 7] position and quaternion
    *quat, *quats, *orientation, *orientations          [T, ..., 4 n], n quaternions; the name may
                                                        end in a frame, as in root_quat_w

Nothing else is reordered. A quaternion inside `actions` (absolute pose control), or inside an
observation that joins several terms (obs/object), cannot be told from other numbers and stays as it
was recorded. Of schema 1.0 we know only these attributes; its datasets are read like all others.

Isaac Lab's own convert_dataset_to_xyzw sets `format_version` to 1 but reorders only root_pose. The
observations of such a file stay WXYZ, and the file does not say so. For such files there is the
option `observation_quaternions`.
"""

import re
from pathlib import Path
from typing import Literal

import h5py
import numpy as np

from rrf.config import configclass
from rrf.data.formats import hdf5
from rrf.data.formats.robomimic import (
    Demo,
    RobomimicOptions,
    RobomimicSource,
    demos_of,
    success_of,
)

_ORDERS: dict[float, Literal["wxyz", "xyzw"]] = {0: "wxyz", 1: "xyzw"}  # of format_version
_QUATERNIONS = re.compile(r".*(quat|orientation)s?(_[a-z])?")
_SCHEMA = "1.0"
_STATES, _INITIAL = "states/", "initial_state/"
_ROUNDING = 1e-6  # relative and absolute


@configclass
class IsaacLabOptions(RobomimicOptions):
    """`source.options` of the format isaac_lab."""

    observation_quaternions: Literal["wxyz", "xyzw"] | None = None
    """Order of the quaternions below obs/; null follows what the file says."""
    states: Literal["before", "after"] | None = None
    """Whether a row of states/ was recorded before the row's action or after it; null follows
    initial_state. After, in files without one, the first frame of a demonstration is left out."""


class IsaacLabSource(RobomimicSource):
    """Demonstrations of Isaac Lab files; a recording is a file."""

    options_type = IsaacLabOptions

    def __init__(self, path: Path, options: dict):
        super().__init__(path, options)
        self._are_after: dict[str, bool] = {}  # file -> whether its states follow the actions

    def fps(self, demo: Demo) -> float | None:
        fps = super().fps(demo)
        sim = hdf5.json_attribute(demo.data, "env_args", demo.where).get("sim_args")
        if fps is None and isinstance(sim, dict) and "dt" in sim:
            step_s = hdf5.number(sim["dt"], f"{demo.where}: dt in env_args")
            step_s *= hdf5.number(sim.get("decimation", 1), f"{demo.where}: decimation in env_args")
            if step_s <= 0:
                raise ValueError(f"{demo.where}: dt * decimation in env_args is {step_s} s")
            fps = round(1 / step_s, 6)
        return fps

    def describe(self, demo: Demo) -> dict[str, str]:
        keys = {
            key: frame
            for key, frame in super().describe(demo).items()
            if not key.startswith(_INITIAL)
        }
        if success_of(demo) is not None:
            keys.setdefault("success", "bool[]")
        return keys

    def read(self, demo: Demo, key: str) -> np.ndarray:
        dataset = hdf5.find(demo.group, key, demo.where)
        if key == "success" and dataset is None:
            return self._aligned(demo, key, _success_per_frame(demo))
        values = self._aligned(demo, key, super().read(demo, key))
        first = _first_quaternion(key, values, dataset)
        if first is None or self._order(key, dataset, demo) == "wxyz":
            return values
        quaternions = values[..., first:]
        turned = np.roll(quaternions.reshape(*quaternions.shape[:-1], -1, 4), 1, axis=-1)
        return np.concatenate([values[..., :first], turned.reshape(quaternions.shape)], axis=-1)

    def _aligned(self, demo: Demo, key: str, values: np.ndarray) -> np.ndarray:
        """The rows, each with what was there before its action."""
        assert isinstance(self.options, IsaacLabOptions)
        if key.startswith(_STATES):
            if not self._is_after(demo):
                return values
            first = _initial(demo, key)
            return values[:-1] if first is None else np.concatenate([first, values[:-1]])
        is_first_lost = self.options.states == "after" and not _has_initial_state(demo)
        return values[1:] if is_first_lost else values

    def _is_after(self, demo: Demo) -> bool:
        assert isinstance(self.options, IsaacLabOptions)
        if self.options.states is not None:
            return self.options.states == "after"
        path = demo.data.file.filename
        if path not in self._are_after:
            self._are_after[path] = any(map(_is_moved_at_first, demos_of(demo.data, Path(path))))
            if not self._are_after[path]:
                why = "the states begin with" if _has_initial_state(demo) else "there is no"
                self._warnings[
                    f"{path}: states/ are taken as recorded before the actions, because {why} "
                    "initial_state. If they were recorded after them, as by Isaac Lab's recorder, "
                    "write options: {states: after}"
                ] = None
        return self._are_after[path]

    def _order(self, key: str, dataset: hdf5.Node | None, demo: Demo) -> Literal["wxyz", "xyzw"]:
        assert isinstance(self.options, IsaacLabOptions)
        said = self.options.observation_quaternions
        return said if said and key.startswith("obs/") else _order(dataset, demo)


def _has_initial_state(demo: Demo) -> bool:
    return hdf5.find(demo.group, _INITIAL, demo.where) is not None


def _initial(demo: Demo, key: str) -> np.ndarray | None:
    """The row of `initial_state` that precedes the first one of a key of `states`, [1, ...]."""
    key = _INITIAL + key.removeprefix(_STATES)
    if hdf5.find(demo.group, key, demo.where) is None:
        return None
    return hdf5.read(demo.group, key, demo.where)[-1:]


def _is_moved_at_first(demo: Demo) -> bool:
    """Whether the first row of `states` is another one than `initial_state`."""
    for key in hdf5.list_datasets(demo.group, demo.where):
        first = _initial(demo, key) if key.startswith(_STATES) else None
        if first is not None:
            row = hdf5.read(demo.group, key, demo.where, slice(0, 1))
            if not np.allclose(row, first, rtol=_ROUNDING, atol=_ROUNDING):
                return True
    return False


def _success_per_frame(demo: Demo) -> np.ndarray:
    actions = hdf5.find(demo.group, "actions", demo.where)
    if not isinstance(actions, h5py.Dataset) or not actions.shape:
        raise ValueError(f"{demo.where} has no key 'actions', which gives success its length")
    success = np.zeros(actions.shape[0], bool)
    success[-1:] = success_of(demo)
    return success


def _first_quaternion(key: str, values: np.ndarray, dataset: hdf5.Node | None) -> int | None:
    """The index on the last axis where the quaternions begin; None if there are none."""
    if values.ndim < 2:
        return None
    name = key.rpartition("/")[2]
    if _QUATERNIONS.fullmatch(name) and values.shape[-1] % 4 == 0:
        return 0
    is_pose = name == "root_pose" or (dataset is not None and "pose_order" in dataset.attrs)
    return 3 if is_pose and values.shape[-1] == 7 else None


def _order(dataset: hdf5.Node | None, demo: Demo) -> Literal["wxyz", "xyzw"]:
    levels = (demo.data.file, demo.data)
    schema = hdf5.text_attribute(levels, "schema_version", demo.where)
    if schema is not None and schema != _SCHEMA:
        raise ValueError(f"{demo.where}: schema_version is {schema}, known is {_SCHEMA}")
    node = dataset
    while isinstance(node, hdf5.Node):
        said = hdf5.text_attribute((node,), "pose_order", demo.where)
        if said is not None:
            return _parse_order(said, f"{demo.where}: pose_order of {node.name}")
        node = None if node.name == "/" else node.parent
    if schema is not None:
        raise ValueError(f"{demo.where}: no pose_order, which schema_version {schema} requires")
    version = hdf5.number_attribute(levels, "format_version", demo.where)
    if version is not None and version not in _ORDERS:
        raise ValueError(
            f"{demo.where}: format_version is {version:g}; known are 0 (WXYZ) and 1 (XYZW)"
        )
    return _ORDERS[version or 0]


def _parse_order(said: str, where: str) -> Literal["wxyz", "xyzw"]:
    letters = "".join(letter for letter in said.lower() if letter in "wxyz")
    if letters.endswith("xyzw") and letters in ("xyzw", "xyzxyzw"):
        return "xyzw"
    if letters in ("wxyz", "xyzwxyz"):
        return "wxyz"
    raise ValueError(f"{where} is {said!r}, expected an order of x, y, z, w")
