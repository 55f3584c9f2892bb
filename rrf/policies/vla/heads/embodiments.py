"""Embodiment tags of GR00T, and which encoder and decoder of a head belong to them. No torch here.

N1.5: gr00t/data/embodiment_tags.py of NVIDIA/Isaac-GR00T (branch n1.5-release). N1.7:
`N1_7_EMBODIMENT_MAPPING` of the port in huggingface/lerobot. A published N1.7 checkpoint holds the
same table as embodiment_id.json.
"""

import typing
from collections.abc import Mapping

GrootVersion = typing.Literal["n15", "n17"]

NEW = "new_embodiment"
SLOTS: dict[GrootVersion, dict[str, int]] = {
    "n15": {NEW: 31, "agibot_genie1": 26, "gr1": 24, "oxe_droid": 17},
    "n17": {
        NEW: 10,
        "libero_sim": 2,
        "oxe_droid_relative_eef_relative_joint": 24,
        "real_g1_relative_eef_relative_joints": 25,
        "real_r1_pro_sharpa_relative_eef": 26,
        "real_r1_pro_sharpa_relative_eef_human": 26,
        "real_r1_pro_sharpa_relative_eef_maxinsights": 26,
        "real_r1_pro_sharpa_relative_eef_mecka": 26,
        "simpler_env_google": 0,
        "simpler_env_widowx": 1,
        "unitree_g1_full_body_with_waist_height_nav_cmd": 25,
        "xdof_relative_eef_relative_joint": 27,
        "xdof_relative_eef_relative_joint_subtask": 27,
    },
}


def slot_of(tag: str | None, slots: Mapping[str, int], num_slots: int) -> int:
    """The number of a tag; no tag means a new embodiment.

    Raises:
        ValueError: If the tag is unknown, or if the head has too few encoders for it.
    """
    tag = NEW if tag is None else tag
    if tag not in slots:
        raise ValueError(
            f"embodiment is '{tag}', known: {', '.join(sorted(slots))}; a tag of your own goes "
            "into policy.head.embodiments, with its number"
        )
    if slots[tag] >= num_slots:
        raise ValueError(
            f"embodiment '{tag}' has number {slots[tag]}, but num_embodiments is {num_slots}; give "
            f"it a number below that in policy.head.embodiments"
        )
    return slots[tag]
