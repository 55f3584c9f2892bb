"""Serves what `rrf_child.episodes.Episodes` does by one batched environment of ManiSkill per task.

On a GPU, ManiSkill steps all of its N scenes in one call and answers with tensors [N, …]. Slot n is
scene n of its task's batch. Three things differ from slots that are stepped one by one:

- Slots that a call leaves out are put back to where they were, since their scenes moved too.
- A slot that succeeds inside a chunk moves on until the chunk ends; reward, success and the number
  of steps are those of the success.
- ManiSkill draws the initial states of a batched reset from one generator for all scenes. So each
  comes from an environment on the CPU, and is put into its scene.

Legend: N scenes, B slots of a call, H steps in an action chunk, A action dimension.
"""

import time

import numpy as np
import torch


class Batches:
    """See `rrf_child.episodes.Episodes`, whose methods it has."""

    def __init__(self, make, start, cameras, images, action_repeat, num_envs):
        """
        Args:
            make: `make(task)` is an environment of ManiSkill with `num_envs` scenes.
            start: `start(task, seed, index)` is the state of one scene, as `get_state_dict` of an
                environment with one scene returns it.
            cameras: Names of the cameras.
            images: uint8 [C, N, H, W, 3] that all calls draw into.
            action_repeat: Control steps an action is held for.
            num_envs: N.
        """
        self._make, self._start = make, start
        self._cameras, self._images_CNHW3 = cameras, images
        self._action_repeat = action_repeat
        self._envs = {}  # task -> environment
        self._tasks = [""] * num_envs  # of each slot
        self._cpu_s = {"reset": 0.0, "physics": 0.0, "rendering": 0.0}

    def reset(self, slots, states):
        """Begin an episode in each slot, from its (task, seed, index)."""
        begun = time.process_time()
        for slot, (task, _, _) in zip(slots, states, strict=True):
            self._tasks[slot] = task
        for task, rows in self._by_task(slots):
            if task not in self._envs:  # before any start: PhysX must learn of the GPU first
                self._envs[task] = self._make(task)
            env = self._envs[task]
            starts = _joined([self._start(*states[row]) for row in rows], env.device)
            ids = torch.tensor([slots[row] for row in rows], device=env.device)
            env.reset(options={"env_idx": ids, "reset_to_env_states": {"env_states": starts}})
        self._cpu_s["reset"] += time.process_time() - begun
        return self._observed(slots, np.ones(len(slots), bool))

    def step(self, slots, actions, steps_left, draws_final, plays_on=False):
        """Execute a chunk, float32 [B, H, A], in each slot."""
        begun, left = time.process_time(), np.asarray(steps_left)
        reward = np.zeros(len(slots), np.float32)
        rewards = np.zeros(actions.shape[:2], np.float32)
        success, at_end = np.zeros((2, len(slots)), bool)
        steps = np.zeros(len(slots), np.int64)
        for task, rows in self._by_task(slots):
            env, ids = self._envs[task], [slots[row] for row in rows]
            waiting = [n for n, of in enumerate(self._tasks) if of == task and n not in ids]
            kept = env.get_state_dict() if waiting else {}
            whole = torch.zeros((len(self._tasks), actions.shape[2]), device=env.device)
            for column in np.clip(actions[rows], -1.0, 1.0).swapaxes(0, 1):
                runs = (plays_on | ~success[rows]) & (steps[rows] < left[rows])
                if not runs.any():
                    break
                whole[ids] = torch.as_tensor(column, device=env.device)
                held = [env.step(whole) for _ in range(self._action_repeat)]
                _, gained, _, _, info = held[-1]
                counted = rows[runs]
                reward[counted] += gained.cpu().numpy()[ids][runs]
                rewards[counted, steps[counted]] = gained.cpu().numpy()[ids][runs]
                at_end[counted] = info["success"].cpu().numpy()[ids][runs]
                success[counted] |= at_end[counted]
                steps[counted] += 1
            if waiting:
                places = torch.tensor(waiting, device=env.device)
                env.set_state_dict(_rows(kept, places), places)
        self._cpu_s["physics"] += time.process_time() - begun
        is_over = (success & (not plays_on)) | (steps >= left)
        answer = self._observed(slots, ~is_over | draws_final)
        return dict(
            answer,
            reward=reward,
            rewards=rewards,
            success=success,
            success_at_end=at_end,
            steps=steps,
        )

    def close(self):
        """Close the environments."""
        for env in self._envs.values():
            env.close()

    def _by_task(self, slots):
        """Pairs of a task and the rows of a call whose slots have it."""
        tasks = np.array([self._tasks[slot] for slot in slots])
        return [(str(task), np.flatnonzero(tasks == task)) for task in np.unique(tasks)]

    def _observed(self, slots, is_drawn):
        begun = time.process_time()
        state = np.zeros((len(slots), 9), np.float32)
        for task, rows in self._by_task(slots):
            env, ids = self._envs[task], [slots[row] for row in rows]
            state[rows] = states(env)[ids]
            if self._cameras and is_drawn[rows].any():
                env.scene.update_render(update_sensors=True, update_human_render_cameras=False)
            for number, camera in enumerate(self._cameras):
                drawn = picture(env, camera)[ids] if is_drawn[rows].any() else 0
                place = self._images_CNHW3[number]
                place[ids] = np.where(is_drawn[rows][:, None, None, None], drawn, 0)
        self._cpu_s["rendering"] += time.process_time() - begun
        return {"state": state, "cpu_s": self._cpu_s}


def states(env):
    """float32 [N, 9]: tool centre point, its orientation with x >= 0, the two fingers."""
    pose = env.agent.tcp.pose.raw_pose.cpu().numpy().copy()
    pose[pose[:, 4] < 0, 3:] *= -1.0
    return np.concatenate([pose, env.agent.robot.get_qpos()[:, -2:].cpu().numpy()], 1)


def picture(env, camera):
    """uint8 [N, H, W, 3] of a camera, after `update_render`."""
    sensor = env.scene.sensors[camera]
    sensor.capture()
    seen = sensor.get_obs(rgb=True, depth=False, position=False, segmentation=False)
    return seen["rgb"].cpu().numpy()


def _joined(dicts, device):
    """Nested dicts of tensors [1, …] as one of tensors [B, …]."""
    first = dicts[0]
    if isinstance(first, dict):
        return {key: _joined([each[key] for each in dicts], device) for key in first}
    return torch.cat(dicts).to(device)


def _rows(tree, places):
    """Some rows of all tensors of a nested dict."""
    if isinstance(tree, dict):
        return {key: _rows(value, places) for key, value in tree.items()}
    return tree[places]
