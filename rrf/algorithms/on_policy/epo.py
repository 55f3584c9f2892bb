"""Evolutionary policy optimisation (EPO), arXiv:2503.19037: SAPG that breeds its followers.

Members share one actor and one critic. They differ in their latents, which no gradient changes.
Every `evolution_interval` iterations the followers are ranked by fitness: the mean return of the
episodes that they finished since the last generation. The best survive unchanged. Each of the
others is replaced by a child of two survivors. Every coordinate of the child's latent comes from
either parent with equal probability, and noise is added. If members have their own standard
deviations, the child takes that of one parent. The leader (the paper's master agent) keeps its
latent and learns from all members.

We chose the hyper-parameters; those of the paper were not available to us.

Legend: N environments, M members, D latent width, F = M - 1 followers.
"""

import torch
from tensordict import TensorDict

from rrf.algorithms import distributed
from rrf.algorithms.on_policy.configs import EPOCfg
from rrf.algorithms.on_policy.sapg import SAPG
from rrf.policies.control.actor_critic import ActorCritic
from rrf.policies.control.population import PopulationActorCritic
from rrf.storage.rollout import ControlStep


class EPO(SAPG):  # a second level of inheritance: its master learns exactly like SAPG's leader
    """SAPG that also breeds the followers' latents."""

    cfg: EPOCfg  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, cfg: EPOCfg, policy: ActorCritic, num_envs: int, *args, **runtime):
        super().__init__(cfg, policy, num_envs, *args, **runtime)
        assert isinstance(policy, PopulationActorCritic)
        self.population = policy
        if policy.num_members < 4 or policy.cfg.learn_latents:
            raise ValueError(
                f"policy.num_members is {policy.num_members} and policy.learn_latents "
                f"{str(policy.cfg.learn_latents).lower()}; evolution needs a leader and at least 3 "
                "followers (policy.num_members=4 or more), and policy.learn_latents=false"
            )
        # NaN: the running episode is not counted, because it began before a member was replaced.
        self._running = torch.full((num_envs,), torch.nan, device=self.device)
        self._sums = torch.zeros(2, policy.num_members, device=self.device)  # returns, episodes
        self._age = 0  # iterations since the last generation

    def observe(self, step: ControlStep) -> None:
        self._running += step.rewards
        counts = step.dones & ~self._running.isnan()
        self._sums[0].index_add_(0, self.members[counts], self._running[counts])
        self._sums[1].index_add_(0, self.members[counts], torch.ones_like(self._running[counts]))
        self._running = torch.where(step.dones, 0.0, self._running)
        super().observe(step)

    def update(self, observations: TensorDict) -> dict[str, float]:
        metrics = super().update(observations)
        self._age += 1
        if self._age < self.cfg.evolution_interval:
            return metrics
        returns, episodes = distributed.total(self._sums)[:, 1:]
        if bool((episodes == 0).any()):
            return metrics  # the fitness of at least one follower is not known yet
        fitness = returns / episodes
        is_replaced = self._evolve(fitness)
        changed = is_replaced[self.members]
        self._running = torch.where(changed, torch.nan, self._running)
        self._sums.zero_()
        self._age = 0
        return metrics | {
            "population/fitness_best": fitness.max().item(),
            "population/fitness_mean": fitness.mean().item(),
        }

    def _evolve(self, fitness_f: torch.Tensor) -> torch.Tensor:
        """Replace the latents of unfit followers; returns which members were replaced, bool [M]."""
        cfg, latents = self.cfg, self.population.latents
        bred = offspring(
            latents[1:], fitness_f, cfg.elite_fraction, cfg.mutation_std, self.generator
        )
        # Processes draw different random numbers: all take those of the first process.
        children, origins = (distributed.from_first(tensor) for tensor in bred)
        self.population.set_latents(torch.cat([latents[:1], children]))
        origins = torch.cat([torch.zeros_like(origins[:1]), origins + 1])
        self.population.inherit_std(origins)
        return origins != torch.arange(len(origins), device=origins.device)

    def episodes_cut(self) -> None:
        super().episodes_cut()
        self._running.fill_(torch.nan)

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        tensors, facts = super().state()
        tensors |= {"fitness/running": self._running, "fitness/sums": self._sums.clone()}
        return tensors, facts | {"age": self._age}

    def load_state(self, tensors: dict[str, torch.Tensor], facts: dict) -> None:
        super().load_state(tensors, facts)
        self._running = tensors["fitness/running"].to(self.device)
        self._sums.copy_(distributed.once(tensors["fitness/sums"]))  # saved by the first process
        self._age = facts["age"]


def offspring(
    latents_fd: torch.Tensor,
    fitness_f: torch.Tensor,
    elite_fraction: float,
    mutation_std: float,
    generator: torch.Generator | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The next generation's latents [F, D], and the origin of each, int64 [F].

    The origin of a child is the number of one of its parents; the origin of a survivor is its own
    number. At least two followers survive and at least one is replaced. Among equally fit ones,
    those listed first survive.
    """
    count = len(latents_fd)
    num_elites = min(max(round(elite_fraction * count), 2), count - 1)
    ranks = fitness_f.argsort(descending=True, stable=True)
    elites, unfit = ranks[:num_elites], ranks[num_elites:]
    shape = len(unfit), latents_fd.shape[-1]
    device = latents_fd.device
    pairs = torch.rand(len(unfit), num_elites, generator=generator, device=device)
    chosen = elites[pairs.argsort(-1)[:, :2]]  # [children, 2], two different parents
    parents = latents_fd[chosen]
    is_first = torch.rand(shape, generator=generator, device=device) < 0.5
    noise = torch.randn(shape, generator=generator, device=device)
    next_fd = latents_fd.clone()
    next_fd[unfit] = torch.where(is_first, parents[:, 0], parents[:, 1]) + mutation_std * noise
    origins = torch.arange(count, device=device)
    origins[unfit] = chosen[:, 0]
    return next_fd, origins
