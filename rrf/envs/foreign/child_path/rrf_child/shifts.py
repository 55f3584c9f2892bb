"""Tasks as they do not stand in a simulator's code: with one thing changed, which follows from the
initial state. `Lift@camera` is Lift from another place.

What rrf and a simulator in an interpreter of its own have in common; needs NumPy alone.
"""

from __future__ import annotations

import typing
import zlib

import numpy as np

NUM_SCENES = 10
"""Pictures that a seed draws for a task and a kind of change."""
PICTURES = ("camera", "light", "texture", "distractors")
"""Kinds of change of the picture alone."""


def split(task: str) -> tuple[str, str]:
    """The simulator's task, and what is changed; "" for nothing."""
    base, _, shift = task.partition("@")
    return base, shift


def random_of(task: str, seed: int, number: int) -> np.random.Generator:
    """What the changes of a task are drawn with."""
    return np.random.default_rng([zlib.crc32(task.encode()), seed, number])


def move_cameras(
    mujoco: typing.Any,
    model: typing.Any,
    random: np.random.Generator,
    reach_m: typing.Sequence[float],
) -> None:
    """Move each camera of a compiled model of `mujoco` (the module) by up to its reach along each
    axis, and turn it by up to 5 degrees.
    """
    for camera, reach in enumerate(reach_m):
        model.cam_pos[camera] += random.uniform(-reach, reach, 3)
        axis, turn = random.normal(size=3), np.empty(4)
        angle = np.deg2rad(random.uniform(-5.0, 5.0))
        mujoco.mju_axisAngle2Quat(turn, axis / np.linalg.norm(axis), angle)
        mujoco.mju_mulQuat(model.cam_quat[camera], model.cam_quat[camera].copy(), turn)


def change_lights(lights: typing.Iterable[typing.Any], random: np.random.Generator) -> None:
    """Give each lamp 0.2 to 2.2 times its brightness, a tint, and another direction.

    Not the light that comes from everywhere: Meta-World's ray tracer has it compiled in.
    """
    for light in lights:
        color = random.uniform(0.2, 2.2) * random.uniform(0.7, 1.0, 3)
        light.diffuse = np.asarray(light.diffuse) * color
        light.dir = light.dir + random.uniform(-0.7, 0.7, 3)


def plain_color(random: np.random.Generator) -> list[float]:
    """Red, green, blue and opacity."""
    return [*random.uniform(0.05, 0.95, 3), 1.0]
