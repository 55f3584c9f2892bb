"""ManiSkill 3.0.1 for `rrf_child.episodes`. Runs in an interpreter of its own, without rrf.

Each slot has a scene of its own on SAPIEN's CPU backend. Scenes are made once per task and reset;
everything that differs between episodes is drawn at the reset, from one number that depends on
(task, seed, index) alone. Images are drawn where a chunk ends, not in every step.
"""

# pyright: reportMissingImports=false

import zlib

import gymnasium
import mani_skill.envs  # noqa: F401 (registers the tasks)
import numpy as np
import sapien
from mani_skill.sensors.camera import Camera, CameraConfig
from mani_skill.utils import sapien_utils

_SHADER = "minimal"
_WORKSPACE = {"eye": [0.55, 0.0, 0.5], "target": [0.03, 0.0, 0.1]}
_WORKSPACE_FOV_RAD = 0.9


class Maniskill:
    """See `rrf_child.episodes.Simulator`."""

    def __init__(self, controller, cameras, image_size, shows_goal):
        self._cameras, self._shows_goal = cameras, shows_goal
        self._size = image_size
        self._options = {
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
        env.reset(seed=int(drawn.generate_state(1)[0] >> 1))

    def act(self, slot, action):
        _, reward, _, _, info = self._running[slot][1].step(action)
        return float(reward[0]), bool(info["success"][0])

    def state(self, slot):
        agent = self._running[slot][1].agent
        pose = agent.tcp.pose.raw_pose[0].numpy()
        turn = pose[3:] if pose[4] >= 0 else -pose[3:]  # the hand points down with |x| = 1
        return np.concatenate([pose[:3], turn, agent.robot.get_qpos()[0, -2:].numpy()])

    def image(self, slot, camera):
        env = self._running[slot][1]
        if not self._shows_goal:
            for hidden in env._hidden_objects:
                hidden.hide_visual()
        env.scene.update_render(update_sensors=True, update_human_render_cameras=False)
        sensor = env.scene.sensors[camera]
        sensor.capture()
        seen = sensor.get_obs(rgb=True, depth=False, position=False, segmentation=False)
        return seen["rgb"][0].numpy()

    def close(self):
        for _, env in [*self._running.values(), *self._idle]:
            env.close()

    def _environment(self, task):
        """An environment of a task that no slot uses."""
        for number in reversed(range(len(self._idle))):
            if self._idle[number][0] == task:
                return self._idle.pop(number)[1]
        env = gymnasium.make(task, **self._options).unwrapped
        # the mesh of the camera on the hand has 425,000 triangles, three times the rest of the robot
        for link in env.agent.robot.links_map["camera_link"]._objs:
            drawn = link.entity.find_component_by_type(sapien.render.RenderBodyComponent)
            drawn.visibility = 0
        if "workspace" in self._cameras:
            pose = sapien_utils.look_at(**_WORKSPACE)
            cfg = CameraConfig("workspace", pose, self._size, self._size, _WORKSPACE_FOV_RAD)
            cfg.shader_pack = _SHADER
            env.scene.sensors["workspace"] = Camera(cfg, env.scene)
        return env
