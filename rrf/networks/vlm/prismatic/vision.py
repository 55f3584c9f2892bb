"""The two vision towers of OpenVLA, built of timm's vision transformer, and FiLM for them.

The features of a tower are those of its second-to-last block, without its norm and without the
tokens before the patches. FiLM (arXiv:1709.07871) stands between attention and MLP of each block,
as in OpenVLA-OFT (arXiv:2502.19645).

Legend: B rows, P patches of an image, C channels of both towers, D width of a token, W width of a
tower.
"""

import functools
import typing

import torch
from timm.layers import build_sincos2d_pos_embed
from timm.models.vision_transformer import Block, VisionTransformer
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from rrf.networks.vlm.configs import ImageRuleCfg
from rrf.networks.vlm.images import fitted, normalized
from rrf.networks.vlm.prismatic.configs import PrismaticCfg, TowerCfg


class FusedVision(nn.Module):
    """Both towers; the channels of their features are concatenated."""

    def __init__(self, cfg: PrismaticCfg):
        super().__init__()
        self.cfg = cfg
        self.featurizer = _tower(cfg.featurizer, cfg)
        self.fused_featurizer = _tower(cfg.fused_featurizer, cfg)
        self.rules = [
            ImageRuleCfg(size=cfg.image.size, mean=tower.mean, std=tower.std)
            for tower in (cfg.featurizer, cfg.fused_featurizer)
        ]

    def blocks(self) -> list[nn.Module]:
        return [*_blocks(self.featurizer), *_blocks(self.fused_featurizer)]

    def pixels(self, images_bhw3: torch.Tensor) -> torch.Tensor:
        """uint8 [B, H, W, 3] -> float32 [B, 6, h, w], the channels as each tower expects them."""
        images_b3hw = fitted(images_bhw3, self.cfg.image)
        return torch.cat([normalized(images_b3hw, rule) for rule in self.rules], dim=1)

    def forward(
        self, pixels_b6hw: torch.Tensor, language_bd: torch.Tensor | None = None
    ) -> torch.Tensor:
        """[B, P, C]. The mean embedding of the language is only given, and needed, with FiLM."""
        both = (self.featurizer, pixels_b6hw[:, :3]), (self.fused_featurizer, pixels_b6hw[:, 3:])
        features = [self._features(tower, images, language_bd) for tower, images in both]
        return torch.cat(features, dim=2)

    def _features(
        self, tower: VisionTransformer, images_b3hw: torch.Tensor, language_bd: torch.Tensor | None
    ) -> torch.Tensor:
        x_bpw = tower.norm_pre(tower._pos_embed(tower.patch_embed(images_b3hw)))
        given = () if language_bd is None else (language_bd,)
        checkpoints = torch.is_grad_enabled() and self.cfg.gradient_checkpointing
        for block in _blocks(tower)[:-1]:
            run = (
                functools.partial(checkpoint, block, use_reentrant=False) if checkpoints else block
            )
            x_bpw = typing.cast("torch.Tensor", run(x_bpw, *given))
        return x_bpw[:, tower.num_prefix_tokens :]


class FiLMBlock(nn.Module):
    """A block whose patches are scaled and shifted by the language after its attention."""

    def __init__(self, block: Block, width: int, language_width: int):
        super().__init__()
        self.block = block
        self.scale = nn.Linear(language_width, width)
        self.shift = nn.Linear(language_width, width)

    def forward(self, x_bpw: torch.Tensor, language_bd: torch.Tensor) -> torch.Tensor:
        block = self.block
        x_bpw = x_bpw + block.drop_path1(block.ls1(block.attn(block.norm1(x_bpw))))
        scale_b1w = self.scale(language_bd).unsqueeze(1)
        x_bpw = x_bpw * (1 + scale_b1w) + self.shift(language_bd).unsqueeze(1)
        return x_bpw + block.drop_path2(block.ls2(block.mlp(block.norm2(x_bpw))))


class Projector(nn.Module):
    """Maps the features of a patch to the width of the language model."""

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.fc1 = nn.Linear(in_features, 4 * in_features)
        self.fc2 = nn.Linear(4 * in_features, out_features)
        self.fc3 = nn.Linear(out_features, out_features)

    def forward(self, x_bpc: torch.Tensor) -> torch.Tensor:
        return self.fc3(functional.gelu(self.fc2(functional.gelu(self.fc1(x_bpc)))))


def _tower(cfg: TowerCfg, backbone: PrismaticCfg) -> VisionTransformer:
    tower = VisionTransformer(
        img_size=backbone.image.size,
        patch_size=cfg.patch_size,
        num_classes=0,
        global_pool="map" if cfg.attention_pool else "token" if cfg.class_token else "",
        embed_dim=cfg.width,
        depth=cfg.depth,
        num_heads=cfg.num_heads,
        mlp_ratio=(cfg.mlp_features + 0.5) / cfg.width,  # timm rounds the product down
        init_values=cfg.layer_scale,
        class_token=cfg.class_token,
        no_embed_class=True,
        reg_tokens=cfg.num_registers,
    )
    if backbone.random_weights == "keep_variance":
        tower.blocks.apply(keep_variance)
        _init_positions(tower)
    if backbone.film:
        tower.blocks = nn.Sequential(
            *(FiLMBlock(block, cfg.width, backbone.language.width) for block in _blocks(tower))
        )
    for unread in (_blocks(tower)[-1], tower.norm, tower.attn_pool):
        if unread is not None:
            unread.requires_grad_(False)
    return tower


def keep_variance(module: nn.Module) -> None:
    """Random weights that neither shrink nor enlarge what passes (MAE, arXiv:2111.06377, A.1).

    Those of timm and of `nn.Linear` make almost the same tokens of all images in a small model, and
    a short training never learns to look at them.
    """
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


def _init_positions(tower: VisionTransformer) -> None:
    """Let random weights know where a patch is: sines and cosines of its row and column
    (arXiv:2111.06377, A.1), with wavelengths that fit the number of patches."""
    grid = list(tower.patch_embed.grid_size)
    width = tower.embed_dim // 4 * 4
    assert tower.pos_embed is not None
    positions_pw = build_sincos2d_pos_embed(grid, width, temperature=max(grid))
    with torch.no_grad():
        tower.pos_embed[..., :width].copy_(positions_pw)


def _blocks(tower: VisionTransformer) -> list[Block]:
    assert isinstance(tower.blocks, nn.Sequential)
    return typing.cast("list[Block]", list(tower.blocks))
