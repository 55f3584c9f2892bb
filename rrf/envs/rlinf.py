"""Exchanges environments with RLinf: its observation dict, and adapters in both directions.

RLinf (commit a3816b596, `rlinf/envs/*/…_env.py`) observes through a dict of tensors:

| key                 | value                                                       |
|---------------------|-------------------------------------------------------------|
| `main_images`       | uint8 [B, H, W, 3]                                          |
| `wrist_images`      | uint8 [B, H, W, 3], [B, N, H, W, 3] of several, or None     |
| `extra_view_images` | uint8 [B, N, H, W, 3], or None                              |
| `states`            | float [B, D]                                                |
| `task_descriptions` | list of B strings                                           |

Its environments step all slots together, and number their initial states over all tasks
(`reset_state_ids`). `chunk_step` answers with columns, one per action of the chunk.

Legend: B slots, C actions of a chunk, A action dimension, D state dimension.
"""

import dataclasses
import typing
from collections.abc import Mapping, Sequence

import numpy as np

from rrf.data.schema import Observation
from rrf.envs.observations import join, rows_of
from rrf.envs.slots import Slots
from rrf.envs.vec_env import InitialState, Step, VecEnv, check_actions


@dataclasses.dataclass(frozen=True)
class RLinfViews:
    """Which of our cameras stands for which of RLinf's images."""

    main: str
    wrist: Sequence[str] = ()
    extra: Sequence[str] = ()


def to_rlinf(observation: Observation, views: RLinfViews) -> dict[str, typing.Any]:
    """An observation as RLinf's dict of tensors.

    Raises:
        ValueError: For a camera that the observation does not have.
    """
    import torch

    for camera in (views.main, *views.wrist, *views.extra):
        if camera not in observation.images:
            have = ", ".join(sorted(observation.images)) or "none"
            raise ValueError(f"no camera '{camera}' for RLinf; the observation has: {have}")

    def stacked(cameras: Sequence[str]) -> torch.Tensor | None:
        images = [torch.from_numpy(observation.images[camera]) for camera in cameras]
        return torch.stack(images, dim=1) if images else None

    wrist = stacked(views.wrist)
    return {
        "main_images": torch.from_numpy(observation.images[views.main]),
        "wrist_images": wrist[:, 0] if wrist is not None and len(views.wrist) == 1 else wrist,
        "extra_view_images": stacked(views.extra),
        "states": torch.from_numpy(observation.state),
        "task_descriptions": list(observation.instruction),
    }


def from_rlinf(observation: Mapping[str, typing.Any], views: RLinfViews) -> Observation:
    """The inverse of `to_rlinf`; tensors and arrays are taken.

    Raises:
        ValueError: If the dict has other images than `views` names.
    """
    images = {views.main: np.asarray(observation["main_images"])}
    for key, cameras in (("wrist_images", views.wrist), ("extra_view_images", views.extra)):
        given = observation.get(key)
        camera_images = [] if given is None else np.moveaxis(_view_images(given), 1, 0)
        if len(camera_images) != len(cameras):
            raise ValueError(
                f"RLinf's {key} holds {len(camera_images)} images, but {len(cameras)} cameras are "
                f"named for them: {', '.join(cameras) or 'none'}"
            )
        images |= zip(cameras, camera_images, strict=True)
    return Observation(
        {camera: np.ascontiguousarray(values) for camera, values in images.items()},
        np.asarray(observation["states"], np.float32),
        list(observation["task_descriptions"]),
    )


def _view_images(images: typing.Any) -> np.ndarray:
    """Images of N views, [B, N, H, W, 3], from those or from [B, H, W, 3] of one."""
    images = np.asarray(images)
    return images[:, None] if images.ndim == 4 else images


class AsRLinf:
    """One of our environments with the methods of RLinf's, without automatic resets.

    A slot whose episode has ended keeps its last observation, and its columns say that it has
    ended, until it is reset. Physics and rewards are ours: where a simulator only gives the sum of
    a chunk, it stands in the column of the last action that was executed. Only the last observation
    of a chunk is drawn.
    """

    def __init__(self, env: VecEnv, initial_states: Sequence[InitialState], views: RLinfViews):
        """`initial_states` are what RLinf's reset_state_ids number, from 0."""
        self.env, self._states, self._views = env, list(initial_states), views
        self.num_envs = env.num_envs
        self._ended = np.ones((env.num_envs, 2), bool)  # terminated, truncated
        self._success, self._is_solved = np.zeros((2, env.num_envs), bool)
        self._returns = np.zeros(env.num_envs)
        self._lengths = np.zeros(env.num_envs, np.int64)
        self._seen: list[Observation | None] = [None] * env.num_envs

    def reset(
        self,
        env_idx: Sequence[int] | None = None,
        reset_state_ids: Sequence[int] | None = None,
    ) -> tuple[dict[str, typing.Any], dict]:
        """Start episodes, by default in all slots and from the first initial states in turn.

        Returns:
            The observation of all slots, and {}.

        Raises:
            ValueError: For an unknown reset_state_id, or if a slot has never been reset.
        """
        slots = list(range(self.num_envs)) if env_idx is None else [int(n) for n in env_idx]
        if reset_state_ids is None:
            reset_state_ids = [slot % len(self._states) for slot in slots]
        for number in reset_state_ids:
            if not 0 <= number < len(self._states):
                raise ValueError(
                    f"no reset_state_id {number}; there are {len(self._states)}, numbered from 0"
                )
        states = [self._states[int(number)] for number in reset_state_ids]
        self._remember(self.env.reset(states, slots), slots)
        self._ended[slots] = self._success[slots] = self._is_solved[slots] = False
        self._returns[slots] = self._lengths[slots] = 0
        return self._observation(), {}

    def chunk_step(self, actions: typing.Any) -> tuple:
        """Execute a chunk, [B, C, A], in all slots whose episode runs.

        Returns:
            [observation], rewards [B, C], terminations [B, C], truncations [B, C], [infos].
        """
        import torch

        actions = np.asarray(actions, np.float32)
        shape = (self.num_envs, self.env.chunk_length)
        rewards, ended = np.zeros(shape, np.float32), np.zeros((*shape, 2), bool)
        ended[self._ended.any(1), -1] = self._ended[self._ended.any(1)]
        running = np.flatnonzero(~self._ended.any(1)).tolist()
        if running:
            step = self.env.step(actions[running], running)
            self._remember(step.observation, running)
            last = step.steps - 1
            if (single := step.extras.get("rewards")) is not None:
                rewards[running] = single
            else:
                rewards[running, last] = step.reward
            ended[running, last] = np.stack([step.terminated, step.truncated], axis=1)
            self._ended[running] = ended[running, last]
            self._success[running] |= step.success
            self._is_solved[running] = step.extras.get("success_at_end", step.success)
            self._returns[running] += step.reward
            self._lengths[running] += step.steps
        episode = {
            "success_once": self._success.copy(),
            "success_at_end": self._is_solved.copy(),
            "return": self._returns.copy(),
            "episode_len": self._lengths.copy(),
            "reward": self._returns / np.maximum(self._lengths, 1),
        }
        infos = {"episode": {name: torch.from_numpy(values) for name, values in episode.items()}}
        columns = (torch.from_numpy(values) for values in (rewards, ended[..., 0], ended[..., 1]))
        return ([self._observation()], *columns, [infos])

    def close(self) -> None:
        """Close our environment."""
        self.env.close()

    def _remember(self, observation: Observation, slots: Sequence[int]) -> None:
        for row, slot in enumerate(slots):
            self._seen[slot] = rows_of(observation, [row])

    def _observation(self) -> dict[str, typing.Any]:
        seen = [observation for observation in self._seen if observation is not None]
        if len(seen) < self.num_envs:
            raise ValueError("RLinf observes all slots at once; reset all of them first")
        return to_rlinf(join(seen), self._views)


class FromRLinf:
    """An environment of RLinf with the contract of `rrf.envs.vec_env.VecEnv`.

    It must have been made with auto_reset=False and ignore_terminations=False. RLinf steps all
    slots together, so `step` must be given all running slots; ended ones get actions of 0. Success
    is `infos["episode"]["success_once"]`. What RLinf does in the rest of a chunk in which an
    episode ended does not count, but the last observation is that of the chunk's end.
    """

    def __init__(
        self,
        env: typing.Any,
        reset_state_ids: Mapping[InitialState, int],
        views: RLinfViews,
        *,
        chunk_length: int,
        action_dim: int,
        state_dim: int,
        max_episode_steps: int,
        fps: int,
    ):
        """
        Args:
            env: RLinf's environment.
            reset_state_ids: RLinf's number of each initial state that may be asked for.
            views: Which camera each of RLinf's images gets.
            chunk_length: Actions per chunk.
            action_dim: Numbers in an action.
            state_dim: Numbers in a state.
            max_episode_steps: RLinf's horizon in actions.
            fps: Actions per second.
        """
        self._env, self._ids, self._views = env, dict(reset_state_ids), views
        self.num_envs: int = env.num_envs
        self.chunk_length, self.action_dim, self.state_dim = chunk_length, action_dim, state_dim
        self.max_episode_steps, self.fps = max_episode_steps, fps
        self._slots = Slots(self.num_envs)

    def reset(
        self, initial_states: Sequence[InitialState], env_ids: Sequence[int] | None = None
    ) -> Observation:
        """See `VecEnv.reset`."""
        slots = self._slots.check_reset(initial_states, env_ids, self._check)
        ids = np.array([self._ids[state] for state in initial_states])
        observation, _ = self._env.reset(env_idx=np.array(slots), reset_state_ids=ids)
        self._slots.begin(slots)
        return rows_of(from_rlinf(observation, self._views), slots)

    def step(self, actions: np.ndarray, env_ids: Sequence[int] | None = None) -> Step:
        """See `VecEnv.step`.

        Raises:
            ValueError: Also if a running slot is left out.
        """
        slots = self._slots.check(env_ids)
        actions = np.asarray(actions)
        check_actions(actions, slots, self.chunk_length, self.action_dim)
        self._slots.check_running(slots)
        if left_out := set(self._slots.running) - set(slots):
            raise ValueError(
                "RLinf steps all slots together, but no actions were given for slots "
                f"{sorted(left_out)}, whose episodes run"
            )
        whole = np.zeros((self.num_envs, self.chunk_length, self.action_dim), np.float32)
        whole[slots] = actions
        observations, rewards, terminations, truncations, infos = self._env.chunk_step(whole)
        terminated, truncated = (np.asarray(x, bool)[slots] for x in (terminations, truncations))
        ended = terminated | truncated
        steps = np.where(ended.any(1), ended.argmax(1) + 1, self.chunk_length)
        is_executed = np.arange(self.chunk_length) < steps[:, None]
        reward = (np.asarray(rewards, np.float32)[slots] * is_executed).sum(1)
        success = np.asarray(infos[-1]["episode"]["success_once"], bool)[slots]
        return self._slots.finish_step(
            slots,
            rows_of(from_rlinf(observations[-1], self._views), slots),
            reward,
            success & ended.any(1),
            ended.any(1) & ~success,
            steps,
        )

    def close(self) -> None:
        """See `VecEnv.close`."""
        self._slots.close()
        if close := getattr(self._env, "close", None):
            close()

    def _check(self, initial_state: InitialState) -> None:
        if initial_state not in self._ids:
            raise ValueError(
                f"{initial_state} has no reset_state_id; {len(self._ids)} initial states have one"
            )
