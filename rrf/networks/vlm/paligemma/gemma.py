"""The layers of Gemma (arXiv:2403.08295), and the form of them that pi0.5's action expert uses.

A layer is pre-norm attention and a pre-norm MLP with a gated GELU (GeGLU). Several heads of queries
share one head of keys and values. In the adaptive form (adaRMS, arXiv:2504.16054), a condition such
as the denoising time gives every norm its scale, shift and the gate of the branch that follows.

Keys and values of a prefix can be given to each layer, so that one stack reads what another stack
made of the prefix; that is all of the joint attention of pi0 (arXiv:2410.24164).

The names of the parameters are those of transformers' Gemma.

Legend: B rows, T tokens that are computed, L tokens that are attended to, D width of a token, H
heads of queries, G heads of keys and values, E width of a head, C width of the condition.
"""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from rrf.networks.vlm.paligemma.configs import GemmaCfg

KeysValues = tuple[torch.Tensor, torch.Tensor]
"""Keys, already rotated, and values of one layer, both [B, G, L, E]."""

_EPS = 1e-6
_ROTATION_BASE = 10000.0


class RMSNorm(nn.Module):
    """Root mean square norm with the learned scale 1 + weight. It gives no gate."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(
        self, x_btd: torch.Tensor, condition_bc: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        return (_unit(x_btd) * (1 + self.weight.float())).to(x_btd.dtype), None


class AdaptiveRMSNorm(nn.Module):
    """Root mean square norm whose scale, shift and gate are linear in a condition.

    All three start at 0, so a new layer does nothing.
    """

    def __init__(self, width: int, condition_width: int):
        super().__init__()
        self.dense = nn.Linear(condition_width, 3 * width)
        nn.init.zeros_(self.dense.weight)
        nn.init.zeros_(self.dense.bias)

    def forward(
        self, x_btd: torch.Tensor, condition_bc: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        modulation_b1d = self.dense(condition_bc.to(self.dense.weight.dtype)).unsqueeze(1)
        scale_b1d, shift_b1d, gate_b1d = modulation_b1d.chunk(3, dim=-1)
        normed_btd = _unit(x_btd) * (1 + scale_b1d.float()) + shift_b1d.float()
        return normed_btd.to(x_btd.dtype), gate_b1d.to(x_btd.dtype)


class Attention(nn.Module):
    """Attention in which groups of query heads share keys and values."""

    def __init__(self, cfg: GemmaCfg):
        super().__init__()
        self.cfg = cfg
        queries, shared = cfg.num_heads * cfg.head_dim, cfg.num_kv_heads * cfg.head_dim
        self.q_proj = nn.Linear(cfg.width, queries, bias=False)
        self.k_proj = nn.Linear(cfg.width, shared, bias=False)
        self.v_proj = nn.Linear(cfg.width, shared, bias=False)
        self.o_proj = nn.Linear(queries, cfg.width, bias=False)

    def forward(
        self,
        x_btd: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        mask_b1tl: torch.Tensor,
        past: KeysValues | None,
    ) -> tuple[torch.Tensor, KeysValues]:
        keys_bgle = _rotated(self._heads(self.k_proj(x_btd)), *rotation)
        values_bgle = self._heads(self.v_proj(x_btd))
        if past is not None:
            keys_bgle = torch.cat([past[0].to(keys_bgle.dtype), keys_bgle], dim=2)
            values_bgle = torch.cat([past[1].to(values_bgle.dtype), values_bgle], dim=2)
        queries_bhte = _rotated(self._heads(self.q_proj(x_btd)), *rotation)
        attended_bhte = _attended(queries_bhte, keys_bgle, values_bgle, mask_b1tl)
        return self.o_proj(attended_bhte.transpose(1, 2).flatten(2)), (keys_bgle, values_bgle)

    def _heads(self, x_btf: torch.Tensor) -> torch.Tensor:
        return x_btf.unflatten(2, (-1, self.cfg.head_dim)).transpose(1, 2)


class GatedMLP(nn.Module):
    """GeGLU: one linear layer gates the other through a GELU."""

    def __init__(self, width: int, mlp_dim: int):
        super().__init__()
        self.gate_proj = nn.Linear(width, mlp_dim, bias=False)
        self.up_proj = nn.Linear(width, mlp_dim, bias=False)
        self.down_proj = nn.Linear(mlp_dim, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = functional.gelu(self.gate_proj(x), approximate="tanh")
        return self.down_proj(gate * self.up_proj(x))


class GemmaLayer(nn.Module):
    """Attention and MLP, each after a norm and beside a residual connection."""

    def __init__(self, cfg: GemmaCfg, condition_width: int | None):
        super().__init__()
        self.self_attn = Attention(cfg)
        self.mlp = GatedMLP(cfg.width, cfg.mlp_dim)
        self.input_layernorm = _norm(cfg.width, condition_width)
        self.post_attention_layernorm = _norm(cfg.width, condition_width)

    def forward(
        self,
        x_btd: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        mask_b1tl: torch.Tensor,
        past: KeysValues | None,
        condition_bc: torch.Tensor | None,
    ) -> tuple[torch.Tensor, KeysValues]:
        normed_btd, gate = self.input_layernorm(x_btd, condition_bc)
        branch_btd, present = self.self_attn(normed_btd, rotation, mask_b1tl, past)
        x_btd = _joined(x_btd, branch_btd, gate)
        normed_btd, gate = self.post_attention_layernorm(x_btd, condition_bc)
        return _joined(x_btd, self.mlp(normed_btd), gate), present


class Gemma(nn.Module):
    """The layers and the last norm.

    Args:
        cfg: The sizes.
        condition_width: C for adaptive norms, None for plain ones.
    """

    def __init__(self, cfg: GemmaCfg, condition_width: int | None = None):
        super().__init__()
        self.cfg = cfg
        self.checkpoints_gradient = False
        self.layers = nn.ModuleList(GemmaLayer(cfg, condition_width) for _ in range(cfg.depth))
        self.norm = _norm(cfg.width, condition_width)

    def forward(
        self,
        x_btd: torch.Tensor,
        positions_bt: torch.Tensor,
        mask_b1tl: torch.Tensor,
        past: list[KeysValues] | None = None,
        condition_bc: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, list[KeysValues]]:
        """The features of tokens, and keys and values of every layer, those of the past included.

        Args:
            x_btd: The vectors of the tokens.
            positions_bt: Their positions, from 0.
            mask_b1tl: bool, True where token t may attend to token l. Those of the past come first.
                The third dimension may be 1.
            past: Keys and values of tokens before these.
            condition_bc: For adaptive norms.
        """
        rotation = _rotation(positions_bt, self.cfg.head_dim)
        presents = []
        for index, layer in enumerate(self.layers):
            given = (x_btd, rotation, mask_b1tl, past[index] if past else None, condition_bc)
            if self.checkpoints_gradient and torch.is_grad_enabled():
                x_btd, present = checkpoint(layer, *given, use_reentrant=False)  # type: ignore[misc]
            else:
                x_btd, present = layer(*given)
            presents.append(present)
        return self.norm(x_btd, condition_bc)[0], presents


def _norm(width: int, condition_width: int | None) -> nn.Module:
    return RMSNorm(width) if condition_width is None else AdaptiveRMSNorm(width, condition_width)


def _unit(x_btd: torch.Tensor) -> torch.Tensor:
    wide_btd = x_btd.float()
    return wide_btd * torch.rsqrt(wide_btd.square().mean(-1, keepdim=True) + _EPS)


def _joined(
    x_btd: torch.Tensor, branch_btd: torch.Tensor, gate_b1d: torch.Tensor | None
) -> torch.Tensor:
    return x_btd + (branch_btd if gate_b1d is None else branch_btd * gate_b1d)


def _rotation(positions_bt: torch.Tensor, head_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of the rotary embedding (arXiv:2104.09864), float32 [B, 1, T, E / 2]."""
    places = torch.arange(0, head_dim, 2, device=positions_bt.device).float()
    angle_b1te = positions_bt[:, None, :, None].float() / _ROTATION_BASE ** (places / head_dim)
    return angle_b1te.cos(), angle_b1te.sin()


def _rotated(x_bhte: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x_bhte.float().chunk(2, dim=-1)
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.to(x_bhte.dtype)


def _attended(
    queries_bhte: torch.Tensor,
    keys_bgle: torch.Tensor,
    values_bgle: torch.Tensor,
    mask_b1tl: torch.Tensor,
) -> torch.Tensor:
    # The query heads that share keys become one head with more queries. So neither keys nor values
    # are copied, and every kernel of torch can do it.
    group, tokens = queries_bhte.shape[1] // keys_bgle.shape[1], queries_bhte.shape[2]
    folded_bgfe = queries_bhte.unflatten(1, (-1, group)).flatten(2, 3)
    if mask_b1tl.shape[2] > 1:
        mask_b1tl = mask_b1tl.repeat(1, 1, group, 1)
    attended_bgfe = functional.scaled_dot_product_attention(
        folded_bgfe, keys_bgle, values_bgle, attn_mask=mask_b1tl
    )
    return attended_bgfe.unflatten(2, (group, tokens)).flatten(1, 2)
