"""A gradient step of plain SAC in compiled code: `SAC.learn` in a third of its time.

`fused_sac.c` knows actors and critics that `fused_mlp` knows, on the CPU, and Adam. It
works on the weights, slow copies and optimizer states themselves, so everything else (checkpoints,
learning rates) is as without it. Results do not depend on the number of threads, and equal those of
`SAC.learn` but for rounding.

Legend: B batch, K critics, O observation width, A action width, I input width of a critic.
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
from rrf.policies.control.off_policy_actors import SACActor

_METRICS = ("loss/critic", "value/mean", "loss/actor", "policy/entropy", "loss/alpha")
_METRICS += ("policy/alpha",)
_NUM_SUMS = 4  # as in fused_sac.c


@functools.cache
def library() -> typing.Any:
    """The compiled code; None where it cannot be compiled."""
    return compilation.library(Path(__file__).with_suffix(".c"))


def knows(sac: typing.Any) -> bool:
    """Whether the code can make the gradient steps of an instance of SAC itself, or of a subclass
    that learns in the same way.
    """
    actor, critic, cfg = sac.policy.actor, sac.policy.critic, sac.cfg
    return (
        sac.device.type == "cpu"
        and type(actor) is SACActor
        and type(critic) is QNetwork
        and is_known(actor)
        and is_known(critic)
        and cfg.policy_delay == 1
        and cfg.max_grad_norm is None
        and cfg.batch_size > 1
        and library() is not None
    )


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


class FusedSAC:
    """Makes the gradient steps of an instance of SAC that `knows` accepts.

    It holds the addresses of weights and optimizer states, so it must be made anew where these are
    replaced.
    """

    def __init__(self, sac: typing.Any):
        self.sac = sac
        cfg, actor, critic = sac.cfg, sac.policy.actor, sac.policy.critic
        self.batch_size, self.width = cfg.batch_size, actor.num_actions
        factors = products(cfg.precision, sac.device)
        states = [torch.empty(self.batch_size, actor.num_features) for _ in range(2)]
        inputs = [torch.empty(self.batch_size, critic.num_features + self.width) for _ in range(3)]
        self.actor, self.next_actor = (pass_through(actor, x, factors) for x in states)
        self.critic, self.judge = (pass_through(critic, x, factors) for x in inputs[:2])
        self.target = pass_through(sac.target_critic, inputs[2], factors)
        gradients = [
            PassGradients(made, torch.empty_like(made.outputs[-1]), needs_x, not needs_x)
            for made, needs_x in ((self.actor, False), (self.critic, False), (self.judge, True))
        ]
        optimizers = sac.optimizers
        self.learners = {
            "actor": Learning(optimizers["actor"], self.actor.parameters, gradients[0]),
            "critic": Learning(
                optimizers["critic"], self.critic.parameters, gradients[1], self.target.parameters
            ),
            "alpha": Learning(optimizers["alpha"], [sac.temperature.log_alpha]),
        }
        self.log_probs = torch.empty(self.batch_size)
        self.sums, self.metrics = (
            torch.empty(fused_mlp.PARTS, _NUM_SUMS),
            torch.empty(len(_METRICS)),
        )
        passes = (self.actor, self.next_actor, self.target, self.critic, self.judge)
        self._gradients = gradients  # hold the memory to which the struct points
        self.struct = _Update(
            *(one.struct for one in (*passes, *gradients)),
            *(one.struct for one in self.learners.values()),
            log_probs=self.log_probs.data_ptr(),
            sums=self.sums.data_ptr(),
            metrics=self.metrics.data_ptr(),
            target_entropy=sac.target_entropy,
            limit=actor.action_limit,
            min_log_std=actor.log_std_bounds[0],
            max_log_std=actor.log_std_bounds[1],
            tau=cfg.tau,
            learns_alpha=cfg.learn_alpha,
        )

    def learn(self, batch: typing.Any, noise: typing.Any) -> dict[str, torch.Tensor]:
        """See `SAC.learn`."""
        sac, steps, width, struct = self.sac, batch.steps, self.width, self.struct
        actor = sac.policy.actor
        self.actor.x.copy_(actor.normalized(steps.actor_obs))
        self.next_actor.x.copy_(actor.normalized(steps.next_actor_obs))
        features = sac.critic_features(batch)
        self.judge.x[:, :-width].copy_(features)
        torch.cat([features, steps.actions], -1, out=self.critic.x)
        self.target.x[:, :-width].copy_(sac.target_features(batch))
        given = (noise.actions, noise.next_actions, steps.rewards, batch.discounts)
        given = [one.contiguous() for one in given]
        struct.noise, struct.next_noise, struct.rewards, struct.discounts = (
            one.data_ptr() for one in given
        )
        for name, learning in self.learners.items():
            if name != "alpha" or sac.cfg.learn_alpha:
                of_learner = getattr(struct, f"{name}_learner")
                of_learner.step, of_learner.rate = learning.next_step()
        library().update(ctypes.byref(struct))
        sac.num_updates += 1
        return dict(zip(_METRICS, self.metrics.clone().unbind(), strict=True))
