"""The distances and derivatives that smoothness penalties consist of: pure functions.

Legend: B samples, A action width, O observation width.
"""

import torch

from rrf.policies.control.actor_critic import ActorCritic, GaussianActor
from rrf.policies.control.state_network import StateNetwork


def require_smoothable(policy: ActorCritic, algorithm: str) -> GaussianActor:
    """The actor, if its mean action is a differentiable function of a single observation.

    Raises:
        ValueError: For a policy with a memory, for an actor with discrete actions, and for one
            whose outputs are not simply those of its backbone, which alone would be smoothed.
    """
    actor = policy.actor
    if actor.memory is not None or policy.critic.memory is not None:
        raise ValueError(
            f"{algorithm} compares actions in single states, but this policy has a memory; set "
            "policy.actor_cfg.memory=null and policy.critic_cfg.memory=null, or use PPO"
        )
    if not isinstance(actor, GaussianActor):
        raise ValueError(
            f"{algorithm} smooths continuous actions, but {type(actor).__name__} has discrete "
            "actions; use PPO"
        )
    if type(actor).forward is not StateNetwork.forward:
        raise ValueError(
            f"{algorithm} smooths the outputs of the actor's backbone, but {type(actor).__name__} "
            "computes its own from them; put that into a backbone, or use PPO"
        )
    return actor


def between(
    x_bo: torch.Tensor, next_bo: torch.Tensor, goes_on_b: torch.Tensor, mix_bo: torch.Tensor
) -> torch.Tensor:
    """x + u (x' - x), [B, O] (arXiv:2202.07152); x itself where the episode ended.

    Args:
        mix_bo: u, between -1 and 1.
    """
    return x_bo + goes_on_b.unsqueeze(-1) * mix_bo * (next_bo - x_bo)


def squared_distance(a_ba: torch.Tensor, b_ba: torch.Tensor) -> torch.Tensor:
    """||a - b||^2, [B]."""
    return (a_ba - b_ba).square().sum(-1)


def distance(a_ba: torch.Tensor, b_ba: torch.Tensor) -> torch.Tensor:
    """||a - b||, [B]; where a and b are equal, the gradient is 0."""
    return torch.linalg.vector_norm(a_ba - b_ba, dim=-1)


def projected_jacobian(
    outputs_ba: torch.Tensor, inputs_bo: torch.Tensor, directions_ba: torch.Tensor
) -> torch.Tensor:
    """v^T J of every sample, [B, O], by one backward pass. The result can be differentiated again.

    If E v v^T = I, as for random signs, the mean of ||v^T J||^2 is ||J||_F^2 for every A.
    """
    (product,) = torch.autograd.grad(
        (outputs_ba * directions_ba).sum(), inputs_bo, create_graph=True
    )
    return product
