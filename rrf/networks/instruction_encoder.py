"""Bag-of-words encoder for short language instructions. Legend: B batch, D width of the result."""

from collections.abc import Sequence

import torch
from torch import nn

from rrf.networks.configs import InstructionEncoderCfg
from rrf.networks.vocabulary import words_of

UNKNOWN = 0


class InstructionEncoder(nn.Module):
    """Maps B sentences to [B, D]: the mean of their words' vectors. Unknown words share vector
    0."""

    def __init__(self, cfg: InstructionEncoderCfg):
        super().__init__()
        self.out_features = cfg.out_features
        self._index = {word: index for index, word in enumerate(cfg.vocabulary, start=UNKNOWN + 1)}
        self.embedding = nn.EmbeddingBag(len(cfg.vocabulary) + 1, cfg.out_features, mode="mean")
        with torch.no_grad():
            self.embedding.weight[UNKNOWN] = 0.0  # an untrained word shall carry no information

    def token_ids(self, instruction: str) -> list[int]:
        """Vocabulary indices of a sentence. Raises ValueError if it has no words."""
        ids = [self._index.get(word, UNKNOWN) for word in words_of(instruction)]
        if not ids:
            raise ValueError(
                f"the instruction {instruction!r} has no words; give at least one, e.g. 'reach'"
            )
        return ids

    def forward(self, instructions: Sequence[str]) -> torch.Tensor:
        ids, offsets = [], []
        for instruction in instructions:
            offsets.append(len(ids))
            ids.extend(self.token_ids(instruction))
        device = self.embedding.weight.device
        return self.embedding(
            torch.tensor(ids, device=device), torch.tensor(offsets, device=device)
        )
