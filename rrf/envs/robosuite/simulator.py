"""robosuite 1.5.2 for `rrf_child.episodes`. Runs in an interpreter of its own, without rrf.

An environment of robosuite is made once and reset softly, which takes 5 ms instead of a second.
What robosuite draws only when a scene is made (the cube of Lift has sides of 4.0 to 4.4 cm) is
therefore the same in all episodes of a task. All that differs between them is drawn at a reset,
from one generator, whose state depends on (task, seed, index) alone.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import zlib

import experts  # the file beside this one
import numpy as np
import robosuite
from robosuite.controllers import load_composite_controller_config
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
        env = self._scenes.give(slot, task)
        chosen = np.random.default_rng([seed, index, zlib.crc32(task.encode())])
        env.rng.bit_generator.state = chosen.bit_generator.state  # its samplers share it
        env.reset()

    def act(self, slot, action):
        env = self._scenes[slot]
        _, reward, _, _ = env.step(action.astype(np.float64))
        return float(reward), bool(env._check_success())

    def expert_action(self, slot):
        return experts.action(self._scenes.task(slot), self._scenes[slot], self._can_turn)

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
        env = robosuite.make(_ENVIRONMENTS[task], **self._options)
        model = env.sim.model._model
        model.vis.global_.offwidth = model.vis.global_.offheight = self._size
        if not self._shadows:
            model.light_castshadow[:] = 0
            model.mat_reflectance[:] = 0
            model.vis.quality.offsamples = 0
            model.vis.quality.shadowsize = 0
        env.has_offscreen_renderer = self._has_images  # made by the first reset
        return env


def _close(env):
    """Free an environment. What it drew with is freed in its own OpenGL context: the names of
    textures are the same in all contexts.
    """
    if env.has_offscreen_renderer:
        env.sim._render_context_offscreen.gl_ctx.make_current()
    env.close()
