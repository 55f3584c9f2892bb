"""EnvPool's tasks: the same MuJoCo tasks and more, in C++ on several threads.

EnvPool itself resets an environment only in the step after the one that ended its episode, and
ignores the action of that step. Here ended environments are reset at once, in a second call for
them alone, so that no transition is made up. The state of the physics cannot be read: `state()` is
None, and a resumed run starts new episodes.

Legend: N environments, A width of an action, O visible width of an observation, K ended episodes.
"""

import typing
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import torch
from tensordict import TensorDict

from rrf.config import did_you_mean
from rrf.data.dataset.sampling import mixed_seed
from rrf.envs.control_env import EnvState, Interface, OfRslRl, check_step
from rrf.envs.gymnasium.configs import EnvPoolEnvCfg
from rrf.envs.gymnasium.spaces import ActionMap, flattening, visible_dimensions
from rrf.lookup import require

_MAX_SEED = 2**31 - 1
_STEP_DT_S = 0.02  # for a task that does not tell; it only sets the speed of videos


class EnvPoolEnv(OfRslRl):
    """N copies of a task; see `rrf.envs.control_env.ControlEnv`. Its only group is "policy".

    The policy gives real actions in [-1, 1]. They are scaled to the task's bounds
    (`rrf.envs.gymnasium.spaces`).
    """

    has_seeds: typing.ClassVar[bool] = False

    def __init__(
        self, cfg: EnvPoolEnvCfg, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        """Build the environments and start their first episodes.

        Raises:
            ValueError: For an unknown task, or a space that `rrf.envs.gymnasium.spaces` does not
                support.
            ImportError: If EnvPool is not installed, with the command that installs it.
        """
        envpool: typing.Any = require("envpool", extra="envpool")
        known = envpool.list_all_envs()
        if cfg.task not in known:
            raise ValueError(f"no EnvPool task '{cfg.task}'{did_you_mean(cfg.task, known)}")
        self.cfg = cfg
        self.num_envs = cfg.num_envs
        self.device = torch.device(device)
        self._make: Callable[..., typing.Any] = envpool.make
        self.max_episode_length = int(envpool.make_spec(cfg.task).config.max_episode_steps)
        self._pool: typing.Any = self._make_pool(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns that float32 bounds lose precision
            space, action_space = self._pool.observation_space, self._pool.action_space
        self._map_actions = ActionMap(action_space, cfg.num_envs, cfg.task)
        self._visible = visible_dimensions(space, cfg.hidden, cfg.task)
        if flattening(space) is not None:
            raise ValueError(
                f"{cfg.task} has the observation space {space}; of EnvPool's tasks only those with "
                "a one-dimensional Box are supported. Train Gymnasium's task of the same name"
            )
        self.observation_bounds = {
            "policy": tuple(b.astype(np.float32)[self._visible] for b in (space.low, space.high))
        }
        self.num_actions = self._map_actions.num_actions
        self.episode_length_buf = torch.zeros(cfg.num_envs, dtype=torch.int64, device=self.device)
        self.interface = Interface(
            observation_dims={"policy": len(self._visible)},
            num_actions=self.num_actions,
            num_choices=self._map_actions.num_choices,
            step_dt=_step_dt(self._pool, cfg.task),
            task=cfg.task,
        )
        self.reset()

    def get_observations(self) -> TensorDict:
        """The current observations, {"policy": float32 [N, O]}."""
        return self._group(self._observations)

    def reset(self) -> tuple[TensorDict, dict]:
        """Start a new episode in every environment."""
        self._observations = self._reset_ended(np.arange(self.num_envs))
        self._check(self._observations, np.zeros(self.num_envs, np.float32))
        return self.get_observations(), {}

    def reset_envs(
        self,
        env_ids: Sequence[int],
        seeds: Sequence[int | None] | None = None,
        options: dict[str, typing.Any] | None = None,
    ) -> TensorDict:
        """See `rrf.envs.control_env.ResetsSome`."""
        envs, observations = np.asarray(env_ids, np.int64), self._observations.copy()
        self.episode_length_buf = self.episode_length_buf.clone()
        observations[envs] = self._reset_ended(envs)
        self._check(observations, np.zeros(self.num_envs, np.float32))
        self._observations = observations
        return self.get_observations()

    def to_task(self, actions: np.ndarray) -> np.ndarray:
        """Actions of a policy, [M, A], as the task takes them."""
        return self._map_actions.taken(actions)

    def to_policy(self, actions: np.ndarray) -> np.ndarray:
        """Actions that the task took, [M, A], as a policy gives them; see `ActionMap.inverse`."""
        return self._map_actions.inverse(actions)

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        """See `ControlEnv.step`.

        Raises:
            ValueError: Also if the task returns a NaN or Inf.
        """
        results = self._pool.step(self._map_actions(actions))
        observations = results[0].astype(np.float32)[:, self._visible]
        rewards, terminated, truncated = results[1].astype(np.float32), results[2], results[3]
        self._check(observations, rewards)
        self.episode_length_buf = self.episode_length_buf + 1  # not +=: the caller may hold it
        late = self.episode_length_buf.cpu().numpy() >= self.max_episode_length
        time_outs = (truncated | late) & ~terminated
        dones = terminated | time_outs
        final = None
        if dones.any():
            ended = np.flatnonzero(dones)
            final = self._group(observations[ended])
            observations[ended] = self._reset_ended(ended)
            self._check(observations, rewards)
        self._observations = observations
        extras = {"time_outs": self._tensor(time_outs), "final_obs": final, "log": {}}
        return self._group(observations), self._tensor(rewards), self._tensor(dones), extras

    def state(self) -> EnvState | None:
        """Always None: EnvPool does not expose the state of its physics."""
        return None

    def load_state(self, state: EnvState) -> None:
        """Not supported.

        Raises:
            ValueError: Always.
        """
        raise ValueError("EnvPool cannot continue from a state; train in a GymnasiumEnvCfg instead")

    def set_progress(self, num_steps: int, seed: int) -> None:
        """Use `seed` from the next `reset` on.

        A resumed run should not see its first episodes again. `num_steps` has no effect here.
        """
        self._pool = self._make_pool(seed)

    def close(self) -> None:
        """End the threads. Calling it twice is allowed."""
        self._pool = None

    def _make_pool(self, seed: int) -> typing.Any:
        return self._make(
            self.cfg.task,
            env_type="gymnasium",
            num_envs=self.num_envs,
            num_threads=min(self.cfg.num_threads, self.num_envs),
            seed=mixed_seed(seed) % _MAX_SEED,
            # At its own time limit, EnvPool does not tell whether the task terminated as well, so
            # its limit is one step later than ours.
            max_episode_steps=self.max_episode_length + 1,
        )

    def _reset_ended(self, ended: np.ndarray) -> np.ndarray:
        """Reset the environments `ended`; returns their first observations [K, O]."""
        observations = self._pool.reset(ended.astype(np.int32))[0]
        observations = observations.astype(np.float32)[:, self._visible]
        self.episode_length_buf[torch.from_numpy(ended).to(self.device)] = 0
        return observations

    def _check(self, observations: np.ndarray, rewards: np.ndarray) -> None:
        if not (np.isfinite(observations).all() and np.isfinite(rewards).all()):
            dones = torch.zeros(self.num_envs, dtype=torch.bool)
            rewards_n = torch.from_numpy(rewards)
            check_step(self._group(observations), rewards_n, dones, self.num_envs, self.cfg.task)

    def _group(self, observations: np.ndarray) -> TensorDict:
        return TensorDict({"policy": self._tensor(observations)}, [len(observations)])

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array.copy()).to(self.device)


def _step_dt(pool: typing.Any, task: str) -> float:
    """Seconds between two actions, taken from Gymnasium's task of the same name."""
    import gymnasium

    from rrf.envs.gymnasium.env import step_dt
    from rrf.envs.gymnasium.registry import find_spec, make_envs

    if task not in gymnasium.registry:
        return _STEP_DT_S
    try:
        (env,) = make_envs(find_spec(task), {})
    except ImportError:
        return _STEP_DT_S
    try:
        return step_dt(env)
    finally:
        env.close()
