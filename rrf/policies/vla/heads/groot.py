"""GR00T's action head (arXiv:2503.14734), in the versions N1.5 and N1.7.

    backbone's tokens -> layer norm -> self-attention ─┐ attended to
    state   -> encoder of the embodiment ─┐            │
    (n15: future tokens)                  ├─> DiT ─────┴─> decoder of the embodiment -> velocity
    noisy chunk, time -> its encoder ─────┘

Names of the parameters are those of the published heads. N1.5 attends to all tokens of the
backbone, N1.7 to text tokens in one block and to image tokens in the others. State and chunk are
padded with zeros to the width of the head. Unlike the original, padding among the backbone's tokens
is not attended to, unless the config asks for it.

Legend: B rows, H steps in a chunk, A padded action dimension, S tokens of the backbone, L tokens, I
input width, O output width, W width of a token, F width of what the decoders read.
"""

import dataclasses

import torch
from torch import nn
from torch.nn import functional

from rrf.networks.dit import DiT, KeysValues, SelfAttentionTransformer
from rrf.networks.vlm.backbone import Backbone, Features
from rrf.policies.vla.context import Context
from rrf.policies.vla.flow_head import FlowHead
from rrf.policies.vla.flow_matching import ExploreNoiseNet, flow_time
from rrf.policies.vla.heads.groot_configs import GrootHeadCfg

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


# The share of noise is 1 - time, rounded to float32; without this margin step 7 of 10 would be
# bucket 699.
_ROUNDING_BUCKETS = 1e-3


@dataclasses.dataclass
class Given:
    """What all denoising steps share."""

    memory: list[KeysValues]
    masks: list[torch.Tensor | None]
    front: torch.Tensor  # the tokens before the chunk: state, future tokens; [B, 1 + future, W]
    embodiment: torch.Tensor


class GrootHead(FlowHead[GrootHeadCfg]):
    """See the module.

    Raises:
        ValueError: If the robot has more dimensions than the head, or the sizes do not fit.
    """

    def __init__(
        self,
        cfg: GrootHeadCfg,
        backbone: Backbone,
        chunk_length: int,
        action_dim: int,
        state_dim: int,
    ):
        _check_sizes(cfg, backbone, chunk_length, action_dim, state_dim)
        is_executed = torch.zeros(chunk_length, cfg.max_action_dim, dtype=torch.bool)
        is_executed[:, :action_dim] = True
        super().__init__(chunk_length, cfg.max_action_dim, is_executed)
        self.cfg = cfg
        width, hidden, count = cfg.dit.width, cfg.hidden_features, cfg.num_embodiments
        dit, dropout = cfg.dit, cfg.vl_dropout
        if cfg.disable_dropout:
            dit, dropout = dit.replace(dropout=0.0), 0.0
        self.model = DiT(dit, backbone.width, hidden)
        self.state_encoder = CategoryMLP(count, cfg.max_state_dim, hidden, width)
        self.action_encoder = ActionEncoder(count, cfg.max_action_dim, width)
        self.action_decoder = CategoryMLP(count, hidden, hidden, cfg.max_action_dim)
        if cfg.version == "n15":
            self.future_tokens = _embedding(cfg.num_future_tokens, width)
        self.vlln = nn.LayerNorm(backbone.width)
        self.vl_self_attention = SelfAttentionTransformer(
            cfg.vl_layers, cfg.vl_heads, backbone.width, dropout
        )
        self.position_embedding = _embedding(cfg.max_steps, width)
        self.explore_noise = None
        if cfg.noise_method == "reinflow":
            self.explore_noise = ExploreNoiseNet(
                hidden, cfg.max_action_dim, cfg.std_hidden_features, cfg.min_std, cfg.max_std
            )

    def given(self, features: Context) -> Given:
        read, embodiment = features.features, features.embodiment
        tokens_bsm = self.memory_tokens(read)
        front = [self.state_token(features.state, embodiment)]
        if self.cfg.version == "n15":
            front.append(self.future_tokens.weight.expand(len(features), -1, -1))
        return Given(
            self.model.memory(tokens_bsm), self._masks(read), torch.cat(front, 1), embodiment
        )

    def velocity(
        self, given: Given, x_bha: torch.Tensor, share_b: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        time_b = flow_time(share_b, "gr00t") * self.cfg.num_time_buckets
        bucket_b = (time_b + _ROUNDING_BUCKETS).long()
        steps = self.chunk_length
        chunk_bhw = self.action_encoder(x_bha, bucket_b, given.embodiment)
        chunk_bhw = chunk_bhw + self.position_embedding.weight[:steps]
        tokens_blw = torch.cat([given.front, chunk_bhw], dim=1)
        output_blf = self.model(tokens_blw, given.memory, bucket_b, given.masks)
        hidden_bhf = output_blf[:, -steps:]
        velocity_bha = self.action_decoder(hidden_bhf, given.embodiment).float()
        if self.explore_noise is None:
            return velocity_bha, None
        return velocity_bha, self.explore_noise(hidden_bhf).float() * self.noise_factor

    def memory_tokens(self, read: Features) -> torch.Tensor:
        """The backbone's tokens as the transformer reads them, [B, S, width of the backbone]."""
        tokens_bsm = read.tokens.to(self.vlln.weight.dtype)
        mask_bs = None if self.cfg.reads_padding else read.is_token
        return self.vl_self_attention(self.vlln(tokens_bsm), mask_bs)

    def state_token(self, state: torch.Tensor, embodiment: torch.Tensor) -> torch.Tensor:
        """The encoded state, [B, 1, W]; zeros for the frames whose state is hidden in training."""
        padded = functional.pad(state, (0, self.cfg.max_state_dim - state.shape[1]))
        token_b1w = self.state_encoder(padded.unsqueeze(1), embodiment)
        share = 0.0 if self.cfg.disable_dropout else self.cfg.state_dropout
        if not self.training or not share:
            return token_b1w
        is_shown_b = torch.rand(len(state), device=state.device) >= share
        return token_b1w * is_shown_b[:, None, None]

    def draw_share(self, batch: int, device: torch.device) -> torch.Tensor:
        beta_b = torch.distributions.Beta(*self.cfg.noise_beta).sample((batch,)).to(device)
        return 1.0 - training_time(beta_b, self.cfg)

    def _masks(self, read: Features) -> list[torch.Tensor | None]:
        if self.cfg.version == "n15":
            return [None if self.cfg.reads_padding else read.is_token]
        images = [read.is_token & read.is_image] * (self.cfg.attend_text_every - 1)
        return [read.is_token & ~read.is_image, *images]


def training_time(beta_b: torch.Tensor, cfg: GrootHeadCfg) -> torch.Tensor:
    """GR00T's training times from draws of a beta distribution; at 0 a chunk is noise."""
    if cfg.version == "n15":
        return (cfg.noise_scale - beta_b) / cfg.noise_scale
    return (1.0 - beta_b) * cfg.noise_scale


def _embedding(count: int, width: int) -> nn.Embedding:
    table = nn.Embedding(count, width)
    nn.init.normal_(table.weight, std=0.02)
    return table


def _check_sizes(
    cfg: GrootHeadCfg, backbone: Backbone, chunk_length: int, action_dim: int, state_dim: int
) -> None:
    for name, most, have in (
        ("action_dim", cfg.max_action_dim, action_dim),
        ("state_dim", cfg.max_state_dim, state_dim),
        ("chunk_length", cfg.max_steps, chunk_length),
    ):
        if have > most:
            raise ValueError(
                f"{name} is {have}, but the head has room for {most}; raise it in policy.head "
                "(a pretrained head then no longer fits), or leave dimensions out of the dataset"
            )
    if backbone.width % cfg.vl_heads:
        raise ValueError(
            f"vl_heads is {cfg.vl_heads}, allowed: a divisor of the backbone's width "
            f"{backbone.width}"
        )
