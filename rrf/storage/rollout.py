"""The rollout that an on-policy algorithm stores: T steps of N environments.

Observations have one row more than actions. Row t + 1 is the observation that step t led to. If an
episode ended in step t (`goes_on` is false), row t + 1 already belongs to the next episode. A
penalty that compares a state with its successor can therefore find the true one, even though
samples are shuffled.

Legend: T time, N environments, S = T * N samples, O observation width, A action width, P parameters
of an action distribution, K episodes that ended in one step.
"""

import dataclasses
import functools
import typing

import torch
from tensordict import TensorDict


@dataclasses.dataclass
class ControlStep:
    """One step of all environments."""

    observations: TensorDict  # [N], before the action
    actions: torch.Tensor  # float32 [N, A]
    rewards: torch.Tensor  # float32 [N]
    dones: torch.Tensor  # bool [N]
    time_outs: torch.Tensor  # bool [N], the episode ended only because of its time limit
    next_observations: TensorDict  # [N], after resets
    final_observations: TensorDict | None  # [K], last ones of ended episodes, by environment index

    @classmethod
    def of(
        cls,
        observations: TensorDict,
        actions: torch.Tensor,
        result: tuple[TensorDict, torch.Tensor, torch.Tensor, dict],
    ) -> "ControlStep":
        """The step in which `actions` led from `observations` to the result of `env.step`.

        Third-party environments may not provide "final_obs". Then the observation before the last
        action is used instead. It is one step early, but the first observation of the next episode
        would be plainly wrong.
        """
        next_observations, rewards, dones, extras = result
        dones = dones.bool()
        time_outs = extras.get("time_outs", torch.zeros_like(dones)).bool()
        final = extras.get("final_obs")
        if final is None and bool(dones.any()):
            final = observations[dones]
        return cls(observations, actions, rewards, dones, time_outs, next_observations, final)


class Rollout:
    """Storage for one rollout. It is filled step by step and reused for the next rollout."""

    def __init__(self, num_steps: int, num_envs: int, device: torch.device | str = "cpu"):
        self.num_steps, self.num_envs, self.device = num_steps, num_envs, torch.device(device)
        self.step = 0
        self._tensors: dict[str, torch.Tensor] = {}
        self.memories: dict[str, torch.Tensor | None] = {}  # before the first step, by network
        self.finals: list[tuple[int, torch.Tensor, TensorDict]] = []  # t, environments, last obs

    def write(self, **values: torch.Tensor) -> None:
        """Store the values of the current step. The memory of a name is allocated at first use."""
        for name, value in values.items():
            if name not in self._tensors:
                self._tensors[name] = self._allocate(value, name)
            self._tensors[name][self.step] = value

    def advance(self) -> None:
        """Go to the next step."""
        self.step += 1

    def restart(self) -> None:
        """Begin the next rollout in the same memory."""
        self.step = 0
        self.finals = []

    def __getitem__(self, name: str) -> torch.Tensor:
        """The values of all steps, [T, N, ...]; for observations [T + 1, N, ...]."""
        return self._tensors[name]

    def __setitem__(self, name: str, values: torch.Tensor) -> None:
        """Set values that are known only when the rollout is full, [T, N, ...]."""
        self._tensors[name] = values

    @property
    def starts(self) -> torch.Tensor:
        """bool [T + 1, N]: an episode begins with this row.

        Row 0 is always false, because the memory before it already fits.
        """
        dones = self["dones"]
        return torch.cat([torch.zeros_like(dones[:1]), dones])

    def _allocate(self, value: torch.Tensor, name: str) -> torch.Tensor:
        rows = self.num_steps + (1 if name.endswith("_obs") else 0)
        return torch.zeros(rows, *value.shape, dtype=value.dtype, device=self.device)


@dataclasses.dataclass
class Samples:
    """A rollout as flat samples to learn from: every tensor is [S, ...]."""

    actor_obs: torch.Tensor
    critic_obs: torch.Tensor
    next_actor_obs: torch.Tensor
    next_critic_obs: torch.Tensor
    goes_on: torch.Tensor  # bool; whether the next observation is the true successor
    actions: torch.Tensor
    log_prob: torch.Tensor
    distribution: torch.Tensor  # [S, P], parameters at the time when the action was chosen
    values: torch.Tensor  # before the update
    returns: torch.Tensor
    advantages: torch.Tensor
    extra: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)  # added by variants

    def __len__(self) -> int:
        return len(self.actions)

    @classmethod
    def of(
        cls,
        rollout: Rollout,
        values: torch.Tensor,
        returns: torch.Tensor,
        advantages: torch.Tensor,
    ) -> "Samples":
        """Views of a full rollout; `values`, `returns` and `advantages` are [T, N]."""
        actor_obs, critic_obs = rollout["actor_obs"], rollout["critic_obs"]
        flat: dict[str, typing.Any] = {
            "actor_obs": actor_obs[:-1],
            "critic_obs": critic_obs[:-1],
            "next_actor_obs": actor_obs[1:],
            "next_critic_obs": critic_obs[1:],
            "goes_on": ~rollout["dones"],
            "actions": rollout["actions"],
            "log_prob": rollout["log_prob"],
            "distribution": rollout["distribution"],
            "values": values,
            "returns": returns,
            "advantages": advantages,
        }
        return cls(**{name: value.flatten(0, 1) for name, value in flat.items()})

    def joined(self, other: "Samples") -> "Samples":
        """The samples of both, concatenated. Of the extras, only those that both have are kept."""
        tensors: dict[str, typing.Any] = {
            field.name: torch.cat([getattr(self, field.name), getattr(other, field.name)])
            for field in dataclasses.fields(self)
            if field.name != "extra"
        }
        names = self.extra.keys() & other.extra.keys()
        extra = {name: torch.cat([self.extra[name], other.extra[name]]) for name in names}
        return Samples(**tensors, extra=extra)

    def rows(self, indices: torch.Tensor, envs: torch.Tensor | None = None) -> "Batch":
        """The samples at `indices` (int64 [B]); for whole sequences, those of `envs`."""
        return Batch(self, indices, envs)


class Batch:
    """A selection of samples. Each field is gathered when it is first accessed."""

    def __init__(self, samples: Samples, indices: torch.Tensor, envs: torch.Tensor | None = None):
        self._samples, self.indices = samples, indices
        self.envs = envs  # not None if the samples are whole sequences of these, time first

    def __len__(self) -> int:
        return len(self.indices)

    def extra(self, name: str) -> torch.Tensor:
        """A field that a variant added."""
        return self._samples.extra[name][self.indices]

    @functools.cached_property
    def actor_obs(self) -> torch.Tensor:
        return self._samples.actor_obs[self.indices]

    @functools.cached_property
    def critic_obs(self) -> torch.Tensor:
        return self._samples.critic_obs[self.indices]

    @functools.cached_property
    def next_actor_obs(self) -> torch.Tensor:
        return self._samples.next_actor_obs[self.indices]

    @functools.cached_property
    def next_critic_obs(self) -> torch.Tensor:
        return self._samples.next_critic_obs[self.indices]

    @functools.cached_property
    def goes_on(self) -> torch.Tensor:
        return self._samples.goes_on[self.indices]

    @functools.cached_property
    def actions(self) -> torch.Tensor:
        return self._samples.actions[self.indices]

    @functools.cached_property
    def log_prob(self) -> torch.Tensor:
        return self._samples.log_prob[self.indices]

    @functools.cached_property
    def distribution(self) -> torch.Tensor:
        return self._samples.distribution[self.indices]

    @functools.cached_property
    def values(self) -> torch.Tensor:
        return self._samples.values[self.indices]

    @functools.cached_property
    def returns(self) -> torch.Tensor:
        return self._samples.returns[self.indices]

    @functools.cached_property
    def advantages(self) -> torch.Tensor:
        return self._samples.advantages[self.indices]
