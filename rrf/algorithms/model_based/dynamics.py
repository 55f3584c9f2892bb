"""Learning a task's dynamics from recorded episodes, and how far predictions hold in open loop.

    loss = mean ||targets - predicted||^2 + w BCE(terminated)

over all transitions of windows of the episodes; targets are the reward and the change of the state,
standardised. The state after a termination was not recorded, so the change into it has no loss.

In open loop, a model sees C observed states and then feeds on its own predictions. Errors are in
standard deviations of the states: sqrt(mean(((s' - s) / std)^2)) over dimensions and windows. The
baseline is persistence: the state stays as it is.

Legend: B windows, L transitions of a window, F transitions in total, O observation width, A action
width, C context.
"""

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch.nn import functional

from rrf.algorithms.model_based.dynamics_configs import DynamicsCfg
from rrf.algorithms.model_based.dynamics_models import DynamicsModel
from rrf.algorithms.off_policy.learner import Means
from rrf.algorithms.optimizer_tensors import beneath, optimizer_tensors, restore_optimizer

_MAX_WINDOWS = 500  # of an open-loop evaluation


@dataclasses.dataclass
class Recorded:
    """Recorded transitions in order of time, episode by episode."""

    states: torch.Tensor  # [F, O]
    actions: torch.Tensor  # [F, A]
    rewards: torch.Tensor  # [F]
    next_states: torch.Tensor  # [F, O]; without meaning where the task ended
    terminated: torch.Tensor  # bool [F]
    ended: torch.Tensor  # bool [F], the last of its episode

    def episode_numbers(self) -> torch.Tensor:
        """The number of each transition's episode, int64 [F]."""
        return self.ended.cumsum(0) - self.ended.long()

    def select(self, is_chosen: torch.Tensor) -> "Recorded":
        """The transitions marked in `is_chosen`, bool [F]."""
        return Recorded(
            *(getattr(self, field.name)[is_chosen] for field in dataclasses.fields(self))
        )

    def split(self, fraction: float, generator: torch.Generator) -> tuple["Recorded", "Recorded"]:
        """Training episodes, and a drawn fraction of episodes that are held out.

        Raises:
            ValueError: If there is only one episode.
        """
        numbers = self.episode_numbers()
        count = int(numbers[-1]) + 1
        if count < 2:
            raise ValueError(f"there is {count} episode, but one must be held out; record more")
        order = torch.randperm(count, generator=generator)
        held = order[: min(max(1, round(count * fraction)), count - 1)]
        is_held = torch.isin(numbers, held)
        return self.select(~is_held), self.select(is_held)

    def windows(self, length: int) -> torch.Tensor:
        """Indices of the windows within one episode, all of whose next states were recorded.

        Returns:
            int64 [B, length], in order of time.
        """
        numbers, count = self.episode_numbers(), len(self.ended)
        first = torch.arange(max(0, count - length + 1))
        last = first + length - 1
        is_whole = (numbers[first] == numbers[last]) & ~self.terminated[last]
        return first[is_whole].unsqueeze(1) + torch.arange(length)


class DynamicsLearner:
    """Call `make_updates` until the model is good enough."""

    def __init__(
        self,
        cfg: DynamicsCfg,
        model: DynamicsModel,
        recorded: Recorded,
        generator: torch.Generator,
        device: torch.device,
    ):
        """
        Args:
            model: Trained in place; its statistics become those of `recorded`.
            generator: Draws the windows; on `device`.
        """
        self.cfg, self.model, self.generator = cfg, model, generator
        self.pairs = torch.cat([recorded.states, recorded.actions], -1).to(device)
        change = recorded.next_states - recorded.states
        self.targets = torch.cat([recorded.rewards.unsqueeze(-1), change], -1).to(device)
        self.terminated = recorded.terminated.to(device)
        self.episodes = recorded.episode_numbers().to(device)
        model.pairs.fit(self.pairs)
        model.targets.fit(self.targets[~self.terminated], is_target=True)
        self.optimizer = torch.optim.Adam(
            list(model.parameters()), lr=cfg.learning_rate, fused=True
        )
        self.num_updates, self.slowness = 0, 1.0

    def make_updates(self, count: int) -> dict[str, torch.Tensor]:
        """Make `count` gradient steps; returns the means of loss/dynamics and loss/termination."""
        means = Means()
        for _ in range(count):
            means.add(self._learn())
        return means.averages()

    def _learn(self) -> dict[str, torch.Tensor]:
        cfg, total = self.cfg, len(self.pairs)
        device = self.pairs.device
        first = torch.randint(total, (cfg.batch_size, 1), generator=self.generator, device=device)
        rows = (first + torch.arange(cfg.window, device=device)).clamp(max=total - 1)
        is_inside = (self.episodes[rows] == self.episodes[first]).float()
        is_inside[:, 1:] *= (rows[:, 1:] != rows[:, :-1]).float()  # past the end of all
        flags = self.terminated[rows].float()
        predicted = self.model(self.pairs[rows])
        wanted = self.model.targets(self.targets[rows])
        errors = (predicted.targets - wanted).square()
        is_known = torch.stack([is_inside, is_inside * (1 - flags)])  # of rewards, of states
        squares = (errors[..., 0] * is_known[0] + errors[..., 1:].sum(-1) * is_known[1]).sum() / (
            is_known[0].sum() * wanted.shape[-1]
        )
        of_flags = (
            functional.binary_cross_entropy_with_logits(
                predicted.termination, flags, weight=is_inside, reduction="sum"
            )
            / is_inside.sum()
        )
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate()
        self.optimizer.zero_grad(set_to_none=True)
        (squares + cfg.termination_weight * of_flags).backward()
        self.optimizer.step()
        self.num_updates += 1
        return {"loss/dynamics": squares.detach(), "loss/termination": of_flags.detach()}

    def _learning_rate(self) -> float:
        passed = min(self.num_updates / self.cfg.decay_updates, 1.0)
        return self.cfg.learning_rate * self.slowness * 0.5 * (1 + math.cos(math.pi * passed))

    # ------------------------------------------------------------------ what the loop needs

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        """The named tensors and plain data that `load_state` needs besides the model's weights."""
        packed = optimizer_tensors(self.optimizer, self.model)
        tensors = {f"optimizer/{key}": value.clone() for key, value in packed.items()}
        return tensors, {"num_updates": self.num_updates, "slowness": self.slowness}

    def load_state(self, tensors: dict[str, torch.Tensor], facts: dict) -> None:
        """Restore what `state` returned."""
        restore_optimizer(self.optimizer, self.model, beneath(tensors, "optimizer/"))
        self.num_updates, self.slowness = facts["num_updates"], facts["slowness"]

    def slow_down(self, factor: float) -> None:
        """Multiply the learning rate by `factor` from now on."""
        self.slowness *= factor

    def follow_policy(self) -> None:
        """Nothing: there are no slow copies."""

    def episodes_cut(self) -> None:
        """Nothing: no episode is running."""


def open_loop_errors(
    model: DynamicsModel, recorded: Recorded, horizons: Sequence[int]
) -> dict[str, float]:
    """open_loop/rmse_H and open_loop/persistence_H for each horizon, and the errors of one step:
    open_loop/reward_rmse (in the rewards' units) and open_loop/termination_errors (a fraction).

    All are over the same windows, at most 500 that are evenly spaced.

    Raises:
        ValueError: If no episode is long enough.
    """
    context, longest = model.cfg.context, max(horizons)
    length = context - 1 + longest
    windows = recorded.windows(length)
    if not len(windows):
        counts = recorded.episode_numbers().bincount()
        raise ValueError(
            f"{longest} steps in open loop need held-out episodes of {length} transitions (policy."
            f"context is {context}), but the longest has {int(counts.max())}; lower horizons, or "
            "record longer episodes"
        )
    rows = windows[:: -(-len(windows) // _MAX_WINDOWS)]
    states, after = recorded.states[rows], recorded.next_states[rows]
    device = model.pairs.mean.device
    given = states[:, :context].to(device), recorded.actions[rows].to(device)
    predicted = model.rollout(*given, longest).cpu()
    scale = model.pairs.std[: model.width].cpu()
    truth, last_seen = after[:, context - 1 :], states[:, context - 1].unsqueeze(1)
    metrics = {}
    for horizon in horizons:
        for name, guess in (
            ("rmse", predicted[:, horizon - 1]),
            ("persistence", last_seen[:, 0]),
        ):
            errors = (guess - truth[:, horizon - 1]) / scale
            metrics[f"open_loop/{name}_{horizon}"] = errors.square().mean().sqrt().item()
    return metrics | _one_step_errors(model, recorded)


@torch.no_grad()
def _one_step_errors(model: DynamicsModel, recorded: Recorded) -> dict[str, float]:
    """Of reward and termination, from the current pair alone."""
    pairs = torch.cat([recorded.states, recorded.actions], -1).unsqueeze(1)
    said = model(pairs.to(model.pairs.mean.device))
    rewards = model.targets.inverse(said.targets[:, 0])[:, 0].cpu()
    is_wrong = (said.termination[:, 0].cpu() > 0) != recorded.terminated
    return {
        "open_loop/reward_rmse": (rewards - recorded.rewards).square().mean().sqrt().item(),
        "open_loop/termination_errors": is_wrong.float().mean().item(),
    }
