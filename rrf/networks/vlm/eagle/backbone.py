"""Eagle 2.5 without output layer and without unused layers, as GR00T N1.5 uses it.

Every image is one square tile: SigLIP2's patches, 2 x 2 of them joined to one token, and two linear
layers that bring it to the width of Qwen3. Features are Qwen3's last hidden state after the final
norm.

What is certain: the arithmetic of connector and language model equals the code that NVIDIA
published (its port in huggingface/lerobot 0.4.4), by golden numbers. What could not be
verified, because no weights of GR00T N1.5 were at hand: the sizes (those of the models that the
publication names), whether the published vision tower is taken after its last layer, the number of
tokens per image, the exact chat template, and with it the values of a real checkpoint.

Legend: B rows, C cameras, P patches of an image, T tokens of an image, V width of the vision tower,
L tokens, D width.
"""

import typing
from pathlib import Path

import torch
from torch import nn

from rrf.networks.vlm.backbone import Backbone, Features, View
from rrf.networks.vlm.eagle.configs import EagleCfg
from rrf.networks.vlm.images import fitted, normalized
from rrf.networks.vlm.tokenizer import build_tokenizer, padded

TURN_START, TURN_END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
IMAGE_START, IMAGE_END, IMAGE = "<img>", "</img>", "<IMG_CONTEXT>"
SPECIALS = (PAD, TURN_START, TURN_END, IMAGE_START, IMAGE_END, IMAGE)


class EagleBackbone(Backbone[EagleCfg]):
    """See the module. Names of the parameters are those below `eagle_model.` of a published
    GR00T."""

    def __init__(self, cfg: EagleCfg, assets: Path | None = None):
        super().__init__(cfg)
        self.tokenizer = build_tokenizer(
            cfg.tokenizer, SPECIALS, assets, limit=("vocab_size", cfg.vocab_size)
        )
        self._num_image_tokens = (cfg.image.size[0] // cfg.patch_size // 2) ** 2
        self.vision_model: typing.Any = self._vision()
        joined = 4 * cfg.vision_width
        self.mlp1 = nn.Sequential(
            nn.LayerNorm(joined),
            nn.Linear(joined, cfg.hidden_size),
            nn.GELU(),
            nn.Linear(cfg.hidden_size, cfg.hidden_size),
        )
        self.language_model = nn.ModuleDict({"model": self._language()})
        if cfg.gradient_checkpointing:
            for part in (self.vision_model, self._qwen):
                part.gradient_checkpointing_enable({"use_reentrant": False})

    def forward(self, view: View) -> Features:
        device = self._qwen.embed_tokens.weight.device
        counts = view.is_shown.sum(1).tolist()
        rows = [self.row(prompt, count) for prompt, count in zip(view.prompts, counts, strict=True)]
        ids, is_token = padded(rows, self.tokenizer.special(PAD), left=True)
        ids_bl = torch.tensor(ids, device=device)
        is_token_bl = torch.tensor(is_token, device=device)
        is_image_bl = ids_bl == self.tokenizer.special(IMAGE)
        tokens_bld = self._qwen.embed_tokens(ids_bl)
        if view.is_shown.any():
            images_btd = self.shown_tokens(view)
            tokens_bld = tokens_bld.masked_scatter(is_image_bl[..., None], images_btd)
        output = self._qwen(
            inputs_embeds=tokens_bld, attention_mask=is_token_bl.long(), use_cache=False
        )
        return Features(output.last_hidden_state, is_token_bl, is_image_bl)

    def row(self, prompt: str, num_images: int) -> list[int]:
        """The tokens of one row: marks of the chat, the images, the prompt, and marks again."""
        encode, special = self.tokenizer.encode, self.tokenizer.special
        images: list[int] = []
        for number in range(1, num_images + 1):
            tile = [special(IMAGE)] * self._num_image_tokens
            images += [*encode(f"<image {number}>"), special(IMAGE_START), *tile]
            images.append(special(IMAGE_END))
        body = images + encode(prompt)
        if self.cfg.system_prompt is None:
            return body
        start, end, line = special(TURN_START), special(TURN_END), encode("\n")
        system = [start, *encode(f"system\n{self.cfg.system_prompt}"), end, *line]
        return [
            *(system if self.cfg.system_prompt else []),
            *(start, *encode("user\n"), *body, end, *line),
            *(start, *encode("assistant\n")),
        ]

    def shown_tokens(self, view: View) -> torch.Tensor:
        """The images that are shown as tokens of the language model, row after row, [., T, D]."""
        rule, dtype = self.cfg.image, self._qwen.embed_tokens.weight.dtype
        images = [normalized(fitted(image, rule), rule) for image in view.images]
        shown = torch.stack(images, 1)[view.is_shown].to(dtype)
        patches_npv = self.vision_model(pixel_values=shown).last_hidden_state
        return self.mlp1(joined_patches(patches_npv))

    def num_prompt_tokens(self, prompt: str) -> int:
        return len(self.row(prompt, 0))

    def blocks(self) -> list[nn.Module]:
        return [*self.vision_model.vision_model.encoder.layers, *self._qwen.layers]

    def assets(self) -> dict[str, str]:
        return self.tokenizer.assets()

    def lora_target(self) -> str:
        return r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj)"

    def published_name(self, name: str) -> str | None:
        """The name in this module of a tensor in published files; None if it is not used."""
        if name.startswith(("language_model.lm_head.", "vision_model.vision_model.head.")):
            return None
        _, _, rest = name.partition("language_model.model.layers.")
        if rest and int(rest.split(".")[0]) >= self.cfg.num_layers:
            return None
        return name

    @property
    def _qwen(self) -> typing.Any:
        return self.language_model["model"]

    def _vision(self) -> nn.Module:
        from transformers import SiglipVisionConfig, SiglipVisionModel

        cfg = self.cfg
        config = SiglipVisionConfig.from_dict(
            {
                "hidden_size": cfg.vision_width,
                "intermediate_size": cfg.vision_intermediate,
                "num_hidden_layers": cfg.vision_depth,
                "num_attention_heads": cfg.vision_heads,
                "image_size": cfg.image.size[0],
                "patch_size": cfg.patch_size,
                "vision_use_head": False,
            }
        )
        return SiglipVisionModel(config)

    def _language(self) -> nn.Module:
        from transformers import Qwen3Config, Qwen3Model

        cfg = self.cfg
        config = Qwen3Config.from_dict(
            {
                "vocab_size": cfg.vocab_size,
                "hidden_size": cfg.hidden_size,
                "intermediate_size": cfg.intermediate_size,
                "num_hidden_layers": cfg.num_layers,
                "num_attention_heads": cfg.num_heads,
                "num_key_value_heads": cfg.num_kv_heads,
                "head_dim": cfg.head_dim,
                "rope_theta": cfg.rope_theta,
            }
        )
        return Qwen3Model(config)


def joined_patches(patches_npv: torch.Tensor) -> torch.Tensor:
    """Each 2 x 2 patches of a square image as one vector, [., P, V] -> [., P / 4, 4 V]."""
    half = int(patches_npv.shape[1] ** 0.5) // 2
    blocks = patches_npv.unflatten(1, (half, 2, half, 2))
    return blocks.transpose(2, 3).flatten(3).flatten(1, 2)
