"""ManiSkill 3.0.1 for `rrf_child.episodes`. Runs in an interpreter of its own, without rrf.

Each slot has a scene of its own on SAPIEN's CPU backend. Scenes are made once per task and reset;
everything that differs between episodes is drawn at the reset, from one number that depends on
(task, seed, index) alone. Images are drawn where a chunk ends, not in every step.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import zlib

import experts
import gymnasium
import mani_skill.envs  # noqa: F401 (registers the tasks)
import numpy as np
import sapien
from batched import Batches, picture, states
from mani_skill.sensors.camera import Camera, CameraConfig
from mani_skill.utils import sapien_utils

_MAX_IDLE = 4  # scenes kept beside those that run
_SHADER = "minimal"
_WORKSPACE = {"eye": [0.55, 0.0, 0.5], "target": [0.0, 0.0, 0.15]}
_WORKSPACE_FOV_RAD = 0.85


class Maniskill:
    """See `rrf_child.episodes.Simulator`."""

    def __init__(self, controller, cameras, image_size, shows_goal):
        self._cameras, self._shows_goal = cameras, shows_goal
        self.options = {
            "num_envs": 1,
            "robot_uids": "panda_wristcam",
            "obs_mode": "none",  # what is observed is asked for where a chunk ends
            "reward_mode": "normalized_dense",
            "control_mode": controller,
            "sim_backend": "physx_cpu",
            "render_backend": "cpu",
            "sensor_configs": {"width": image_size, "height": image_size, "shader_pack": _SHADER},
        }
        self._running = {}  # slot -> (task, environment)
        self._idle = []  # (task, environment)

    def begin(self, slot, task, seed, index):
        if slot in self._running:
            self._idle.append(self._running.pop(slot))
        env = self._environment(task)
        self._running[slot] = task, env
        drawn = np.random.SeedSequence([seed, index, zlib.crc32(task.encode())])
        _forget(env)
        env.reset(seed=int(drawn.generate_state(1)[0] >> 1))

    def act(self, slot, action):
        _, reward, _, _, info = self._running[slot][1].step(action)
        return float(reward[0]), bool(info["success"][0])

    def state(self, slot):
        return states(self._running[slot][1])[0]

    def scene_state(self, slot):
        """The whole state of a slot's scene, nested dicts of tensors [1, …]."""
        return self._running[slot][1].get_state_dict()

    def image(self, slot, camera):
        env = self._running[slot][1]
        env.scene.update_render(update_sensors=True, update_human_render_cameras=False)
        return picture(env, camera)[0]

    def expert_action(self, slot):
        task, env = self._running[slot]
        return experts.action(task, env)

    def close(self):
        for _, env in [*self._running.values(), *self._idle]:
            env.close()

    def _environment(self, task):
        """An environment of a task that no slot uses."""
        for number in reversed(range(len(self._idle))):
            if self._idle[number][0] == task:
                return self._idle.pop(number)[1]
        while len(self._idle) > _MAX_IDLE:
            self._idle.pop(0)[1].close()
        return _scene(task, self._cameras, self._shows_goal, self.options)


class BatchedManiskill(Batches):
    """All slots of a task in one environment."""

    def __init__(
        self, cameras, images, action_repeat, num_envs, backend, controller, image_size, shows_goal
    ):
        single = Maniskill(controller, [], image_size, shows_goal)
        render = "gpu" if backend == "physx_cuda" else "cpu"
        options = {"num_envs": num_envs, "sim_backend": backend, "render_backend": render}

        def make(task):
            return _scene(task, cameras, shows_goal, {**single.options, **options})

        def start(task, seed, index):
            single.begin(0, task, seed, index)
            return single.scene_state(0)

        super().__init__(make, start, cameras, images, action_repeat, num_envs)


def _scene(task, cameras, shows_goal, options):
    env = gymnasium.make(task, **options).unwrapped
    # the mesh of the camera on the hand has three times the triangles of the rest of the robot
    for link in env.agent.robot.links_map["camera_link"]._objs:
        drawn = link.entity.find_component_by_type(sapien.render.RenderBodyComponent)
        drawn.visibility = 0
    if not shows_goal:
        for hidden in env._hidden_objects:
            hidden.hide_visual()
    if "workspace" in cameras:
        pose = sapien_utils.look_at(**_WORKSPACE)
        size = options["sensor_configs"]["width"]
        cfg = CameraConfig("workspace", pose, size, size, _WORKSPACE_FOV_RAD)
        cfg.shader_pack = _SHADER
        env.scene.sensors["workspace"] = Camera(cfg, env.scene)
    return env


def _forget(env):
    """Move everything into a new scene of PhysX.

    A reset leaves the order in which PhysX solves contacts as the last episodes made it, and with
    another order the same actions end a few bits elsewhere. To build the scene anew with
    `reconfigure` takes 0.2 s instead of milliseconds.
    """
    old = env.scene.sub_scenes[0]
    entities = list(old.entities)
    for entity in entities:
        old.remove_entity(entity)
    env._set_scene_config()
    physics = sapien.physx.PhysxCpuSystem()
    physics.timestep = old.physx_system.timestep
    new = sapien.Scene([physics, old.render_system])
    for entity in entities:
        new.add_entity(entity)
    env.scene.sub_scenes, env.scene.px = [new], physics
