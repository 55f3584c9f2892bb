"""All mini-batches of an update of PPO in compiled code: small ones in a tenth of the time.

`ppo.c` works on the weights, optimizer states and the learning rate themselves, so everything else
(checkpoints, schedules) is as without it. Results do not depend on the number of threads, and equal
those of the loop in `PPO.learn` but for rounding.

Legend: S samples, A action width.
"""

import ctypes
import functools
import math
import typing
from pathlib import Path

import torch
import torch.distributed

from rrf.compiled import compiler, perceptron
from rrf.compiled.gradient_step import LearnerStruct, Learning, pass_through
from rrf.compiled.perceptron import GradientsStruct, NetworkStruct, Pass, PassGradients
from rrf.precision import products

_METRICS = ("loss/surrogate", "loss/value", "loss/entropy", "policy/kl", "policy/clip_fraction")
_FEW = 2**20  # products of a mini-batch with which a second thread costs more than it does


@functools.cache
def library() -> typing.Any:
    """The compiled code; None where it cannot be compiled."""
    return compiler.library(Path(__file__).with_suffix(".c"))


def unsuited(ppo: typing.Any) -> str | None:
    """Why the code cannot make the updates of an instance; None if it can."""
    num_samples = ppo.rollout.num_steps * ppo.rollout.num_envs
    if ppo.device.type != "cpu":
        return f"it learns on {ppo.device}"
    if torch.distributed.is_initialized():
        return "several processes learn together"
    symmetry = ppo.cfg.symmetry_cfg
    if symmetry is not None and symmetry.mirror_loss_coef:
        return "it has a mirror loss"
    if num_samples < 2 * ppo.cfg.num_mini_batches:
        return "some of its mini-batches have a single sample"
    return None


class _Update(ctypes.Structure):
    _fields_: typing.ClassVar = [
        *((name, NetworkStruct) for name in ("actor", "critic")),
        *((f"of_{name}", GradientsStruct) for name in ("actor", "critic")),
        *((f"{name}_learner", LearnerStruct) for name in ("actor", "critic")),
        *((name, ctypes.c_long) for name in ("epochs", "batches", "samples")),
        *((name, ctypes.c_void_p) for name in ("order", "actor_x", "critic_x", "actions")),
        *((name, ctypes.c_void_p) for name in ("distributions", "log_probs", "values", "returns")),
        *((name, ctypes.c_void_p) for name in ("advantages", "spread", "of_spread", "rate")),
        *((name, ctypes.c_void_p) for name in ("sums", "metrics")),
        *((name, ctypes.c_float) for name in ("low_spread", "high_spread", "clip")),
        *((name, ctypes.c_float) for name in ("entropy_coef", "value_coef", "max_norm")),
        *((name, ctypes.c_float) for name in ("desired_kl", "low_rate", "high_rate")),
        *((name, ctypes.c_long) for name in ("is_log", "clips_value", "normalizes", "adapts")),
    ]


class CompiledPPO:
    """Makes the updates of an instance of PPO that `acceleration` lets through."""

    def __init__(self, ppo: typing.Any):
        self.ppo = ppo
        self._update: _Prepared | None = None

    def rebind(self) -> None:
        """Call it when the optimizers' states have been replaced: the code has their addresses."""
        self._update = None

    @torch.no_grad()
    def learn(self, samples: typing.Any) -> dict[str, float]:
        """`PPO.learn`: all epochs on the samples of a rollout; the means of the metrics."""
        if self._update is None or self._update.struct.samples != len(samples):
            self._update = _Prepared(self.ppo, len(samples))
        return self._update.learn(samples)


class _Prepared:
    """The addresses and settings of updates with `num_samples` samples."""

    def __init__(self, ppo: typing.Any, num_samples: int):
        self.ppo = ppo
        cfg, networks = ppo.cfg, (ppo.policy.actor, ppo.policy.critic)
        rows = math.ceil(num_samples / cfg.num_mini_batches)
        factors = products(cfg.precision, ppo.device)
        passes = [
            pass_through(network, torch.empty(rows, network.width), factors) for network in networks
        ]
        passes[0].struct.threads = self._num_threads(passes, rows)
        gradients = [
            PassGradients(each, torch.empty_like(each.outputs[-1]), False, True) for each in passes
        ]
        spread, low, high = _spread(networks[0])
        of_spread = torch.empty(perceptron.PARTS, len(spread))
        of_actor, of_critic = (each.parameters for each in passes)
        others = [(spread, of_spread)]
        self.learners = {
            "actor": Learning(ppo.actor_optimizer, of_actor, gradients[0], others=others),
            "critic": Learning(ppo.critic_optimizer, of_critic, gradients[1]),
        }
        sums = torch.empty(perceptron.PARTS, len(_METRICS))
        self.metrics = torch.empty(len(_METRICS))
        self._kept = passes, gradients, of_spread, sums  # the memory to which the struct points
        self.struct = _Update(
            *(each.struct for each in (*passes, *gradients, *self.learners.values())),
            batches=cfg.num_mini_batches,
            epochs=cfg.num_learning_epochs,
            samples=num_samples,
            spread=spread.data_ptr(),
            of_spread=of_spread.data_ptr(),
            rate=ppo.learning_rate.data_ptr(),
            sums=sums.data_ptr(),
            metrics=self.metrics.data_ptr(),
            low_spread=low,
            high_spread=high,
            clip=cfg.clip_param,
            entropy_coef=cfg.entropy_coef,
            value_coef=cfg.value_loss_coef,
            max_norm=cfg.max_grad_norm,
            desired_kl=cfg.desired_kl,
            is_log=networks[0].uses_log_std,
            clips_value=cfg.use_clipped_value_loss,
            normalizes=cfg.normalize_advantage_per_mini_batch,
            adapts=cfg.schedule == "adaptive",
        )

    def _num_threads(self, passes: list[Pass], rows: int) -> int:
        num_weights = sum(weight.numel() for each in passes for weight in each.parameters)
        wanted = 1 if rows * num_weights < _FEW else self.ppo.cfg.learner_threads
        return min(wanted, perceptron.num_threads())

    def learn(self, samples: typing.Any) -> dict[str, float]:
        ppo, struct, policy = self.ppo, self.struct, self.ppo.policy
        tensors = {
            "actor_x": policy.actor.normalized(samples.actor_obs),
            "critic_x": policy.critic.normalized(samples.critic_obs),
            "actions": samples.actions,
            "distributions": samples.distribution,
            "log_probs": samples.log_prob,
            "values": samples.values,
            "returns": samples.returns,
            "advantages": samples.advantages,
        }
        tensors = {name: tensor.float().contiguous() for name, tensor in tensors.items()}
        tensors["order"] = torch.stack([ppo.order(len(samples)) for _ in range(struct.epochs)])
        for name, tensor in tensors.items():
            setattr(struct, name, tensor.data_ptr())
        struct.low_rate = ppo.slowness * ppo.cfg.min_learning_rate
        struct.high_rate = ppo.slowness * ppo.cfg.max_learning_rate
        count = struct.epochs * struct.batches
        for name, learning in self.learners.items():
            getattr(struct, f"{name}_learner").step, _ = learning.next_step(count)
        library().update(ctypes.byref(struct))
        return dict(zip(_METRICS, (self.metrics / count).tolist(), strict=True))


def _spread(actor: typing.Any) -> tuple[torch.nn.Parameter, float, float]:
    """The parameter of the standard deviations, [A], and its bounds."""
    low, high = actor.bounds
    if actor.uses_log_std:
        return actor.log_std, math.log(low), math.log(high)
    return actor.std, low, high
