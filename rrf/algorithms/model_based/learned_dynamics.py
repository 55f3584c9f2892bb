"""A learned model of a task: an ensemble that learns observed transitions and imagines others.

A training draws held-out transitions, and for each member a bootstrap sample of the others. Every
epoch shuffles them. It stops when no member's held-out error falls any more, and each member keeps
the weights with which its error was lowest (arXiv:1906.08253, appendix C). The next training goes
on from these.

The model is a Gaussian of the reward and of the change of the state. An imagined step takes it from
one of the elites, drawn for each transition and step. Where an imagined episode ends, a rule of the
task says (`RULES`, which hold for the tasks' default arguments); it is compared with what is
observed.

Legend: K members, E elites, B batch, F observed transitions, H held-out ones, O observation width,
A action width.
"""

import dataclasses
from collections.abc import Callable

import torch

from rrf.algorithms.model_based.configs import EnsembleCfg
from rrf.algorithms.model_based.ensemble import Ensemble, elites
from rrf.algorithms.optimizer_tensors import beneath, optimizer_tensors, restore_optimizer
from rrf.data.dataset.floors import FloorsCfg
from rrf.envs.control_env import Interface
from rrf.envs.failure import NotFiniteError
from rrf.precision import autocast
from rrf.storage.replay import Transitions

Rule = Callable[[torch.Tensor], torch.Tensor]
"""Maps states [B, O] to bool [B]: the episode ends there."""
_MAX_STATE = 100.0  # Hopper: no coordinate or velocity may be larger


def never(x_bo: torch.Tensor) -> torch.Tensor:
    """The task goes on until its time limit."""
    return torch.zeros_like(x_bo[:, 0], dtype=torch.bool)


def _inverted_pendulum(x_bo: torch.Tensor) -> torch.Tensor:
    return x_bo[:, 1].abs() > 0.2


def _hopper(x_bo: torch.Tensor) -> torch.Tensor:
    height, angle = x_bo[:, 0], x_bo[:, 1]
    is_healthy = (height > 0.7) & (angle.abs() < 0.2) & (x_bo[:, 1:].abs() < _MAX_STATE).all(1)
    return ~is_healthy


def _walker2d(x_bo: torch.Tensor) -> torch.Tensor:
    height, angle = x_bo[:, 0], x_bo[:, 1]
    return ~((height > 0.8) & (height < 2.0) & (angle.abs() < 1.0))


def _ant(x_bo: torch.Tensor) -> torch.Tensor:
    return ~((x_bo[:, 0] >= 0.2) & (x_bo[:, 0] <= 1.0))


def _humanoid(x_bo: torch.Tensor) -> torch.Tensor:
    return ~((x_bo[:, 0] > 1.0) & (x_bo[:, 0] < 2.0))


def _mountain_car(x_bo: torch.Tensor) -> torch.Tensor:
    return (x_bo[:, 0] >= 0.45) & (x_bo[:, 1] >= 0)


RULES: dict[str, Rule] = {
    "Pendulum-v1": never,
    "MountainCarContinuous-v0": _mountain_car,
    "InvertedPendulum-v5": _inverted_pendulum,
    "HalfCheetah-v5": never,
    "Swimmer-v5": never,
    "Reacher-v5": never,
    "Pusher-v5": never,
    "Hopper-v5": _hopper,
    "Walker2d-v5": _walker2d,
    "Ant-v5": _ant,
    "Humanoid-v5": _humanoid,
}
"""Task -> its rule."""


_IMPROVEMENT = 0.01  # of an error, relative; less does not count
_OWN = ("elites", "observed_mean", "observed_std")  # tensors in a checkpoint
_LEAST_STD = FloorsCfg().absolute
_MAX_DISAGREEMENT = 0.01  # fraction of observed steps that a known rule may call differently


@dataclasses.dataclass
class Imagined:
    """One imagined step of B states."""

    rewards: torch.Tensor  # [B]
    observations: torch.Tensor  # [B, O], the states that the step led to
    terminated: torch.Tensor  # bool [B]


class LearnedDynamics:
    """Call `fit`, then `step` as often as wanted."""

    def __init__(
        self,
        cfg: EnsembleCfg,
        interface: Interface,
        width: int,
        generator: torch.Generator,
        device: torch.device,
    ):
        """
        Args:
            interface: The task, and the width of its actions.
            width: Width of the observations to predict.
            generator: Draws held-out transitions, batches, elites and samples; on `device`.

        Raises:
            ValueError: If the known rule of termination is asked for, but there is none.
        """
        self.cfg, self.generator, self.device = cfg, generator, device
        self.task = interface.task or "this task"
        self.rule: Rule | None = None if cfg.termination == "learned" else RULES.get(interface.task)
        if self.rule is None and cfg.termination == "known":
            raise ValueError(
                f"model_cfg.termination is known, but there is no rule for {self.task}; use "
                f"learned. There are rules for {', '.join(RULES)}"
            )
        self.ensemble = Ensemble(
            cfg, width + interface.num_actions, 1 + width, has_flag=self.rule is None
        ).to(device)
        self.optimizer = torch.optim.Adam(
            self.ensemble.parameter_groups(), lr=cfg.learning_rate, fused=True
        )
        self.elites = torch.arange(cfg.num_elites, device=device)
        self.observed_mean = torch.zeros(width, device=device)
        self.observed_std = torch.ones(width, device=device)
        self.num_updates = 0

    # ------------------------------------------------------------------ learning

    def fit(self, steps: Transitions) -> dict[str, torch.Tensor]:
        """Train on observed transitions [F], until the held-out error no longer falls.

        Returns:
            model/error (the elites' mean squared held-out error of standardised numbers),
            model/epochs and model/num_transitions, as 0-d tensors.

        Raises:
            NotFiniteError: If the held-out error is not finite.
            ValueError: If there are less than two transitions, or if the observed terminations are
                not those of the known rule.
        """
        cfg, count = self.cfg, len(steps.rows)
        if count < 2:
            raise ValueError(f"{count} transitions are too few to train a model; 2 are needed")
        self._check_rule(steps)
        x = torch.cat([steps.actor_obs, steps.actions], -1)
        change = steps.next_actor_obs - steps.actor_obs
        target = torch.cat([steps.rewards.unsqueeze(-1), change], -1)
        order = torch.randperm(count, generator=self.generator, device=self.device)
        num_held = min(max(1, int(count * cfg.holdout_fraction)), cfg.max_holdout)
        held, rest = order[:num_held], order[num_held:]
        self.ensemble.inputs.fit(x[rest])
        self.ensemble.targets.fit(target[rest], is_target=True)
        std, mean = torch.std_mean(steps.actor_obs, 0, correction=0)
        # A floor under nearly constant dimensions, beside which a small error would look huge.
        self.observed_mean, self.observed_std = mean, std.clamp(min=_LEAST_STD)
        epochs, errors_k = self._fit_with_early_stopping(x, target, steps.terminated, held, rest)
        self.elites = elites(errors_k, cfg.num_elites)
        return {
            "model/error": errors_k[self.elites].mean(),
            "model/epochs": torch.tensor(float(epochs)),
            "model/num_transitions": torch.tensor(float(count)),
        }

    def _fit_with_early_stopping(
        self,
        x_fi: torch.Tensor,
        target_fd: torch.Tensor,
        flags_f: torch.Tensor,
        held_h: torch.Tensor,
        rest: torch.Tensor,
    ) -> tuple[int, torch.Tensor]:
        """The number of epochs, and the lowest held-out error of each member, [K]."""
        cfg, shape = self.cfg, (self.cfg.num_members, len(rest))
        drawn = torch.randint(shape[1], shape, generator=self.generator, device=self.device)
        rows_kf = rest[drawn]
        best_k = torch.full(shape[:1], torch.inf, device=self.device)
        weights = [weight.detach().clone() for weight in self.ensemble.network.parameters()]
        since, epoch, last = 0, 0, self.num_updates + cfg.max_updates
        while since < cfg.patience and self.num_updates < last:
            keys = torch.rand(shape, generator=self.generator, device=self.device)
            rows_kf = rows_kf.gather(1, keys.argsort(1))
            for rows_kb in rows_kf.split(cfg.batch_size, 1):
                self._learn(x_fi[rows_kb], target_fd[rows_kb], flags_f[rows_kb])
            errors_k = self._errors(x_fi[held_h], target_fd[held_h], flags_f[held_h])
            is_better = errors_k < (1 - _IMPROVEMENT) * best_k
            best_k = torch.where(is_better, errors_k, best_k)
            for kept, weight in zip(weights, self.ensemble.network.parameters(), strict=True):
                kept.copy_(torch.where(is_better.view(-1, 1, 1), weight.detach(), kept))
            since = 0 if bool(is_better.any()) else since + 1
            epoch += 1
        with torch.no_grad():
            for kept, weight in zip(weights, self.ensemble.network.parameters(), strict=True):
                weight.copy_(kept)
        return epoch, best_k

    def _learn(self, x_kbi: torch.Tensor, target_kbd: torch.Tensor, flag_kb: torch.Tensor) -> None:
        with autocast(self.cfg.precision, self.device):
            loss = self.ensemble.loss(x_kbi, target_kbd, flag_kb)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.num_updates += 1

    @torch.no_grad()
    def _errors(
        self, x_hi: torch.Tensor, target_hd: torch.Tensor, flag_h: torch.Tensor
    ) -> torch.Tensor:
        with autocast(self.cfg.precision, self.device):
            errors_k = self.ensemble.errors(x_hi, target_hd, flag_h)
        if not bool(torch.isfinite(errors_k).all()):
            member = int((~torch.isfinite(errors_k)).nonzero()[0])
            raise NotFiniteError(
                f"the held-out error of member {member} of the model of {self.task} is "
                f"{errors_k[member].item()} after {self.num_updates} gradient steps; lower "
                "algorithm.model_cfg.learning_rate"
            )
        return errors_k

    def _check_rule(self, steps: Transitions) -> None:
        """Raise ValueError if the known rule does not describe what was observed."""
        if self.rule is None:
            return
        differs = self.rule(steps.next_actor_obs) != (steps.terminated > 0.5)
        if differs.float().mean() > _MAX_DISAGREEMENT:
            raise ValueError(
                f"the known rule of termination of {self.task} is wrong about "
                f"{int(differs.sum())} of {len(differs)} observed steps, perhaps because the task "
                "has other arguments; set algorithm.model_cfg.termination=learned"
            )

    # ------------------------------------------------------------------ imagining

    @torch.no_grad()
    def step(self, x_bo: torch.Tensor, actions_ba: torch.Tensor) -> Imagined:
        """Imagine one step from the states `x_bo`.

        Raises:
            NotFiniteError: If a prediction is not finite, or further from the observed states than
                `cfg.max_deviation`.
        """
        count, num_elites = len(x_bo), len(self.elites)
        # Each elite predicts an equal share of the states, which are dealt out at random.
        order = torch.randperm(count, generator=self.generator, device=self.device)
        share = -(-count // num_elites)
        dealt = x_bo.new_zeros(num_elites * share, x_bo.shape[1] + actions_ba.shape[1])
        dealt[:count] = torch.cat([x_bo, actions_ba], -1)[order]
        x_kbi = dealt.new_zeros(self.cfg.num_members, share, dealt.shape[1])
        x_kbi[self.elites] = dealt.view(num_elites, share, -1)
        with autocast(self.cfg.precision, self.device):
            mean, log_var, logits = self.ensemble(x_kbi)
        noise = torch.empty_like(mean).normal_(generator=self.generator)
        drawn = self.ensemble.targets.inverse(torch.addcmul(mean, (0.5 * log_var).exp(), noise))
        predicted = drawn.new_empty(count, drawn.shape[-1])
        predicted[order] = drawn[self.elites].flatten(0, 1)[:count]
        rewards, after = predicted[:, 0], x_bo + predicted[:, 1:]
        self._check_predictions(rewards, after)
        if self.rule is not None:
            return Imagined(rewards, after, self.rule(after))
        assert logits is not None
        terminated = torch.empty(count, dtype=torch.bool, device=self.device)
        terminated[order] = logits[self.elites].flatten()[:count] > 0
        return Imagined(rewards, after, terminated)

    def _check_predictions(self, rewards: torch.Tensor, after_bo: torch.Tensor) -> None:
        if not bool(torch.isfinite(rewards).all()):
            raise NotFiniteError(f"the model of {self.task} predicts a reward that is not finite")
        distance = (after_bo - self.observed_mean).abs() - 1e-6
        is_far = ~(distance <= self.cfg.max_deviation * self.observed_std)  # also if it is NaN
        if bool(is_far.any()):
            row, dimension = is_far.nonzero()[0].tolist()
            raise NotFiniteError(
                f"the model of {self.task} has diverged: it predicts "
                f"{after_bo[row, dimension].item():g} for dimension {dimension} of the state, "
                f"observed with mean {self.observed_mean[dimension].item():g} and standard "
                f"deviation {self.observed_std[dimension].item():g}; shorten the branches, lower "
                "algorithm.model_cfg.learning_rate, or raise algorithm.model_cfg.max_deviation"
            )

    # ------------------------------------------------------------------ state

    def set_slowness(self, factor: float) -> None:
        """Set the factor on the configured learning rate."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.cfg.learning_rate * factor

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        """The named tensors and plain data that `load_state` needs."""
        tensors = {f"ensemble/{key}": value for key, value in self.ensemble.state_dict().items()}
        packed = optimizer_tensors(self.optimizer, self.ensemble)
        tensors |= {f"optimizer/{key}": value for key, value in packed.items()}
        tensors |= {name: getattr(self, name) for name in _OWN}
        return {key: value.clone() for key, value in tensors.items()}, {
            "num_updates": self.num_updates
        }

    def load_state(self, tensors: dict[str, torch.Tensor], facts: dict) -> None:
        """Restore what `state` returned."""
        self.ensemble.load_state_dict(beneath(tensors, "ensemble/"))
        restore_optimizer(self.optimizer, self.ensemble, beneath(tensors, "optimizer/"))
        for name in _OWN:
            setattr(self, name, tensors[name].to(self.device))
        self.num_updates = facts["num_updates"]
