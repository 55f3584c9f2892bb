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

The observation of a frame was recorded after its action was executed (env.step, then append). It is
returned as recorded, because training on LIBERO uses it that way.
"""

import numpy as np

from rrf.config import configclass
from rrf.data.formats import hdf5
from rrf.data.formats.robomimic import Demo, RobomimicOptions, RobomimicSource


@configclass
class LiberoOptions(RobomimicOptions):
    """`source.options` of the format libero."""

    pattern = "**/*.hdf5"


class LiberoSource(RobomimicSource):
    """Demonstrations of LIBERO files. A recording is one file, which holds one task."""

    options_type = LiberoOptions

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
        if not key.startswith("obs/") or values.ndim < 3 or not _is_upside_down(demo):
            return values
        return np.ascontiguousarray(values[:, ::-1])


def _is_upside_down(demo: Demo) -> bool:
    convention = hdf5.text_attribute(demo.levels, "macros_image_convention", demo.where)
    if convention not in (None, "opengl", "opencv"):
        raise ValueError(
            f"{demo.where}: macros_image_convention is {convention!r}, known: opencv, opengl"
        )
    return convention != "opencv"
