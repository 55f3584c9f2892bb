"""Encoders that turn the history of observations into features for the current step.

Both encoders work step by step, for a deployed policy, and along stored sequences, for training.
For sequences, `unroll` also returns the features of the observation that each step really led to.
At the end of an episode, this is not the next observation of the sequence.

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
        self.width: int  # width of the features, D

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
        """Features of the observations of sequences and of the next observations, each [T, B, D].

        The latter have no gradient.

        Args:
            x_tbo: Observations.
            next_tbo: The observation that each step led to, also at the end of an episode; None if
                its features are not needed.
            memory: The memory before the first step; None if none was stored.
            starts_tb: bool; true where an episode begins. There the history is cleared.
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
        # The steps between two resets go through the fused layer together. The CPU has to know
        # where the resets are, so this waits for the device.
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
    """A causal transformer over the last C observations.

    Its memory [C, B, O + 1] holds these observations, the oldest first. Each is followed by a 1. A
    row without an observation is all zeros.
    """

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
        """See `SequenceEncoder.unroll`.

        The next observations are additional tokens. They attend to the history and to themselves;
        no other token attends to them.
        """
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
