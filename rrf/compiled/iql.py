"""A gradient step of IQL in compiled code: `IQL.learn` in half of its time. See `sac.py`.

Legend: B batch, A action width.
"""

import ctypes
import functools
import typing
from pathlib import Path

import torch

from rrf.compiled import compiler, perceptron
from rrf.compiled.gradient_step import LearnerStruct, Learning, pass_through
from rrf.compiled.perceptron import GradientsStruct, NetworkStruct, PassGradients
from rrf.precision import products

_METRICS = ("loss/value", "loss/critic", "loss/actor", "value/mean", "advantage/mean")
_NUM_SUMS = 6  # as in iql.c
_LEARNERS = ("value", "critic", "actor")


@functools.cache
def library() -> typing.Any:
    """The compiled code; None where it cannot be compiled."""
    return compiler.library(Path(__file__).with_suffix(".c"))


def unsuited(iql: typing.Any) -> str | None:
    """Why the code cannot make the gradient steps of an instance; None if it can."""
    if iql.device.type != "cpu":
        return f"it learns on {iql.device}"
    if iql.cfg.max_grad_norm is not None or iql.cfg.batch_size < 2:
        return "its code knows only max_grad_norm=null and batches of 2 or more"
    return None


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


class CompiledIQL:
    """Makes the gradient steps of an instance of IQL that `acceleration` lets through."""

    def __init__(self, iql: typing.Any):
        self.iql = iql
        self._step: _Prepared | None = None

    def rebind(self) -> None:
        """Call it when the optimizers' states have been replaced: the code has their addresses."""
        self._step = None

    def learn(self, batch: typing.Any) -> dict[str, torch.Tensor]:
        """See `IQL.learn`, which makes the steps on batches of another size."""
        if batch.discounts.shape[0] != self.iql.cfg.batch_size:
            return self.iql.learn(batch)
        self._step = self._step or _Prepared(self.iql)
        return self._step.learn(batch)


class _Prepared:
    """The addresses and settings of gradient steps."""

    def __init__(self, iql: typing.Any):
        self.iql = iql
        cfg, policy, optimizers = iql.cfg, iql.policy, iql.optimizers
        actor, critic = policy.actor, policy.critic
        size = cfg.batch_size
        factors = products(cfg.precision, iql.device)
        self.value, self.next_value = (
            pass_through(policy.value, torch.empty(size, policy.value.width), factors)
            for _ in range(2)
        )
        inputs = torch.empty(size, critic.num_features + actor.num_actions)
        self.critic, self.target = (
            pass_through(network, inputs, factors) for network in (critic, iql.target_critic)
        )
        self.actor = pass_through(actor, torch.empty(size, actor.num_features), factors)
        # What follows is kept because the struct points to its memory.
        self._gradients = [
            PassGradients(each, torch.empty_like(each.outputs[-1]), False, True)
            for each in (self.value, self.critic, self.actor)
        ]
        self._of_log_std = torch.empty(perceptron.PARTS, actor.num_actions)
        others = [] if actor.log_std is None else [(actor.log_std, self._of_log_std)]
        to_value, to_critic, to_actor = self._gradients
        self.learners = {
            "value": Learning(optimizers["value"], self.value.parameters, to_value),
            "critic": Learning(
                optimizers["critic"], self.critic.parameters, to_critic, self.target.parameters
            ),
            "actor": Learning(optimizers["actor"], self.actor.parameters, to_actor, others=others),
        }
        self._sums = torch.empty(perceptron.PARTS, _NUM_SUMS)
        self.metrics = torch.empty(_NUM_SUMS)
        passes = (self.value, self.next_value, self.target, self.critic, self.actor)
        self.struct = _Update(
            *(each.struct for each in (*passes, *self._gradients)),
            *(learning.struct for learning in self.learners.values()),
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
        steps, policy, struct = batch.steps, self.iql.policy, self.struct
        self.iql.anneal()
        self.value.x.copy_(policy.value.normalized(steps.critic_obs))
        self.next_value.x.copy_(policy.value.normalized(steps.next_critic_obs))
        features = policy.critic.normalized(steps.critic_obs)
        torch.cat([features, steps.actions], -1, out=self.critic.x)
        self.actor.x.copy_(policy.actor.normalized(steps.actor_obs))
        tensors = (steps.actions, steps.rewards, batch.discounts)
        tensors = [tensor.contiguous() for tensor in tensors]
        struct.actions, struct.rewards, struct.discounts = (t.data_ptr() for t in tensors)
        for name, learning in self.learners.items():
            of_learner = getattr(struct, f"{name}_learner")
            of_learner.step, of_learner.rate = learning.next_step()
        library().update(ctypes.byref(struct))
        self.iql.num_updates += 1
        return dict(zip(_METRICS, self.metrics[: len(_METRICS)].clone().unbind(), strict=True))
