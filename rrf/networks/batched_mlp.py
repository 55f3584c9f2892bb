"""Several perceptrons of the same shape, computed together, e.g. for an ensemble of critics.

Legend: K copies, B batch, I input width, O output width.
"""

import math
import typing

import torch
from torch import nn

from rrf.compiled.mish import mish, normed_mish
from rrf.networks.configs import MLPCfg, without_dropout
from rrf.networks.mlp import activation, in_compiled_code, in_pairs, with_exact_outputs


class BatchedMLP(nn.Module):
    """K independent copies of the network of a config; each layer is one batched matrix product."""

    has_exact_outputs = True
    """Whether the output layer is computed in float32 even under autocast."""

    def __init__(self, cfg: MLPCfg, num_copies: int, in_features: int, out_features: int):
        super().__init__()
        self.num_copies = num_copies
        layers: list[nn.Module] = []
        widths = [in_features, *cfg.hidden_features, out_features]
        layers_after = without_dropout(cfg).activations
        for fan_in, fan_out, after in zip(widths, widths[1:], layers_after, strict=False):
            self.output = len(layers)  # after the loop: the index of the output layer
            layers.append(BatchedLinear(num_copies, fan_in, fan_out))
            pairs = in_pairs(after)
            layers.extend(_layer(name, given, num_copies, fan_out) for name, given in pairs)
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs [K, B, O] for inputs [K, B, I], or for inputs [B, I] that all copies share."""
        outputs = in_compiled_code(self.layers, BatchedLinear, x)
        if outputs is not None:
            return outputs
        if x.dim() == 2:
            x = x.expand(self.num_copies, -1, -1)
        if not self.has_exact_outputs:
            return self.layers(x)
        return with_exact_outputs(self.layers, self.output, x)


class BatchedLinear(nn.Module):
    """K linear layers, each initialised like nn.Linear: uniform within +-1 / sqrt(fan_in)."""

    def __init__(self, num_copies: int, fan_in: int, fan_out: int):
        super().__init__()
        bound = 1 / math.sqrt(fan_in)
        self.weight = nn.Parameter(torch.empty(num_copies, fan_in, fan_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(num_copies, 1, fan_out).uniform_(-bound, bound))

    def forward(self, x_kbi: torch.Tensor) -> torch.Tensor:
        if self.weight.shape[-1] == 1:
            return typing.cast(torch.Tensor, _OneOutput.apply(x_kbi, self.weight, self.bias))
        return torch.baddbmm(self.bias, x_kbi, self.weight)


class _OneOutput(torch.autograd.Function):
    """Layers with one output. For these, batched products are several times slower than single
    ones, and the gradient of the inputs is no product at all."""

    @staticmethod
    def forward(ctx, x_kbi, weight, bias):  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(x_kbi, weight)
        copies = zip(bias, x_kbi, weight, strict=True)
        return torch.stack([torch.addmm(*copy) for copy in copies])

    @staticmethod
    def backward(ctx, gradient_kb1):  # pyright: ignore[reportIncompatibleMethodOverride]
        x_kbi, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        copies = zip(x_kbi.transpose(1, 2), gradient_kb1, strict=True)
        return (
            gradient_kb1 * weight.transpose(1, 2) if of_x else None,
            torch.stack([torch.mm(*copy) for copy in copies]) if of_weight else None,
            gradient_kb1.sum(1, keepdim=True) if of_bias else None,
        )


class BatchedLayerNorm(nn.Module):
    """Layer normalisation with its own scale and shift for each of K copies."""

    def __init__(self, num_copies: int, width: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(num_copies, 1, width))
        self.bias = nn.Parameter(torch.zeros(num_copies, 1, width))

    def forward(self, x_kbi: torch.Tensor) -> torch.Tensor:
        normal = nn.functional.layer_norm(x_kbi, x_kbi.shape[-1:], eps=self.eps)
        return torch.addcmul(self.bias, normal, self.weight)


class BatchedNormedMish(BatchedLayerNorm):
    """`BatchedLayerNorm`, then Mish."""

    def forward(self, x_kbi: torch.Tensor) -> torch.Tensor:
        both = normed_mish(x_kbi, self.weight, self.bias, self.eps)
        return mish(super().forward(x_kbi)) if both is None else both


def _layer(name: str, given: dict, num_copies: int, width: int) -> nn.Module:
    if name == "LayerNorm":
        return BatchedLayerNorm(num_copies, width, **given)
    if name == "NormedMish":
        return BatchedNormedMish(num_copies, width, **given)
    if name == "ReLU":  # in place is safe: nothing else uses the result of the batched product
        return nn.ReLU(inplace=True)
    return activation(name, given)
