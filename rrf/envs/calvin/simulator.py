"""CALVIN for `rrf_child.episodes`. Runs in an interpreter of its own, without rrf.

A table is loaded anew for every episode, which takes 0.13 CPU-seconds. `PlayTableSimEnv.reset` does
not lead to the same state twice, and Bullet remembers what touched what even where its saved state
is restored: a push then ends 0.1 mm elsewhere, and once in a while a whole episode.

An episode of a single task begins where its (task, seed, index) says: the table stands so that the
task can be done, with blocks at drawn places. Some episodes begin where the expert has ended
another task. Tasks with a block that is grasped, stacked or in the drawer always do.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import os
import sys
import typing
import zlib
from pathlib import Path

import experts  # files beside this one
import numpy as np
import tasks

_CAMERAS = ("static", "gripper")
_BULLET_HZ = 240.0
_MAX_DRAWS = 100
_PRELUDE_STEPS = 240  # control steps that the expert has for a task before the episode


class Calvin:
    """See `rrf_child.episodes.Simulator`."""

    def __init__(self, scene, control_hz, action_repeat, image_size, later_starts):
        self._scene, self._control_hz, self._action_repeat = scene, control_hz, action_repeat
        self._size, self._later_starts = image_size, later_starts
        self._root = _checkout()
        self._tables = {}

    def begin(self, slot, task, seed, index):
        if slot not in self._tables:
            self._tables[slot] = Table(self._root, self._scene, self._control_hz, self._size)
        table = self._tables[slot]
        if task == tasks.CHAIN:
            condition, sequence = tasks.chain(index)
            table.reset(*tasks.chain_scene(condition))
            table.begin(sequence)
            return
        random = np.random.default_rng([seed, index, zlib.crc32(task.encode())])
        for _ in range(_MAX_DRAWS):
            others = list(experts.EXPERTS)
            condition, before = tasks.draw_before(task, others, random, self._later_starts)
            if self._has_begun(table, condition, before, random):
                table.begin([task])
                return
        raise RuntimeError(f"the expert reached the beginning of {task} in no draw of {_MAX_DRAWS}")

    def act(self, slot, action):
        return self._tables[slot].act(action)

    def stage(self, slot):
        """How many tasks of the episode are done, and which one is to be done now."""
        table = self._tables[slot]
        return table.stage, table.task

    def expert_action(self, slot):
        table = self._tables[slot]
        return experts.action(table.task, table, self._action_repeat)

    def state(self, slot):
        return self._tables[slot].robot_obs

    def image(self, slot, camera):
        return self._tables[slot].cameras[camera].render()[0]

    def close(self):
        for table in self._tables.values():
            table.close()

    def _has_begun(self, table, condition, before, random):
        """Whether the expert has done the tasks before the episode's own."""
        table.reset(*tasks.drawn_scene(condition, random))
        table.begin([*before, None])
        for _ in range(len(before) * _PRELUDE_STEPS // self._action_repeat):
            if table.task is None:
                break
            stage, action = table.stage, experts.action(table.task, table, self._action_repeat)
            for _ in range(self._action_repeat):
                if table.stage == stage:
                    table.act(action)
        return table.task is None


class Table:
    """A table of CALVIN with a robot, in a physics client of its own."""

    def __init__(self, root, name, control_hz, image_size):
        from calvin_env.envs.tasks import Tasks
        from omegaconf import OmegaConf

        conf = root / "conf"
        panda = OmegaConf.load(conf / "robot/panda.yaml")
        fingers = OmegaConf.load(conf / "robot/panda_longer_finger.yaml")
        parts = {
            "data_path": str(root / "data"),
            "scene": OmegaConf.load(conf / f"scene/calvin_scene_{name}.yaml"),
            "robot": OmegaConf.merge(panda, fingers),
        }
        self._cfg, self._control_hz = OmegaConf.create(parts), control_hz
        self._cameras = {}
        for camera in _CAMERAS:
            cfg = OmegaConf.load(conf / f"cameras/cameras/{camera}.yaml")
            self._cameras[camera] = OmegaConf.merge(
                cfg, {"width": image_size, "height": image_size}
            )
        oracle = OmegaConf.load(conf / "tasks/new_playtable_tasks.yaml")
        self._oracle = Tasks(OmegaConf.to_container(oracle.tasks))
        self.env: typing.Any = None

    def reset(self, robot_obs, scene_obs):
        """Load everything anew, in a state of CALVIN's."""
        import hydra
        import pybullet

        self.close()
        self.env = _loaded(self._cfg, self._control_hz)
        self._bullet, self.client = pybullet, self.env.cid
        known = {"cid": self.client, "robot_id": self.env.robot.robot_uid}
        self.cameras = {
            camera: hydra.utils.instantiate(cfg, **known) for camera, cfg in self._cameras.items()
        }
        self.env.reset(robot_obs=robot_obs, scene_obs=scene_obs)
        self._look()

    def begin(self, sequence):
        """Begin an episode of these tasks with the table as it is."""
        self._sequence, self.stage = list(sequence), 0
        self._begin_task()

    def act(self, action):
        """Execute a control step: the reward, 1 for a task that is done, and whether all are."""
        command = np.array(action, np.float64)
        command[-1] = 1.0 if command[-1] > 0 else -1.0
        self.env.robot.apply_action(command)
        for _ in range(self.env.action_repeat):
            self._bullet.stepSimulation(physicsClientId=self.client)
        self.env.scene.step()
        self._look()
        if not self._oracle.get_task_info_for_set(self.start, self.info, {self.task}):
            return 0.0, False
        self.stage += 1
        if self.stage == len(self._sequence):
            return 1.0, True
        self._begin_task()
        return 1.0, False

    def close(self):
        """Free the table."""
        if self.env is not None:
            self.env.close()

    def _begin_task(self):
        self.task = self._sequence[self.stage]
        self.start, self.memory = self.info, {}  # the expert's memory

    def _look(self):
        self.robot_obs, robot_info = self.env.robot.get_observation()
        self.info = {"robot_info": robot_info, "scene_info": self.env.scene.get_info()}


def _loaded(cfg, control_hz):
    """An environment of CALVIN in a new physics client."""
    from calvin_env.envs import play_table_env
    from calvin_env.robot import robot

    class Env(play_table_env.PlayTableSimEnv):
        def initialize_bullet(self, *size):
            client = super().initialize_bullet(*size)
            robot.p = self.p  # some calls of its `load` name no client
            return client

        def __del__(self):
            """`close` would be called again, and end the next client."""

    play_table_env.get_git_commit_hash = lambda path: None  # of the log
    bullet = robot.p
    try:
        return Env(
            robot_cfg=cfg.robot,
            seed=0,
            use_vr=False,
            bullet_time_step=_BULLET_HZ,
            cameras={},
            show_gui=False,
            scene_cfg=cfg.scene,
            use_scene_info=True,
            use_egl=False,
            control_freq=control_hz,
        )
    finally:
        robot.p = bullet


def _checkout():
    """The folder of calvin_env, made importable."""
    root = Path(os.environ.get("CALVIN_ENV_PATH", ""))
    if not (root / "calvin_env").is_dir():
        raise ValueError(
            f"CALVIN_ENV_PATH is '{root}', which is no checkout of calvin_env; type: rrf envs "
            "setup calvin --force"
        )
    sys.path.insert(0, str(root))
    return root
