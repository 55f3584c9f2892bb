"""The actor role: owns the weights being trained and updates them from played episodes."""

import math
import typing
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn

from rrf.algorithms.vla.losses import explained_variance, explained_variance_sums
from rrf.algorithms.vla.policy_gradient import PolicyGradient
from rrf.data.dataset.sampling import mixed_seed
from rrf.data.schema import Observation
from rrf.orchestra.imitation import Imitation
from rrf.orchestra.offload import Offload, tensors_of
from rrf.policies.policy import Policy
from rrf.policies.precision import Precision, autocast, device_of, log_probs_of
from rrf.runners import optimizer_state, process_group
from rrf.runners.configs import AdamWCfg, EMACfg
from rrf.runners.ema import EMA
from rrf.runners.sharded_tensors import whole
from rrf.runners.supervised import parallel
from rrf.runners.vla_rl.preflight import check_log_probs
from rrf.storage.trajectories import PlayedEpisode, RolloutBatch

VALUE_HEAD = "value_head."


class ActorRole:
    """A policy, its optimizer and its averaged weights."""

    def __init__(
        self,
        policy: nn.Module,
        algorithm: PolicyGradient,
        optimizer: AdamWCfg,
        value_lr: float,
        ema: EMACfg | None,
        max_grad_norm: float,
        imitation: Imitation | None = None,
        precision: Precision = "fp32",
        micro_batch_size: int | None = None,
        divide: Callable[[nn.Module], None] | None = None,
    ):
        """
        Args:
            policy: Trained in place. It stays in evaluation mode, because with dropout the
                probabilities in an update would differ from those of the rollout.
            algorithm: Builds batches and computes the loss of the same policy.
            optimizer: Config of the policy's optimizer.
            value_lr: Peak learning rate of the value head.
            ema: Averaging of the weights that are validated and deployed; None to use the last
                weights.
            max_grad_norm: The gradient is scaled down to this norm where it is longer.
            imitation: Co-training of the same policy. Its loss is added to the algorithm's loss.
            precision: fp32, or bf16 to compute in bfloat16.
            micro_batch_size: Rows per forward and backward pass; None for a whole minibatch.
            divide: Divides a module among the processes of a group, in place; see
                `rrf.orchestra.actor_group`. None for a single process.
        """
        self.policy = policy.eval()
        checkpoint_activations(policy)
        self._precision: Precision = precision
        self._micro_batch_size = micro_batch_size
        self._evaluated_rows = algorithm.cfg.minibatch_size
        self.algorithm = algorithm
        self.ema = EMA(policy, ema.decay) if ema else None
        if divide:
            for module in filter(None, (policy, self.ema and self.ema.module)):
                divide(module)
        named = list(policy.named_parameters())
        is_value = [name.startswith(VALUE_HEAD) for name, _ in named]
        self._max_grad_norm, self._imitation = max_grad_norm, imitation
        self._optimizer = torch.optim.AdamW(
            [
                {"params": [p for (_, p), v in zip(named, is_value, strict=True) if not v]},
                {"params": [p for (_, p), v in zip(named, is_value, strict=True) if v]},
            ],
            betas=optimizer.betas,
            eps=optimizer.eps,
            weight_decay=optimizer.weight_decay,
            fused=True,
        )
        self._peak_lrs = (optimizer.lr, value_lr)
        self.offload = Offload(self._tensors)

    def leave(self) -> None:
        """Free the device; the next method that needs weights brings them back."""
        self.offload.leave()

    def _tensors(self) -> Iterator[torch.Tensor]:
        averaged = self.ema.module if self.ema else None
        reference: typing.Any = self.algorithm.reference
        yield from tensors_of(self.policy, averaged, reference, self._optimizer)

    def weights(self) -> dict[str, torch.Tensor]:
        """The weights for rollouts."""
        self.offload.back()
        return _whole_weights(self.policy)

    def deployed_weights(self) -> dict[str, torch.Tensor]:
        """The weights to validate and deploy: the averaged weights, if there is averaging."""
        self.offload.back()
        return _whole_weights(self.ema.module if self.ema else self.policy)

    def set_noise_factor(self, factor: float) -> None:
        """Set the randomness with which the episodes of the next update were played."""
        self.algorithm.policy.set_noise_factor(factor)
        if self.algorithm.reference is not None:
            self.algorithm.reference.set_noise_factor(factor)

    def check(self, player: Policy, episodes: Sequence[PlayedEpisode]) -> dict[str, float]:
        """Check, before the first update, that the policy to train is the one that played; see
        `rrf.runners.vla_rl.preflight`."""
        return check_log_probs(
            player, self.algorithm.policy, episodes, self._precision, self._micro_batch_size
        )

    def update(
        self,
        groups: Sequence[Sequence[PlayedEpisode]],
        horizon: int,
        round_number: int,
        lr_factor: float,
        seed: int,
    ) -> dict[str, float]:
        """Make optimizer steps on these episodes; returns the means of the logged metrics.

        Args:
            groups: Episodes of at most `horizon` steps.
            round_number: Number of the round, from 0.
            lr_factor: Factor on the peak learning rates.
            seed: Determines, together with the round, the order of the rows.

        Raises:
            ValueError: For a loss or gradient that is not finite. That step does not change the
                weights.
        """
        self.offload.back()
        for group, lr in zip(self._optimizer.param_groups, self._peak_lrs, strict=True):
            group["lr"] = lr * lr_factor
        cfg = self.algorithm.cfg
        batch = self.algorithm.batch(groups, horizon)
        if cfg.decoupled and cfg.decoupled.proximal == "recomputed":
            batch.proximal = self.log_probs(batch.observation, batch.replay)
        generator = torch.Generator().manual_seed(mixed_seed(seed, round_number))
        num_minibatches = max(1, round(len(batch) / cfg.minibatch_size))
        logged: list[dict[str, torch.Tensor]] = []
        for _ in range(cfg.num_epochs):
            order = torch.randperm(len(batch), generator=generator)
            for index in order.tensor_split(num_minibatches):
                key = (seed, round_number, len(logged))
                logged.append(self._step(batch, index, round_number, key))
        names = logged[0]
        metrics = {n: torch.stack([row[n].float() for row in logged]).mean() for n in names}
        values = {name: value.item() for name, value in metrics.items()} | _batch_metrics(batch)
        policy_lr = self._peak_lrs[0] * lr_factor
        return values | {"actor/learning_rate": policy_lr, "actor/lr": policy_lr}

    def log_probs(self, observation: Observation, replay: dict[str, torch.Tensor]) -> torch.Tensor:
        """Log-probabilities of choices made earlier, by the weights of now, float32 [B, K]."""
        policy, rows = self.algorithm.policy, self._micro_batch_size or self._evaluated_rows
        return log_probs_of(policy, observation, replay, self._precision, rows)

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        """The tensors and plain data that `restore` needs, besides the deployed weights."""
        self.offload.back()
        tensors = optimizer_state.pack(self._optimizer, self.policy, self.ema)
        return tensors, {"ema_updates": self.ema.num_updates if self.ema else 0}

    def restore(
        self, deployed: dict[str, torch.Tensor], tensors: dict[str, torch.Tensor], facts: dict
    ) -> None:
        """Restore what `deployed_weights` and `state` returned."""
        optimizer_state.restore(self._optimizer, self.policy, self.ema, deployed, tensors)
        if self.ema:
            self.ema.num_updates = facts["ema_updates"]

    def _own_parts(self, index: torch.Tensor) -> Sequence[torch.Tensor]:
        """What this process computes of a minibatch, in passes; all processes make as many."""
        size, most = process_group.size(), self._micro_batch_size or len(index)
        if size == 1:
            return index.split(most)
        num_passes = math.ceil(math.ceil(len(index) / size) / most)
        return index.tensor_split(size)[process_group.rank()].tensor_split(num_passes)

    def _step(
        self,
        batch: RolloutBatch,
        index: torch.Tensor,
        round_number: int,
        key: tuple[int, int, int],
    ) -> dict[str, torch.Tensor]:
        self._optimizer.zero_grad()
        device = device_of(self.algorithm.policy)
        metrics: dict[str, torch.Tensor] = {}
        size = process_group.size()
        for part in self._own_parts(index):
            # The group's gradient is the mean of those of its processes.
            rows, share = batch.rows(part, device), len(part) / len(index) * size
            with autocast(self.algorithm.policy, self._precision):
                loss, of_batch = self.algorithm.loss(rows, round_number)
            (loss * share).backward()
            for name, value in (of_batch | {"actor/loss": loss.detach()}).items():
                metrics[name] = value * share + metrics.get(name, torch.zeros_like(value))
        if self._imitation is not None:
            with autocast(self.algorithm.policy, self._precision):
                imitation_loss = self._imitation.loss(*key)
            imitation_loss.backward()
            metrics["actor/imitation_loss"] = imitation_loss.detach()
            metrics["actor/loss"] = metrics["actor/loss"] + imitation_loss.detach()
        if size > 1:
            summed = parallel.summed({name: float(value) for name, value in metrics.items()})
            metrics = {name: torch.tensor(value / size) for name, value in summed.items()}
        norm = nn.utils.clip_grad_norm_(self.policy.parameters(), self._max_grad_norm)
        norm = whole({"norm": norm})["norm"]
        loss_value = metrics["actor/loss"].item()
        if not (math.isfinite(loss_value) and math.isfinite(norm.item())):
            raise ValueError(
                f"the loss is {loss_value} and the gradient norm is {norm.item()} in round "
                f"{round_number}; this step did not change the weights. Lower optimizer.lr, or "
                "check the advantages and ratios of the last rounds"
            )
        self._optimizer.step()
        if self.ema:
            self.ema.update(self.policy)
        return metrics | {"actor/grad_norm": norm}


def _whole_weights(module: nn.Module) -> dict[str, torch.Tensor]:
    return whole({name: value.detach() for name, value in module.state_dict().items()})


def checkpoint_activations(policy: nn.Module) -> None:
    """Let the blocks whose config asks for it compute their activations again in the backward pass,
    although the policy is in evaluation mode.

    transformers does so in training mode only. Its blocks use that mode for nothing else; dropout
    is in modules inside of them, which stay as they are.
    """
    for module in policy.modules():
        if getattr(module, "gradient_checkpointing", False):
            module.training = True


def _batch_metrics(batch: RolloutBatch) -> dict[str, float]:
    mask = batch.value_mask
    advantages = batch.advantage[mask]
    metrics = {
        "rollout/advantages_mean": advantages.mean().item(),
        "rollout/advantages_max": advantages.max().item(),
        "rollout/advantages_min": advantages.min().item(),
        "rollout/rows": float(len(batch)),
    }
    if not batch.returns.isnan().any():
        sums = explained_variance_sums(batch.value, batch.returns, mask)
        metrics["critic/explained_variance"] = explained_variance(sums)
        metrics["rollout/returns_mean"] = batch.returns[mask].mean().item()
    return metrics
