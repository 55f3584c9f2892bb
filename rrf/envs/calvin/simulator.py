"""CALVIN for `rrf_child.episodes`. Runs in an interpreter of its own, without rrf.

A table is loaded once for each slot. `PlayTableSimEnv.reset` does not lead to the same state twice:
contacts and motors remember. So what a table is like when it has been loaded is kept, and restored
before every reset.

An episode of a single task begins where its (task, seed, index) says: the table stands so that the
task can be done, with blocks at drawn places. Some episodes begin where the expert has ended
another task. Tasks with a block that is grasped, stacked or in the drawer always do.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import copy
import enum
import itertools
import os
import sys
import zlib
from pathlib import Path

import experts  # files beside this one
import numpy as np
import tasks
from rrf_child.scenes import Scenes

_CAMERAS = ("static", "gripper")
_BULLET_HZ = 240.0
_MAX_DRAWS = 100
_PRELUDE_STEPS = 240  # control steps that the expert has for a task before the episode
_PLAIN = (bool, int, float, tuple, np.ndarray, enum.Enum)


class Calvin:
    """See `rrf_child.episodes.Simulator`."""

    def __init__(self, scene, control_hz, action_repeat, image_size, later_starts, max_loaded):
        self._scene, self._control_hz, self._action_repeat = scene, control_hz, action_repeat
        self._size, self._later_starts = image_size, later_starts
        self._root = _checkout()
        self._tables = Scenes(self._load, Table.close, max_loaded)

    def begin(self, slot, task, seed, index):
        table = self._tables.give(slot, self._scene)
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
        self._tables.close()

    def _load(self, name):
        return Table(self._root, name, self._control_hz, self._size)

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
        import hydra
        from calvin_env.envs import play_table_env
        from calvin_env.envs.tasks import Tasks
        from calvin_env.robot import robot
        from omegaconf import OmegaConf

        class _Env(play_table_env.PlayTableSimEnv):
            def initialize_bullet(self, *size):
                client = super().initialize_bullet(*size)
                robot.p = self.p  # some calls of its `load` name no client
                return client

            def __del__(self):
                """`close` would be called again, and end the next client."""

        play_table_env.get_git_commit_hash = lambda path: None  # of the log
        conf, self._bullet = root / "conf", robot.p
        panda = OmegaConf.load(conf / "robot/panda.yaml")
        fingers = OmegaConf.load(conf / "robot/panda_longer_finger.yaml")
        parts = {
            "data_path": str(root / "data"),
            "scene": OmegaConf.load(conf / f"scene/calvin_scene_{name}.yaml"),
            "robot": OmegaConf.merge(panda, fingers),
        }
        cfg = OmegaConf.create(parts)
        try:
            self.env = _Env(
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
            robot.p = self._bullet
        self.client = self.env.cid
        self.cameras = {
            camera: hydra.utils.instantiate(
                OmegaConf.load(conf / f"cameras/cameras/{camera}.yaml"),
                width=image_size,
                height=image_size,
                cid=self.client,
                robot_id=self.env.robot.robot_uid,
            )
            for camera in _CAMERAS
        }
        oracle = OmegaConf.load(conf / "tasks/new_playtable_tasks.yaml")
        self._oracle = Tasks(OmegaConf.to_container(oracle.tasks))
        self._loaded = self._bullet.saveState(physicsClientId=self.client)
        self._plain = [(thing, _plain(thing)) for thing in self._things()]

    def reset(self, robot_obs, scene_obs):
        """Put robot and table into a state of CALVIN's."""
        self._bullet.restoreState(stateId=self._loaded, physicsClientId=self.client)
        for thing, plain in self._plain:
            vars(thing).update(copy.deepcopy(plain))
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
        self.env.close()

    def _begin_task(self):
        self.task = self._sequence[self.stage]
        self.start, self.memory = self.info, {}  # the expert's memory

    def _look(self):
        self.robot_obs, robot_info = self.env.robot.get_observation()
        self.info = {"robot_info": robot_info, "scene_info": self.env.scene.get_info()}

    def _things(self):
        """What remembers something besides the physics."""
        scene = self.env.scene
        return itertools.chain([self.env.robot], scene.lights, scene.buttons, scene.switches)


def _plain(thing):
    return {name: copy.deepcopy(v) for name, v in vars(thing).items() if isinstance(v, _PLAIN)}


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
