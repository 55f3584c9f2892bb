"""The latent world model of TD-MPC2 (arXiv:2310.16828, section 3.1) and TD-MPC (arXiv:2203.04955).

    z = h(s),  z' = d(z, a),  r = R(z, a),  a ~ pi(z),  q_k = Q_k(z, a),  p(terminated) = T(z')

Nothing reconstructs observations: a latent state needs to predict later latent states, rewards and
values. `act` plans with the model (`rrf.policies.control.mppi`). Its memory is the plan, so that
the next one begins with it.

Actions are in units of the action limit, except for those that `act` returns.

Legend: B batch, N environments, O observation width, D latent width, A action dimension, H steps of
a plan, S samples of a plan, K critics, C numbers that describe a reward or value.
"""

import math
import typing

import torch
from tensordict import TensorDict
from torch import nn
from torch.func import functional_call

from rrf.envs.control_env import Interface
from rrf.networks.batched_mlp import BatchedLinear, BatchedMLP
from rrf.networks.configs import MLPCfg, without_dropout
from rrf.networks.mlp import with_exact_outputs
from rrf.policies.control.actor_critic import ControlPolicy, Deployed
from rrf.policies.control.encoded_network import EncodedNetwork
from rrf.policies.control.mppi import PlanNoise, draw_noise, plan
from rrf.policies.control.off_policy_actors import TanhGaussian, require_real_actions
from rrf.policies.control.state_network import ACTOR_GROUPS, groups_of
from rrf.policies.control.world_model_configs import WorldModelCfg, WorldModelPackCfg


def symlog(x: torch.Tensor) -> torch.Tensor:
    """sign(x) log(1 + |x|)."""
    return x.sign() * x.abs().log1p()


def symexp(x: torch.Tensor) -> torch.Tensor:
    """sign(x) (exp(|x|) - 1), the inverse of `symlog`."""
    return x.sign() * x.abs().expm1()


class TwoHot(nn.Module):
    """Regression by classification: a number as weights of two bins (arXiv:2301.04104).

    The bins lie at equal distances from `low` to `high`, both on the scale of symlog; targets
    beyond them are clipped. A target has weights on the two bins around its symlog; the network is
    trained by cross-entropy. Its estimate is symexp of the mean bin.
    """

    bins: torch.Tensor

    def __init__(self, low: float, high: float, num_bins: int):
        super().__init__()
        self.low, self.high, self.num_bins = low, high, num_bins
        self.width = (high - low) / (num_bins - 1)
        self.register_buffer("bins", torch.linspace(low, high, num_bins), persistent=False)

    def place(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """For numbers [...]: the index of the lower bin, int64, and the weight of the upper one."""
        position = (symlog(x).clamp(self.low, self.high) - self.low) / self.width
        lower = position.floor().clamp(max=self.num_bins - 2)
        return lower.long(), position - lower

    def loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Cross-entropy [...] between logits [..., C] and numbers [...]."""
        logits = logits.float()
        lower, weight = self.place(targets)
        around = torch.stack([lower, lower + 1], -1).expand(*logits.shape[:-1], 2)
        low_logit, high_logit = logits.gather(-1, around).unbind(-1)
        return logits.logsumexp(-1) - torch.lerp(low_logit, high_logit, weight)

    def mean(self, logits: torch.Tensor) -> torch.Tensor:
        """The numbers [...] that logits [..., C] stand for."""
        with torch.autocast(logits.device.type, enabled=False):
            return symexp(logits.softmax(-1) @ self.bins)


_MAX_NOISE = 0.3  # TD-MPC's bound on the noise of a policy with fixed standard deviation
_INIT_STD = 0.02
_LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)


class Critics(BatchedMLP):
    """K critics; while learning, some outputs of their first layer are dropped."""

    @property
    def first_width(self) -> int:
        """Width of the first layer's outputs."""
        first: typing.Any = self.layers[0]
        return first.bias.shape[-1]

    def forward(self, x: torch.Tensor, dropped: torch.Tensor | None = None) -> torch.Tensor:
        """Outputs [K, B, C] for inputs [K, B, D + A], or [B, D + A] that all copies share.

        Args:
            dropped: int64, indices of the first layer's outputs that are set to 0, counted over all
                critics and rows. The others are scaled up to keep the mean.
        """
        if dropped is None:
            return super().forward(x)
        first = self.layers[0](x.expand(self.num_copies, -1, -1) if x.dim() == 2 else x)
        kept = first.flatten().index_fill(0, dropped, 0.0).view_as(first)
        kept.mul_(first.numel() / (first.numel() - len(dropped)))
        rest = typing.cast(nn.Sequential, self.layers[1:])
        if not self.has_exact_outputs:
            return rest(kept)
        return with_exact_outputs(rest, self.output - 1, kept)


class WorldModel(EncodedNetwork):
    """Predicts latent states, rewards, values and terminations, and plans with them."""

    discount: torch.Tensor
    """Discount factor per step. The learning algorithm sets it."""

    def __init__(self, cfg: WorldModelCfg, interface: Interface):
        require_real_actions(interface, "TD-MPC")
        dims = interface.observation_dims
        super().__init__(cfg, groups_of(cfg.observation_groups, ACTOR_GROUPS, dims, "actor"), dims)
        self.cfg: WorldModelCfg = cfg
        self.num_actions, self.action_limit = interface.num_actions, cfg.action_limit
        hidden = without_dropout(cfg.backbone_cfg)
        both, scalar = cfg.latent_dim + self.num_actions, cfg.num_bins or 1
        self.bins = TwoHot(*cfg.bin_range, cfg.num_bins) if cfg.num_bins else None
        self.encoder = _to_latent(cfg, cfg.encoder_backbone_cfg).build(self.width, cfg.latent_dim)
        self.dynamics = _to_latent(cfg, hidden).build(both, cfg.latent_dim)
        self.rewards = hidden.build(both, scalar)
        self.terminations = hidden.build(cfg.latent_dim, 1) if cfg.predicts_termination else None
        num_outputs = self.num_actions * (2 if cfg.policy_std is None else 1)
        self.prior = hidden.build(cfg.latent_dim, num_outputs)
        self.critics = Critics(cfg.critic_backbone_cfg or hidden, cfg.num_critics, both, scalar)
        self.register_buffer("discount", torch.tensor(1.0))
        if self.bins:  # logits need no more precision than the layers before them
            self.rewards.has_exact_outputs = self.critics.has_exact_outputs = False
        if cfg.simnorm_group is not None:
            self.dynamics.has_exact_outputs = False
        _initialise(self, cfg.init == "orthogonal")

    # ------------------------------------------------------------------ acting

    def initial_memory(self, num_envs: int) -> torch.Tensor:
        """An empty plan, zeros [H, N, A]."""
        return self.discount.new_zeros(self.cfg.planner.horizon, num_envs, self.num_actions)

    def draw_noise(self, num_envs: int, generator: torch.Generator) -> PlanNoise:
        """The random numbers of one plan of each environment."""
        shape = num_envs, self.num_actions, self.cfg.num_critics
        return draw_noise(self.cfg.planner, *shape, generator)

    @torch.no_grad()
    def act(
        self, x_no: torch.Tensor, memory: torch.Tensor, is_greedy: bool, noise: PlanNoise
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions [N, A] for joined observations, and the memory: the means of the plans."""
        actions, means = plan(
            self, self.encode_state(x_no), memory, self.cfg.planner, noise, is_greedy
        )
        return self.action_limit * actions, means

    # ------------------------------------------------------------------ the model

    def encode_state(self, x_bo: torch.Tensor) -> torch.Tensor:
        """Latent states [B, D] of joined observations."""
        dtype = next(self.encoder.parameters()).dtype
        return self.encoder(self.normalized(x_bo).to(dtype))

    def numbers(self, outputs: torch.Tensor) -> torch.Tensor:
        """The rewards or values [...] that outputs [..., C] stand for."""
        outputs = outputs.float()
        return self.bins.mean(outputs) if self.bins else outputs.squeeze(-1)

    def errors(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The losses [...] of outputs [..., C] against rewards or values [...]."""
        if self.bins:
            return self.bins.loss(outputs, targets)
        return (outputs.squeeze(-1) - targets).square()

    def policy(
        self, z_bd: torch.Tensor, noise_ba: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions [B, A] of the learned policy, and the entropy term [B] of its loss.

        The term is -A log N(u | mean, std), in which u is the action before tanh; it is 0 if the
        standard deviation is not learned.
        """
        cfg, outputs = self.cfg, self.prior(z_bd).float()
        if cfg.policy_std is not None:
            noise = (cfg.policy_std * noise_ba).clamp(-_MAX_NOISE, _MAX_NOISE)
            return (outputs.tanh() + noise).clamp(-1, 1), outputs.new_zeros(len(outputs))
        mean, raw = outputs.chunk(2, -1)
        low, high = self.log_std_bounds
        log_std = low + 0.5 * (high - low) * (raw.tanh() + 1)
        each = 0.5 * noise_ba.square() + log_std + _LOG_SQRT_2_PI
        return TanhGaussian(mean, log_std).at(noise_ba), each.sum(-1) * self.num_actions

    @property
    def log_std_bounds(self) -> tuple[float, float]:
        """The bounds of the logarithm of the learned policy's standard deviation."""
        return self.cfg.min_log_std, self.cfg.max_log_std

    def pair_values(
        self, critics: Critics, z_bd: torch.Tensor, a_ba: torch.Tensor, pair: torch.Tensor
    ) -> torch.Tensor:
        """The returns [2, B] that two of the critics expect.

        Args:
            pair: int64 [2], which ones; only these are computed. One critic alone gives [1, B].
        """
        x = _joined(z_bd, a_ba)
        if len(pair) == critics.num_copies:  # in any order: only their mean or minimum counts
            return self.numbers(critics(x))
        weights = {name: weight[pair] for name, weight in critics.named_parameters()}
        inputs = x.expand(len(pair), -1, -1)
        return self.numbers(functional_call(critics, weights, (inputs,)))

    def values(self, z_bd: torch.Tensor, a_ba: torch.Tensor, pair: torch.Tensor) -> torch.Tensor:
        """The return [B] that plans and the policy's loss expect: the mean or minimum of a pair."""
        q_kb = self.pair_values(self.critics, z_bd, a_ba, pair)
        return q_kb.amin(0) if self.cfg.takes_lowest else q_kb.mean(0)

    def step(
        self, z_bd: torch.Tensor, a_ba: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The rewards [B] of actions, the latent states [B, D] after them, and the discounts.

        A discount ([B], or [] for all) is 0 where the task is expected to terminate.
        """
        x = _joined(z_bd, a_ba)
        rewards, z_bd, discounts = self.numbers(self.rewards(x)), self.dynamics(x), self.discount
        if self.terminations is not None:
            discounts = discounts * (self.terminations(z_bd).squeeze(-1) <= 0)
        return rewards, z_bd, discounts

    def expected(
        self, z_bd: torch.Tensor, noise_ba: torch.Tensor, pair: torch.Tensor
    ) -> torch.Tensor:
        """The return [B] of the learned policy."""
        a_ba, _ = self.policy(z_bd, noise_ba)
        return self.values(z_bd, a_ba, pair)


def _joined(z_bd: torch.Tensor, a_ba: torch.Tensor) -> torch.Tensor:
    return torch.cat([z_bd, a_ba.to(z_bd.dtype)], -1)


def _to_latent(cfg: WorldModelCfg, hidden: MLPCfg) -> MLPCfg:
    """`hidden` with an output layer for latent states."""
    if cfg.simnorm_group is None:
        return without_dropout(hidden)
    last = [("LayerNorm", {}), ("SimNorm", {"group_size": cfg.simnorm_group})]
    return without_dropout(hidden).replace(activations=[*hidden.activations[:-1], last])


@torch.no_grad()
def _initialise(model: WorldModel, is_orthogonal: bool) -> None:
    """Set all weights; at first, every predicted reward and value is 0."""
    for layer in model.modules():
        if not isinstance(layer, nn.Linear | BatchedLinear):
            continue
        for weight in layer.weight if isinstance(layer, BatchedLinear) else [layer.weight]:
            if is_orthogonal:
                nn.init.orthogonal_(weight)
            else:
                nn.init.trunc_normal_(weight, std=_INIT_STD)
        layer.bias.zero_()
    for network in (model.rewards, model.critics):
        last: typing.Any = network.layers[network.output]
        last.weight.zero_()


class WorldModelPack(Deployed):
    """What checkpoints of TD-MPC and TD-MPC2 store. The world model is the actor; its critics judge
    latent states, not observations."""

    critic = None

    def __init__(self, cfg: WorldModelPackCfg, interface: Interface):
        super().__init__()
        self.cfg, self.interface = cfg, interface
        self.actor: WorldModel = cfg.actor_cfg.build(interface)

    def deployable(self) -> "PlanningPolicy":
        """The model, ready to plan."""
        return PlanningPolicy(self.actor)


class PlanningPolicy(ControlPolicy):
    """Plans all environments in one batch. Its memory is the plans, which the next ones begin
    with."""

    actor: WorldModel
    _generator: torch.Generator | None = None

    @torch.no_grad()
    def act(
        self,
        observations: TensorDict,
        greedy: bool = True,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        """Actions [N, A] for the observations [N] of N environments.

        A plan is random even if it is greedy. Without a generator, the random numbers begin with
        the same seed in every policy.
        """
        x = self.actor.read(observations)
        if self._memory is None:
            self._memory = self.actor.initial_memory(len(x))
        if generator is None:
            if self._generator is None:
                self._generator = torch.Generator(x.device).manual_seed(0)
            generator = self._generator
        noise = self.actor.draw_noise(len(x), generator)
        actions, self._memory = self.actor.act(x, self._memory, greedy, noise)
        return actions
