"""How each of lerobot's policies chooses a chunk, with randomness from given generators.

| policy | random | greedy |
|---|---|---|
| ACT | the chunk it predicts | the same |
| Diffusion | lerobot's sampler from normal noise | DDIM from zeros, no random step |
| VQ-BeT | codes by their probability | the most probable codes |
| SmolVLA | lerobot's Euler steps from normal noise | the same from zeros |

Without a generator, random choices take the same numbers of torch's global generator as lerobot's
own `predict_action_chunk`, so that they are the same. A policy that sees several observations
(n_obs_steps above 1) is given the present one several times, as lerobot does when an episode
begins.

Legend: B rows, H predicted actions, A their dimension.
"""

import contextlib
import typing
from collections.abc import Callable, Iterator, Sequence

import torch
from lerobot.policies.utils import populate_queues

from rrf.data.schema import STATE
from rrf.policies.policy import Generators

Inputs = dict[str, typing.Any]
_IMAGES = "observation.images"
_ALMOST_ZERO = 1e-6  # a temperature


class Draw(typing.NamedTuple):
    """What decides about a random choice."""

    generator: Generators
    greedy: bool
    noise_factor: float

    def normal(self, batch: int, shape: Sequence[int], device: torch.device) -> torch.Tensor:
        """The noise from which a chunk is denoised, float32 [B, *shape]; zeros if greedy."""
        if self.greedy:
            return torch.zeros(batch, *shape, device=device)
        if isinstance(self.generator, Sequence):
            rows = [self._randn(1, shape, each, device) for each in self.generator]
            return torch.cat(rows)
        return self._randn(batch, shape, self.generator, device)

    def _randn(
        self, batch: int, shape: Sequence[int], generator: torch.Generator | None, device
    ) -> torch.Tensor:
        source = generator.device if generator else device
        drawn = torch.randn(batch, *shape, generator=generator, device=source)
        return self.noise_factor * drawn.to(device)


def act(policy: typing.Any, inputs: Inputs, draw: Draw) -> torch.Tensor:
    """Normalised chunks [B, H, A] of ACT."""
    return policy.predict_action_chunk(inputs)


def diffusion(policy: typing.Any, inputs: Inputs, draw: Draw) -> torch.Tensor:
    """Normalised chunks [B, executed actions, A] of Diffusion."""
    seen, model, config = _seen(policy, inputs), policy.diffusion, policy.config
    batch, device = len(inputs[STATE]), inputs[STATE].device
    noise = draw.normal(batch, (config.horizon, config.action_feature.shape[0]), device)
    if not draw.greedy and draw.generator is None and draw.noise_factor == 1:
        return policy.predict_action_chunk(seen, noise=noise)
    stacked = {key: torch.stack(list(policy._queues[key]), dim=1) for key in (STATE, _IMAGES)}
    with _deterministic(model) if draw.greedy else contextlib.nullcontext():
        chunk_bha = model.conditional_sample(
            batch,
            global_cond=model._prepare_global_conditioning(stacked),
            generator=None if draw.greedy else _as_list(draw.generator),
            noise=noise,
        )
    first = config.n_obs_steps - 1
    return chunk_bha[:, first : first + config.n_action_steps]


def vqbet(policy: typing.Any, inputs: Inputs, draw: Draw) -> torch.Tensor:
    """Normalised chunks [B, H, A] of VQ-BeT."""
    temperature = policy.config.bet_softmax_temperature
    factor = _ALMOST_ZERO / temperature if draw.greedy else draw.noise_factor

    def choose(some: Inputs) -> torch.Tensor:
        return policy.predict_action_chunk(_seen(policy, some))

    policy.config.bet_softmax_temperature = temperature * factor
    try:
        return _by_global_generator(choose, inputs, None if draw.greedy else draw.generator)
    finally:
        policy.config.bet_softmax_temperature = temperature


def smolvla(policy: typing.Any, inputs: Inputs, draw: Draw) -> torch.Tensor:
    """Normalised chunks [B, H, A] of SmolVLA."""
    config, device = policy.config, inputs[STATE].device
    noise = draw.normal(len(inputs[STATE]), (config.chunk_size, config.max_action_dim), device)
    return policy.predict_action_chunk(inputs, noise=noise)


CHUNKS: dict[str, Callable[[typing.Any, Inputs, Draw], torch.Tensor]] = {
    "act": act,
    "diffusion": diffusion,
    "vqbet": vqbet,
    "smolvla": smolvla,
}


def _seen(policy: typing.Any, inputs: Inputs) -> Inputs:
    """Fill a policy's queues with these observations alone, and return what lies in them."""
    images = torch.stack([inputs[key] for key in policy.config.image_features], dim=-4)
    seen = {STATE: inputs[STATE], _IMAGES: images}
    policy.reset()
    populate_queues(policy._queues, seen)
    return seen


@contextlib.contextmanager
def _deterministic(model: typing.Any) -> Iterator[None]:
    """Denoise by DDIM, whose steps are not random, instead of the configured sampler."""
    from diffusers.schedulers.scheduling_ddim import DDIMScheduler

    configured = model.noise_scheduler
    model.noise_scheduler = DDIMScheduler.from_config(configured.config)
    try:
        yield
    finally:
        model.noise_scheduler = configured


def _by_global_generator(
    choose: Callable[[Inputs], torch.Tensor], inputs: Inputs, generator: Generators
) -> torch.Tensor:
    """What `choose` returns if torch's global generator is seeded by `generator`; row by row if
    there is one per row."""
    if generator is None:
        return choose(inputs)
    if isinstance(generator, Sequence):
        parts = [
            {key: value[row : row + 1] for key, value in inputs.items() if _rows(value)}
            for row in range(len(generator))
        ]
        return torch.cat(
            [_by_global_generator(choose, p, g) for p, g in zip(parts, generator, strict=True)]
        )
    with torch.random.fork_rng():
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        return choose(inputs)


def _rows(value: typing.Any) -> int:
    """Rows of what has some; 0 of anything else."""
    return len(value) if isinstance(value, torch.Tensor | list) else 0


def _as_list(generator: Generators) -> typing.Any:
    return list(generator) if isinstance(generator, Sequence) else generator
