"""When the G1 at its table has done what it was told.

A task is solved when its condition has held for `HOLD_S` seconds without a break while the other
things stand where they stood:

    walk   the pelvis is in front of the table (15 cm, 25 cm aside), turned to it (0.25 rad) and
           still (0.15 m/s)
    touch  the named hand touches the object, the other one does not
    push   the cube is 6 cm further in the direction, at most 5 cm aside, and on the table
    pick   the object is 8 cm above where it lay, and a hand touches it
    place  the object rests on the plate, its middle at most 5 cm from the plate's, and no hand
           touches it
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import math
from collections.abc import Mapping

import mujoco

from rrf.envs.humanoid.scene import Layout, World
from rrf.envs.humanoid.tasks import Task, Verb

HOLD_S: Mapping[Verb, float] = {"walk": 0.5, "touch": 0.1, "push": 0.1, "pick": 0.5, "place": 0.3}
"""For how long the condition must hold, s."""
PELVIS_AHEAD = 0.0
"""Where the pelvis should stand (x) to reach what is on the table, m."""
_IN_FRONT_M, _BESIDE_M, _FACING_RAD, _STILL_M_S = 0.15, 0.25, 0.25, 0.15
_PUSHED_M, _ASIDE_M, _LIFTED_M, _ON_PLATE_M = 0.06, 0.05, 0.08, 0.05
_RESTS_M, _RESTS_M_S = 0.012, 0.1
MOVED_M = 0.03
"""How far the other things may move."""


def is_met(task: Task, world: World, data: mujoco.MjData, start: Layout) -> bool:
    """Whether the condition of a task holds now. `data` must be as of an `mj_forward`."""
    for name, (x, y, _) in start.objects.items():
        if name != task.object and math.dist(world.place(data, name)[:2], (x, y)) > MOVED_M:
            return False
    return _CONDITIONS[task.verb](task, world, data, start)


def _has_walked(task: Task, world: World, data: mujoco.MjData, start: Layout) -> bool:
    x, y = data.qpos[:2] - (PELVIS_AHEAD, 0.0)
    speed = math.hypot(*data.qvel[:2])
    is_there = (
        abs(x) < _IN_FRONT_M and abs(y) < _BESIDE_M and abs(world.heading(data)) < _FACING_RAD
    )
    return bool(is_there and speed < _STILL_M_S)


def _has_touched(task: Task, world: World, data: mujoco.MjData, start: Layout) -> bool:
    other = "right" if task.hand == "left" else "left"
    return world.touches(data, task.hand, task.object) and not world.touches(
        data, other, task.object
    )


def _has_pushed(task: Task, world: World, data: mujoco.MjData, start: Layout) -> bool:
    place = world.place(data, task.object)
    x, y = place[:2] - start.objects[task.object][:2]
    along, aside = {"left": (y, x), "right": (-y, x), "forward": (x, y)}[task.direction]
    is_on_table = abs(world.above_table(data, task.object)) < _RESTS_M
    return bool(along > _PUSHED_M and abs(aside) < _ASIDE_M and is_on_table)


def _has_picked(task: Task, world: World, data: mujoco.MjData, start: Layout) -> bool:
    is_held = any(world.touches(data, side, task.object) for side in ("left", "right"))
    return world.above_table(data, task.object) > _LIFTED_M and is_held


def _has_placed(task: Task, world: World, data: mujoco.MjData, start: Layout) -> bool:
    is_near = math.dist(world.place(data, task.object)[:2], start.plates[task.plate]) < _ON_PLATE_M
    height = world.above_table(data, task.object) - world.plate_height
    is_held = any(world.touches(data, side, task.object) for side in ("left", "right"))
    is_still = world.speed(data, task.object) < _RESTS_M_S
    return is_near and abs(height) < _RESTS_M and is_still and not is_held


_CONDITIONS = {
    "walk": _has_walked,
    "touch": _has_touched,
    "push": _has_pushed,
    "pick": _has_picked,
    "place": _has_placed,
}
