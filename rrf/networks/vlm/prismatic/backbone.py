"""OpenVLA's backbone (arXiv:2406.09246), with the parallel decoding of OpenVLA-OFT
(arXiv:2502.19645).

A sequence is: BOS | patches of every image | inserted vectors | padding | prompt | what follows.
Padding stands before the prompt, so that what follows begins in the same column in all rows. No
token attends to it and it has no position, so a row does not depend on the length of the others.

Slots are decoded in one pass: a 4-D mask of zeros makes Llama bidirectional.

Legend: B rows, L tokens, P tokens of a prompt, S slots, N inserted vectors, T words of an answer, V
words of the language, D width.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from rrf.networks.vlm.backbone import Backbone, Features, View
from rrf.networks.vlm.prismatic.configs import LlamaCfg, PrismaticCfg
from rrf.networks.vlm.prismatic.names import own_name
from rrf.networks.vlm.prismatic.vision import FusedVision, Projector, keep_variance
from rrf.networks.vlm.tokenizer import build_tokenizer, padded

_BOS, _PAD = "<s>", "<PAD>"


@dataclasses.dataclass
class Tokens:
    """The embedded tokens of a batch."""

    embedding: torch.Tensor  # [B, L, D]
    is_token: torch.Tensor  # bool [B, L], False for padding and for images that are not shown
    is_image: torch.Tensor  # bool [B, L]

    def extended(self, embedding_bsd: torch.Tensor) -> "Tokens":
        """With further tokens at the end, none of which is padding."""
        added = self.is_token.new_ones(embedding_bsd.shape[:2])
        return Tokens(
            torch.cat([self.embedding, embedding_bsd.to(self.embedding.dtype)], dim=1),
            torch.cat([self.is_token, added], dim=1),
            torch.cat([self.is_image, ~added], dim=1),
        )

    @property
    def positions(self) -> torch.Tensor:
        """int64 [B, L], counted over real tokens only."""
        return (self.is_token.cumsum(1) - 1).clamp(min=0)


class PrismaticBackbone(Backbone[PrismaticCfg]):
    """See the module."""

    def __init__(self, cfg: PrismaticCfg, assets: Path | None = None):
        super().__init__(cfg)
        self.tokenizer = build_tokenizer(
            cfg.tokenizer,
            [_BOS, _PAD],
            assets,
            limit=("language.vocabulary_size", cfg.language.vocabulary_size),
        )
        self.vision_backbone = FusedVision(cfg)
        vision_width = cfg.featurizer.width + cfg.fused_featurizer.width
        self.projector = Projector(vision_width, cfg.language.width)
        language = _llama(cfg.language)
        if cfg.random_weights == "keep_variance":
            self.projector.apply(keep_variance)
            language.initializer_range = cfg.language.width**-0.5
        self.language_model = LlamaForCausalLM(language)
        if cfg.gradient_checkpointing:
            self.language_model.gradient_checkpointing_enable({"use_reentrant": False})

    @property
    def vocabulary_size(self) -> int:
        return self.cfg.language.vocabulary_size

    def forward(self, view: View) -> Features:
        sequence = self._view(view)
        return Features(self.hidden(sequence), sequence.is_token, sequence.is_image)

    def image_tokens(self, view: View) -> list[torch.Tensor]:
        return self._patches(self._pixels(view), *self._prompts(view))

    def fill_slots(
        self,
        view: View,
        slots: torch.Tensor,
        inserted: torch.Tensor | None = None,
        images: Sequence[torch.Tensor] | None = None,
    ) -> torch.Tensor:
        before = self._view(view, inserted, images)
        suffix_1s = torch.tensor([self.cfg.slot_suffix_ids], dtype=torch.long, device=slots.device)
        suffix_bsd = self._embed(suffix_1s).expand(len(view), -1, -1)
        sequence = before.extended(slots).extended(suffix_bsd)
        first = before.embedding.shape[1] - (self.cfg.slot_output == "before")
        hidden_bld = self.hidden(sequence, is_bidirectional=True)
        return hidden_bld[:, first : first + slots.shape[1]]

    def slot_logits(
        self, view: View, num_slots: int, inserted: torch.Tensor | None = None
    ) -> torch.Tensor:
        shape = (len(view), num_slots, self.width)
        slots_bsd = torch.zeros(shape, device=view.is_shown.device)
        return self._words(self.fill_slots(view, slots_bsd, inserted))

    def language_logits(self, view: View, answer: torch.Tensor) -> torch.Tensor:
        sequence = self._view(view).extended(self._embed(answer))
        before_bld = self.hidden(sequence)[:, -answer.shape[1] - 1 : -1]
        return self._words(before_bld)

    @torch.no_grad()
    def answer(
        self,
        view: View,
        num_tokens: int,
        choose: Callable[[torch.Tensor, int], torch.Tensor],
        stop: int | None = None,
    ) -> torch.Tensor:
        was_training = self.language_model.training
        self.language_model.eval()  # in training, checkpointing would switch the cache off
        sequence, cache = self._view(view), DynamicCache()
        new, chosen = sequence.embedding, []
        is_stopped_b = torch.zeros(len(view), dtype=torch.bool, device=new.device)
        for place in range(num_tokens):
            hidden_bld = self.language_model.model(
                inputs_embeds=new,
                attention_mask=sequence.is_token.long(),
                position_ids=sequence.positions[:, -new.shape[1] :],
                past_key_values=cache,
                use_cache=True,
            ).last_hidden_state
            chosen.append(choose(self._words(hidden_bld[:, -1]), place))
            is_stopped_b |= chosen[-1] == (-1 if stop is None else stop)
            if is_stopped_b.all():
                break
            new = self._embed(chosen[-1][:, None])
            sequence = sequence.extended(new)
        self.language_model.train(was_training)
        return torch.stack(chosen, dim=1)

    def num_prompt_tokens(self, prompt: str) -> int:
        return 1 + len(self._ids(prompt))

    def blocks(self) -> list[nn.Module]:
        return [*self.vision_backbone.blocks(), *self.language_model.model.layers]

    def assets(self) -> dict[str, str]:
        return self.tokenizer.assets()

    def lora_target(self) -> str:
        return r"language_model\.model\.layers\.\d+\.self_attn\.[qkvo]_proj"

    def published_name(self, name: str) -> str:
        return own_name(name, self.cfg.film)

    def joined(
        self,
        pixels: Sequence[torch.Tensor],
        is_shown: torch.Tensor,
        ids: torch.Tensor,
        is_id: torch.Tensor,
        inserted: torch.Tensor | None = None,
        patches: Sequence[torch.Tensor] | None = None,
    ) -> Tokens:
        """Puts images and inserted vectors after the first token.

        Args:
            pixels: [B, 6, h, w] for each image.
            is_shown: bool [B, number of images].
            ids: Tokens, int64 [B, P], the first of which is BOS.
            is_id: bool [B, P], False for padding.
            inserted: [B, N, D].
            patches: The tokens of each image, if they are known: then `pixels` are not read.
        """
        words_bpd = self._embed(ids)
        dtype = words_bpd.dtype
        if patches is None:
            patches = self._patches(pixels, ids, is_id)
        is_patch_bl = is_shown.repeat_interleave(patches[0].shape[1], dim=1)
        if inserted is None:
            inserted = words_bpd.new_zeros(len(ids), 0, self.width)
        is_inserted_bn = is_id.new_ones(inserted.shape[:2])
        is_image = (
            torch.zeros_like(is_id[:, :1]),
            is_patch_bl,
            torch.zeros_like(is_inserted_bn),
            torch.zeros_like(is_id[:, 1:]),
        )
        return Tokens(
            torch.cat([words_bpd[:, :1], *patches, inserted.to(dtype), words_bpd[:, 1:]], dim=1),
            torch.cat([is_id[:, :1], is_patch_bl, is_inserted_bn, is_id[:, 1:]], dim=1),
            torch.cat(is_image, dim=1),
        )

    def hidden(self, sequence: Tokens, is_bidirectional: bool = False) -> torch.Tensor:
        """The features of all tokens after the last norm, [B, L, D]."""
        mask = sequence.is_token.long()
        if is_bidirectional:
            length, least = mask.shape[1], torch.finfo(sequence.embedding.dtype).min
            mask_bl = torch.where(sequence.is_token, 0.0, least).to(sequence.embedding.dtype)
            mask = mask_bl[:, None, None, :].expand(-1, 1, length, -1)
        return self.language_model.model(
            inputs_embeds=sequence.embedding,
            attention_mask=mask,
            position_ids=sequence.positions,
            use_cache=False,
        ).last_hidden_state

    def _view(
        self,
        view: View,
        inserted: torch.Tensor | None = None,
        patches: Sequence[torch.Tensor] | None = None,
    ) -> Tokens:
        pixels = self._pixels(view) if patches is None else []
        return self.joined(pixels, view.is_shown, *self._prompts(view), inserted, patches)

    def _patches(
        self, pixels: Sequence[torch.Tensor], ids: torch.Tensor, is_id: torch.Tensor
    ) -> list[torch.Tensor]:
        words_bpd = self._embed(ids)
        language_bd = self._mean_of_language(words_bpd, is_id) if self.cfg.film else None
        return [
            self.projector(self.vision_backbone(image.to(words_bpd.dtype), language_bd))
            for image in pixels
        ]

    def _pixels(self, view: View) -> list[torch.Tensor]:
        return [self.vision_backbone.pixels(images) for images in view.images]

    def _prompts(self, view: View) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids with BOS, int64 [B, P], and which of them are real."""
        device = view.is_shown.device
        ids, is_id = padded(
            [self._ids(prompt) for prompt in view.prompts],
            self.tokenizer.special(_PAD),
            left=True,
        )
        bos = [[self.tokenizer.special(_BOS)]] * len(ids)
        return (
            torch.tensor([a + b for a, b in zip(bos, ids, strict=True)], device=device),
            torch.tensor([[True, *row] for row in is_id], device=device),
        )

    def _ids(self, prompt: str) -> list[int]:
        ids, suffix = self.tokenizer.encode(prompt), self.cfg.prompt_suffix_ids
        has_suffix = bool(suffix) and ids[-len(suffix) :] == suffix
        return ids if has_suffix else ids + suffix

    def _words(self, hidden: torch.Tensor) -> torch.Tensor:
        """The logits of the words that features stand for, float32 [..., V]."""
        return self.language_model.lm_head(hidden).float()

    def _embed(self, ids: torch.Tensor) -> torch.Tensor:
        return self.language_model.model.embed_tokens(ids)

    def _mean_of_language(self, words_bpd: torch.Tensor, is_id_bp: torch.Tensor) -> torch.Tensor:
        # OpenVLA-OFT takes the mean over BOS, the prompt and the tokens after the slots.
        suffix = torch.tensor(self.cfg.slot_suffix_ids, dtype=torch.long, device=words_bpd.device)
        total_bd = (words_bpd * is_id_bp.unsqueeze(-1)).sum(1) + self._embed(suffix).sum(0)
        return total_bd / (is_id_bp.sum(1, keepdim=True) + len(suffix))


def _llama(cfg: LlamaCfg) -> LlamaConfig:
    return LlamaConfig.from_dict(
        {
            "vocab_size": cfg.vocabulary_size,
            "hidden_size": cfg.width,
            "intermediate_size": cfg.mlp_features,
            "num_hidden_layers": cfg.depth,
            "num_attention_heads": cfg.num_heads,
            "num_key_value_heads": cfg.num_key_value_heads,
            "max_position_embeddings": cfg.max_tokens,
            "rms_norm_eps": cfg.norm_eps,
            "rope_theta": cfg.rope_theta,
            "attn_implementation": "sdpa",
        }
    )
