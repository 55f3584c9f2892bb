"""A gradient step of IQL in compiled code: `IQL.learn` in half of its time. See `fused_sac`.

Legend: B batch, A action width.
"""

import ctypes
import functools
import typing
from pathlib import Path

import torch

from rrf import compilation
from rrf.algorithms.off_policy.fused_step import LearnerStruct, Learning, is_known, pass_through
from rrf.algorithms.precision import products
from rrf.networks import fused_mlp
from rrf.networks.fused_mlp import GradientsStruct, NetworkStruct, PassGradients
from rrf.policies.control.batched_critics import QNetwork
from rrf.policies.control.bounded_actors import BoundedActor
from rrf.policies.control.critics import VNetwork

_METRICS = ("loss/value", "loss/critic", "loss/actor", "value/mean", "advantage/mean")
_NUM_SUMS = 6  # as in fused_iql.c
_LEARNERS = ("value", "critic", "actor")


@functools.cache
def library() -> typing.Any:
    """The compiled code; None where it cannot be compiled."""
    return compilation.library(Path(__file__).with_suffix(".c"))


def knows(iql: typing.Any) -> bool:
    """Whether the code can make the gradient steps of an instance of IQL."""
    policy, cfg = iql.policy, iql.cfg
    return (
        iql.device.type == "cpu"
        and type(policy.actor) is BoundedActor
        and type(policy.critic) is QNetwork
        and type(policy.value) is VNetwork
        and all(map(is_known, (policy.actor, policy.critic, policy.value)))
        and cfg.max_grad_norm is None
        and cfg.batch_size > 1
        and library() is not None
    )


class _Update(ctypes.Structure):
    _fields_: typing.ClassVar = [
        *((name, NetworkStruct) for name in ("value", "next_value", "target", "critic", "actor")),
        *((f"of_{name}", GradientsStruct) for name in _LEARNERS),
        *((f"{name}_learner", LearnerStruct) for name in _LEARNERS),
        *((name, ctypes.c_void_p) for name in ("actions", "rewards", "discounts")),
        *((name, ctypes.c_void_p) for name in ("log_std", "of_log_std", "sums", "metrics")),
        *((name, ctypes.c_float) for name in ("expectile", "beta", "max_weight", "limit")),
        *((name, ctypes.c_float) for name in ("min_log_std", "max_log_std", "tau")),
    ]


class FusedIQL:
    """Makes the gradient steps of an instance of IQL that `knows` accepts.

    It holds the addresses of weights and optimizer states, so it must be made anew where these are
    replaced.
    """

    def __init__(self, iql: typing.Any):
        self.iql = iql
        cfg, policy, optimizers = iql.cfg, iql.policy, iql.optimizers
        actor, critic = policy.actor, policy.critic
        size = self.batch_size = cfg.batch_size
        factors = products(cfg.precision, iql.device)
        self.value, self.next_value = (
            pass_through(policy.value, torch.empty(size, policy.value.width), factors)
            for _ in range(2)
        )
        inputs = torch.empty(size, critic.num_features + actor.num_actions)
        self.critic, self.target = (
            pass_through(one, inputs, factors) for one in (critic, iql.target_critic)
        )
        self.actor = pass_through(actor, torch.empty(size, actor.num_features), factors)
        # What follows is kept because the struct points to its memory.
        self._gradients = [
            PassGradients(made, torch.empty_like(made.outputs[-1]), False, True)
            for made in (self.value, self.critic, self.actor)
        ]
        self._of_log_std = torch.empty(fused_mlp.PARTS, actor.num_actions)
        others = [] if actor.log_std is None else [(actor.log_std, self._of_log_std)]
        to_value, to_critic, to_actor = self._gradients
        self.learners = {
            "value": Learning(optimizers["value"], self.value.parameters, to_value),
            "critic": Learning(
                optimizers["critic"], self.critic.parameters, to_critic, self.target.parameters
            ),
            "actor": Learning(optimizers["actor"], self.actor.parameters, to_actor, others=others),
        }
        self._sums = torch.empty(fused_mlp.PARTS, _NUM_SUMS)
        self.metrics = torch.empty(_NUM_SUMS)
        passes = (self.value, self.next_value, self.target, self.critic, self.actor)
        self.struct = _Update(
            *(one.struct for one in (*passes, *self._gradients)),
            *(one.struct for one in self.learners.values()),
            log_std=None if actor.log_std is None else actor.log_std.data_ptr(),
            of_log_std=self._of_log_std.data_ptr(),
            sums=self._sums.data_ptr(),
            metrics=self.metrics.data_ptr(),
            expectile=cfg.expectile,
            beta=cfg.beta,
            max_weight=cfg.max_weight,
            limit=actor.action_limit,
            min_log_std=actor.log_std_bounds[0],
            max_log_std=actor.log_std_bounds[1],
            tau=cfg.tau,
        )

    def learn(self, batch: typing.Any) -> dict[str, torch.Tensor]:
        """See `IQL.learn`."""
        steps, policy, struct = batch.steps, self.iql.policy, self.struct
        self.value.x.copy_(policy.value.normalized(steps.critic_obs))
        self.next_value.x.copy_(policy.value.normalized(steps.next_critic_obs))
        seen = policy.critic.normalized(steps.critic_obs)
        torch.cat([seen, steps.actions], -1, out=self.critic.x)
        self.actor.x.copy_(policy.actor.normalized(steps.actor_obs))
        given = (steps.actions, steps.rewards, batch.discounts)
        given = [one.contiguous() for one in given]
        struct.actions, struct.rewards, struct.discounts = (one.data_ptr() for one in given)
        for name, learning in self.learners.items():
            of_learner = getattr(struct, f"{name}_learner")
            of_learner.step, of_learner.rate = learning.next_step()
        library().update(ctypes.byref(struct))
        self.iql.num_updates += 1
        return dict(zip(_METRICS, self.metrics[: len(_METRICS)].clone().unbind(), strict=True))
