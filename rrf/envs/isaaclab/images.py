"""Isaac Lab 3.0 for policies that see images: serves what `rrf_child.episodes.Episodes` does.

Slot n is environment n of one batch. What differs from slots that are stepped one by one:

- Slots that a call leaves out are put back to where they were, since they moved too.
- Isaac Lab resets an environment within the step that ends its episode. What it ended in is kept
  of the state; the last images of such an episode are black.
- Nothing is random within an episode: observations have no noise, and there are no interval events.

Legend: N environments, B slots of a call, H steps in an action chunk, A action dimension.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportArgumentType=false, reportPossiblyUnboundVariable=false

import time
import zlib

import numpy as np
import torch
import world

_LONG_S = 1e5


class Images:
    """See `rrf_child.episodes.Episodes`, whose methods it has."""

    def __init__(self, cameras, images, action_repeat, task, physics, overrides, mapping, **how):
        """
        Args:
            cameras: Names of the cameras that are drawn, as `mapping` has them.
            images: uint8 [C, N, H, W, 3] that all calls draw into.
            action_repeat: Control steps an action is held for.
            mapping: The fields of `rrf.envs.isaaclab.configs.IsaacLabCfg` that say what images,
                states, actions and success are.
            how: `num_envs` and `device`.
        """
        self._task, self._mapping = task, mapping
        self._cameras, self._images_CNHW3 = cameras, images
        self._action_repeat = action_repeat

        def change(cfg):
            if mapping["policy_group"] != "policy":
                world.show(cfg, task, mapping["policy_group"])
            world.resize(cfg, images.shape[2])
            world.calm(cfg)
            cfg.episode_length_s = _LONG_S  # the horizon is not Isaac Lab's
            self._require(cfg, "main_images", world.cameras(cfg), mapping["cameras"])

        self._env, self._stack = world.make(
            task, physics, overrides, is_seeded=True, seed=0, change=change, **how
        )
        env = self._env
        self._num_actions = int(np.prod(env.single_action_space.shape))
        pads = mapping["prefix_pad"], mapping["suffix_pad"]
        self._places = slice(pads[0], self._num_actions - pads[1])
        own = self._num_actions - sum(pads)
        if own != mapping["num_actions"]:
            raise ValueError(
                f"{task} takes {self._num_actions} numbers; without action_mapping's prefix_pad of "
                f"{pads[0]} and suffix_pad of {pads[1]} these are {own}, but num_actions is "
                f"{mapping['num_actions']}"
            )
        rate = round(1 / float(env.step_dt))
        if rate != mapping["control_hz"]:
            raise ValueError(f"{task} steps {rate} times per second; set control_hz={rate}")
        terms = getattr(env, "termination_manager", None)
        known = [*world.ENDS, *getattr(terms, "active_terms", [])]
        self._require(env.cfg, "success", known, [mapping["success"]])
        with torch.inference_mode():
            observations, _ = env.reset(seed=0)
            self._states(observations)  # says which terms there are
        self._is_running = np.zeros(how["num_envs"], bool)
        self._cpu_s = {"reset": 0.0, "physics": 0.0, "rendering": 0.0}

    def reset(self, slots, states):
        """Begin an episode in each slot, from its (task, seed, index)."""
        begun = time.process_time()
        with torch.inference_mode():
            for slot, (task, seed, index) in zip(slots, states, strict=True):
                drawn = np.random.SeedSequence([seed, index, zlib.crc32(task.encode())])
                observations = world.begin(self._env, [slot], int(drawn.generate_state(1)[0] >> 1))
            self._is_running[slots] = True
            self._cpu_s["reset"] += time.process_time() - begun
            state = self._states(observations)[slots]
            return self._observed(slots, state, np.ones(len(slots), bool))

    def step(self, slots, actions, steps_left, draws_final):
        """Execute a chunk, float32 [B, H, A], in each slot."""
        begun, left = time.process_time(), np.asarray(steps_left)
        rewards = np.zeros((len(slots), actions.shape[1]), np.float32)
        success, failed = np.zeros(len(slots), bool), np.zeros(len(slots), bool)
        steps = np.zeros(len(slots), np.int64)
        with torch.inference_mode():
            env = self._env
            self._is_running[slots] = False
            waiting = np.flatnonzero(self._is_running)
            self._is_running[slots] = True
            kept = world.kept(env) if len(waiting) else None
            whole = torch.zeros((env.num_envs, self._num_actions), device=env.device)
            state = self._states(env.obs_buf)[slots]
            ids = torch.tensor(slots, device=env.device)
            for number, column in enumerate(np.clip(actions, -1.0, 1.0).swapaxes(0, 1)):
                runs = ~success & ~failed & (steps < left)
                if not runs.any():
                    break
                bound = self._mapping["action_bound"]
                whole[ids, self._places] = torch.as_tensor(column * bound, device=env.device)
                gained, won, lost, state = self._held(whole, slots, state, runs)
                rewards[runs, number] = gained[runs]
                steps[runs] += 1
                success |= runs & won
                failed |= runs & lost & ~won
            if self._mapping["success"] == "survived":
                success |= ~failed & (steps >= left)
            if len(waiting):
                world.put_back(env, kept, waiting)
            is_over = success | failed | (steps >= left)
            self._is_running[np.asarray(slots)[is_over]] = False
            self._cpu_s["physics"] += time.process_time() - begun
            answer = self._observed(slots, state, ~is_over | (draws_final & ~failed))
        return dict(
            answer,
            reward=rewards.sum(1),
            rewards=rewards,
            success=success,
            failed=failed,
            steps=steps,
        )

    def close(self):
        """Close the simulator."""
        self._stack.close()

    def _held(self, actions, slots, state, runs):
        """Hold actions for `action_repeat` steps, or until the episode ends.

        Returns reward float32 [B], success and failure bool [B], and the state float32 [B, D].
        """
        env = self._env
        gained = np.zeros(len(slots), np.float32)
        won, lost = np.zeros(len(slots), bool), np.zeros(len(slots), bool)
        state = state.copy()
        for _ in range(self._action_repeat):
            goes = runs & ~won & ~lost
            observations, rewards, terminated, truncated, extras = env.step(actions)
            gained[goes] += rewards.float().cpu().numpy()[slots][goes]
            ended = (terminated | truncated).cpu().numpy()[slots]
            won |= goes & self._is_success(terminated)[slots]
            lost |= goes & ended
            state[goes] = self._states(observations)[slots][goes]
            if (ended & goes).any():
                state[ended & goes] = self._states(extras["final_obs"])[slots][ended & goes]
        return gained, won, lost, state

    def _is_success(self, terminated):
        """bool [N]: whether the last step solved the task."""
        asked = self._mapping["success"]
        if asked == "survived":
            return np.zeros(len(terminated), bool)
        if asked != "terminated":
            terminated = self._env.termination_manager.get_term(asked)
        return terminated.cpu().numpy().copy()

    def _states(self, observations):
        """The mapped terms, joined: float32 [N, D]."""
        parts, policy = [], observations["policy"]
        for term in self._mapping["states"]:
            if term["key"] not in policy:
                raise ValueError(
                    f"{self._task} shows no state '{term['key']}'; its terms are "
                    f"{', '.join(policy)}"
                )
            values = policy[term["key"]]
            first, last = term["slice"] or (0, values.shape[1])
            if values.ndim != 2 or not 0 <= first < last <= values.shape[1]:
                raise ValueError(
                    f"state '{term['key']}' of {self._task} has the shape "
                    f"{list(values.shape[1:])}; slice {term['slice']} is not in it"
                )
            parts.append(values[:, first:last].float())
        if not parts:
            return np.zeros((self._env.num_envs, 0), np.float32)
        return torch.cat(parts, 1).cpu().numpy()

    def _observed(self, slots, state, is_drawn):
        begun = time.process_time()
        if is_drawn.any():
            for number, camera in enumerate(self._cameras):
                seen = world.pixels(self._env, camera)[slots].cpu().numpy()
                self._images_CNHW3[number, slots] = np.where(is_drawn[:, None, None, None], seen, 0)
        elif self._cameras:
            self._images_CNHW3[:, slots] = 0
        self._cpu_s["rendering"] += time.process_time() - begun
        return {"state": state, "cpu_s": self._cpu_s}

    def _require(self, cfg, field, known, wanted):
        for name in wanted:
            if name not in known:
                has = ", ".join(known) or "none"
                raise ValueError(f"{self._task} has no '{name}' for {field}; it has {has}")
