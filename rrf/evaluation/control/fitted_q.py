"""Fitted-Q evaluation: what a policy would earn, estimated from recorded transitions alone.

    Q <- argmin_Q E[(r + gamma Q'(s', pi(s')) - Q(s, a))^2],   value = E_s0[Q(s0, pi(s0))]

Source: arXiv:1903.08738 (section 4.1) and arXiv:2007.09055, which found it to rank policies no
better than their learning curves would. It is an estimate for a reader: where the policy acts
unlike the recordings, Q is an extrapolation. Therefore no gate uses it.

Legend: N transitions, E episodes, K copies, B batch, O A observation and action width.
"""

import copy
import dataclasses
import typing
from collections.abc import Callable

import numpy as np
import torch
from tensordict import TensorDict

from rrf.data.dataset.floors import FloorsCfg
from rrf.data.dataset.transitions import RecordedTransitions, read_transitions, returns_to_go
from rrf.evaluation.candidate import Candidate
from rrf.networks.batched_mlp import BatchedMLP
from rrf.networks.configs import plain_mlp

_COPIES = 5
_BATCH = 256
_RATE = 3e-4
_FLOORS = FloorsCfg()


@dataclasses.dataclass(frozen=True)
class FittedQ:
    """Estimates of the mean discounted return from the recorded initial states."""

    values: list[float]  # of each copy, which differ in their weights and batches
    recorded: float  # the mean discounted return of the recorded episodes themselves
    limit: float  # no return can be further from 0: max |r| / (1 - gamma)
    gamma: float
    num_updates: int

    @property
    def mean(self) -> float:
        """The estimate."""
        return float(np.mean(self.values))

    @property
    def spread(self) -> float:
        """Standard deviation between the copies; a lower bound of the error."""
        return float(np.std(self.values))

    @property
    def has_diverged(self) -> bool:
        """Whether the estimate is no possible return."""
        return not abs(self.mean) <= self.limit


def fitted_q(
    data: RecordedTransitions,
    act: Callable[[torch.Tensor], torch.Tensor],
    actions: np.ndarray,
    gamma: float,
    num_updates: int = 20_000,
    width: int = 256,
    tau: float = 0.005,
    seed: int = 0,
    on_update: Callable[[int], None] = lambda count: None,
) -> FittedQ:
    """Estimate a policy's value from transitions of other policies.

    Args:
        act: The greedy policy: observations [N, O] to actions [N, A].
        actions: The recorded actions in the policy's terms, float32 [N, A].
        gamma: Discount factor, below 1.
        width: Of the two hidden layers.
        tau: By how much of the difference Q' follows Q per gradient step.
        on_update: Called with the number of gradient steps so far.
    """
    observations = torch.from_numpy(data.observations)
    mean, size = observations.mean(0), observations.abs().amax(0)
    least = (_FLOORS.relative * size).clamp(min=_FLOORS.absolute)
    std = torch.maximum(observations.std(0) + 1e-6, least)
    seen = (observations - mean) / std
    reached = torch.from_numpy(data.next_observations)
    after = torch.cat([(reached - mean) / std, act(reached)], -1)
    before = torch.cat([seen, torch.from_numpy(actions)], -1)
    first = torch.from_numpy(np.concatenate([[True], data.ended[:-1]]))
    start = torch.cat([seen[first], act(observations[first])], -1)
    rewards = torch.from_numpy(data.rewards)
    scale = rewards.std() / (1 - gamma) + 1e-6  # the network's outputs are of order 1
    rewards, weights = rewards / scale, gamma * (1 - torch.from_numpy(data.terminated).float())
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        q = BatchedMLP(plain_mlp([width, width], "ReLU"), _COPIES, before.shape[-1], 1)
    slow = copy.deepcopy(q).requires_grad_(False)
    optimizer = torch.optim.Adam(q.parameters(), lr=_RATE, fused=True)
    for count in range(1, num_updates + 1):
        rows = torch.randint(len(data), (_COPIES, _BATCH), generator=generator)
        with torch.no_grad():
            target = rewards[rows] + weights[rows] * slow(after[rows])[..., 0]
        loss = (q(before[rows])[..., 0] - target).square().mean(-1).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch._foreach_lerp_(list(slow.parameters()), list(q.parameters()), tau)
        on_update(count)
    with torch.no_grad():
        values = q(start)[..., 0].mean(-1) * scale
    limit = float(np.abs(data.rewards).max() / (1 - gamma))
    recorded = returns_to_go(data.rewards, data.ended, gamma)[first.numpy()]
    return FittedQ(values.tolist(), float(recorded.mean()), limit, gamma, num_updates)


def fitted_q_of(
    candidate: Candidate, place: typing.Any, num_updates: int, on_update: Callable[[int], None]
) -> FittedQ:
    """Estimate the value of a checkpoint's policy from a published dataset.

    Raises:
        ValueError: If the policy is no policy of states, if it has a memory or does not fit the
            dataset, or if the dataset has no rewards.
    """
    from rrf.envs.configs import ControlEnvCfg
    from rrf.runners.checkpoints.control import load_control_policy
    from rrf.runners.checkpoints.deployable import CONTROL, described
    from rrf.runners.control.recorded import actions_of

    if candidate.kind != CONTROL:
        raise ValueError(
            f"{candidate.label} is {described(candidate.kind)}; fitted-Q evaluation is for "
            "policies of states"
        )
    policy, interface = load_control_policy(candidate.checkpoint)
    data = read_transitions(place)
    widths = interface.observation_dims
    gamma = float(candidate.config["algorithm"]["gamma"])
    if data.observations.shape[1] != sum(widths.values()):
        raise ValueError(
            f"{place} has {data.observations.shape[1]} state dimensions, but the policy was "
            f"trained with {sum(widths.values())}; give a dataset of {interface.task}"
        )
    if gamma >= 1:
        raise ValueError(f"the policy was trained with gamma {gamma:g}, but a value needs below 1")

    def act(observations: torch.Tensor) -> torch.Tensor:
        parts = observations.split(list(widths.values()), -1)
        groups: dict[str, typing.Any] = dict(zip(widths, parts, strict=True))
        return policy.act(TensorDict(groups, batch_size=[len(observations)]))

    if policy.actor.initial_memory(1) is not None:
        raise ValueError(f"{candidate.label} remembers, but transitions have no past; use rrf eval")
    env = ControlEnvCfg.from_dict(candidate.config["env"]).replace(num_envs=1).build(seed=0)
    actions = actions_of(data, str(place), env)
    env.close()
    return fitted_q(data, act, actions, gamma, num_updates, on_update=on_update)
