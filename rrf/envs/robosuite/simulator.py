"""robosuite 1.5.2 for `rrf_child.episodes`. Runs in an interpreter of its own, without rrf.

An environment of robosuite is made once and reset softly, which takes 5 ms instead of a second.
What robosuite draws only when a scene is made (the cube of Lift has sides of 4.0 to 4.4 cm) is
therefore the same in all episodes of a task. All that differs between them is drawn at a reset,
from one generator, whose state depends on (task, seed, index) alone.

A task with `@` has one thing changed (`rrf_child.shifts`): its episodes are those of the task, and
only `@start` moves otherwise.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import xml.etree.ElementTree
import zlib

import experts  # the file beside this one
import mujoco
import numpy as np
from robosuite.controllers import load_composite_controller_config
from robosuite.environments.base import REGISTERED_ENVS
from rrf_child import shifts
from rrf_child.scenes import Scenes

_ENVIRONMENTS = {
    "Lift": "Lift",
    "Stack": "Stack",
    "Can": "PickPlaceCan",
    "Bread": "PickPlaceBread",
    "Cereal": "PickPlaceCereal",
    "Milk": "PickPlaceMilk",
    "Door": "Door",
    "NutSquare": "NutAssemblySquare",
    "NutRound": "NutAssemblyRound",
}
_SURFACES = ("floorplane", "walls_mat", "table_ceramic", "light-wood", "dark-wood")
_SHAPES = (2, 5, 3, 6)  # of MuJoCo: sphere, cylinder, capsule, box
_CHANGED = (
    *("cam_pos", "cam_quat", "light_diffuse", "light_dir"),
    *("geom_matid", "geom_rgba", "geom_type", "geom_size", "geom_pos"),
)
_JOINTS_RAD = 0.08
_BELOW_BINS = ((-0.05, 0.12), (0.05, 0.45), 0.0)
_SIDES = {
    "Lift": ((-0.2, 0.1), (0.17, 0.24), 0.8),
    "NutSquare": ((0.0, 0.12), (0.2, 0.26), 0.8),
    "NutRound": ((0.0, 0.12), (0.2, 0.26), 0.8),
    "Door": ((-0.35, 0.0), (0.17, 0.3), 0.0),
    **dict.fromkeys(("Can", "Bread", "Cereal", "Milk"), _BELOW_BINS),
}
"""Task -> where things lie, in metres: x, distance from the middle along y, height of what is below
them. Others: as for Lift."""


class Robosuite:
    """See `rrf_child.episodes.Simulator`."""

    def __init__(self, controller, control_hz, image_size, has_images, shadows, max_loaded):
        self._size, self._has_images, self._shadows = image_size, has_images, shadows
        self._can_turn = controller == "OSC_POSE"
        config = load_composite_controller_config(controller=None, robot="Panda")
        part = config["body_parts"]["right"]
        part["type"] = controller
        if controller == "OSC_POSITION":
            part["output_max"], part["output_min"] = [0.05] * 3, [-0.05] * 3
        self._options = {
            "robots": "Panda",
            "controller_configs": config,
            "control_freq": control_hz,
            "has_renderer": False,
            "has_offscreen_renderer": False,  # until `_load` has set what it draws with
            "use_camera_obs": False,
            "reward_shaping": False,
            "hard_reset": False,
            "ignore_done": True,
            "seed": 0,
        }
        self._scenes = Scenes(self._load, _close, max_loaded)

    def begin(self, slot, task, seed, index):
        base, shift = shifts.split(task)
        env = self._scenes.give(slot, task if shift == "distractors" else base)
        model = env.sim.model._model
        for name, original in env.rrf_original.items():
            getattr(model, name)[:] = original
        if shift in shifts.PICTURES:
            _change(model, base, shift, shifts.random_of(task, seed, index % shifts.NUM_SCENES))
        chosen = np.random.default_rng([seed, index, zlib.crc32(base.encode())])
        env.rng.bit_generator.state = chosen.bit_generator.state  # its samplers share it
        [robot] = env.robots
        joints = robot.init_qpos
        if shift == "start":
            random = shifts.random_of(task, seed, index)
            robot.init_qpos = joints + random.uniform(-_JOINTS_RAD, _JOINTS_RAD, len(joints))
        env.reset()
        robot.init_qpos = joints

    def act(self, slot, action):
        env = self._scenes[slot]
        _, reward, _, _ = env.step(action.astype(np.float64))
        return float(reward), bool(env._check_success())

    def expert_action(self, slot):
        return experts.action(
            shifts.split(self._scenes.task(slot))[0], self._scenes[slot], self._can_turn
        )

    def state(self, slot):
        env = self._scenes[slot]
        seen = env._get_observations(force_update=True)
        turn = seen["robot0_eef_quat"]
        turn = turn if turn[0] >= 0 else -turn  # the hand points down with |x| = 1
        return np.concatenate([seen["robot0_eef_pos"], turn, seen["robot0_gripper_qpos"]])

    def image(self, slot, camera):
        sim = self._scenes[slot].sim
        sim._render_context_offscreen.gl_ctx.make_current()  # each environment has its own
        return sim.render(width=self._size, height=self._size, camera_name=camera)[::-1]

    def close(self):
        self._scenes.close()

    def _load(self, task):
        base, shift = shifts.split(task)
        kind = REGISTERED_ENVS[_ENVIRONMENTS[base]]
        if shift:
            kind = type(f"{kind.__name__}WithThings", (_WithThings, kind), {})
        env = kind(**self._options)
        model = env.sim.model._model
        model.vis.global_.offwidth = model.vis.global_.offheight = self._size
        if not self._shadows:
            model.light_castshadow[:] = 0
            model.mat_reflectance[:] = 0
            model.vis.quality.offsamples = 0
            model.vis.quality.shadowsize = 0
        env.has_offscreen_renderer = self._has_images  # made by the first reset
        env.rrf_original = {name: getattr(model, name).copy() for name in _CHANGED}
        return env


class _WithThings:
    """Lets an environment of robosuite have four things in its scene that touch nothing."""

    def edit_model_xml(self, xml_str):
        root = xml.etree.ElementTree.fromstring(super().edit_model_xml(xml_str))
        world = next(root.iter("worldbody"))
        for number in range(4):
            facts = {"name": f"thing{number}", "type": "box", "size": "0.03 0.03 0.03"}
            facts["pos"] = "1 1 1"  # at the origin, MuJoCo would take the place of the body
            free = {"contype": "0", "conaffinity": "0", "group": "1", "mass": "0"}
            xml.etree.ElementTree.SubElement(world, "geom", {**facts, **free})
        return xml.etree.ElementTree.tostring(root, encoding="unicode")


def _change(model, base, shift, random):
    """Change what is drawn of a compiled scene."""
    if shift == "camera":
        reach = [0.1 if body == 0 else 0.01 for body in model.cam_bodyid]
        shifts.move_cameras(mujoco, model, random, reach)
    elif shift == "light":
        shifts.change_lights([model.light(number) for number in range(model.nlight)], random)
    elif shift == "texture":
        for name in _SURFACES:  # the geom's own colour, because a context keeps its textures
            color = shifts.plain_color(random)
            for geom in range(model.ngeom):
                if model.geom_matid[geom] >= 0 and model.mat(model.geom_matid[geom]).name == name:
                    model.geom_matid[geom], model.geom_rgba[geom] = -1, color
    else:
        for number in range(4):
            thing = model.geom(f"thing{number}")
            thing.type = _SHAPES[random.integers(len(_SHAPES))]
            x, y, height = _SIDES.get(base, _SIDES["Lift"])
            thing.size = random.uniform(0.02, 0.04, 3) * (1 if height else 2)  # the floor is far
            side = -1 if number % 2 else 1
            thing.pos = [random.uniform(*x), side * random.uniform(*y), height + thing.size[2]]
            thing.rgba = shifts.plain_color(random)


def _close(env):
    """Free an environment. What it drew with is freed in its own OpenGL context: the names of
    textures are the same in all contexts.
    """
    if env.has_offscreen_renderer:
        env.sim._render_context_offscreen.gl_ctx.make_current()
    env.close()
