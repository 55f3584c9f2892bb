"""Our environments as a `gymnasium.vector.VectorEnv`, for trainers of other projects.

Episodes end and begin within one step (`AutoresetMode.SAME_STEP`). The observation that a step
returns is then the first one of the new episode, and the last one of the old episode is in
`infos["final_obs"]`, as in `gymnasium.vector.SyncVectorEnv` with this mode.

Legend: N environments, A width of an action, O width of an observation.
"""

import typing
from collections.abc import Sequence

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from tensordict import TensorDict

from rrf.config import did_you_mean
from rrf.envs.configs import ControlEnvCfg
from rrf.envs.control_env import ControlEnv

_POLICY_GROUPS = ("actor", "policy")
_SCALED, _JOINT_TARGETS = 1.0, 10.0

Observations = np.ndarray | dict[str, np.ndarray]


def as_gymnasium(
    cfg: ControlEnvCfg | str,
    *,
    num_envs: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    groups: Sequence[str] | None = None,
    action_limit: float | None = None,
) -> "GymnasiumVectorEnv":
    """One of our environments as a `gymnasium.vector.VectorEnv`.

    Args:
        cfg: The config of an environment, e.g. `rrf.presets.resolve("go1-flat-ppo").env`, or the
            name of a task: one of mjlab (Mjlab-...) or any task of Gymnasium.
        num_envs: Environments that are stepped together; None takes the config's.
        seed: Seed of everything random. `reset(seed=...)` may replace it later, but for some
            environments this means to build them again.
        device: Device that simulates. What is returned are always NumPy arrays.
        groups: The groups of observations to return, as a dict of arrays, e.g. ["actor",
            "critic"]. None returns an array: the group that the policy may see.
        action_limit: Bound of the action space, -limit to limit. Actions are not clipped to it,
            because trainers do this themselves. None is 1 where actions are scaled to the task's
            own bounds, and 10 for robots, whose joint targets have none.

    Raises:
        ValueError: For an unknown task or group, and for what `cfg.build` refuses.
    """
    if isinstance(cfg, str):
        cfg = _cfg_of(cfg)
    if num_envs is not None:
        cfg = cfg.replace(num_envs=num_envs)
    return GymnasiumVectorEnv(cfg, seed, device, groups, action_limit)


def _cfg_of(task: str) -> ControlEnvCfg:
    from rrf.envs.gymnasium.configs import RegisteredEnvCfg
    from rrf.envs.mjlab.configs import MjlabEnvCfg

    return MjlabEnvCfg(task=task) if task.startswith("Mjlab-") else RegisteredEnvCfg(task=task)


class GymnasiumVectorEnv(gymnasium.vector.VectorEnv):
    """N environments of a `ControlEnv`; see `as_gymnasium`.

    Attributes:
        env: The environment itself, for what Gymnasium has no words for.
        log: The environment's own metrics of the last step, scalars or 0-d tensors by name.
    """

    def __init__(
        self,
        cfg: ControlEnvCfg,
        seed: int,
        device: str,
        groups: Sequence[str] | None,
        action_limit: float | None,
    ):
        self.cfg, self._device = cfg, device
        self._build(seed)
        interface = self.env.interface
        self.num_envs = self.env.num_envs
        self.metadata = {
            "autoreset_mode": AutoresetMode.SAME_STEP,
            "render_modes": [],
            "render_fps": round(1 / interface.step_dt),
        }
        dims = interface.observation_dims
        for name in groups or ():
            if name not in dims:
                raise ValueError(f"no group of observations '{name}'{did_you_mean(name, dims)}")
        self._groups = None if groups is None else list(groups)
        self._group = next((name for name in _POLICY_GROUPS if name in dims), next(iter(dims)))
        boxes = {name: spaces.Box(-np.inf, np.inf, (width,)) for name, width in dims.items()}
        self.single_observation_space = (
            boxes[self._group]
            if self._groups is None
            else spaces.Dict({name: boxes[name] for name in self._groups})
        )
        self.single_action_space = _action_space(self.env, action_limit)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, typing.Any] | None = None
    ) -> tuple[Observations, dict[str, typing.Any]]:
        """Begin new episodes.

        Args:
            seed: Continue as an environment that was built with this seed.
            options: May be empty only, because every environment is reset.

        Raises:
            ValueError: For options.
        """
        if options:
            raise ValueError(
                f"options are {sorted(options)}, allowed: none; environments reset themselves "
                "within the step that ends their episode"
            )
        super().reset(seed=seed)
        if seed is not None and (seed, True) != (self._seed, self._is_new):
            self.env.close()
            self._build(seed)
        elif not self._is_new:
            self._observations, _ = self.env.reset()
        self._is_new = False
        self.log = {}
        return self._arrays(self._observations), {}

    def step(
        self, actions: typing.Any
    ) -> tuple[Observations, np.ndarray, np.ndarray, np.ndarray, dict[str, typing.Any]]:
        """Execute actions, [N, A], or int [N] for discrete ones.

        Returns:
            Observations, rewards float64 [N], terminations and truncations bool [N], and infos. If
            episodes ended, the infos have "final_obs" (an object array with the last observation
            of each ended episode), "final_info" (empty) and the masks "_final_obs" and
            "_final_info".

        Raises:
            ValueError: For actions of a wrong shape, or with a NaN or Inf.
        """
        self._is_new = False
        actions_na = torch.as_tensor(np.asarray(actions, np.float32), device=self.env.device)
        if self.env.interface.num_choices is not None:
            actions_na = actions_na.unsqueeze(-1)
        self._observations, rewards, dones, extras = self.env.step(actions_na)
        self.log = extras["log"]
        dones_n = _array(dones).astype(bool)
        truncations = _array(extras["time_outs"]).astype(bool)
        infos = self._final(extras["final_obs"], dones_n) if dones_n.any() else {}
        return (
            self._arrays(self._observations),
            _array(rewards).astype(np.float64),
            dones_n & ~truncations,
            truncations,
            infos,
        )

    def close_extras(self, **kwargs: typing.Any) -> None:
        """Free threads, processes and memory."""
        self.env.close()

    def _build(self, seed: int) -> None:
        self.env: ControlEnv = self.cfg.build(seed=seed, device=self._device)
        self._observations = self.env.get_observations()
        self._seed, self._is_new = seed, True
        self.log: dict[str, typing.Any] = {}

    def _arrays(self, observations: TensorDict) -> Observations:
        if self._groups is None:
            return _array(observations[self._group])
        return {name: _array(observations[name]) for name in self._groups}

    def _final(self, final: TensorDict, dones_n: np.ndarray) -> dict[str, typing.Any]:
        """The infos about ended episodes; `final` holds their last observations, in order."""
        rows, ended = self._arrays(final), np.flatnonzero(dones_n)
        final_obs = np.full(self.num_envs, None, dtype=object)
        for row, env in enumerate(ended):
            if isinstance(rows, dict):
                final_obs[env] = {name: values[row] for name, values in rows.items()}
            else:
                final_obs[env] = rows[row]
        masks = {"_final_obs": dones_n, "_final_info": dones_n.copy()}
        return {"final_obs": final_obs, "final_info": {}} | masks


def _action_space(env: ControlEnv, action_limit: float | None) -> spaces.Space:
    interface = env.interface
    if interface.num_choices is not None:
        return spaces.Discrete(interface.num_choices)
    if action_limit is None:
        action_limit = _JOINT_TARGETS if interface.robot else _SCALED
    if not 0 < action_limit < np.inf:
        raise ValueError(f"action_limit is {action_limit}, allowed: above 0 and finite")
    return spaces.Box(-action_limit, action_limit, (interface.num_actions,))


def _array(values: torch.Tensor) -> np.ndarray:
    """A copy, because the environment may use the memory of `values` again."""
    return np.array(values.detach().cpu().numpy())
