"""Action heads that denoise a chunk in N steps, some of which are random and have a density.

The probability of a sample is that of its random denoising steps, not that of the action:

* one random step: a single step per sample is random, chosen among those with std > 0. The other
  steps are deterministic. Training evaluates the network once per sample. The generator chooses an
  index for every sample (pi_RL's code chooses one for the whole batch).
* all steps random: the log-probability is the mean over the normal density of the start and the
  densities of the N steps (`joint_mean` explains why it is the mean).

Legend: B batch, N denoising steps, H steps in an action chunk, A action dimension of the head.
"""

import typing

import torch
from torch.nn import functional

from rrf.policies.policy import Generators
from rrf.policies.vla.action_heads import ActionHead, HeadSample, to_normal, uniform_rows
from rrf.policies.vla.flow_matching import (
    Transition,
    denoise,
    gaussian_entropy,
    gaussian_log_prob,
    joint_mean,
    step_log_prob,
)
from rrf.policies.vla.real_time import RunningChunk


class DenoisingHead(ActionHead):
    """Denoises a chunk from normal noise. A greedy chunk starts from zeros, and no step is random.

    A subclass says what a step does. Elements that are not executed are denoised like the others.
    However, their log-probability and entropy are 0, and policy gradients exclude them from every
    mean.
    """

    @property
    def num_steps(self) -> int:
        """N."""
        raise NotImplementedError

    @property
    def num_random_steps(self) -> int:
        """How many of the first steps have a std above 0; the index of a single random step is
        among them."""
        raise NotImplementedError

    @property
    def has_single_random_step(self) -> bool:
        """One step of a sample is random; else all are."""
        raise NotImplementedError

    @property
    def start_std(self) -> float:
        """Std of the noise that a sampled chunk starts from."""
        return 1.0

    def given(self, features: typing.Any) -> typing.Any:
        """What all denoising steps share; computed once per chunk."""
        return features

    def transition(self, given: typing.Any) -> Transition:
        """The denoising step, from what `given` returned."""
        raise NotImplementedError

    def sample(self, features: typing.Any, generator: Generators, greedy: bool) -> HeadSample:
        """Sample a chunk.

        `replay` holds `chain` [B, N + 1, H, A] and, if a single step is random, its `denoise_index`
        [B]. The log-probability of a greedy chain is its log-probability under sampling; if a
        single step is random, this is step 0.
        """
        transition, batch = self._transition(features), len(features)
        device = self.is_executed.device
        if greedy:
            start_bha = torch.zeros(batch, self.chunk_length, self.action_dim, device=device)
            index_b = torch.zeros(batch, dtype=torch.long, device=device)
            normals_bnha = start_bha[:, None]
            is_random_bn = torch.zeros_like(self._random_steps(index_b))
        else:
            index_b, start_bha, normals_bnha = self._draw(batch, generator, device)
            is_random_bn = self._random_steps(index_b)
        normals_bnha = normals_bnha.expand(-1, self.num_steps, -1, -1)
        chain, log_probs = denoise(transition, start_bha, normals_bnha, is_random_bn)
        replay = {"chain": chain}
        if self.has_single_random_step:
            replay["denoise_index"] = index_b
        if greedy:
            return HeadSample(chain[:, -1], self._score(transition, replay)[0], replay)
        log_prob = self._reduce(self._start_score(start_bha)[0], log_probs)
        return HeadSample(chain[:, -1], log_prob, replay)

    def evaluate(
        self, features: typing.Any, replay: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability and entropy of the chain's random steps, each [B, H * A]."""
        return self._score(self._transition(features), replay)

    def resume(
        self, features: typing.Any, running: RunningChunk, generator: Generators, greedy: bool
    ) -> HeadSample:
        running.check(self.chunk_length, self.action_dim)
        device = self.is_executed.device
        if greedy:
            shape = (len(features), self.chunk_length, self.action_dim)
            noise_bha = torch.zeros(shape, device=device)
        else:
            _, noise_bha, _ = self._draw(len(features), generator, device)
        return HeadSample(self.continued(features, running, noise_bha), None, {})

    def continued(
        self, features: typing.Any, running: RunningChunk, noise_bha: torch.Tensor
    ) -> torch.Tensor:
        """The chunk that continues another one, from this noise, by steps that are not random."""
        transition = self._transition(features)
        freedom = running.freedom(self.chunk_length)
        freedom_h1 = torch.tensor(freedom, device=noise_bha.device)[:, None]
        x_bha = running.start(noise_bha)
        for step in range(self.num_steps):
            steps_b = torch.full((len(x_bha),), step, device=x_bha.device)
            x_bha = x_bha + freedom_h1 * (transition(x_bha, steps_b)[0] - x_bha)
        return x_bha

    def _transition(self, features: typing.Any) -> Transition:
        """The denoising step, which keeps the dimensions that are left out at 0."""
        transition = self.transition(self.given(features))
        if self.is_left_out is None:
            return transition

        def without(x_bha: torch.Tensor, steps_b: torch.Tensor):
            ode_bha, mean_bha, std = transition(x_bha, steps_b)
            mean_bha, std_bha = map(self.without_left_out, (mean_bha, std.expand_as(mean_bha)))
            return self.without_left_out(ode_bha), mean_bha, std_bha

        return without

    def _draw(
        self, batch: int, generator: Generators, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        # Returns index [B], start [B, H, A] and normals [B, number of random steps, H, A].
        num_random = 1 if self.has_single_random_step else self.num_steps
        width = 1 + (1 + num_random) * self.chunk_length * self.action_dim
        uniforms = uniform_rows(batch, width, generator, device)
        normals = to_normal(uniforms[:, 1:]).unflatten(1, (-1, self.chunk_length, self.action_dim))
        index_b = (uniforms[:, 0] * self.num_random_steps).long()
        start_bha = self.without_left_out(normals[:, 0]) * self.start_std
        return index_b, start_bha, normals[:, 1:]

    def _score(
        self, transition: Transition, replay: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        chain = replay["chain"]
        if self.has_single_random_step:
            steps = [replay["denoise_index"]]
        else:
            steps = torch.arange(self.num_steps, device=chain.device)
            steps = list(steps[:, None].expand(-1, len(chain)))
        scores = [step_log_prob(transition, chain, steps_b) for steps_b in steps]
        log_probs, entropies = (torch.stack(parts, 1) for parts in zip(*scores, strict=True))
        start_log_prob, start_entropy = self._start_score(chain[:, 0])
        return (
            self._reduce(start_log_prob, log_probs),
            self._reduce(start_entropy, entropies),
        )

    def _start_score(self, start_bha: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-density and entropy of a start, each [B, H, A]."""
        std_bha = torch.full_like(start_bha, self.start_std)
        log_prob_bha = gaussian_log_prob(start_bha, torch.zeros_like(start_bha), std_bha)
        return log_prob_bha, gaussian_entropy(std_bha)

    def _random_steps(self, index_b: torch.Tensor) -> torch.Tensor:
        if self.has_single_random_step:
            return functional.one_hot(index_b, self.num_steps).bool()
        return torch.ones(len(index_b), self.num_steps, dtype=torch.bool, device=index_b.device)

    def _reduce(self, start_bha: torch.Tensor, steps_bnha: torch.Tensor) -> torch.Tensor:
        if self.has_single_random_step:
            total_bha = steps_bnha.sum(1)  # a single term; those of other steps are 0
        else:
            total_bha = joint_mean(start_bha, steps_bnha)
        return torch.where(self.is_executed, total_bha, 0.0).flatten(1)
