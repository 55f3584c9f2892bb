"""A mock backbone: it has the shape of a vision-language model and no idea of what it sees.

Every patch of every image and every word of the prompt is one token: a fixed random projection,
which nothing trains. It measures what a pipeline and a head cost, and is the baseline of the
policies with a real backbone.

Legend: B rows, C cameras, P patches of an image, L tokens, D width.
"""

from pathlib import Path

import torch
from torch import nn

from rrf.networks.vlm.backbone import Backbone, Features, View
from rrf.networks.vlm.images import fitted, normalized
from rrf.networks.vlm.mock_configs import MockBackboneCfg
from rrf.networks.vlm.tokenizer import build_tokenizer, padded

_PAD = "<pad>"


class MockBackbone(Backbone[MockBackboneCfg]):
    """See the module."""

    patches: torch.Tensor
    words: torch.Tensor

    def __init__(self, cfg: MockBackboneCfg, assets: Path | None = None):
        super().__init__(cfg)
        self.tokenizer = build_tokenizer(cfg.tokenizer, [_PAD], assets)
        width, patch = cfg.hidden_size, 3 * cfg.patch_size**2
        self.register_buffer("patches", torch.randn(patch, width) / patch**0.5)
        self.register_buffer("words", torch.randn(self.tokenizer.num_tokens, width))

    def forward(self, view: View) -> Features:
        device = self.patches.device
        towers = [self._patches(images_bhw3) for images_bhw3 in view.images]
        ids = [self.tokenizer.encode(prompt) for prompt in view.prompts]
        ids, is_word = padded(ids, self.tokenizer.special(_PAD))
        words_bld = self.words[torch.tensor(ids, device=device)]
        is_word_bl = torch.tensor(is_word, device=device)
        is_image_bl = view.is_shown.repeat_interleave(towers[0].shape[1], dim=1)
        return Features(
            tokens=torch.cat([*towers, words_bld], dim=1),
            is_token=torch.cat([is_image_bl, is_word_bl], dim=1),
            is_image=torch.cat([is_image_bl, torch.zeros_like(is_word_bl)], dim=1),
        )

    def num_prompt_tokens(self, prompt: str) -> int:
        return len(self.tokenizer.encode(prompt))

    def assets(self) -> dict[str, str]:
        return self.tokenizer.assets()

    def _patches(self, images_bhw3: torch.Tensor) -> torch.Tensor:
        images_b3hw = normalized(fitted(images_bhw3, self.cfg.image), self.cfg.image)
        size = self.cfg.patch_size
        columns_bcp = nn.functional.unfold(images_b3hw, size, stride=size)
        return columns_bcp.transpose(1, 2) @ self.patches
