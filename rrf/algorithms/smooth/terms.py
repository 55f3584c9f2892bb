"""Distances and derivatives that penalties on rough policies are made of: pure functions.

Legend: B samples, A action width, O observation width.
"""

import torch

from rrf.policies.control.actor_critic import ActorCritic
from rrf.policies.control.actors import GaussianActor


def require_smoothable(policy: ActorCritic, algorithm: str) -> GaussianActor:
    """The actor, if its mean action is a function of one observation that has a derivative.

    Raises:
        ValueError: For a recurrent actor, and for one that chooses among finitely many actions.
    """
    actor = policy.actor
    if actor.memory is not None or policy.critic.memory is not None:
        raise ValueError(
            f"{algorithm} compares actions in single states, but this policy has a memory; set "
            "policy.actor_cfg.memory=null and policy.critic_cfg.memory=null, or use PPO"
        )
    if not isinstance(actor, GaussianActor):
        raise ValueError(
            f"{algorithm} smooths actions that are real numbers, but {type(actor).__name__} "
            "chooses from a list; use PPO"
        )
    return actor


def between(
    x_bo: torch.Tensor, next_bo: torch.Tensor, goes_on_b: torch.Tensor, mix_bo: torch.Tensor
) -> torch.Tensor:
    """x + u (x' - x), [B, O] (arXiv:2202.07152); x itself where the episode ended.

    Args:
        mix_bo: u, from -1 to 1.
    """
    return x_bo + goes_on_b.unsqueeze(-1) * mix_bo * (next_bo - x_bo)


def squared_distance(a_ba: torch.Tensor, b_ba: torch.Tensor) -> torch.Tensor:
    """||a - b||^2, [B]."""
    return (a_ba - b_ba).square().sum(-1)


def distance(a_ba: torch.Tensor, b_ba: torch.Tensor) -> torch.Tensor:
    """||a - b||, [B]; where both are equal its gradient is 0."""
    return torch.linalg.vector_norm(a_ba - b_ba, dim=-1)


def projected_jacobian(
    outputs_ba: torch.Tensor, inputs_bo: torch.Tensor, directions_ba: torch.Tensor
) -> torch.Tensor:
    """v^T J of every sample, [B, O], by one backward pass; it can be differentiated again.

    For v with E v v^T = I, as of random signs, the mean of ||v^T J||^2 is ||J||_F^2, whatever A is.
    """
    (product,) = torch.autograd.grad(
        (outputs_ba * directions_ba).sum(), inputs_bo, create_graph=True
    )
    return product
