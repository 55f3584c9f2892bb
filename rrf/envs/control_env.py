"""The contract of state-based control: many environments stepped together, everything a tensor.

It is rsl_rl's VecEnv (5.4), so its runners train on our environments, and stricter where that loses
information: `extras["time_outs"]` is always there, and `extras["final_obs"]` holds the observations
the ended episodes really ended in, without which a time limit cannot be bootstrapped correctly.

Observations are a TensorDict of groups, each float32 [N, D]: "actor" (or "policy") is what the
policy may use on the robot, "critic" what a privileged critic may see besides.

Legend: N environments, A width of an action, K environments whose episode ended in this step.
"""

import dataclasses
import math
import typing

import torch
from tensordict import TensorDict


@dataclasses.dataclass
class EnvState:
    """All that decides how an environment goes on: named tensors and plain data."""

    tensors: dict[str, torch.Tensor]
    facts: dict[str, typing.Any]


@dataclasses.dataclass(frozen=True)
class Interface:
    """What a policy must know of its environment; saved with every checkpoint as interface.json."""

    observation_dims: dict[str, int]  # group -> width
    num_actions: int  # A; 1 if actions are chosen from a list
    num_choices: int | None = None  # how many there are to choose from; None: actions are real
    step_dt: float = 0.02  # seconds between actions
    task: str = ""  # e.g. "Mjlab-Velocity-Flat-Unitree-Go1", "HalfCheetah-v5"
    robot: dict[str, typing.Any] = dataclasses.field(default_factory=dict)
    # of mjlab tasks: joint_names, joint_stiffness, joint_damping, default_joint_pos, command_names,
    # observation_names, action_scale, as mjlab writes them into its ONNX files


class NotFiniteError(ValueError):
    """Training met a NaN or Inf."""


class ControlEnv(typing.Protocol):
    """N environments. One whose episode ends is reset within the same step.

    `step` returns (observations after resets, rewards float32 [N], dones bool [N], extras):
    "time_outs" bool [N] (ended by the time limit and by nothing else), "final_obs" TensorDict [K]
    of the ended ones in ascending order (None for K = 0), "log" dict of scalars or 0-d tensors.
    """

    num_envs: int
    num_actions: int
    max_episode_length: int
    episode_length_buf: torch.Tensor  # int64 [N], may be set
    device: torch.device | str
    cfg: typing.Any
    interface: Interface

    def get_observations(self) -> TensorDict:
        """What the policy sees now, TensorDict [N]."""
        ...

    def reset(self) -> tuple[TensorDict, dict]:
        """Start new episodes everywhere."""
        ...

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        """Execute `actions`, float32 [N, A] (a choice is its index).

        Raises:
            ValueError: For a wrong shape, or a NaN or Inf action, naming environment and dimension.
        """
        ...

    def state(self) -> EnvState | None:
        """What `load_state` needs to go on bit for bit; None if this environment cannot tell.

        A resumed run then calls `set_progress(num_steps, seed)`, where there is one, and `reset`:
        how many steps each environment had, and the seed of other episodes than the first.
        """
        ...

    def load_state(self, state: EnvState) -> None:
        """Continue from `state`, which came from an environment of the same config."""
        ...

    def close(self) -> None:
        """Free threads, processes and memory. Calling it twice is allowed."""
        ...


def check_actions(actions: torch.Tensor, num_envs: int, num_actions: int) -> None:
    """
    Raises:
        ValueError: For another shape than [N, A].
        NotFiniteError: For a NaN or Inf, naming environment and dimension.
    """
    if tuple(actions.shape) != (num_envs, num_actions):
        raise ValueError(
            f"actions have shape {list(actions.shape)}, expected [N, A] = {[num_envs, num_actions]}"
        )
    if not bool(torch.isfinite(actions).all()):
        env, dimension = (~torch.isfinite(actions)).nonzero()[0].tolist()
        raise NotFiniteError(
            f"the action of environment {env}, dimension {dimension}, is "
            f"{actions[env, dimension].item()}; not executed"
        )


def check_step(
    observations: TensorDict, rewards: torch.Tensor, dones: torch.Tensor, num_envs: int, where: str
) -> None:
    """Refuse what an environment must not return.

    Args:
        where: Names the environment in the message.

    Raises:
        ValueError: For a wrong shape.
        NotFiniteError: For a NaN or Inf, naming environment and dimension.
    """
    for name, value in (("rewards", rewards), ("dones", dones)):
        if tuple(value.shape) != (num_envs,):
            raise ValueError(
                f"{where} returned {name} of shape {list(value.shape)}, expected [{num_envs}]"
            )
    for name, value in (("rewards", rewards), *observations.items()):
        if value.shape[0] != num_envs:
            raise ValueError(
                f"{where} returned '{name}' for {value.shape[0]} environments, expected {num_envs}"
            )
        _check_finite(value, f"'{name}'", None, where)


def check_final(final: TensorDict | None, dones: torch.Tensor, where: str) -> None:
    """Refuse last observations of ended episodes that an environment must not return, as
    `check_step` does those that go on."""
    if final is None:
        return
    envs = dones.nonzero().squeeze(-1)
    for name, value in final.items():
        if value.shape[0] != len(envs):
            raise ValueError(
                f"{where} returned the last '{name}' of {value.shape[0]} episodes, but "
                f"{len(envs)} ended"
            )
        _check_finite(value, f"the last '{name}'", envs, where)


def _check_finite(value: torch.Tensor, name: str, envs: torch.Tensor | None, where: str) -> None:
    """`envs` int64 [K] are the environments of the rows, if not all of them."""
    # A sum is finite only if every number is; large ones can make it infinite all the same.
    if not value.is_floating_point() or math.isfinite(value.sum().item()):
        return
    wrong = (~torch.isfinite(value)).nonzero()
    if not len(wrong):
        return
    place = wrong[0].tolist()
    env = place[0] if envs is None else envs[place[0]].item()
    raise NotFiniteError(
        f"{where} returned {value[tuple(place)].item()} in {name} of environment {env}"
        + (f", dimension {place[1]}" if len(place) > 1 else "")
    )
