"""Meta-World's tasks as they do not stand in its code: from another place, in another light, before
other colours, beside other things, from another start, in other words.

`drawer-open-v3@camera` is drawer-open-v3 with one thing changed. The kinds of change are those of
LIBERO-Plus (arXiv:2510.13626). How much is changed follows from the initial state: words and starts
are drawn for each; a seed has ten different pictures of a task and a kind of change, because each
of them is a scene of its own.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import typing

import numpy as np

from rrf.envs.foreign.child_path.rrf_child.shifts import (
    NUM_SCENES,
    PICTURES,
    change_lights,
    move_cameras,
    plain_color,
    random_of,
    split,
)
from rrf.envs.wording import WORDINGS

if typing.TYPE_CHECKING:
    import mujoco

    from rrf.envs.vec_env import InitialState

SHIFTS: dict[str, str] = {
    "camera": "the cameras up to 10 cm away along each axis, turned by up to 5 degrees",
    "light": "each lamp at 0.2 to 2.2 times its brightness, tinted, and from elsewhere",
    "texture": "table, walls and floor in plain colours",
    "distractors": "four things at the sides of the table, which nothing touches",
    "start": "the hand up to 6 cm away along x and y, and up to 6 cm higher",
    **WORDINGS,
}
"""What stands behind the @ of a task -> what differs."""
_SURFACES = ("table_wood", "wall_metal", "basic_floor")


class SceneChange(typing.NamedTuple):
    """A changed picture of a task."""

    task: str
    """As the protocol names it, e.g. drawer-open-v3@light."""
    seed: int
    number: int
    """0 to `NUM_SCENES` - 1."""

    def change_spec(self, spec: "mujoco.MjSpec") -> None:
        """Change what is drawn of a scene that is not compiled yet; nothing of it collides."""
        changes = {"light": _change_lights, "texture": _color_surfaces, "distractors": _add_things}
        if change := changes.get(split(self.task)[1]):
            change(spec, random_of(*self))

    def change_model(self, model: "mujoco.MjModel") -> None:
        """Change the cameras of the compiled scene."""
        if split(self.task)[1] == "camera":
            import mujoco

            move_cameras(mujoco, model, random_of(*self), [0.1] * model.ncam)


def scene_change(state: "InitialState") -> SceneChange | None:
    """What an episode's picture differs in; None for Meta-World's own."""
    if split(state.task)[1] not in PICTURES:
        return None
    return SceneChange(state.task, state.seed, state.index % NUM_SCENES)


def hand_shift(state: "InitialState") -> np.ndarray:
    """How far the hand begins from where it begins otherwise, float64 [3] in metres."""
    if split(state.task)[1] != "start":
        return np.zeros(3)
    return random_of(state.task, state.seed, state.index).uniform([-0.06, -0.06, 0.0], 0.06)


def _change_lights(spec: "mujoco.MjSpec", random: np.random.Generator) -> None:
    change_lights(spec.lights, random)


def _color_surfaces(spec: "mujoco.MjSpec", random: np.random.Generator) -> None:
    for name in _SURFACES:
        if (material := spec.material(name)) is None:  # two tasks have no walls
            continue
        material.textures = [""] * len(material.textures)
        material.rgba = plain_color(random)


def _add_things(spec: "mujoco.MjSpec", random: np.random.Generator) -> None:
    import mujoco

    shapes = (mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_SPHERE)
    shapes = (*shapes, mujoco.mjtGeom.mjGEOM_CYLINDER, mujoco.mjtGeom.mjGEOM_CAPSULE)
    for number in range(4):
        size = random.uniform(0.02, 0.04, 3)
        side = -1 if number % 2 else 1
        place = [side * random.uniform(0.3, 0.45), random.uniform(0.45, 0.85), size[2]]
        spec.worldbody.add_geom(
            type=shapes[random.integers(len(shapes))],
            size=size,
            pos=place,
            rgba=plain_color(random),
            group=1,
            contype=0,
            conaffinity=0,
            mass=0,
            density=0,
        )
