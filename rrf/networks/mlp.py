"""Multi-layer perceptron. Legend: B batch, I input width, O output width."""

from collections.abc import Sequence

import torch
from torch import nn

from rrf.compiled import perceptron
from rrf.compiled.mish import Mish, NormedMish
from rrf.networks.configs import MLPCfg
from rrf.precision import compiled_products


class SimNorm(nn.Module):
    """Simplicial normalisation (arXiv:2204.00616): each group of G numbers of a vector becomes a
    probability vector by softmax."""

    def __init__(self, group_size: int = 8):
        super().__init__()
        self.group_size = group_size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [..., D] to [..., D]; the width D is a multiple of G."""
        # Softmax along the short rows of x itself would take ten times as long on a CPU.
        groups = x.float().unflatten(-1, (-1, self.group_size)).transpose(-1, -2).contiguous()
        return groups.softmax(-2).transpose(-1, -2).flatten(-2).to(x.dtype)


class MLP(nn.Module):
    """Linear layers, each followed by the layers in its config. Maps [B, I] to [B, O]."""

    has_exact_outputs = True
    """Whether the output layer is computed in float32 even under autocast."""

    def __init__(self, cfg: MLPCfg, in_features: int, out_features: int):
        super().__init__()
        layers: list[nn.Module] = []
        widths = [in_features, *cfg.hidden_features, out_features]
        for fan_in, fan_out, after in zip(widths, widths[1:], cfg.activations, strict=False):
            self.output = len(layers)  # after the loop: the index of the output layer
            layers.append(nn.Linear(fan_in, fan_out))
            layers.extend(_layer(name, arguments, fan_out) for name, arguments in in_pairs(after))
        self.layers = nn.Sequential(*layers)

    def forward(self, x_bi: torch.Tensor) -> torch.Tensor:
        outputs = in_compiled_code(self.layers, nn.Linear, x_bi)
        if outputs is not None:
            return outputs
        if not self.has_exact_outputs:
            return self.layers(x_bi)
        return with_exact_outputs(self.layers, self.output, x_bi)


def in_compiled_code(
    layers: nn.Sequential, linear: type[nn.Module], x: torch.Tensor
) -> torch.Tensor | None:
    """The outputs of a perceptron, where compiled code may and can compute them; else None.

    Args:
        linear: The type of its linear layers; nn.Linear takes inputs of any shape [..., I].
    """
    products = compiled_products()
    if products is None or not perceptron.is_usable(layers, x):
        return None
    activation = perceptron.known_activation(layers, linear)
    if activation is None:
        return None
    if linear is not nn.Linear:
        return perceptron.perceptron(layers, x, activation, products)
    outputs = perceptron.perceptron(layers, x.flatten(0, -2), activation, products)
    return outputs.unflatten(0, x.shape[:-1])


def with_exact_outputs(layers: nn.Sequential, output: int, x: torch.Tensor) -> torch.Tensor:
    """Apply the layers to `x`; from layer number `output` on, in float32 even under autocast.

    In bfloat16, an output near 1,000 would have an error of up to 4.
    """
    if not torch.is_autocast_enabled(x.device.type):
        return layers(x)
    every = list(layers)
    for layer in every[:output]:
        x = layer(x)
    with torch.autocast(x.device.type, enabled=False):
        x = x.float()
        for layer in every[output:]:
            x = layer(x)
    return x


def in_pairs(after: Sequence[tuple[str, dict]]) -> list[tuple[str, dict]]:
    """The same layers, with a LayerNorm and the Mish behind it as one, and none in place of the
    other, so that all layers keep their numbers."""
    names = [name for name, _ in after]
    if names == ["LayerNorm", "Mish"] and after[0][1].keys() <= {"eps"}:
        return [("NormedMish", after[0][1]), ("Identity", {})]
    return list(after)


def _layer(name: str, arguments: dict, width: int) -> nn.Module:
    if name in ("LayerNorm", "NormedMish"):
        return (nn.LayerNorm if name == "LayerNorm" else NormedMish)(width, **arguments)
    return activation(name, arguments)


def activation(name: str, arguments: dict) -> nn.Module:
    """A layer without width: SimNorm, or an activation of torch."""
    layer = {"Mish": Mish, "SimNorm": SimNorm}.get(name)
    return (layer or getattr(nn, name))(**arguments)
