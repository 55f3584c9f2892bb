"""Model-based policy optimisation, arXiv:1906.08253: SAC on short branches of a learned model.

    every `train_interval` observed transitions:
        the ensemble learns from all of them           -> learned_dynamics.py
        branches of k steps, from states drawn from the replay, with the policy's actions
    every observed transition: G gradient steps of SAC, on batches of 5% observed and 95% imagined
    transitions

An observed transition keeps the state in which an episode ended, because the model must learn to
predict it. k grows with `branch_schedule`. Before the first training, actions are random.

Legend: B batch, M imagined transitions.
"""

from collections.abc import Iterator, Sequence

import torch

from rrf.algorithms.model_based.configs import MBPOCfg
from rrf.algorithms.model_based.learned_dynamics import LearnedDynamics
from rrf.algorithms.off_policy.learner import Batch
from rrf.algorithms.off_policy.sac import SAC
from rrf.algorithms.optimizer_tensors import beneath
from rrf.storage.replay import ModelReplay, Transitions


class MBPO(SAC):
    """Metrics are those of SAC and `LearnedDynamics.fit`, and model/branch_length, model/imagined
    and model/terminated."""

    cfg: MBPOCfg
    keeps_last_states = True

    def __init__(self, cfg: MBPOCfg, *args, **kwargs):
        super().__init__(cfg, *args, **kwargs)
        actor = self.policy.actor
        self.model: LearnedDynamics = cfg.model_cfg.build(
            self.policy.interface, actor.width, self.generator, self.device
        )
        length = max(cfg.branch_schedule[2:])
        capacity = cfg.branches_per_training * length * cfg.num_trainings_kept
        self.imagined = ModelReplay(self.layout, capacity, device=self.device)
        self.trained_at: int | None = None
        """Number of observed transitions at the model's last training."""

    def check_policy(self) -> None:
        super().check_policy()
        actor, critic = self.policy.actor, self.policy.critic
        if critic.groups != actor.groups:
            raise ValueError(
                f"the model predicts what the actor reads, {actor.groups}, but the critics read "
                f"{critic.groups}; set policy.critic_cfg.observation_groups={actor.groups}"
            )

    def update(self) -> dict[str, torch.Tensor]:
        """See `OffPolicyLearner.update`; trains the model first if that is due."""
        metrics = {}
        if not self.is_warming_up:
            last = self.trained_at
            if last is None or self.num_observed - last >= self.cfg.train_interval:
                self.trained_at = self.num_observed
                observed = self.replay.gather(torch.arange(len(self.replay), device=self.device))
                metrics = self.model.fit(observed) | self.imagine()
        return metrics | super().update()

    @torch.no_grad()
    def imagine(self) -> dict[str, torch.Tensor]:
        """Follow the policy in branches off observed states; returns metrics to log."""
        cfg, actor = self.cfg, self.policy.actor
        length = branch_length(self.num_observed, cfg.branch_schedule)
        rows = self.replay.sample((cfg.branches_per_training,), self.generator)
        x_bo = self.replay.gather(rows).actor_obs
        self.imagined.num_newest = cfg.branches_per_training * length * cfg.num_trainings_kept
        num_ended = torch.zeros((), device=self.device)
        for _ in range(length):
            with self.precision():
                outputs = actor(x_bo)
            actions = actor.distribution(outputs).sample(self.generator)
            step = self.model.step(x_bo, actions)
            flags = [step.terminated.float().unsqueeze(-1)] * 2  # terminated, ended
            columns = [x_bo, actions, step.rewards.unsqueeze(-1), *flags, step.observations]
            self.imagined.extend(torch.cat(columns, -1))
            num_ended += step.terminated.sum()
            x_bo = step.observations[~step.terminated]
            if not len(x_bo):
                break
        return {
            "model/branch_length": torch.tensor(float(length)),
            "model/imagined": torch.tensor(float(len(self.imagined))),
            "model/terminated": num_ended / cfg.branches_per_training,
        }

    def sampled(self, count: int) -> Iterator[Batch]:
        """`count` batches, each with its share of observed and of imagined transitions."""
        if not count:
            return
        size, layout = self.cfg.batch_size, self.layout
        num_real = round(self.cfg.real_fraction * size)
        parts = [
            memory.gather(memory.sample((count, number), self.generator)).rows
            for memory, number in ((self.replay, num_real), (self.imagined, size - num_real))
        ]
        for rows in torch.cat(parts, 1):
            steps = Transitions(rows, layout)
            yield Batch(steps, self.cfg.gamma * (1 - steps.terminated))

    # ------------------------------------------------------------------ state

    def set_slowness(self, factor: float) -> None:
        """See `OffPolicyLearner.set_slowness`; the model slows down too."""
        super().set_slowness(factor)
        self.model.set_slowness(factor)

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        tensors, facts = super().state()
        model, of_model = self.model.state()
        imagined, of_imagined = self.imagined.state()
        tensors |= {f"model/{key}": value for key, value in model.items()}
        tensors |= {f"imagined/{key}": value for key, value in imagined.items()}
        of_mbpo = {"model": of_model, "imagined": of_imagined, "trained_at": self.trained_at}
        return tensors, facts | of_mbpo

    def load_state(self, tensors: dict[str, torch.Tensor], facts: dict) -> None:
        """Restore what `state` returned."""
        super().load_state(tensors, facts)
        self.model.load_state(beneath(tensors, "model/"), facts["model"])
        self.imagined.load_state(beneath(tensors, "imagined/"), facts["imagined"])
        self.trained_at = facts["trained_at"]


def branch_length(num_observed: int, schedule: Sequence[int]) -> int:
    """The length of a branch after so many observed transitions; see `MBPOCfg.branch_schedule`."""
    begin, end, first, last = schedule
    progress = min(max((num_observed - begin) / (end - begin), 0.0), 1.0)
    return int(first + progress * (last - first))
