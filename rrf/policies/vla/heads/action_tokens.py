"""Action tokens of OpenVLA (arXiv:2406.09246): a language model writes the action, token by token.

The range [-1, 1] has N edges, so N - 1 bins, and N tokens: a value between edges i - 1 and i is the
token V - i, where V is the number of words before the reserved ones; a value of 1 is V - N, whose
centre is that of the last bin. Edges and comparisons are float64, because float32 edges put values
at an edge into another bin.

The loss is the cross entropy over the whole vocabulary. Sampling, like every log-probability, is
restricted to the N tokens of actions. The original takes its argmax over all tokens, which differs
only for a model that writes something else than actions.

Legend: B rows, H steps in an action chunk, A action dimension, T = H A tokens, V words, N bins.
"""

import numpy as np
import torch
from torch.nn import functional

from rrf.networks.vlm.backbone import Backbone
from rrf.policies.policy import Generators
from rrf.policies.vla.action_heads import ActionHead, HeadSample, uniform_rows
from rrf.policies.vla.context import Context
from rrf.policies.vla.heads.action_tokens_configs import ActionTokenHeadCfg
from rrf.policies.vla.losses import masked_mean


class ActionTokenHead(ActionHead):
    """See the module."""

    def __init__(
        self,
        cfg: ActionTokenHeadCfg,
        backbone: Backbone,
        chunk_length: int,
        action_dim: int,
        state_dim: int,
    ):
        super().__init__(chunk_length, action_dim)
        self.cfg = cfg
        self.end = last_words(backbone, cfg.num_reserved_tokens, cfg.num_bins)
        self.first = self.end - cfg.num_bins
        edges = np.linspace(-1, 1, cfg.num_bins)
        self.zero = cfg.num_bins - int(np.searchsorted(edges, 0.0, side="right"))

    def sample(self, features: Context, generator: Generators, greedy: bool) -> HeadSample:
        """Sample a chunk; `replay` holds the `tokens` [B, T] of the language."""
        backbone, size = features.backbone, self.chunk_length * self.action_dim
        device = self.is_executed.device
        uniforms_bt = uniform_rows(len(features), size, generator, device)
        log_probs = []

        def choose(logits_bv: torch.Tensor, place: int) -> torch.Tensor:
            log_probs_bn = self.log_probs(logits_bv)
            words_b = draw(log_probs_bn, None if greedy else uniforms_bt[:, place])
            if self.is_left_out is not None and self.is_left_out[place % self.action_dim]:
                words_b = torch.full_like(words_b, self.zero)
            log_probs.append(log_probs_bn.gather(1, words_b[:, None]))
            return self.first + words_b

        tokens_bt = backbone.answer(features.view, size, choose)
        actions_bt = decoded(tokens_bt, self.end, self.cfg.num_bins).float()
        return HeadSample(
            actions_bt.unflatten(1, (self.chunk_length, self.action_dim)),
            torch.cat(log_probs, dim=1),
            {"tokens": tokens_bt},
        )

    def evaluate(
        self, features: Context, replay: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        tokens_bt = replay["tokens"]
        log_probs_btn = self.log_probs(self.logits(features, tokens_bt))
        words_bt = tokens_bt - self.first
        entropy_bt = -(log_probs_btn.exp() * log_probs_btn).sum(-1)
        return log_probs_btn.gather(-1, words_bt.unsqueeze(-1)).squeeze(-1), entropy_bt

    def loss(
        self, features: Context, target_bha: torch.Tensor, is_pad: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, float]]:
        tokens_bt = encoded(target_bha.flatten(1), self.end, self.cfg.num_bins)
        logits_btv = self.logits(features, tokens_bt)
        loss_bt = functional.cross_entropy(logits_btv.transpose(1, 2), tokens_bt, reduction="none")
        mode_bt = self.log_probs(logits_btv.detach()).argmax(-1) + self.first
        actions_bha = decoded(mode_bt, self.end, self.cfg.num_bins).view_as(target_bha)
        is_right_bt = (mode_bt == tokens_bt).float()
        return masked_mean(loss_bt.view_as(target_bha), is_pad), {
            "loss/action_l1": masked_mean((actions_bha - target_bha).abs(), is_pad).item(),
            "loss/token_accuracy": masked_mean(is_right_bt.view_as(target_bha), is_pad).item(),
        }

    def logits(self, features: Context, tokens_bt: torch.Tensor) -> torch.Tensor:
        """Logits of all words at the place of each token of a chunk, float32 [B, T, V]."""
        return features.backbone.language_logits(features.view, tokens_bt)

    def log_probs(self, logits: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of the N action tokens, float32 [..., N], from logits [..., V]."""
        # The temperature is applied only here, so sampling and evaluation cannot disagree.
        temperature = self.cfg.temperature * self.noise_factor
        return torch.log_softmax(logits[..., self.first : self.end] / temperature, dim=-1)


def last_words(backbone: Backbone, num_reserved: int, num_words: int) -> int:
    """The number of words V before the reserved ones.

    Raises:
        ValueError: If there are fewer than `num_words` of them.
    """
    end = backbone.vocabulary_size - num_reserved
    if end < num_words:
        raise ValueError(
            f"the language has {backbone.vocabulary_size} tokens, of which {num_reserved} are "
            f"reserved; the head needs {num_words} more: lower head.num_reserved_tokens or raise "
            "the vocabulary size of the backbone"
        )
    return end


def encoded(values: torch.Tensor, end: int, num_bins: int) -> torch.Tensor:
    """Normalised actions as tokens, int64; values outside [-1, 1] are clipped."""
    edges = torch.from_numpy(np.linspace(-1, 1, num_bins)).to(values.device)
    return end - torch.bucketize(values.double().clamp(-1, 1), edges, right=True)


def decoded(tokens: torch.Tensor, end: int, num_bins: int) -> torch.Tensor:
    """Tokens as the centres of their bins, float64; those below or above are the first or last."""
    edges = torch.from_numpy(np.linspace(-1, 1, num_bins)).to(tokens.device)
    centers = (edges[:-1] + edges[1:]) / 2
    return centers[(end - tokens - 1).clamp(0, num_bins - 2)]


def draw(log_probs_bn: torch.Tensor, uniform_b: torch.Tensor | None) -> torch.Tensor:
    """An index per row, int64 [B], by the inverse cumulative distribution; None: the most probable.

    Each row needs exactly one uniform number, so what it becomes does not depend on other rows.
    """
    if uniform_b is None:
        return log_probs_bn.argmax(-1)
    cumulative_bn = log_probs_bn.double().exp().cumsum(-1)
    wanted_b1 = (uniform_b.double() * cumulative_bn[:, -1])[:, None]
    index_b1 = torch.searchsorted(cumulative_bn, wanted_b1, right=True)
    return index_b1.squeeze(1).clamp(max=log_probs_bn.shape[1] - 1)
