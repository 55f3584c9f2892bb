"""Recurrent encoders that predict what fast and slow sensors will show.

Such an encoder turns observations with slow dimensions into a belief h. Two decoders, and the
encoder with them, learn from what is observed later:

    p(o_slow | h-)        h- is the belief as it would be had o_slow not arrived
    p(o_fast' | h, a)     o_fast' is the next fast observation, a the action before it

Both are normal distributions; the loss is their negative log-likelihood where the prediction can be
checked.

An observation is [fast, slow, action before, is seen, age]; see `SlowSensorEnvCfg`. If observations
are normalised, "is seen" stays above 0.5 where it was 1, and below where it was 0.

Legend: T time, B batch or environments, O observation width, F fast, S slow, A action, D belief.
"""

import math
import typing

import torch

from rrf.networks.configs import plain_mlp
from rrf.policies.control.belief_configs import PredictiveEncoderCfg
from rrf.policies.control.sequence_encoder import SequenceEncoder

_LOG_STD_BOUNDS = (-4.0, 2.0)


class Sensed(typing.NamedTuple):
    """The parts of observations [..., O]."""

    fast: torch.Tensor  # [..., F]
    slow: torch.Tensor  # [..., S], the values that were seen last
    action: torch.Tensor  # [..., A], the action before
    is_seen: torch.Tensor  # bool [..., 1], the slow values are of this step
    age: torch.Tensor  # [..., 1], time between this step and the one that showed them before


class PredictiveEncoder(SequenceEncoder):
    """Its memory is the belief, [1, B, D], which is also its output. Subclasses have `advance`."""

    needs_target = False
    """Whether `loss` needs the beliefs of a slow copy."""

    def __init__(self, cfg: PredictiveEncoderCfg, in_features: int):
        super().__init__(cfg, in_features)
        self.cfg, self.width = cfg, cfg.hidden_size
        num_actions = in_features - cfg.num_fast - cfg.num_slow - 2
        if num_actions < 1:
            raise ValueError(
                f"the observation has {in_features} numbers, but num_fast {cfg.num_fast} + "
                f"num_slow {cfg.num_slow} + 2 leave none for the action before; use an env of type "
                "SlowSensorEnvCfg, or lower num_fast or num_slow"
            )
        self.sizes = [cfg.num_fast, cfg.num_slow, num_actions, 1, 1]
        decoder_cfg = plain_mlp([cfg.hidden_size], "ReLU")
        self.slow_decoder = decoder_cfg.build(self.width, 2 * cfg.num_slow)
        self.fast_decoder = decoder_cfg.build(self.width + num_actions, 2 * cfg.num_fast)

    def advance(self, sensed: Sensed, belief_bd: torch.Tensor) -> torch.Tensor:
        """The belief [B, D] after one time step."""
        raise NotImplementedError

    def sensed(self, x: torch.Tensor) -> Sensed:
        """The parts of observations [..., O]."""
        fast, slow, action, seen, age = x.split(self.sizes, -1)
        return Sensed(fast, slow, action, seen > 0.5, age)

    def initial_memory(self, num_envs: int) -> torch.Tensor:
        return next(self.parameters()).new_zeros(1, num_envs, self.width)

    def step(self, x_bo: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        belief = self.advance(self.sensed(x_bo), memory[0])
        return belief, belief.unsqueeze(0)

    def unroll(self, x_tbo, next_tbo, memory, starts_tb):
        assert memory is not None, "recurrent networks learn from sequences with stored memories"
        belief, beliefs = memory[0], []
        steps = zip(*(part.unbind() for part in self.sensed(x_tbo)), strict=True)
        for step, start_b in zip(steps, starts_tb.unsqueeze(-1).unbind(), strict=True):
            belief = self.advance(Sensed(*step), torch.where(start_b, 0.0, belief))
            beliefs.append(belief)
        features = torch.stack(beliefs)
        if next_tbo is None:
            return features, None
        with torch.no_grad():
            after = self.advance(self.sensed(next_tbo.flatten(0, 1)), features.flatten(0, 1))
        return features, after.view_as(features)

    # ------------------------------------------------------------------ predictions

    def predicted_slow(
        self, x_tbo: torch.Tensor, beliefs_tbd: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Means and log stds, each [T - 1, B, S], of the slow dimensions of x[1:].

        Args:
            x_tbo: Observations.
            beliefs_tbd: The beliefs after them.
        """
        current, previous = (
            self.sensed(x_tbo[1:].flatten(0, 1)),
            self.sensed(x_tbo[:-1].flatten(0, 1)),
        )
        unseen = current._replace(slow=previous.slow, is_seen=torch.zeros_like(current.is_seen))
        belief = self.advance(unseen, beliefs_tbd[:-1].flatten(0, 1))
        mean, log_std = _normal(self.slow_decoder(belief))
        shape = (*x_tbo[1:].shape[:2], -1)
        return mean.view(shape), log_std.view(shape)

    def predicted_fast(
        self, belief: torch.Tensor, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Means and log stds, each [..., F], of the fast dimensions after `action`."""
        return _normal(self.fast_decoder(torch.cat([belief, action], -1)))

    def loss(
        self,
        x_tbo: torch.Tensor,
        beliefs_tbd: torch.Tensor,
        starts_tb: torch.Tensor,
        targets_tbd: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss of the predictions along sequences, and metrics.

        The metrics are the mean squared errors of the slow dimensions just before they are seen:
        of the prediction, and of holding the last value. Both are 0 where nothing was seen.

        Args:
            beliefs_tbd: What `unroll` returned for these observations.
            starts_tb: bool; true where an episode begins. Nothing is predicted there.
            targets_tbd: The beliefs of a slow copy, if `needs_target`.
        """
        seen = self.sensed(x_tbo)
        continues = ~starts_tb[1:].unsqueeze(-1)
        arrives = seen.is_seen[1:] & continues
        slow, held = seen.slow[1:], seen.slow[:-1]
        mean, log_std = self.predicted_slow(x_tbo, beliefs_tbd)
        of_slow = mean_where(_nll(slow, mean, log_std), arrives)
        fast_mean, fast_log_std = self.predicted_fast(beliefs_tbd[:-1], seen.action[1:])
        of_fast = mean_where(_nll(seen.fast[1:], fast_mean, fast_log_std), continues)
        loss = self.cfg.slow_coef * of_slow + self.cfg.fast_coef * of_fast
        with torch.no_grad():
            metrics = {
                "slow_nll": of_slow.detach(),
                "fast_nll": of_fast.detach(),
                "slow_mse": mean_where((mean - slow).square(), arrives),
                "hold_mse": mean_where((held - slow).square(), arrives),
            }
        return loss, metrics


def mean_where(x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """The mean of x [..., D] over the places of `where` [..., 1]; 0 if there are none."""
    return torch.where(where, x, 0.0).sum() / (where.sum() * x.shape[-1]).clamp(min=1)


def _normal(outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    mean, log_std = outputs.chunk(2, -1)
    return mean, log_std.clamp(*_LOG_STD_BOUNDS)


def _nll(x: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    """-log N(x; mean, std), elementwise."""
    return 0.5 * ((x - mean) / log_std.exp()).square() + log_std + 0.5 * math.log(2 * math.pi)
