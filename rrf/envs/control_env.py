"""The contract of state-based control: many environments stepped together, with tensors as data.

It is rsl_rl's VecEnv (5.4), so rsl_rl's runners train on our environments. It is stricter where
that contract loses information. `extras["time_outs"]` is always present, and `extras["final_obs"]`
holds the last observations of the ended episodes, from before the reset. Without them a time limit
cannot be bootstrapped correctly.

Observations are a TensorDict of groups, each float32 [N, D]. The group "actor" (or "policy") is
what the policy may use on the robot. The group "critic" is what a privileged critic may see in
addition.

Legend: N environments, A width of an action, K environments whose episode ended in this step, D
width of a group or of a frame, T frames of a motion, J joints.
"""

import dataclasses
import math
import typing
from collections.abc import Callable, Sequence

import torch
from tensordict import TensorDict

from rrf.envs.failure import EnvError, NotFiniteError


@dataclasses.dataclass
class EnvState:
    """Everything that determines how an environment continues: named tensors and plain data."""

    tensors: dict[str, torch.Tensor]
    facts: dict[str, typing.Any]


@dataclasses.dataclass(frozen=True)
class Interface:
    """What a policy must know about its environment. A checkpoint saves it as interface.json."""

    observation_dims: dict[str, int]  # group -> width
    num_actions: int  # A; 1 if the actions are discrete
    num_choices: int | None = None  # number of discrete actions; None: actions are real
    step_dt: float = 0.02  # seconds between actions
    task: str = ""  # e.g. "Mjlab-Velocity-Flat-Unitree-Go1", "HalfCheetah-v5"
    observation_terms: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    # group -> the terms joined in it, in their order -> width; empty if the simulator has none
    robot: dict[str, typing.Any] = dataclasses.field(default_factory=dict)
    # for mjlab tasks: joint_names, joint_stiffness, joint_damping, default_joint_pos,
    # command_names, observation_names, action_scale, as mjlab writes them into its ONNX files


class ControlEnv(typing.Protocol):
    """N environments. An environment whose episode ends is reset within the same step.

    `step` returns (observations after the resets, rewards float32 [N], dones bool [N], extras). The
    extras are "time_outs" bool [N] (the episode was ended by the time limit and by nothing else),
    "final_obs" TensorDict [K] (the last observations of the ended episodes, in ascending order of
    the environments; None for K = 0) and "log", a dict of scalars or 0-d tensors. Where the task
    says whether it is solved, there is "success" bool [N], and where it has parts, "completed"
    int64 [N], the parts done in the episode so far. Where the task draws itself what a robot is
    to do, there are "measured": metric (`ControlEnvCfg.measures`) -> float32 [N], of this step.
    """

    num_envs: int
    num_actions: int
    max_episode_length: int
    episode_length_buf: torch.Tensor  # int64 [N], may be set
    device: torch.device | str
    cfg: typing.Any
    interface: Interface

    def get_observations(self) -> TensorDict:
        """The current observations, TensorDict [N]."""
        ...

    def reset(self) -> tuple[TensorDict, dict]:
        """Start a new episode in every environment."""
        ...

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        """Execute `actions`, float32 [N, A]. A discrete action is given as its index.

        Raises:
            ValueError: For a wrong shape, or a NaN or Inf action; the message names the environment
                and the dimension.
        """
        ...

    def state(self) -> EnvState | None:
        """What `load_state` needs to continue bit for bit; None if the environment cannot save its
        state.

        If it is None, a resumed run calls `set_progress(num_steps, seed)`, if the environment has
        that method, and then `reset`. `num_steps` is the number of steps each environment has
        taken. `seed` makes the new episodes differ from the first ones of the run.
        """
        ...

    def load_state(self, state: EnvState) -> None:
        """Continue from `state`, which came from an environment of the same config."""
        ...

    def close(self) -> None:
        """Free threads, processes and memory. Calling it twice is allowed."""
        ...


@dataclasses.dataclass(frozen=True)
class Goals:
    """The goals of a task: which numbers of an observation they are, and what they are worth.

    B pairs of goals, each of G numbers.
    """

    achieved: Sequence[int]  # dimensions of the group "policy" that show what was achieved
    desired: Sequence[int]  # dimensions of it that show what is wanted, in the same order
    rewards: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    # (achieved [B, G], desired [B, G]) -> the rewards of steps that achieved these, float32 [B]
    terminated: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None
    # the same, 1.0 where the step ends the episode; None: no goal ends one


class OfRslRl:
    """What rsl_rl's runners and extensions read of an environment beside `ControlEnv`: RND scales
    its weight by `unwrapped.step_dt`. A `ControlEnv` of your own gets both by inheriting this.
    """

    interface: Interface

    @property
    def unwrapped(self) -> typing.Any:
        """The simulation itself, for functions that know it, e.g. of a symmetry."""
        return self

    @property
    def step_dt(self) -> float:
        """Seconds between actions."""
        return self.interface.step_dt


def check_actions(actions: torch.Tensor, num_envs: int, num_actions: int) -> None:
    """Check the actions of a step.

    Raises:
        ValueError: For any shape other than [N, A].
        NotFiniteError: For a NaN or Inf; the message names the environment and the dimension.
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
    """Check the result of a step for values that an environment must not return.

    Args:
        where: Name of the environment in the message.

    Raises:
        EnvError: For a wrong shape.
        NotFiniteError: For a NaN or Inf; the message names the environment and the dimension.
    """
    for name, value in (("rewards", rewards), ("dones", dones)):
        if tuple(value.shape) != (num_envs,):
            raise EnvError(
                f"{where} returned {name} of shape {list(value.shape)}, expected [{num_envs}]"
            )
    shaped: list[tuple[str, typing.Any]] = [("rewards", rewards), *observations.items()]
    for name, value in shaped:
        if value.shape[0] != num_envs:
            raise EnvError(
                f"{where} returned '{name}' for {value.shape[0]} environments, expected {num_envs}"
            )
        _check_finite(value, f"'{name}'", None, where)


def check_final(final: TensorDict | None, dones: torch.Tensor, where: str) -> None:
    """Check the last observations of ended episodes, as `check_step` checks the current ones."""
    if final is None:
        return
    envs = dones.nonzero().squeeze(-1)
    ended: list[tuple[str, typing.Any]] = list(final.items())
    for name, value in ended:
        if value.shape[0] != len(envs):
            raise EnvError(
                f"{where} returned the last '{name}' of {value.shape[0]} episodes, but "
                f"{len(envs)} ended"
            )
        _check_finite(value, f"the last '{name}'", envs, where)


def _check_finite(value: torch.Tensor, name: str, envs: torch.Tensor | None, where: str) -> None:
    """Raise NotFiniteError if `value` contains a NaN or Inf.

    `envs`, int64 [K], are the environments that the rows belong to. It is None if the rows are all
    environments.
    """
    # A finite sum proves that every number is finite. The sum of large finite numbers can be
    # infinite, too, so an infinite sum alone proves nothing.
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


@typing.runtime_checkable
class ResetsSome(typing.Protocol):
    """A `ControlEnv` that can begin new episodes in some of its environments only."""

    has_seeds: bool
    """Whether every environment has random numbers of its own, and so a seed."""

    def reset_envs(
        self,
        env_ids: Sequence[int],
        seeds: Sequence[int | None] | None = None,
        options: dict[str, typing.Any] | None = None,
    ) -> TensorDict:
        """Begin new episodes in `env_ids`; returns the current observations of all environments.

        Args:
            seeds: One for each of `env_ids`, where `has_seeds`.
            options: What the task's own `reset` takes, where it takes something.
        """
        ...


@typing.runtime_checkable
class OwnProcess(typing.Protocol):
    """A `ControlEnv` whose simulator runs in a process of its own, which may die."""

    replaces_process: bool
    """Whether a process that dies is replaced. All episodes are then cut off, and begin anew."""


@typing.runtime_checkable
class MotionEnv(typing.Protocol):
    """A `ControlEnv` with reference motions: it sees its robots and them alike, as frames."""

    pose_width: int
    """J: the first J numbers of a frame are the positions of the joints."""

    def frames(self) -> torch.Tensor:
        """The current frames, float32 [N, D]: the observation group that a discriminator sees."""
        ...

    def reference_frames(self) -> list[torch.Tensor]:
        """The reference motions at the control rate, each float32 [T, D]."""
        ...
