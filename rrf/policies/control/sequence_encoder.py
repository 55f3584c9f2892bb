"""Encoders of histories: what happened before, as features of the present.

Both work step by step, as a deployed policy does, and along stored sequences, as training does.
There `unroll` also gives the features of the observation that each step really led to, which at the
end of an episode is not the next one of the sequence.

Legend: T time, B batch or environments, O observation width, D feature width, C context.
"""

import itertools

import torch
from torch import nn

from rrf.networks.causal_transformer import CausalTransformer
from rrf.policies.control.off_policy_configs import (
    GRUEncoderCfg,
    SequenceEncoderCfg,
    TransformerEncoderCfg,
)
from rrf.policies.control.state_network import forget


class SequenceEncoder(nn.Module):
    """Turns observations and a memory into features."""

    def __init__(self, cfg: SequenceEncoderCfg, in_features: int):
        super().__init__()
        self.in_features = in_features
        self.width: int  # of the features

    def initial_memory(self, num_envs: int) -> torch.Tensor:
        """The empty memory, zeros [L, B, M]."""
        raise NotImplementedError

    def step(self, x_bo: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Features [B, D] of one time step, and the memory after it."""
        raise NotImplementedError

    def unroll(
        self,
        x_tbo: torch.Tensor,
        next_tbo: torch.Tensor | None,
        memory: torch.Tensor | None,
        starts_tb: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Features [T, B, D] along sequences, and (without gradient) of what each step led to.

        Args:
            x_tbo: Observations.
            next_tbo: What each step led to, the last of an episode included; None if not needed.
            memory: Before the first step; None if none was stored.
            starts_tb: bool; where an episode begins, everything before is forgotten.
        """
        raise NotImplementedError


class GRUEncoder(SequenceEncoder):
    """One gated recurrent layer; its memory is [1, B, D]."""

    def __init__(self, cfg: GRUEncoderCfg, in_features: int):
        super().__init__(cfg, in_features)
        self.width = cfg.hidden_size
        self.rnn = nn.GRU(in_features, cfg.hidden_size)

    def initial_memory(self, num_envs: int) -> torch.Tensor:
        return next(self.parameters()).new_zeros(1, num_envs, self.width)

    def step(self, x_bo: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features, memory = self.rnn(x_bo.unsqueeze(0), memory)
        return features.squeeze(0), memory

    def unroll(self, x_tbo, next_tbo, memory, starts_tb):
        assert memory is not None, "recurrent networks learn from sequences with stored memories"
        # Runs between resets go through the fused layer; where they lie, the CPU must know.
        cuts = [0, *(starts_tb[1:].any(1).nonzero().squeeze(1) + 1).tolist(), len(x_tbo)]
        parts = []
        for begin, end in itertools.pairwise(cuts):
            part, memory = self.rnn(x_tbo[begin:end], forget(memory, starts_tb[begin]))
            parts.append(part)
        features = torch.cat(parts)
        if next_tbo is None:
            return features, None
        with torch.no_grad():
            _, after = self.rnn(
                next_tbo.reshape(1, -1, self.in_features),
                features.detach().reshape(1, -1, self.width),
            )
        return features, after.view_as(features)


class TransformerEncoder(SequenceEncoder):
    """A causal transformer; its memory [C, B, O + 1] holds the last observations, oldest first,
    each with a one behind it, and zeros where there was none yet."""

    def __init__(self, cfg: TransformerEncoderCfg, in_features: int):
        super().__init__(cfg, in_features)
        self.width, self.context = cfg.width, cfg.context
        self.embed = nn.Linear(in_features, cfg.width)
        self.transformer = CausalTransformer(cfg.width, cfg.num_layers, cfg.num_heads, cfg.context)

    def initial_memory(self, num_envs: int) -> torch.Tensor:
        return self.embed.weight.new_zeros(self.context, num_envs, self.in_features + 1)

    def step(self, x_bo: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        newest = torch.cat([x_bo, torch.ones_like(x_bo[:, :1])], -1)
        memory = torch.cat([memory[1:], newest.unsqueeze(0)])
        episode_bt = memory[:, :, -1].T
        times = torch.arange(self.context, device=x_bo.device)
        tokens = self.embed(memory[:, :, :-1].transpose(0, 1))
        visible = _same(episode_bt) & (times.unsqueeze(1) >= times)
        return self.transformer(tokens, times, visible)[:, -1], memory

    def unroll(self, x_tbo, next_tbo, memory, starts_tb):
        """The observations that steps led to join as tokens which look at the history and at
        themselves, and which nothing looks at."""
        length = len(x_tbo)
        times = torch.arange(length, device=x_tbo.device)
        episode_bt = starts_tb.cumsum(0).T
        observed = x_tbo
        if next_tbo is not None:
            times = torch.cat([times, times + 1])
            episode_bt = torch.cat([episode_bt, episode_bt], 1)
            observed = torch.cat([x_tbo, next_tbo])
        distances = times.unsqueeze(1) - times
        itself = torch.eye(len(times), dtype=torch.bool, device=x_tbo.device)
        is_history = torch.arange(len(times), device=x_tbo.device) < length
        looks_back = (distances > 0) & (distances < self.context) & is_history
        visible = (_same(episode_bt) & looks_back) | itself
        tokens = self.embed(observed.transpose(0, 1))
        features = self.transformer(tokens, times, visible).transpose(0, 1)
        if next_tbo is None:
            return features, None
        return features[:length], features[length:].detach()


def _same(episode_bl: torch.Tensor) -> torch.Tensor:
    """bool [B, L, L]: whether two tokens belong to the same episode."""
    return episode_bl.unsqueeze(2) == episode_bl.unsqueeze(1)
