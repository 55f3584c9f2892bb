"""Layers with weights of their own for each embodiment, and GR00T's encoder of noisy actions.

Legend: B rows, L tokens, I input width, O output width, W width of a token.
"""

import torch
from torch import nn
from torch.nn import functional

_MAX_PERIOD = 10_000.0


class CategoryLinear(nn.Module):
    """A linear layer per category, [B, L, I] and categories int64 [B] -> [B, L, O]."""

    def __init__(self, num_categories: int, in_features: int, out_features: int):
        super().__init__()
        self.W = nn.Parameter(0.02 * torch.randn(num_categories, in_features, out_features))
        self.b = nn.Parameter(torch.zeros(num_categories, out_features))

    def forward(self, x_bli: torch.Tensor, category_b: torch.Tensor) -> torch.Tensor:
        return torch.bmm(x_bli, self.W[category_b]) + self.b[category_b].unsqueeze(1)


class CategoryMLP(nn.Module):
    """Two layers per category with ReLU between them."""

    def __init__(self, num_categories: int, in_features: int, hidden: int, out_features: int):
        super().__init__()
        self.layer1 = CategoryLinear(num_categories, in_features, hidden)
        self.layer2 = CategoryLinear(num_categories, hidden, out_features)

    def forward(self, x_bli: torch.Tensor, category_b: torch.Tensor) -> torch.Tensor:
        return self.layer2(functional.relu(self.layer1(x_bli, category_b)), category_b)


class ActionEncoder(nn.Module):
    """Tokens of a noisy chunk at a time: W3 swish(W2 [W1 action, waves of the time])."""

    def __init__(self, num_categories: int, action_dim: int, width: int):
        super().__init__()
        self.W1 = CategoryLinear(num_categories, action_dim, width)
        self.W2 = CategoryLinear(num_categories, 2 * width, width)
        self.W3 = CategoryLinear(num_categories, width, width)

    def forward(
        self, x_bla: torch.Tensor, time_b: torch.Tensor, category_b: torch.Tensor
    ) -> torch.Tensor:
        """`time_b` is 0 to 1000. Returns [B, L, W]."""
        actions_blw = self.W1(x_bla, category_b)
        waves_bw = time_waves(time_b, actions_blw.shape[2]).to(actions_blw.dtype)
        waves_blw = waves_bw.unsqueeze(1).expand_as(actions_blw)
        hidden_blw = self.W2(torch.cat([actions_blw, waves_blw], dim=2), category_b)
        return self.W3(functional.silu(hidden_blw), category_b)


def time_waves(time_b: torch.Tensor, width: int) -> torch.Tensor:
    """Sines, then cosines, of the time at frequencies from 1 down to nearly 1/10000, [B, width]."""
    half = width // 2
    steps = torch.arange(half, dtype=torch.float32, device=time_b.device)
    # Rounded as in GR00T: at time 1000, the last bit of a frequency shows in the result.
    frequencies = torch.exp(-steps * (torch.tensor(_MAX_PERIOD).log().item() / half))
    angle = time_b.float()[:, None] * frequencies
    return torch.cat([angle.sin(), angle.cos()], dim=1)
