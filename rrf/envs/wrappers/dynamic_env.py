"""What a dynamics model or world model learns from in addition to observations: the parts of the
reward and the command, at every step.

If the environment reports its reward terms (mjlab, Gymnasium's MuJoCo v5), each term is a column.
Otherwise the reward itself is the only column. If the environment follows a command, the command
given here is the one in force during the step, for which the reward was given.

Legend: N environments, R reward terms, C width of the command.
"""

import typing

import torch
from tensordict import TensorDict

from rrf.envs.control_env import ControlEnv
from rrf.envs.wrappers.wrapper import ControlEnvWrapper

_POLICY_GROUPS = ("actor", "policy")


class DynamicEnv(ControlEnvWrapper):
    """Adds `extras["dynamics"] = {"reward_terms": float32 [N, R], "command": float32 [N, C]}`.

    `reset` and `step` return observation groups, like every `ControlEnv`; `policy_observations`
    picks the policy's group, float32 [N, policy_dim].

    Attributes:
        reward_names: Names of the R columns; only "reward" if the environment reports no terms.
        dim_params: Widths that a model is built for: policy_dim, critic_dim (policy_dim if there is
            no privileged group), action_dim, reward_dim (R), command_dim (C), and <group>_dim of
            every further group.
    """

    def __init__(self, env: ControlEnv):
        """Wrap `env`.

        Raises:
            ValueError: If `env` already shows only part of its environments.
        """
        super().__init__(env)
        if env.num_envs != self.unwrapped.num_envs:
            raise ValueError(
                f"{type(env).__name__} shows {env.num_envs} of {self.unwrapped.num_envs} "
                "environments; the order is GroupVecWrapper(DynamicEnv(env), ...)"
            )
        self.reward_names: list[str] = list(getattr(self.unwrapped, "reward_names", [])) or [
            "reward"
        ]
        self._has_terms = self.reward_names != ["reward"]
        self._policy_group = _policy_group(env.interface.observation_dims)
        self.dim_params = self._dim_params()

    def policy_observations(self, observations: TensorDict) -> torch.Tensor:
        """The policy's group of `observations`, float32 [N, policy_dim]."""
        return observations[self._policy_group]

    def reset(self) -> tuple[TensorDict, dict]:
        """Start a new episode in every environment. The reward terms are zero."""
        observations, extras = self.env.reset()
        zeros = torch.zeros(self.num_envs, len(self.reward_names), device=self.device)
        return observations, extras | {"dynamics": {"reward_terms": zeros, **self._command()}}

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        """See `ControlEnv.step`; `extras` also has "dynamics"."""
        command = self._command()
        observations, rewards, dones, extras = self.env.step(actions)
        if self._has_terms:
            terms = self.unwrapped.reward_terms()
            terms_nr = torch.stack([terms[name] for name in self.reward_names], dim=-1)
        else:
            terms_nr = rewards[:, None].clone()
        dynamics = {"reward_terms": terms_nr, **command}
        return observations, rewards, dones, extras | {"dynamics": dynamics}

    def _command(self) -> dict[str, torch.Tensor]:
        command = getattr(self.unwrapped, "command", None)
        if command is None:
            return {"command": torch.zeros(self.num_envs, 0, device=self.device)}
        return {"command": command.clone()}

    def _dim_params(self) -> dict[str, int]:
        dims: typing.Mapping[str, int] = self.interface.observation_dims
        policy_dim = dims[self._policy_group]
        known = {
            "policy_dim": policy_dim,
            "critic_dim": dims.get("critic", policy_dim),
            "action_dim": self.interface.num_choices or self.num_actions,
            "reward_dim": len(self.reward_names),
            "command_dim": self._command()["command"].shape[-1],
        }
        return known | {f"{name}_dim": width for name, width in dims.items() if name != "actor"}


def _policy_group(dims: typing.Mapping[str, int]) -> str:
    for name in _POLICY_GROUPS:
        if name in dims:
            return name
    raise ValueError(f"no group 'actor' or 'policy' among the observations {sorted(dims)}")
