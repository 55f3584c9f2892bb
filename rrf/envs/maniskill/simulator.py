"""ManiSkill 3.0.1 for `rrf_child.episodes`. Runs in an interpreter of its own, without rrf.

Each slot has a scene of its own on SAPIEN's CPU backend. Scenes are made once per task and reset;
everything that differs between episodes is drawn at the reset, from one number that depends on
(task, seed, index) alone. Images are drawn where a chunk ends, not in every step.

The scripted experts know the true poses and remember nothing. Each answers with where the hand
should go from its present place, in metres, and whether to open the gripper. Nothing turns the
hand: it takes the cubes of 4 cm as they lie, since it opens by 8 cm.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import zlib

import gymnasium
import mani_skill.envs  # noqa: F401 (registers the tasks)
import numpy as np
import sapien
from batched import Batches, picture, states
from mani_skill.sensors.camera import Camera, CameraConfig
from mani_skill.utils import sapien_utils

_MAX_IDLE = 4  # scenes kept beside those that run
_SHADER = "minimal"
_WORKSPACE = {"eye": [0.55, 0.0, 0.5], "target": [0.03, 0.0, 0.1]}
_WORKSPACE_FOV_RAD = 0.9
_STEP_M = 0.1  # what an action of 1 moves the hand by
_GAIN = 0.8
_CLEAR_M = 0.07  # how far above a cube the hand travels
_IS_OVER_M = 0.012
_IS_AT_M = 0.01


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
        if task not in _EXPERTS:
            raise ValueError(f"{task} has no scripted expert; {', '.join(_EXPERTS)} have")
        move, is_open = _EXPERTS[task](env, env.agent.tcp.pose.p[0].numpy())
        answer = np.zeros(env.single_action_space.shape[0], np.float32)
        answer[:3] = np.clip(_GAIN * move / _STEP_M, -1.0, 1.0)
        answer[-1] = 1.0 if is_open else -1.0
        return answer

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
        return _made(task, self._cameras, self._shows_goal, self.options)


class BatchedManiskill(Batches):
    """All slots of a task in one environment."""

    def __init__(self, cameras, images, action_repeat, num_envs, backend, **arguments):
        single = Maniskill(**{**arguments, "cameras": []})
        render = "gpu" if backend == "physx_cuda" else "cpu"
        options = {"num_envs": num_envs, "sim_backend": backend, "render_backend": render}

        def make(task):
            return _made(task, cameras, arguments["shows_goal"], {**single.options, **options})

        def start(task, seed, index):
            single.begin(0, task, seed, index)
            return single.scene_state(0)

        super().__init__(make, start, cameras, images, action_repeat, num_envs)


def _made(task, cameras, shows_goal, options):
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


def _pick(env, hand):
    cube = _place(env.cube)
    if not env.agent.is_grasping(env.cube)[0]:
        return _grasp(hand, cube)
    return _place(env.goal_site) - cube, False


def _stack(env, hand):
    cube, below = _place(env.cubeA), _place(env.cubeB)
    offset = cube - below
    is_over = np.linalg.norm(offset[:2]) < _IS_OVER_M
    if is_over and abs(offset[2] - 0.04) < 0.004:  # it stands there: let go, then go up
        return np.array([0.0, 0.0, 0.0 if env.agent.is_grasping(env.cubeA)[0] else 0.03]), True
    if not env.agent.is_grasping(env.cubeA)[0]:
        return _grasp(hand, cube)
    if is_over:
        return np.array([*-offset[:2], 0.04 - offset[2]]), False
    rise = 0.04 + _CLEAR_M - offset[2]
    return np.array([*(-offset[:2] if rise < 0.03 else (0.0, 0.0)), rise]), False


def _push(env, hand):
    return _shove(env, hand, -1.0)


def _pull(env, hand):
    return _shove(env, hand, 1.0)


def _shove(env, hand, side):
    """Move a cube along x with closed fingers, from its side -1 (near the robot) or 1."""
    cube = _place(env.obj)
    contact = cube + np.array([side * 0.05, 0.0, 0.0])
    is_beside = side * (hand[0] - cube[0]) > 0.025 and abs(hand[1] - cube[1]) < 0.015
    if is_beside and hand[2] < 0.04:
        goal = _place(env.goal_region)
        return np.array([goal[0] - cube[0], cube[1] - hand[1], 0.02 - hand[2]]), False
    return _approach(hand, contact), False


def _grasp(hand, cube):
    move = _approach(hand, cube)
    return move, np.linalg.norm(cube - hand) > _IS_AT_M


def _approach(hand, place):
    """Above the place first, then down."""
    move = place - hand
    if np.linalg.norm(move[:2]) < _IS_OVER_M:
        return move
    return move + np.array([0.0, 0.0, _CLEAR_M])


def _place(actor):
    return actor.pose.p[0].numpy()


_EXPERTS = {
    "PickCube-v1": _pick,
    "PushCube-v1": _push,
    "PullCube-v1": _pull,
    "StackCube-v1": _stack,
}
