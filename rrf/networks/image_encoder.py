"""Convolutional image encoder with FiLM conditioning (arXiv:1709.07871) on a text vector.

It is small on purpose, for 64 px images on a laptop CPU. Images stay in channels-last memory order.
They have this order on disk, and convolutions on CPUs are fastest with it.

Legend: B batch, H height, W width, D text width, F feature width.
"""

import torch
from torch import nn
from torch.nn import functional

from rrf.networks.configs import ImageEncoderCfg


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
