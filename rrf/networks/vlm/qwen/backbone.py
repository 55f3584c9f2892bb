"""Qwen2-VL and Qwen3-VL: transformers' models without output layer and without unused layers.

Features are the last hidden state: after the final norm or, without it, before. (The last entry of
transformers' `hidden_states` is the one for Qwen2-VL and the other for Qwen3-VL.)

A row of tokens is: marks of the chat, then for every image <|vision_start|>, image tokens,
<|vision_end|>, then the prompt, and marks again. Rows are padded on the left, so that their last
tokens align.

Legend: B rows, H W height and width, h w the grid of patches, P patches, C channels, L tokens of
the longest row.
"""

import dataclasses
import functools
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from rrf.networks.vlm.backbone import Backbone, Features, View
from rrf.networks.vlm.images import fitted, normalized
from rrf.networks.vlm.qwen.configs import Qwen2VLCfg, Qwen3VLCfg, QwenVLCfg
from rrf.networks.vlm.tokenizer import Tokenizer, build_tokenizer, padded

VISION_START, VISION_END, IMAGE = "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"
TURN_START, TURN_END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
SPECIALS = (PAD, TURN_START, TURN_END, VISION_START, VISION_END, IMAGE, "<|video_pad|>")


@dataclasses.dataclass
class Rows:
    """The rows of a batch, all on the CPU."""

    ids: torch.Tensor  # int64 [B, L]
    is_token: torch.Tensor  # bool [B, L]
    positions: torch.Tensor  # int64 [3, B, L]: time, height, width


class RowWriter:
    """Writes the rows of a model.

    Args:
        tokenizer: The model's tokenizer.
        grid: Height and width of an image in tokens of the language model.
        system_prompt: The first turn of the chat; an empty text leaves it out; None leaves out all
            marks of a chat.
        begins_answer: Whether the row ends with the beginning of the answer's turn.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        grid: tuple[int, int],
        system_prompt: str | None,
        begins_answer: bool = True,
    ):
        self._tokenizer, self._grid = tokenizer, grid
        special = tokenizer.special
        count = grid[0] * grid[1]
        self._image = [special(VISION_START), *[special(IMAGE)] * count, special(VISION_END)]
        self._prefix, self._suffix = self._chat(system_prompt, begins_answer)

    def write(self, num_images: Sequence[int], prompts: Sequence[str]) -> Rows:
        """The rows of B prompts with that many images each."""
        rows, positions = [], []
        for count, prompt in zip(num_images, prompts, strict=True):
            text = self._tokenizer.encode(prompt) + self._suffix
            rows.append([*self._prefix, *self._image * count, *text])
            positions.append(_positions(len(self._prefix), count, self._grid, len(text)))
        ids, is_token = padded(rows, self._tokenizer.special(PAD), left=True)
        longest = len(ids[0])
        # Positions of padding do not matter; transformers writes 1.
        aligned = [
            torch.nn.functional.pad(row, (longest - row.shape[1], 0), value=1) for row in positions
        ]
        return Rows(torch.tensor(ids), torch.tensor(is_token), torch.stack(aligned, dim=1))

    def _chat(self, system_prompt: str | None, begins_answer: bool) -> tuple[list[int], list[int]]:
        """The tokens before the images and after the prompt, as in Qwen's chat template."""
        if system_prompt is None:
            return [], []
        encode, special = self._tokenizer.encode, self._tokenizer.special
        start, end = special(TURN_START), special(TURN_END)
        system = [start, *encode(f"system\n{system_prompt}"), end, *encode("\n")]
        user = [start, *encode("user\n")]
        answer = [end, *encode("\n")]
        if begins_answer:
            answer += [start, *encode("assistant\n")]
        return (system if system_prompt else []) + user, answer


@functools.lru_cache(maxsize=1024)
def _positions(
    num_before: int, num_images: int, grid: tuple[int, int], num_after: int
) -> torch.Tensor:
    """Positions of a row, int64 [3, L] (arXiv:2409.12191, section 2.1).

    A text token has the same position three times. The tokens of an image share the first one and
    count rows and columns in the others. What follows begins after the largest position so far.
    """
    parts, start = [], 0

    def text(count: int) -> int:
        parts.append(torch.arange(start, start + count).expand(3, -1))
        return start + count

    start = text(num_before)
    for _ in range(num_images):
        start = text(1)
        rows, columns = torch.meshgrid(*[torch.arange(side) for side in grid], indexing="ij")
        image = torch.stack([torch.zeros_like(rows), rows, columns]).flatten(1)
        parts.append(image + start)
        start += max(grid)
        start = text(1)
    text(num_after)
    return torch.cat(parts, dim=1)


_MERGED = 2  # patches per token of the language model, in height and in width
_FRAMES = 2  # frames that a patch covers; an image is shown twice

QwenCfg = typing.TypeVar("QwenCfg", bound=QwenVLCfg)


class QwenVLBackbone(Backbone[QwenCfg]):
    """What both generations have in common. A subclass builds `model`."""

    model: typing.Any

    def __init__(self, cfg: QwenCfg, assets: Path | None = None):
        super().__init__(cfg)
        self.tokenizer = build_tokenizer(
            cfg.tokenizer, SPECIALS, assets, limit=("vocab_size", cfg.vocab_size)
        )
        height, width = (side // (cfg.patch_size * _MERGED) for side in cfg.image.size)
        self._writer = RowWriter(
            self.tokenizer, (height, width), cfg.system_prompt, cfg.begins_answer
        )
        self.model = self._build()
        if not cfg.final_norm:
            self.model.language_model.norm = nn.Identity()
        if cfg.gradient_checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})

    def forward(self, view: View) -> Features:
        device = self.model.language_model.embed_tokens.weight.device
        rows = self._writer.write(view.is_shown.sum(1).tolist(), view.prompts)
        ids, is_token = rows.ids.to(device), rows.is_token.to(device)
        output = self.model(
            input_ids=ids,
            attention_mask=is_token.long(),
            position_ids=rows.positions.to(device),
            use_cache=False,
            **self._images(view),
        )
        is_image = ids == self.tokenizer.special(IMAGE)
        return Features(output.last_hidden_state, is_token, is_image)

    def num_prompt_tokens(self, prompt: str) -> int:
        return self._writer.write([0], [prompt]).ids.shape[1]

    def blocks(self) -> list[nn.Module]:
        return [*self.model.visual.blocks, *self.model.language_model.layers]

    def assets(self) -> dict[str, str]:
        return self.tokenizer.assets()

    def lora_target(self) -> str:
        return r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj)"

    def unseen_settings(self) -> dict[str, tuple[str, typing.Any]]:
        cfg = self.cfg
        theta, sections = ("rope_theta", cfg.rope_theta), ("mrope_section", [*cfg.mrope_section])
        settings = {
            "text_config.num_attention_heads": ("num_heads", cfg.num_heads),
            "text_config.num_key_value_heads": ("num_kv_heads", cfg.num_kv_heads),
            "text_config.rope_theta": theta,
            "text_config.rope_parameters.rope_theta": theta,
            "text_config.rope_scaling.mrope_section": sections,
            "text_config.rope_parameters.mrope_section": sections,
            "vision_config.num_heads": ("vision_heads", cfg.vision_heads),
        }
        if isinstance(cfg, Qwen3VLCfg):
            deepstack = ("deepstack", [*cfg.deepstack])
            settings["vision_config.deepstack_visual_indexes"] = deepstack
        return settings

    def published_name(self, name: str) -> str | None:
        """The name in this module of a tensor in published files; None if it is not used.

        Not used are the output layer and the layers above `num_layers`.
        """
        if name.startswith("lm_head."):
            return None
        for old, new in self._renamed().items():
            if name.startswith(old):
                name = new + name.removeprefix(old)
                break
        _, _, rest = name.partition("language_model.layers.")
        if rest and int(rest.split(".")[0]) >= self.cfg.num_layers:
            return None
        if name == "model.language_model.norm.weight" and not self.cfg.final_norm:
            return None
        return name

    def _images(self, view: View) -> dict[str, torch.Tensor]:
        """Patches and grids of the images that are shown, row after row."""
        if not view.images or not view.is_shown.any():
            return {}
        weight = next(self.model.visual.parameters())
        patches = [
            patchified(
                normalized(fitted(image, self.cfg.image), self.cfg.image), self.cfg.patch_size
            )
            for image in view.images
        ]
        shown = torch.stack(patches, 1)[view.is_shown]  # [images, h * w, patch], row after row
        grid = [(1, *(side // self.cfg.patch_size for side in self.cfg.image.size))]
        grids = torch.tensor(grid, device=weight.device).expand(len(shown), -1)
        return {"pixel_values": shown.flatten(0, 1).to(weight.dtype), "image_grid_thw": grids}

    def _tokens(self) -> dict[str, typing.Any]:
        special = self.tokenizer.special
        return {
            "image_token_id": special(IMAGE),
            "video_token_id": special("<|video_pad|>"),
            "vision_start_token_id": special(VISION_START),
            "vision_end_token_id": special(VISION_END),
        }

    def _text(self) -> dict[str, typing.Any]:
        cfg = self.cfg
        return {
            "hidden_size": cfg.hidden_size,
            "num_hidden_layers": cfg.num_layers,
            "num_attention_heads": cfg.num_heads,
            "num_key_value_heads": cfg.num_kv_heads,
            "intermediate_size": cfg.intermediate_size,
            "vocab_size": cfg.vocab_size,
            "rope_theta": cfg.rope_theta,
            "rms_norm_eps": 1e-6,
        }

    def _build(self) -> nn.Module:
        raise NotImplementedError

    def _renamed(self) -> Mapping[str, str]:
        """Prefixes of published names -> prefixes of names in this module."""
        raise NotImplementedError


class Qwen2VLBackbone(QwenVLBackbone[Qwen2VLCfg]):
    """See the module."""

    def _build(self) -> nn.Module:
        from transformers import Qwen2VLConfig, Qwen2VLModel

        cfg = self.cfg
        scaling = {"type": "mrope", "mrope_section": list(cfg.mrope_section)}
        vision = {
            "depth": cfg.vision_depth,
            "embed_dim": cfg.vision_width,
            "hidden_size": cfg.hidden_size,
            "num_heads": cfg.vision_heads,
            "mlp_ratio": _whole(cfg.vision_mlp_ratio),
            "patch_size": cfg.patch_size,
        }
        text = {**self._text(), "rope_scaling": scaling}
        parts = {"text_config": text, "vision_config": vision, **self._tokens()}
        return Qwen2VLModel(Qwen2VLConfig.from_dict(parts))

    def _renamed(self) -> Mapping[str, str]:
        return {
            "visual.": "model.visual.",
            "model.visual.": "model.visual.",
            "model.language_model.": "model.language_model.",
            "model.": "model.language_model.",
        }


class Qwen3VLBackbone(QwenVLBackbone[Qwen3VLCfg]):
    """See the module."""

    def _build(self) -> nn.Module:
        from transformers import Qwen3VLConfig, Qwen3VLModel

        cfg = self.cfg
        scaling = {
            "rope_type": "default",
            "mrope_section": list(cfg.mrope_section),
            "mrope_interleaved": True,
        }
        vision = {
            "depth": cfg.vision_depth,
            "hidden_size": cfg.vision_width,
            "intermediate_size": cfg.vision_intermediate,
            "num_heads": cfg.vision_heads,
            "patch_size": cfg.patch_size,
            "out_hidden_size": cfg.hidden_size,
            "num_position_embeddings": cfg.num_position_embeddings,
            "deepstack_visual_indexes": list(cfg.deepstack),
        }
        text = {**self._text(), "head_dim": cfg.head_dim, "rope_scaling": scaling}
        parts = {"text_config": text, "vision_config": vision, **self._tokens()}
        return Qwen3VLModel(Qwen3VLConfig.from_dict(parts))

    def _renamed(self) -> Mapping[str, str]:
        return {}


def _whole(ratio: float) -> float:
    """The ratio as the integer that transformers 5 insists on, if it is one."""
    return int(ratio) if ratio == int(ratio) else ratio


def patchified(images_bchw: torch.Tensor, patch: int) -> torch.Tensor:
    """Images as rows of patches, [B, h * w, C * frames * patch * patch].

    Neighbouring 2 x 2 patches follow each other, as Qwen's vision tower merges them into one token.
    """
    height, width = (side // (patch * _MERGED) for side in images_bchw.shape[2:])
    blocks = images_bchw.unflatten(3, (width, _MERGED, patch)).unflatten(
        2, (height, _MERGED, patch)
    )
    # [B, C, h, 2, p, w, 2, p] -> [B, h, w, 2, 2, C, p, p]
    ordered = blocks.permute(0, 2, 5, 3, 6, 1, 4, 7)
    twice = ordered.unsqueeze(6).expand(*ordered.shape[:6], _FRAMES, patch, patch)
    return twice.flatten(5).flatten(1, 4)
