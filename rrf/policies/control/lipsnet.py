"""LipsNet (Song et al., ICML 2023): a network that bounds its own Lipschitz constant.

    a(s) = tanh(K(s) f(s) / (||J_f(s)||_F + eps)),  J_f = df / ds

With a piecewise linear f (ReLU) and a constant K, ||da/ds|| <= K inside every linear piece. The
Jacobian is computed exactly, as the product of the layers' matrices from the outputs to the inputs.
This costs A times a forward pass. It uses ordinary operations, so it can be differentiated and
exported.

f is initialised with He's weights (Glorot's in the last layer), as in the authors' code. With
torch's default weights, ||J_f|| is so small that the division magnifies every optimizer step.

Different from the paper: s is the normalised observation.

Legend: B batch or environments, O observation width, A action width, W width of a layer.
"""

import math
import typing
from collections.abc import Callable

import torch
from torch import nn

from rrf.config import did_you_mean
from rrf.envs.control_env import Interface
from rrf.networks.configs import without_dropout
from rrf.networks.mlp import MLP
from rrf.policies.control.actor_critic import GaussianActor
from rrf.policies.control.configs import LipsNetActorCfg

# The derivative of an elementwise layer, given its module, input and output.
_DERIVATIVES: dict[type[nn.Module], Callable] = {
    nn.ReLU: lambda layer, x, y: (x > 0).to(x.dtype),
    nn.LeakyReLU: lambda layer, x, y: torch.where(x > 0, 1.0, layer.negative_slope).to(x.dtype),
    nn.ELU: lambda layer, x, y: torch.where(x > 0, torch.ones_like(x), y + layer.alpha),
    nn.Tanh: lambda layer, x, y: 1 - y.square(),
    nn.Sigmoid: lambda layer, x, y: y * (1 - y),
    nn.SiLU: lambda layer, x, y: torch.sigmoid(x) * (1 - y) + y,
    nn.Softplus: lambda layer, x, y: torch.sigmoid(layer.beta * x),
}


def require_differentiable(network: MLP) -> None:
    """Raise ValueError for a network or a layer whose derivative is not implemented here."""
    if type(network) is not MLP:
        raise ValueError(
            f"backbone_cfg builds a {type(network).__name__}, whose Jacobian LipsNet cannot "
            "compute; set it to a networks.MLPCfg"
        )
    known = {layer.__name__ for layer in _DERIVATIVES}
    for layer in network.layers:
        if type(layer) not in _DERIVATIVES and type(layer) is not nn.Linear:
            name = type(layer).__name__
            raise ValueError(
                f"backbone_cfg.activations has {name}, whose Jacobian LipsNet cannot compute"
                f"{did_you_mean(name, known)}"
            )


def with_jacobian(network: MLP, x_bo: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs of `network`, [B, A], and their Jacobian, [B, A, O]."""
    factors, value = [], x_bo
    for layer in network.layers:
        output = layer(value)
        if type(layer) is nn.Linear:
            factors.append(layer.weight)
        else:
            factors.append(_DERIVATIVES[type(layer)](layer, value, output))
        value = output
    width = value.shape[-1]
    jacobian = torch.eye(width, dtype=value.dtype, device=value.device)
    jacobian = jacobian.expand(*value.shape[:-1], width, width)
    for layer, factor in zip(reversed(network.layers), reversed(factors), strict=True):
        is_linear = type(layer) is nn.Linear
        jacobian = jacobian @ factor if is_linear else jacobian * factor.unsqueeze(-2)
    return value, jacobian


class LipsNet(nn.Module):
    """Bounds the Lipschitz constant of `network`, which maps [B, O] to [B, A]."""

    def __init__(self, cfg: LipsNetActorCfg, network: MLP, in_features: int):
        super().__init__()
        require_differentiable(network)
        *hidden, last = [layer for layer in network.layers if isinstance(layer, nn.Linear)]
        for layer in hidden:
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
        nn.init.xavier_uniform_(last.weight)
        self.network, self.eps, self.squash = network, cfg.eps, cfg.squash
        k = cfg.init_lipschitz
        start = k + math.log(-math.expm1(-k))  # log(e^k - 1), the inverse of softplus
        if cfg.lipschitz_network_cfg is None:
            self.raw_bound = nn.Parameter(torch.tensor(start))
            self.bound_network = None
        else:
            bound_cfg = without_dropout(cfg.lipschitz_network_cfg)
            self.bound_network = bound_cfg.build(in_features, 1)
            output = [layer for layer in self.bound_network.layers if isinstance(layer, nn.Linear)]
            nn.init.zeros_(output[-1].weight)
            nn.init.constant_(output[-1].bias, start)

    def bound(self, x_bo: torch.Tensor) -> torch.Tensor:
        """K, [B]."""
        if self.bound_network is None:
            return nn.functional.softplus(self.raw_bound).expand(x_bo.shape[:-1])
        return nn.functional.softplus(self.bound_network(x_bo)).squeeze(-1)

    def forward(self, x_bo: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x_bo.device.type, enabled=False):
            outputs, jacobian = with_jacobian(self.network, x_bo)
            norm = torch.linalg.vector_norm(jacobian, dim=(-2, -1))
            outputs = outputs * (self.bound(x_bo) / (norm + self.eps)).unsqueeze(-1)
        return outputs.tanh() if self.squash else outputs


class LipsNetActor(GaussianActor):
    """A Gaussian whose mean is a LipsNet of the normalised observation."""

    def __init__(self, cfg: LipsNetActorCfg, interface: Interface):
        if cfg.memory is not None:
            raise ValueError("LipsNet needs a function of a single observation; set memory=null")
        super().__init__(cfg, interface)
        self.backbone = LipsNet(cfg, typing.cast(MLP, self.backbone), self.width)

    @property
    def lipsnet(self) -> LipsNet:
        """The backbone."""
        assert isinstance(self.backbone, LipsNet)
        return self.backbone
