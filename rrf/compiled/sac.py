"""A gradient step of plain SAC in compiled code: `SAC.learn` in a third of its time.

`sac.c` works on the weights, slow copies and optimizer states themselves, so everything else
(checkpoints, learning rates) is as without it. Results do not depend on the number of threads, and
equal those of `SAC.learn` but for rounding.

Legend: B batch, K critics, O observation width, A action width, I input width of a critic.
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

_METRICS = ("loss/critic", "value/mean", "loss/actor", "policy/entropy", "loss/alpha")
_METRICS += ("policy/alpha",)
_NUM_SUMS = 4  # as in sac.c


@functools.cache
def library() -> typing.Any:
    """The compiled code; None where it cannot be compiled."""
    return compiler.library(Path(__file__).with_suffix(".c"))


def unsuited(sac: typing.Any) -> str | None:
    """Why the code cannot make the gradient steps of an instance; None if it can."""
    cfg = sac.cfg
    if sac.device.type != "cpu":
        return f"it learns on {sac.device}"
    if cfg.policy_delay != 1 or cfg.max_grad_norm is not None or cfg.batch_size < 2:
        return "its code knows only policy_delay=1, max_grad_norm=null and batches of 2 or more"
    return None


class _Update(ctypes.Structure):
    _fields_: typing.ClassVar = [
        *((name, NetworkStruct) for name in ("actor", "next_actor", "target", "critic", "judge")),
        *((name, GradientsStruct) for name in ("of_actor", "of_critic", "of_judge")),
        *((name, LearnerStruct) for name in ("actor_learner", "critic_learner", "alpha_learner")),
        *((name, ctypes.c_void_p) for name in ("noise", "next_noise", "rewards", "discounts")),
        *((name, ctypes.c_void_p) for name in ("log_probs", "sums", "metrics")),
        *((name, ctypes.c_float) for name in ("target_entropy", "limit")),
        *((name, ctypes.c_float) for name in ("min_log_std", "max_log_std", "tau")),
        ("learns_alpha", ctypes.c_long),
    ]


class CompiledSAC:
    """Makes the gradient steps of an instance of SAC that `acceleration` lets through."""

    def __init__(self, sac: typing.Any):
        self.sac = sac
        self._step: _Prepared | None = None

    def rebind(self) -> None:
        """Call it when the optimizers' states have been replaced: the code has their addresses."""
        self._step = None

    def learn(self, batch: typing.Any, noise: typing.Any) -> dict[str, torch.Tensor]:
        """See `SAC.learn`, which makes the steps on batches of another size."""
        if batch.discounts.shape[0] != self.sac.cfg.batch_size:
            return self.sac.learn(batch, noise)
        self._step = self._step or _Prepared(self.sac)
        return self._step.learn(batch, noise)


class _Prepared:
    """The addresses and settings of gradient steps."""

    def __init__(self, sac: typing.Any):
        self.sac = sac
        cfg, actor, critic = sac.cfg, sac.policy.actor, sac.policy.critic
        size, width = cfg.batch_size, actor.num_actions
        factors = products(cfg.precision, sac.device)
        states = [torch.empty(size, actor.num_features) for _ in range(2)]
        inputs = [torch.empty(size, critic.num_features + width) for _ in range(3)]
        self.actor, self.next_actor = (pass_through(actor, x, factors) for x in states)
        self.critic, self.judge = (pass_through(critic, x, factors) for x in inputs[:2])
        self.target = pass_through(sac.target_critic, inputs[2], factors)
        gradients = [
            PassGradients(each, torch.empty_like(each.outputs[-1]), needs_x, not needs_x)
            for each, needs_x in ((self.actor, False), (self.critic, False), (self.judge, True))
        ]
        optimizers = sac.optimizers
        self.learners = {
            "actor": Learning(optimizers["actor"], self.actor.parameters, gradients[0]),
            "critic": Learning(
                optimizers["critic"], self.critic.parameters, gradients[1], self.target.parameters
            ),
            "alpha": Learning(optimizers["alpha"], [sac.temperature.log_alpha]),
        }
        log_probs, self.metrics = torch.empty(size), torch.empty(len(_METRICS))
        sums = torch.empty(perceptron.PARTS, _NUM_SUMS)
        passes = (self.actor, self.next_actor, self.target, self.critic, self.judge)
        self._kept = gradients, log_probs, sums  # the memory to which the struct points
        self.struct = _Update(
            *(each.struct for each in (*passes, *gradients)),
            *(learning.struct for learning in self.learners.values()),
            log_probs=log_probs.data_ptr(),
            sums=sums.data_ptr(),
            metrics=self.metrics.data_ptr(),
            target_entropy=sac.target_entropy,
            limit=actor.action_limit,
            min_log_std=actor.log_std_bounds[0],
            max_log_std=actor.log_std_bounds[1],
            tau=cfg.tau,
            learns_alpha=cfg.learn_alpha,
        )

    def learn(self, batch: typing.Any, noise: typing.Any) -> dict[str, torch.Tensor]:
        sac, steps, struct = self.sac, batch.steps, self.struct
        actor, width = sac.policy.actor, sac.policy.actor.num_actions
        self.actor.x.copy_(actor.normalized(steps.actor_obs))
        self.next_actor.x.copy_(actor.normalized(steps.next_actor_obs))
        features = sac.critic_features(batch)
        self.judge.x[:, :-width].copy_(features)
        torch.cat([features, steps.actions], -1, out=self.critic.x)
        self.target.x[:, :-width].copy_(sac.target_features(batch))
        tensors = (noise.actions, noise.next_actions, steps.rewards, batch.discounts)
        tensors = [tensor.contiguous() for tensor in tensors]
        struct.noise, struct.next_noise, struct.rewards, struct.discounts = (
            tensor.data_ptr() for tensor in tensors
        )
        for name, learning in self.learners.items():
            if name != "alpha" or sac.cfg.learn_alpha:
                of_learner = getattr(struct, f"{name}_learner")
                of_learner.step, of_learner.rate = learning.next_step()
        library().update(ctypes.byref(struct))
        sac.num_updates += 1
        return dict(zip(_METRICS, self.metrics.clone().unbind(), strict=True))
