"""Play a trained state-based policy and summarise what happened."""

import typing

import torch
from tensordict import TensorDict

from rrf.envs.control_env import ControlEnv
from rrf.envs.wrappers.wrapper import ControlEnvWrapper
from rrf.policies.control.actor_critic import ControlPolicy
from rrf.runners.control.episode_statistics import EpisodeStatistics

_MAX_EPISODES = 10_000


class Window(typing.Protocol):
    """Shows an environment; `rrf.envs.rendering.viewer.PassiveViewer` is one."""

    @property
    def is_open(self) -> bool: ...

    def show(self) -> None: ...


class WatchedEnv(ControlEnvWrapper):
    """An environment that records what happens in it, no matter who steps it."""

    def __init__(self, env: ControlEnv):
        super().__init__(env)
        self.statistics = EpisodeStatistics(env.num_envs, _MAX_EPISODES)
        self.num_steps = 0
        self._rewards = 0.0
        self._log: dict[str, list[float]] = {}

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        """See `ControlEnv.step`."""
        observations, rewards, dones, extras = self.env.step(actions)
        self.statistics.observe(rewards, dones.bool())
        self.num_steps += 1
        self._rewards += float(rewards.sum())
        for name, value in extras.get("log", {}).items():
            self._log.setdefault(name, []).append(float(value))
        return observations, rewards, dones, extras

    def summary(self) -> str:
        """A one-line summary; of the environment's own metrics, only those named "error"."""
        simulated_s = self.num_steps * self.interface.step_dt
        parts = [f"{self.num_envs} environments, {self.num_steps} steps ({simulated_s:.1f} s)"]
        metrics = self.statistics.metrics()
        if metrics:
            parts.append(
                f"{self.statistics.num_episodes} episodes ended, return "
                f"{metrics['rollout/return']:.4g}, length {metrics['rollout/length']:.0f}"
            )
        else:
            parts.append("no episode ended")
        parts.append(f"reward per step {self._rewards / (self.num_steps * self.num_envs):.4g}")
        errors = {name: values for name, values in self._log.items() if "error" in name}
        parts += [f"{name} {sum(values) / len(values):.3g}" for name, values in errors.items()]
        return ", ".join(parts)


def play(env: ControlEnv, policy: ControlPolicy, num_steps: int, window: Window | None) -> None:
    """Act greedily for `num_steps` steps, or until the window is closed."""
    policy.reset()
    observations = env.get_observations()
    for _ in range(num_steps):
        observations, _, dones, _ = env.step(policy.act(observations))
        policy.reset(dones.bool())
        if window is not None:
            window.show()
            if not window.is_open:
                return
