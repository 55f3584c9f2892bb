"""PaliGemma (arXiv:2407.07726) as the backbone of pi0 and pi0.5.

Images -> SigLIP -> linear layer, then the prompt's embeddings times the root of their width. All of
these attend to each other. A camera that is not shown and padding are attended to by nobody and
have no position, so a row's features do not depend on them. An answer attends causally.

The tower is transformers' SiglipVisionModel; the language model is ours, because an action expert
needs its keys and values with gradients.

Legend: B rows, C cameras, P patches of an image, T words, L tokens, D width, V vocabulary.
"""

import dataclasses
import math
import re
import typing
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn
from transformers import SiglipVisionConfig, SiglipVisionModel

from rrf.networks.vlm.backbone import Backbone, Features, View
from rrf.networks.vlm.images import fitted, normalized
from rrf.networks.vlm.paligemma.configs import PaliGemmaCfg, SiglipCfg
from rrf.networks.vlm.paligemma.gemma import Gemma, KeysValues
from rrf.networks.vlm.tokenizer import build_tokenizer, padded

_PAD, _BEGIN, _END = "<pad>", "<bos>", "<eos>"
_STARTS = (
    "model.",
    "paligemma_with_expert.paligemma.",
    "model.",
)  # lerobot's, openpi's, PaliGemma's
_NOT_OURS = re.compile(
    r"(model\.)?(paligemma_with_expert\.gemma_expert\.|(action|state|time|action_time)_(in_|out_)?"
    r"(proj|mlp))"
)
_PUBLISHED = {
    "vision_tower.": "vision.",
    "multi_modal_projector.linear.": "projector.",
    "language_model.model.embed_tokens.": "embedding.",
    "language_model.embed_tokens.": "embedding.",
    "language_model.lm_head.": "embedding.",
    "lm_head.": "embedding.",
    "language_model.model.": "language.",
    "language_model.": "language.",
}
"""Start of published names -> start of ours; the first that fits holds. The embedding table is also
the output layer, and files may have it under either name."""


@dataclasses.dataclass
class Prefix:
    """What the language model reads."""

    vectors: torch.Tensor  # [B, L, D]
    is_token: torch.Tensor  # bool [B, L]
    is_image: torch.Tensor  # bool [B, L]


class PaliGemma(Backbone[PaliGemmaCfg]):
    """See the module."""

    def __init__(self, cfg: PaliGemmaCfg, assets: Path | None = None):
        super().__init__(cfg)
        self.tokenizer = build_tokenizer(
            cfg.tokenizer,
            [_PAD, _BEGIN, _END],
            assets,
            limit=("vocabulary_size", cfg.vocabulary_size),
        )
        self.vision = _vision_tower(cfg.vision, cfg.image.size[0])
        self.projector = nn.Linear(cfg.vision.width, cfg.gemma.width)
        self.embedding = nn.Embedding(cfg.vocabulary_size, cfg.gemma.width)
        nn.init.normal_(self.embedding.weight, std=cfg.gemma.width**-0.5)
        self.language = Gemma(cfg.gemma)
        if cfg.gradient_checkpointing:
            self.language.checkpoints_gradient = True
            self.vision.gradient_checkpointing_enable({"use_reentrant": False})

    @property
    def vocabulary_size(self) -> int:
        return self.cfg.vocabulary_size

    def forward(self, view: View) -> Features:
        rule, device = self.cfg.image, self.embedding.weight.device
        images = [normalized(fitted(images_bhw3, rule), rule) for images_bhw3 in view.images]
        ids, is_word = self._encoded(view.prompts)
        return self.read(
            self.prefix(
                torch.stack(images, dim=1),
                view.is_shown,
                torch.tensor(ids, device=device),
                torch.tensor(is_word, device=device),
            )
        )

    def prefix(
        self,
        images_bc3hw: torch.Tensor,
        is_shown_bc: torch.Tensor,
        ids_bt: torch.Tensor,
        is_word_bt: torch.Tensor,
    ) -> Prefix:
        """The vectors of normalised images and of a prompt."""
        batch, cameras = is_shown_bc.shape
        pixels = images_bc3hw.flatten(0, 1).to(self.projector.weight.dtype)
        patches_npd = self.projector(self.vision(pixel_values=pixels).last_hidden_state)
        patches_bld = patches_npd.unflatten(0, (batch, cameras)).flatten(1, 2)
        is_patch_bl = is_shown_bc.repeat_interleave(patches_npd.shape[1], dim=1)
        return Prefix(
            vectors=torch.cat([patches_bld, self._embedded(ids_bt)], dim=1),
            is_token=torch.cat([is_patch_bl, is_word_bt], dim=1),
            is_image=torch.cat([is_patch_bl, torch.zeros_like(is_word_bt)], dim=1),
        )

    def read(self, prefix: Prefix) -> Features:
        """The features of a prefix."""
        tokens_bld, layers = self.language(
            prefix.vectors,
            torch.cumsum(prefix.is_token, dim=1) - 1,
            prefix.is_token[:, None, None, :],
        )
        return Features(tokens_bld, prefix.is_token, prefix.is_image, layers)

    def num_prompt_tokens(self, prompt: str) -> int:
        return len(self._ids(prompt))

    def language_logits(self, view: View, answer: torch.Tensor) -> torch.Tensor:
        features = self(view)
        first_b1d = features.pooled("last").unsqueeze(1)
        if answer.shape[1] == 1:
            return self._logits(first_b1d)
        later_btd, _ = self._continued(features, answer[:, :-1], features.layers, 0)
        return self._logits(torch.cat([first_b1d, later_btd], dim=1))

    def answer(
        self,
        view: View,
        num_tokens: int,
        choose: Callable[[torch.Tensor, int], torch.Tensor],
        stop: int | None = None,
    ) -> torch.Tensor:
        features = self(view)
        hidden_b1d, cache = features.pooled("last").unsqueeze(1), features.layers
        chosen: list[torch.Tensor] = []
        while True:
            chosen.append(choose(self._logits(hidden_b1d)[:, 0], len(chosen)))
            is_over = stop is not None and bool((torch.stack(chosen) == stop).any(0).all())
            if is_over or len(chosen) == num_tokens:
                return torch.stack(chosen, dim=1)
            newest_b1 = chosen[-1].unsqueeze(1)
            hidden_b1d, cache = self._continued(features, newest_b1, cache, len(chosen) - 1)

    def blocks(self) -> list[nn.Module]:
        return [*self.vision.vision_model.encoder.layers, *self.language.layers]

    def assets(self) -> dict[str, str]:
        return self.tokenizer.assets()

    def lora_target(self) -> str:
        return r"language\.layers\.\d+\.self_attn\.[qkvo]_proj"

    def unseen_settings(self) -> dict[str, tuple[str, typing.Any]]:
        gemma, vision = self.cfg.gemma, self.cfg.vision
        return {
            "text_config.num_attention_heads": ("gemma.num_heads", gemma.num_heads),
            "text_config.num_key_value_heads": ("gemma.num_kv_heads", gemma.num_kv_heads),
            "text_config.head_dim": ("gemma.head_dim", gemma.head_dim),
            "vision_config.num_attention_heads": ("vision.num_heads", vision.num_heads),
        }

    def published_name(self, name: str) -> str | None:
        """The name in this module of a tensor of PaliGemma, of openpi or of lerobot; None for
        those of an action expert."""
        if _NOT_OURS.match(name):
            return None
        for start in _STARTS:
            name = name.removeprefix(start)
        for prefix, own_prefix in _PUBLISHED.items():
            if name.startswith(prefix):
                return own_prefix + name.removeprefix(prefix)
        return name

    def _encoded(self, prompts: Sequence[str]) -> tuple[list[list[int]], list[list[bool]]]:
        ids = [self._ids(prompt) for prompt in prompts]
        for row, prompt in zip(ids, prompts, strict=True):
            if len(row) > self.cfg.max_tokens:
                raise ValueError(
                    f"the prompt '{prompt}' has {len(row)} tokens, but backbone.max_tokens is "
                    f"{self.cfg.max_tokens}; shorten the instruction or raise it"
                )
        return padded(ids, self.tokenizer.special(_PAD))

    def _ids(self, prompt: str) -> list[int]:
        if self.cfg.instructions == "underscores":
            prompt = prompt.replace("_", " ")
        return [self.tokenizer.special(_BEGIN), *self.tokenizer.encode(prompt)]

    def _embedded(self, ids_bt: torch.Tensor) -> torch.Tensor:
        return self.embedding(ids_bt) * math.sqrt(self.width)

    def _continued(
        self,
        features: Features,
        ids_bt: torch.Tensor,
        cache: list[KeysValues],
        num_before: int,
    ) -> tuple[torch.Tensor, list[KeysValues]]:
        """Features of tokens that stand after the prefix and `num_before` others, causally."""
        batch, num_tokens = ids_bt.shape
        rows_t = torch.arange(num_before, num_before + num_tokens, device=ids_bt.device)
        columns_l = torch.arange(num_before + num_tokens, device=ids_bt.device)
        is_seen_btl = (columns_l <= rows_t[:, None]).expand(batch, -1, -1)
        is_prefix_btl = features.is_token[:, None].expand(-1, num_tokens, -1)
        positions_bt = features.is_token.sum(1, keepdim=True) + rows_t
        mask_b1tl = torch.cat([is_prefix_btl, is_seen_btl], dim=2)[:, None]
        return self.language(self._embedded(ids_bt), positions_bt, mask_b1tl, cache)

    def _logits(self, hidden_btd: torch.Tensor) -> torch.Tensor:
        return (hidden_btd @ self.embedding.weight.T).float()


def _vision_tower(cfg: SiglipCfg, image_size: int) -> SiglipVisionModel:
    return SiglipVisionModel(
        SiglipVisionConfig.from_dict(
            {
                "hidden_size": cfg.width,
                "num_hidden_layers": cfg.depth,
                "intermediate_size": cfg.mlp_dim,
                "num_attention_heads": cfg.num_heads,
                "patch_size": cfg.patch_size,
                "image_size": image_size,
                "vision_use_head": False,
            }
        )
    )
