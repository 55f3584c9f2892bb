"""LIBERO HDF5: <suite>/<task>_demo.hdf5, fifty demonstrations of one task in a file.

    /data            attrs: problem_info (JSON), macros_image_convention, env_args (JSON), env_name,
                     bddl_file_name, num_demos, total
    /data/demo_<i>   attrs: num_samples, model_file, init_state
        actions f64[T, 7]   states f64[T, S]   robot_states f64[T, 9]   rewards, dones u8[T]
        obs/{agentview_rgb, eye_in_hand_rgb} u8[T, 128, 128, 3]
        obs/{gripper_states [T, 2], joint_states [T, 7], ee_states [T, 6], ee_pos, ee_ori [T, 3]}

Layout: LIBERO's scripts/create_dataset.py. The instruction is `problem_info.language_instruction`,
the frame rate `env_args.env_kwargs.control_freq` (20).

Images are upside down if `macros_image_convention` is "opengl", as in all published files, or if it
is missing. Their rows, and those of depth and segmentation, are then turned so that row 0 is on
top. That is the scene as the camera saw it. OpenVLA and its derivatives rotate by 180 degrees
instead, which also mirrors left and right. Such a policy must be shown our images mirrored,
`[:, ::-1]`.

LIBERO's script executes the action of a frame before it records `obs` and `robot_states`, while
`states`, MuJoCo's state (time, qpos, qvel), is the one before. Row t as we return it is what was
seen before the action of row t: its observation is that of the row before, and the first frame of a
demonstration, which has none, is left out. Files that were recorded anew, as OpenVLA's training
needs them, have the observation before the action; they stay as they are. The joints tell: they
stand in `obs/joint_states` and in `states[:, 1:8]`. Files where they do not agree stay as they are,
too. LIBERO's own training pairs rows as recorded, which the option `observations: recorded` does.
"""

import typing
from pathlib import Path

import h5py
import numpy as np

from rrf.config import configclass
from rrf.data.formats import hdf5
from rrf.data.formats.robomimic import Demo, RobomimicOptions, RobomimicSource

_JOINTS = "obs/joint_states"
_AGREE = 0.3  # of the other distance; an observation may lag by a step of physics


@configclass
class LiberoOptions(RobomimicOptions):
    """`source.options` of the format libero."""

    pattern = "**/*.hdf5"
    observations: typing.Literal["aligned", "recorded"] = "aligned"
    """Pair each action with the observation before it, or with that of its row in the file."""


class LiberoSource(RobomimicSource):
    """Demonstrations of LIBERO files. A recording is one file, which holds one task."""

    options_type = LiberoOptions

    def __init__(self, path: Path, options: dict):
        super().__init__(path, options)
        self._are_after: dict[str, bool] = {}  # demonstration -> whether obs/ follow the actions

    def instruction(self, demo: Demo) -> str | None:
        info = hdf5.json_attribute(demo.data, "problem_info", demo.where)
        said = info.get("language_instruction")
        if isinstance(said, list):  # the words of the BDDL file
            said = " ".join(str(word) for word in said)
        if not said:
            return super().instruction(demo)
        where = f"{demo.where}: language_instruction in problem_info"
        return hdf5.text(said, where).strip().strip('"')

    def read(self, demo: Demo, key: str) -> np.ndarray:
        values = super().read(demo, key)
        if self._is_after(demo):
            is_seen = key.startswith("obs/") or key == "robot_states"
            values = values[:-1] if is_seen else values[1:]
        if not key.startswith("obs/") or values.ndim < 3 or not _is_upside_down(demo):
            return values
        return np.ascontiguousarray(values[:, ::-1])

    def _is_after(self, demo: Demo) -> bool:
        assert isinstance(self.options, LiberoOptions)
        if self.options.observations == "recorded":
            return False
        if demo.where not in self._are_after:
            self._are_after[demo.where] = _are_observed_after(demo)
        return self._are_after[demo.where]


def _are_observed_after(demo: Demo) -> bool:
    """Whether the joints in `obs` are those that `states` has one row later."""
    nodes = [hdf5.find(demo.group, key, demo.where) for key in (_JOINTS, "states")]
    if not all(isinstance(node, h5py.Dataset) and len(node.shape) == 2 for node in nodes):
        return False
    joints, states = (hdf5.read(demo.group, key, demo.where) for key in (_JOINTS, "states"))
    simulated = states[:, 1 : 1 + joints.shape[1]]
    if simulated.shape != joints.shape or len(joints) < 2:
        return False
    before = np.abs(joints - simulated).mean()
    after = np.abs(joints[:-1] - simulated[1:]).mean()
    return bool(after < _AGREE * before)


def _is_upside_down(demo: Demo) -> bool:
    convention = hdf5.text_attribute(demo.levels, "macros_image_convention", demo.where)
    if convention not in (None, "opengl", "opencv"):
        raise ValueError(
            f"{demo.where}: macros_image_convention is {convention!r}, known: opencv, opengl"
        )
    return convention != "opencv"
