"""A head that writes a chunk in FAST tokens (arXiv:2501.09747), one after the other.

Token number i is the word V - 1 - i of the language, where V is the number of words before the
reserved ones, as in pi0-FAST. One more token ends the chunk. No chunk has more than H A tokens, so
a chunk of that length needs no end; every row that a model can write is a chunk.

The loss is the cross entropy over the whole vocabulary. Sampling, like every log-probability, is
restricted to the FAST tokens and the end. The log-probability of token t stands in element t of
[H A]; the elements after the end are 0.

Legend: B rows, H steps in a chunk, A action dimension, T = H A tokens at most, V words, N FAST
tokens and the end.
"""

from pathlib import Path

import torch
from torch.nn import functional

from rrf.networks.vlm.backbone import Backbone
from rrf.policies.policy import Generators
from rrf.policies.vla.action_heads import ActionHead, HeadSample, uniform_rows
from rrf.policies.vla.context import Context
from rrf.policies.vla.heads.action_tokens import draw, last_words
from rrf.policies.vla.heads.fast_configs import FastHeadCfg
from rrf.policies.vla.heads.fast_tokenizer import FILE, FastTokenizer
from rrf.policies.vla.losses import held


class FastHead(ActionHead):
    """See the module."""

    def __init__(
        self,
        cfg: FastHeadCfg,
        backbone: Backbone,
        chunk_length: int,
        action_dim: int,
        state_dim: int,
        assets: Path | None = None,
    ):
        super().__init__(chunk_length, action_dim)
        self.cfg = cfg
        self.tokenizer = FastTokenizer.load(assets or cfg.files)
        made_for = (self.tokenizer.chunk_length, self.tokenizer.action_dim)
        if made_for != (chunk_length, action_dim):
            raise ValueError(
                f"the FAST tokenizer is for chunks of {made_for[0]} steps and {made_for[1]} "
                f"dimensions, but the policy's have {chunk_length} and {action_dim}; train another "
                "one, or change policy.chunk_length"
            )
        self.stop = self.tokenizer.num_tokens
        self.end = last_words(backbone, cfg.num_reserved_tokens, self.stop + 1)

    def sample(self, features: Context, generator: Generators, greedy: bool) -> HeadSample:
        """Sample a chunk; `replay` holds its `tokens` [B, T], which go on with the end."""
        size, device = self.tokenizer.num_coefficients, self.is_executed.device
        uniforms_bt = uniform_rows(len(features), size, generator, device)
        log_probs = []

        def choose(logits_bv: torch.Tensor, place: int) -> torch.Tensor:
            log_probs_bn = self._log_probs(logits_bv)
            tokens_b = draw(log_probs_bn, None if greedy else uniforms_bt[:, place])
            log_probs.append(log_probs_bn.gather(1, tokens_b[:, None]))
            return self._words(tokens_b)

        stop = int(self._words(torch.tensor(self.stop)))
        words_bt = features.backbone.answer(features.view, size, choose, stop)
        missing = size - words_bt.shape[1]
        tokens_bt = functional.pad(self.end - 1 - words_bt, (0, missing), value=self.stop)
        is_live_bt = self._is_live(tokens_bt)
        tokens_bt = tokens_bt.where(is_live_bt, self.stop)
        log_prob_bt = functional.pad(torch.cat(log_probs, dim=1), (0, missing))
        rows = [[t for t in row if t != self.stop] for row in tokens_bt.tolist()]
        actions = torch.from_numpy(self.tokenizer.decode(rows)).float().to(device)
        return HeadSample(actions, log_prob_bt * is_live_bt, {"tokens": tokens_bt})

    def evaluate(
        self, features: Context, replay: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        tokens_bt = replay["tokens"]
        words_bt = self._words(tokens_bt)
        log_probs_btn = self._log_probs(features.backbone.language_logits(features.view, words_bt))
        log_prob_bt = log_probs_btn.gather(-1, tokens_bt.unsqueeze(-1)).squeeze(-1)
        entropy_bt = -(log_probs_btn.exp() * log_probs_btn).sum(-1)
        is_live_bt = self._is_live(tokens_bt)
        return log_prob_bt * is_live_bt, entropy_bt * is_live_bt

    def loss(
        self, features: Context, target_bha: torch.Tensor, is_pad: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """The mean over the tokens of all chunks, their ends included."""
        chunks = held(target_bha, is_pad).cpu().numpy()
        rows = self.tokenizer.encode(chunks)
        longest = min(max(map(len, rows)) + 1, self.tokenizer.num_coefficients)
        filled = [(row + [self.stop] * longest)[:longest] for row in rows]
        tokens_bt = torch.tensor(filled, device=target_bha.device)
        words_bt = self._words(tokens_bt)
        logits_btv = features.backbone.language_logits(features.view, words_bt)
        loss_bt = functional.cross_entropy(logits_btv.transpose(1, 2), words_bt, reduction="none")
        is_live_bt = self._is_live(tokens_bt)
        is_right_bt = self._log_probs(logits_btv.detach()).argmax(-1) == tokens_bt
        count = is_live_bt.sum()
        return (loss_bt * is_live_bt).sum() / count, {
            "loss/token_accuracy": ((is_right_bt & is_live_bt).sum() / count).item()
        }

    def assets(self) -> dict[str, str]:
        return {FILE: self.tokenizer.to_json()}

    def _words(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.end - 1 - tokens

    def _is_live(self, tokens_bt: torch.Tensor) -> torch.Tensor:
        # True up to and including the first end
        is_stop_bt = (tokens_bt == self.stop).long()
        return is_stop_bt.cumsum(1) - is_stop_bt == 0

    def _log_probs(self, logits: torch.Tensor) -> torch.Tensor:
        # The temperature is applied only here, so sampling and evaluation cannot disagree.
        token_logits = logits[..., self.end - 1 - self.stop : self.end].flip(-1)
        return torch.log_softmax(token_logits / (self.cfg.temperature * self.noise_factor), dim=-1)
