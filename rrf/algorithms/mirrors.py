"""Mirror images of observations and actions: left becomes right.

In the body's frame (x forward, y left, z up), mirroring flips the sign of the y component of a
vector (velocity, force, gravity), and of the x and z components of an axial vector (angular
velocity). Each joint on the left swaps places with its partner on the right. Joints that roll or
yaw also flip their sign.

Legend: D width of the mirrored tensor, J joints, F feet.
"""

from collections.abc import Callable, Mapping

import torch

from rrf.envs.control_env import Interface

Mirror = Callable[[torch.Tensor], torch.Tensor]

SIDES = {"FR": "FL", "RR": "RL", "FL": "FR", "RL": "RR", "left": "right", "right": "left"}
TURNING = ("roll", "yaw", "abduction")  # the joint's axis lies in the mirror plane
STEADY = ("pitch", "thigh", "calf", "knee", "elbow")
ACTOR_TERMS = (
    *("base_lin_vel", "base_ang_vel", "projected_gravity", "joint_pos", "joint_vel"),
    *("actions", "command"),
)
FOOT_TERMS = ("foot_height", "foot_air_time", "foot_contact", "foot_contact_forces")
NAMES = tuple(f"{__name__}:{name}" for name in ("left_right", "pendulum", "whole_body"))
"""What symmetry_cfg.mirrors may name."""
_NUM_BODY_SIGNALS = 7  # vx, vy, vyaw, roll, pitch and yaw of the torso, height
_SCAN_ROWS, _SCAN_COLUMNS = 11, 17  # rays across and along: 1 m by 1.6 m, one every 10 cm


class SignedPermutation:
    """x[..., indices] * signs."""

    def __init__(self, indices: list[int], signs: list[float]):
        self.indices = torch.tensor(indices)
        self.signs = torch.tensor(signs)

    def __len__(self) -> int:
        return len(self.indices)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.indices.device != x.device:  # only once: each copy makes the CPU wait for the GPU
            self.indices, self.signs = self.indices.to(x.device), self.signs.to(x.device)
        return x[..., self.indices] * self.signs.to(x.dtype)


def chained(parts: list[SignedPermutation]) -> SignedPermutation:
    """The mirror of concatenated terms, from the mirror of each term."""
    indices, signs = [], []
    for part in parts:
        indices += [len(signs) + index for index in part.indices.tolist()]
        signs += part.signs.tolist()
    return SignedPermutation(indices, signs)


def joints(names: list[str]) -> SignedPermutation:
    """The mirror of a vector with one number per joint.

    Args:
        names: E.g. FR_hip_joint (whose partner is FL_hip_joint), left_knee_joint, waist_yaw_joint.

    Raises:
        ValueError: If a joint has no partner, or if its name does not show about which axis it
            turns.
    """
    indices, signs = [], []
    for name in names:
        side, _, rest = name.partition("_")
        partner = f"{SIDES[side]}_{rest}" if side in SIDES else name
        if partner not in names:
            raise ValueError(f"joint '{name}' has no partner '{partner}' among {', '.join(names)}")
        indices.append(names.index(partner))
        signs.append(-1.0 if _turns(name) else 1.0)
    return SignedPermutation(indices, signs)


def left_right(interface: Interface) -> Mapping[str, Mirror]:
    """Mirrors for mjlab's velocity tasks (Go1, G1; flat and rough): one per group, and "actions".

    The actor observes the terms that `interface.robot` names. The critic observes these, followed
    by mjlab's terms about the feet, with or without the heights of the feet.

    Raises:
        ValueError: For another robot or other observations.
    """
    robot = interface.robot
    missing = [name for name in ("joint_names", "observation_names") if name not in robot]
    if missing:
        raise ValueError(
            f"{interface.task or 'this environment'} does not provide {' and '.join(missing)}, "
            "which rrf needs to tell left from right; set symmetry_cfg.mirrors=module:attr to a "
            "function of your own"
        )
    names = list(robot["joint_names"])
    joint_mirror = joints(names)
    _require_symmetric_stance(joint_mirror, robot.get("default_joint_pos"), names)
    terms = _terms(joint_mirror, num_feet=4 if names[0].partition("_")[0] in ("FR", "FL") else 2)
    mirrors: dict[str, Mirror] = {"actions": joint_mirror}
    for group, width in interface.observation_dims.items():
        mirrors[group] = _of_group(group, width, list(robot["observation_names"]), terms)
    return mirrors


def whole_body(interface: Interface) -> Mapping[str, Mirror]:
    """Mirrors for the whole-body task (`rrf.envs.humanoid.whole_body_env`) of a robot whose joints
    of legs and arms begin with left_ and right_.

    Raises:
        ValueError: If a joint's name does not show its side, its partner, or about which axis it
            turns.
    """
    names, driven_names = (list(interface.robot[f"{what}_names"]) for what in ("command", "joint"))
    arm_names = names[:-_NUM_BODY_SIGNALS]
    for name in (*driven_names[:12], *arm_names):
        if name.partition("_")[0] not in ("left", "right"):
            raise ValueError(
                f"the name of joint '{name}' does not show its side (left_, right_); rename the "
                "joints in the model, or set symmetry_cfg.mirrors=module:attr to a function of "
                "your own, or symmetry_cfg=null"
            )
    driven, arms = joints(driven_names), joints(arm_names)
    vector = SignedPermutation([0, 1, 2], [1.0, -1.0, 1.0])
    axial = SignedPermutation([0, 1, 2], [-1.0, 1.0, -1.0])  # also roll, pitch and yaw
    swapped = SignedPermutation([1, 0], [1.0, 1.0])
    of_joints = chained([driven, arms])
    proprioception = chained(
        [
            axial,  # angular velocity
            SignedPermutation([0, 1], [-1.0, 1.0]),  # roll and pitch
            SignedPermutation([0, 1], [-1.0, 1.0]),  # sine and cosine of the heading's error
            *3 * [of_joints],  # angles, velocities, last action
            swapped,  # gait
            driven,  # the pose around which it acts
        ]
    )
    turning = SignedPermutation([0, 1, 2], [1.0, -1.0, -1.0])  # vx, vy, vyaw
    command = chained([arms, turning, axial, SignedPermutation([0], [1.0])])
    feet = SignedPermutation([2, 3, 0, 1], [1.0, -1.0, 1.0, -1.0])
    measured = [vector, axial, SignedPermutation([0], [1.0]), axial, swapped, swapped, feet]
    actor = chained([proprioception, command])
    frames = {
        group: interface.observation_dims[group] // len(proprioception)
        for group in ("history", "long_history")
        if group in interface.observation_dims
    }
    return {
        "actions": driven,
        "actor": actor,
        "critic": chained([actor, *measured]),
        **{group: chained(count * [proprioception]) for group, count in frames.items()},
    }


def pendulum(interface: Interface) -> Mapping[str, Mirror]:
    """Mirrors for Pendulum-v1, which observes cosine, sine and angular velocity."""
    return {
        "policy": SignedPermutation([0, 1, 2], [1.0, -1.0, -1.0]),
        "actions": SignedPermutation([0], [-1.0]),
    }


def _of_group(
    group: str, width: int, actor_names: list[str], terms: dict[str, SignedPermutation]
) -> SignedPermutation:
    for feet in ((), FOOT_TERMS, FOOT_TERMS[1:]):  # the preset go1-flat-ppo has the last of them
        names = [*actor_names, *feet]
        unknown = [name for name in names if name not in terms]
        if unknown:
            raise ValueError(
                f"rrf does not know how to mirror the observation '{unknown[0]}'; known: "
                f"{', '.join(terms)}. Set symmetry_cfg.mirrors=module:attr to a function of your "
                "own"
            )
        mirror = chained([terms[name] for name in names])
        if len(mirror) == width:
            return mirror
    raise ValueError(
        f"observation group '{group}' has {width} numbers. This is neither the total width of "
        f"{', '.join(actor_names)}, nor that of these and {', '.join(FOOT_TERMS)} (with or without "
        "the first). Set symmetry_cfg.mirrors=module:attr to a function of your own"
    )


def _terms(joint_mirror: SignedPermutation, num_feet: int) -> dict[str, SignedPermutation]:
    vector = SignedPermutation([0, 1, 2], [1.0, -1.0, 1.0])
    feet = SignedPermutation([foot ^ 1 for foot in range(num_feet)], [1.0] * num_feet)
    forces = [3 * (foot ^ 1) + axis for foot in range(num_feet) for axis in range(3)]
    columns = range(_SCAN_COLUMNS)
    scan = [
        row * _SCAN_COLUMNS + column for row in reversed(range(_SCAN_ROWS)) for column in columns
    ]
    return {
        "base_lin_vel": vector,
        "base_ang_vel": SignedPermutation([0, 1, 2], [-1.0, 1.0, -1.0]),
        "projected_gravity": vector,
        "joint_pos": joint_mirror,
        "joint_vel": joint_mirror,
        "actions": joint_mirror,
        "command": SignedPermutation([0, 1, 2], [1.0, -1.0, -1.0]),  # forward, left, turn left
        "height_scan": SignedPermutation(scan, [1.0] * len(scan)),
        "foot_height": feet,
        "foot_air_time": feet,
        "foot_contact": feet,
        "foot_contact_forces": SignedPermutation(forces, vector.signs.tolist() * num_feet),
    }


def _turns(name: str) -> bool:
    # A quadruped's hip turns about the body's long axis. A humanoid's hip joints name their axis.
    if any(word in name for word in TURNING) or name.endswith("_hip_joint"):
        return True
    if any(word in name for word in STEADY):
        return False
    raise ValueError(
        f"the name of joint '{name}' does not show about which axis it turns (known: hip, "
        f"{', '.join(TURNING + STEADY)}); set symmetry_cfg.mirrors=module:attr to a function of "
        "your own"
    )


def _require_symmetric_stance(
    mirror: SignedPermutation, default_pos: list[float] | None, names: list[str]
) -> None:
    """Require that the default stance equals its own mirror image.

    Joint positions are observed relative to the default stance.
    """
    if default_pos is None:
        return
    stance = torch.tensor(default_pos, dtype=torch.float64)
    wrong = (mirror(stance) - stance).abs() > 1e-6
    if bool(wrong.any()):
        name = names[int(wrong.nonzero()[0])]
        raise ValueError(
            f"the default stance is not symmetric at joint '{name}'; set "
            "symmetry_cfg.mirrors=module:attr to a function of your own"
        )
