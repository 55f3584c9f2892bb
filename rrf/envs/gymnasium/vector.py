"""Our environments as a `gymnasium.vector.VectorEnv`, for trainers of other projects.

Without another mode, episodes end and begin within one step (`AutoresetMode.SAME_STEP`). The
observation that a step returns is then the first one of the new episode, and the last one of the
old episode is in `infos["final_obs"]`, as in `gymnasium.vector.SyncVectorEnv` with this mode.
NEXT_STEP and DISABLED are Gymnasium's, too.

Legend: N environments, A width of an action, O width of an observation.
"""

import typing
from collections.abc import Sequence

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from tensordict import TensorDict

from rrf.config import did_you_mean
from rrf.envs.configs import ControlEnvCfg, task_id
from rrf.envs.control_env import ControlEnv, ResetsSome
from rrf.envs.gymnasium.env import UNLIMITED, GymnasiumEnv

if typing.TYPE_CHECKING:
    from rrf.envs.rendering.film import EpisodeFilm

_POLICY_GROUPS = ("actor", "policy")
_SCALED, _JOINT_TARGETS = 1.0, 10.0
_ARRAY = "rgb_array"
IMAGE_SIZE = (240, 320)
"""Height and width of a picture in pixels."""

Observations = np.ndarray | dict[str, np.ndarray]
Seed = int | Sequence[int | None] | None


def as_gymnasium(
    cfg: ControlEnvCfg | str,
    *,
    num_envs: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    groups: Sequence[str] | None = None,
    action_limit: float | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
    render_mode: typing.Literal["rgb_array"] | None = None,
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
        autoreset_mode: Gymnasium's mode, or its name: SameStep, NextStep, Disabled. The last two
            need an environment that can reset some of its environments, which all of rrf can.
        render_mode: rgb_array: `render` returns pictures.

    Raises:
        ValueError: For an unknown task, group or mode, and for what `cfg.build` refuses.
    """
    if isinstance(cfg, str):
        cfg = cfg_of(cfg)
    if num_envs is not None:
        cfg = cfg.replace(num_envs=num_envs)
    mode = AutoresetMode(autoreset_mode)
    return GymnasiumVectorEnv(cfg, seed, device, groups, action_limit, mode, render_mode)


def cfg_of(task: str) -> ControlEnvCfg:
    """The config of a task that is given by its name."""
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
        autoreset_mode: AutoresetMode,
        render_mode: typing.Literal["rgb_array"] | None,
    ):
        if render_mode not in (None, _ARRAY):
            raise ValueError(f"render_mode is '{render_mode}', allowed: {_ARRAY} or None")
        self.cfg, self._device, self.render_mode = cfg, device, render_mode
        self._film: EpisodeFilm | None = None
        self._build(seed)
        interface = self.env.interface
        self.num_envs = self.env.num_envs
        self._mode, self._pending_n = autoreset_mode, np.zeros(self.num_envs, bool)
        if autoreset_mode is not AutoresetMode.SAME_STEP and not isinstance(self.env, ResetsSome):
            raise ValueError(
                f"autoreset_mode is {autoreset_mode}, but {type(self.env).__name__} has no "
                "reset_envs (rrf.envs.control_env.ResetsSome); use SAME_STEP"
            )
        self.metadata = {
            "autoreset_mode": autoreset_mode,
            "render_modes": [_ARRAY],
            "render_fps": round(1 / interface.step_dt),
        }
        dims = interface.observation_dims
        for name in groups or ():
            if name not in dims:
                raise ValueError(f"no group of observations '{name}'{did_you_mean(name, dims)}")
        self._groups = None if groups is None else list(groups)
        self._group = next((name for name in _POLICY_GROUPS if name in dims), next(iter(dims)))
        boxes = _boxes(self.env)
        self.single_observation_space = (
            boxes[self._group]
            if self._groups is None
            else spaces.Dict({name: boxes[name] for name in self._groups})
        )
        self.single_action_space = _action_space(self.env, action_limit)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.spec = _spec_of(cfg, self.env.max_episode_length)

    def reset(
        self, *, seed: Seed = None, options: dict[str, typing.Any] | None = None
    ) -> tuple[Observations, dict[str, typing.Any]]:
        """Begin new episodes.

        Args:
            seed: As in Gymnasium, `seed` + i for environment i, or one for each of them. What
                draws all its random numbers from one stream (mjlab, EnvPool) continues as an
                environment that was built with this seed, and takes no list.
            options: reset_mask, bool [N]: only these environments begin anew. The others go to the
                `reset` of Gymnasium's tasks.

        Raises:
            ValueError: For seeds, a mask or options that the environment cannot follow.
        """
        options = dict(options or {})
        mask = options.pop("reset_mask", None)
        begins_n = np.ones(self.num_envs, bool) if mask is None else self._checked(mask)
        if seed is None or isinstance(seed, int | np.integer):
            super().reset(seed=None if seed is None else int(seed))
        if isinstance(self.env, ResetsSome) and self.env.has_seeds:
            self._reset_some(self.env, begins_n, self._seeds(seed), options, mask is None)
        else:
            self._reset_batch(begins_n, seed, options, mask is None)
        self._pending_n = self._pending_n & ~begins_n
        self._is_new = False
        self.log = {}
        return self._arrays(self._observations), {}

    def step(
        self, actions: typing.Any
    ) -> tuple[Observations, np.ndarray, np.ndarray, np.ndarray, dict[str, typing.Any]]:
        """Execute actions, [N, A], or int [N] for discrete ones.

        Returns:
            Observations, rewards float64 [N], terminations and truncations bool [N], and infos. If
            episodes ended with SAME_STEP, the infos have "final_obs" (an object array with the last
            observation of each ended episode), "final_info" (empty) and the masks "_final_obs" and
            "_final_info". With the other modes, the observation is the last one of the episode.

        Raises:
            ValueError: For actions of a wrong shape, or with a NaN or Inf; with DISABLED, if an
                episode ended that was not reset.
        """
        self._is_new = False
        actions_na = torch.as_tensor(np.asarray(actions, np.float32), device=self.env.device)
        if self.env.interface.num_choices is not None:
            actions_na = actions_na.unsqueeze(-1)
        held = np.flatnonzero(self._pending_n)
        if len(held) and self._mode is AutoresetMode.DISABLED:
            raise ValueError(
                f"the episode of environment {held[0]} has ended; begin the next one: "
                "reset(options={'reset_mask': terminations | truncations})"
            )
        observations, rewards, dones, extras = self._stepped(actions_na, held)
        self.log = extras["log"]
        dones_n = _array(dones).astype(bool)
        truncations = _array(extras["time_outs"]).astype(bool)
        infos: dict[str, typing.Any] = {}
        arrays = self._arrays(observations)
        if dones_n.any():
            final = self._arrays(extras["final_obs"])
            if self._mode is AutoresetMode.SAME_STEP:
                infos = self._final(final, dones_n)
            else:
                self._pending_n, arrays = dones_n.copy(), _with_rows(arrays, dones_n, final)
        return (
            arrays,
            _array(rewards).astype(np.float64),
            dones_n & ~truncations,
            truncations,
            infos,
        )

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Pictures of all environments, uint8 [H, W, 3] each; None without `render_mode`.

        Where an episode has just ended, the picture shows the next one.

        Raises:
            ValueError: For an environment that cannot be drawn.
        """
        if self.render_mode is None:
            return None
        if self._film is None:
            from rrf.envs.rendering.film import EpisodeFilm

            self._film = EpisodeFilm(self.env, range(self.num_envs), IMAGE_SIZE)
        return tuple(self._film.frame())

    def call(
        self,
        name: str,
        *args: typing.Any,
        env_ids: Sequence[int] | None = None,
        **kwargs: typing.Any,
    ) -> tuple[typing.Any, ...]:
        """Call a method of every environment, or read an attribute: of Gymnasium's tasks each; of
        what is stepped in a batch, the batch's, once for each environment.

        Args:
            env_ids: Only of these environments.
        """
        ids = range(self.num_envs) if env_ids is None else env_ids
        tasks = self._tasks
        if tasks is None:
            value = _called(self._of_batch(name), args, kwargs)
            return (value,) * len(ids)
        return tuple(_called(tasks[index].get_wrapper_attr(name), args, kwargs) for index in ids)

    def get_attr(self, name: str) -> tuple[typing.Any, ...]:
        """An attribute of every environment; see `call`."""
        return self.call(name)

    def set_attr(self, name: str, values: typing.Any, env_ids: Sequence[int] | None = None) -> None:
        """Set an attribute of every environment. A list or tuple has a value for each of them.

        Args:
            env_ids: Only of these environments, all with the value `values`.

        Raises:
            ValueError: For another number of values; for different values in a batch.
        """
        ids = list(range(self.num_envs) if env_ids is None else env_ids)
        if env_ids is not None or not isinstance(values, list | tuple):
            values = [values] * len(ids)
        if len(values) != len(ids):
            raise ValueError(f"{len(values)} values of {name} for {len(ids)} environments")
        tasks = self._tasks
        if tasks is not None:
            for index, value in zip(ids, values, strict=True):
                tasks[index].set_wrapper_attr(name, value)
            return
        if len(ids) < self.num_envs or any(value is not values[0] for value in values):
            raise ValueError(f"{name} of a batch has one value, not one for each environment")
        setattr(self.env, name, values[0])

    def is_wrapped(self, wrapper: type[gymnasium.Wrapper], env_ids: Sequence[int]) -> list[bool]:
        """Whether each of these environments is a Gymnasium task that is wrapped so."""
        tasks = self._tasks
        return [tasks is not None and _has_wrapper(tasks[index], wrapper) for index in env_ids]

    def close_extras(self, **kwargs: typing.Any) -> None:
        """Free threads, processes and memory."""
        self._close_film()
        self.env.close()

    @property
    def _tasks(self) -> list[gymnasium.Env] | None:
        """The tasks themselves, where each environment is one."""
        return self.env.gym_envs if isinstance(self.env, GymnasiumEnv) else None

    def _of_batch(self, name: str) -> typing.Any:
        """An attribute of the environment, or of the simulation behind it."""
        holders = self.env, getattr(self.env, "unwrapped", None)
        for holder in holders:
            if hasattr(holder, name):
                return getattr(holder, name)
        raise AttributeError(f"{self.env.interface.task} has no attribute '{name}'")

    def _build(self, seed: int) -> None:
        self._close_film()
        self.env: ControlEnv = self.cfg.build(seed=seed, device=self._device)
        self._observations = self.env.get_observations()
        self._seed, self._is_new = seed, True
        self.log: dict[str, typing.Any] = {}

    def _close_film(self) -> None:
        if self._film is not None:
            self._film.close()
            self._film = None

    def _reset_some(
        self,
        env: ResetsSome,
        begins_n: np.ndarray,
        seeds: Sequence[int | None] | None,
        options: dict[str, typing.Any],
        is_whole: bool,
    ) -> None:
        """Reset environments that have seeds of their own."""
        if self._is_new and is_whole and seeds is None and not options:
            return  # as they were built
        seed_of = seeds or [None] * self.num_envs
        # Where an episode has ended, the next one has begun; only a seed or options begin another.
        ids = [
            int(index)
            for index in np.flatnonzero(begins_n)
            if not self._pending_n[index] or options or seed_of[index] is not None
        ]
        self._observations = env.reset_envs(ids, [seed_of[index] for index in ids], options)

    def _reset_batch(
        self, begins_n: np.ndarray, seed: Seed, options: dict[str, typing.Any], is_whole: bool
    ) -> None:
        """Reset environments that share their random numbers."""
        if options:
            raise ValueError(
                f"options are {sorted(options)}, allowed: reset_mask; {self.env.interface.task} "
                "takes no others"
            )
        if seed is not None and (not isinstance(seed, int | np.integer) or not is_whole):
            raise ValueError(
                f"the environments of {self.env.interface.task} draw from one stream of random "
                "numbers; give all of them together one seed, an int"
            )
        if seed is not None and (seed, True) != (self._seed, self._is_new):
            self.env.close()
            self._build(int(seed))
        elif not isinstance(self.env, ResetsSome):
            if not is_whole:
                raise ValueError(
                    f"{type(self.env).__name__} cannot reset some of its environments; give it a "
                    "method reset_envs (rrf.envs.control_env.ResetsSome)"
                )
            if not self._is_new:
                self._observations, _ = self.env.reset()
        elif not (self._is_new and is_whole):
            ids = np.flatnonzero(begins_n & ~self._pending_n).tolist()
            self._observations = self.env.reset_envs(ids)

    def _stepped(
        self, actions_na: torch.Tensor, held: np.ndarray
    ) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, typing.Any]]:
        """A step in which the environments `held` only show their first observation."""
        if not len(held):
            result = self.env.step(actions_na)
            self._observations = result[0]
            return result
        assert isinstance(self.env, ResetsSome)
        actions_na = actions_na.clone()
        actions_na[held] = 0.0
        self._pending_n = np.zeros(self.num_envs, bool)
        if isinstance(self.env, GymnasiumEnv) and self.env.can_hold:
            self.env.hold(held.tolist())
            result = self.env.step(actions_na)
            self._observations = result[0]
            return result
        _, rewards, dones, extras = self.env.step(actions_na)
        ended = dones.nonzero().squeeze(-1)
        is_kept = ~torch.isin(ended.cpu(), torch.from_numpy(held)).to(ended.device)
        rewards, dones, time_outs = rewards.clone(), dones.clone(), extras["time_outs"].clone()
        rewards[held], dones[held], time_outs[held] = 0.0, False, False
        final = extras["final_obs"]
        extras = extras | {
            "time_outs": time_outs,
            "final_obs": None if final is None else final[is_kept],
        }
        self._observations = self.env.reset_envs(held.tolist())
        return self._observations, rewards, dones, extras

    def _checked(self, mask: typing.Any) -> np.ndarray:
        is_mask = isinstance(mask, np.ndarray) and mask.dtype == np.bool_
        if not is_mask or mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(
                f"reset_mask is {mask!r}, allowed: a NumPy array, bool [{self.num_envs}], that "
                "marks one environment or more"
            )
        return mask

    def _seeds(self, seed: Seed) -> Sequence[int | None] | None:
        """A seed for every environment, as `gymnasium.vector.SyncVectorEnv` gives it."""
        if seed is None:
            return None
        if isinstance(seed, int | np.integer):
            return [int(seed) + index for index in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"{len(seed)} seeds for {self.num_envs} environments")
        return [None if value is None else int(value) for value in seed]

    def _arrays(self, observations: TensorDict) -> Observations:
        if self._groups is None:
            return _array(observations[self._group])
        return {name: _array(observations[name]) for name in self._groups}

    def _final(self, rows: Observations, dones_n: np.ndarray) -> dict[str, typing.Any]:
        """The infos about ended episodes; `rows` are their last observations, in order."""
        final_obs = np.full(self.num_envs, None, dtype=object)
        for row, env in enumerate(np.flatnonzero(dones_n)):
            if isinstance(rows, dict):
                final_obs[env] = {name: values[row] for name, values in rows.items()}
            else:
                final_obs[env] = rows[row]
        masks = {"_final_obs": dones_n, "_final_info": dones_n.copy()}
        return {"final_obs": final_obs, "final_info": {}} | masks


def _spec_of(cfg: ControlEnvCfg, max_episode_length: int) -> EnvSpec:
    """The spec with which `gymnasium.make` makes a single environment of `cfg`."""
    return EnvSpec(
        id=task_id(cfg.task),
        entry_point="rrf.envs.gymnasium.single:as_gymnasium_env",
        max_episode_steps=None if max_episode_length >= UNLIMITED else int(max_episode_length),
        kwargs={"cfg": cfg},
    )


def _boxes(env: ControlEnv) -> dict[str, spaces.Box]:
    """The space of each group of observations; unbounded where the environment names no bounds."""
    bounds = getattr(env, "observation_bounds", {})
    boxes = {}
    for name, width in env.interface.observation_dims.items():
        low, high = bounds.get(name, (-np.inf, np.inf))
        boxes[name] = spaces.Box(low, high, (width,), np.float32)
    return boxes


def _with_rows(arrays: Observations, where_n: np.ndarray, rows: Observations) -> Observations:
    """`arrays`, with other rows where `where_n` is true."""
    if isinstance(arrays, dict):
        assert isinstance(rows, dict)
        for name, values in arrays.items():
            values[where_n] = rows[name]
    else:
        arrays[where_n] = rows
    return arrays


def _has_wrapper(env: gymnasium.Env, wrapper: type[gymnasium.Wrapper]) -> bool:
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, wrapper):
            return True
        env = env.env
    return False


def _called(value: typing.Any, args: tuple, kwargs: dict[str, typing.Any]) -> typing.Any:
    return value(*args, **kwargs) if callable(value) else value


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
