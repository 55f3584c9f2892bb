"""A convolutional image encoder with FiLM conditioning (arXiv:1709.07871) on a text vector, and the
bag-of-words encoder of short instructions that makes this vector.

The former is small on purpose, for 64 px images on a laptop CPU. Images stay in channels-last
memory order. They have this order on disk, and convolutions on CPUs are fastest with it.

Legend: B batch, H height, W width, D text width, F feature width.
"""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from rrf.networks.configs import ImageEncoderCfg, InstructionEncoderCfg
from rrf.networks.vocabulary import words_of


class ImageEncoder(nn.Module):
    """Maps uint8 images [B, H, W, 3] and text vectors [B, D] to feature vectors [B, F]."""

    def __init__(self, cfg: ImageEncoderCfg, image_size: tuple[int, int], text_features: int):
        super().__init__()
        inputs = [3, *cfg.channels[:-1]]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(fan_in, fan_out, size, stride, size // 2)
            for fan_in, fan_out, size, stride in zip(
                inputs, cfg.channels, cfg.kernel_sizes, cfg.strides, strict=True
            )
        )
        self.first_film = len(cfg.channels) - cfg.num_film_layers
        self.film = nn.ModuleList(
            nn.Linear(text_features, 2 * width) for width in cfg.channels[self.first_film :]
        )
        for film in self.film:
            # With zero weights, training starts from the plain network, without any modulation.
            nn.init.zeros_(film.weight)  # type: ignore[arg-type]
            nn.init.zeros_(film.bias)  # type: ignore[arg-type]
        height, width = image_size
        for stride in cfg.strides:
            height, width = -(-height // stride), -(-width // stride)
        self.projection = nn.Linear(cfg.channels[-1] * height * width, cfg.out_features)
        self.norm = nn.LayerNorm(cfg.out_features)

    def forward(self, images_bhw3: torch.Tensor, text_bd: torch.Tensor) -> torch.Tensor:
        x = images_bhw3.permute(0, 3, 1, 2).float().div(255.0).sub(0.5)
        for depth, convolution in enumerate(self.convolutions):
            x = convolution(x)
            if depth >= self.first_film:
                scale, shift = self.film[depth - self.first_film](text_bd)[:, :, None, None].chunk(
                    2, dim=1
                )
                x = x * (1 + scale) + shift
            x = functional.relu(x)
        return functional.relu(self.norm(self.projection(x.flatten(1))))


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
