"""Models of the dynamics: what a checkpoint stores when a task's dynamics were learned.

From pairs of state and action they predict the change of the state and the reward, standardised,
and a logit of termination.

Legend: B batch, L pairs in order of time, O observation width, A action width, C context,
D predicted numbers (reward, then state).
"""

import dataclasses

import torch
from torch import nn

from rrf.algorithms.model_based.dynamics_configs import (
    DynamicsModelCfg,
    MLPDynamicsCfg,
    TransformerDynamicsCfg,
)
from rrf.algorithms.model_based.ensemble import Standardizer
from rrf.envs.control_env import Interface
from rrf.networks.causal_transformer import CausalTransformer
from rrf.networks.configs import without_dropout
from rrf.policies.control.actor_critic import ControlPolicy, Deployed
from rrf.policies.control.state_network import ACTOR_GROUPS, groups_of


@dataclasses.dataclass
class Prediction:
    """What a model says about each of L pairs."""

    targets: torch.Tensor  # [B, L, D], standardised
    termination: torch.Tensor  # [B, L], logits


class DynamicsModel(Deployed):
    """A subclass has `network`, which maps pairs [B, L, O + A] to [B, L, D + 1]."""

    network: nn.Module

    def __init__(self, cfg: DynamicsModelCfg, interface: Interface):
        """
        Raises:
            ValueError: For a task with discrete actions.
        """
        if interface.num_choices is not None:
            raise ValueError(
                f"{interface.task or 'this task'} has {interface.num_choices} discrete actions; "
                "models of the dynamics are for real actions"
            )
        super().__init__()
        self.cfg, self.interface = cfg, interface
        dims = interface.observation_dims
        self.width = sum(dims[group] for group in groups_of(None, ACTOR_GROUPS, dims, "the model"))
        self.pairs = Standardizer(self.width + interface.num_actions)
        self.targets = Standardizer(1 + self.width)

    def deployable(self) -> ControlPolicy:
        """Raise ValueError, because a model is no policy."""
        raise ValueError(
            f"this checkpoint holds a model of the dynamics of {self.interface.task}, which cannot "
            "act; its open-loop errors are among the metrics of its training"
        )

    def forward(self, pairs_blx: torch.Tensor) -> Prediction:
        """Predictions for pairs [B, L, O + A], each from those before it, C with its own."""
        outputs = self.network(self.pairs(pairs_blx))
        return Prediction(outputs[..., :-1], outputs[..., -1])

    @torch.no_grad()
    def rollout(
        self, states_bco: torch.Tensor, actions_bla: torch.Tensor, num_steps: int
    ) -> torch.Tensor:
        """The states [B, num_steps, O] that follow in open loop: predictions feed on predictions.

        Args:
            states_bco: The C observed states before and at the beginning.
            actions_bla: The actions in these states and after them, L = C - 1 + num_steps.
        """
        context, states = states_bco.shape[1], states_bco
        for step in range(num_steps):
            recent = states[:, -context:], actions_bla[:, step : step + context]
            change = self.targets.inverse(self(torch.cat(recent, -1)).targets[:, -1])[:, 1:]
            states = torch.cat([states, (states[:, -1] + change).unsqueeze(1)], 1)
        return states[:, context:]


class MLPDynamics(DynamicsModel):
    """A perceptron over C pairs; pairs before the window are zero."""

    def __init__(self, cfg: MLPDynamicsCfg, interface: Interface):
        super().__init__(cfg, interface)
        width = self.width + interface.num_actions
        perceptron = without_dropout(cfg.network_cfg).build(cfg.context * width, self.width + 2)
        self.network = _OverHistory(perceptron, cfg.context)


class TransformerDynamics(DynamicsModel):
    """A causal transformer; a token is a pair."""

    def __init__(self, cfg: TransformerDynamicsCfg, interface: Interface):
        super().__init__(cfg, interface)
        self.network = _CausalNetwork(cfg, self.width + interface.num_actions, self.width + 2)


class _OverHistory(nn.Module):
    def __init__(self, network: nn.Module, context: int):
        super().__init__()
        self.network, self.context = network, context

    def forward(self, x_blx: torch.Tensor) -> torch.Tensor:
        padded = nn.functional.pad(x_blx, (0, 0, self.context - 1, 0))
        return self.network(padded.unfold(1, self.context, 1).flatten(2))


class _CausalNetwork(nn.Module):
    def __init__(self, cfg: TransformerDynamicsCfg, num_inputs: int, num_outputs: int):
        super().__init__()
        self.context = cfg.context
        self.embed = nn.Linear(num_inputs, cfg.width)
        self.transformer = CausalTransformer(cfg.width, cfg.num_layers, cfg.num_heads, cfg.context)
        self.output = nn.Linear(cfg.width, num_outputs)

    def forward(self, x_blx: torch.Tensor) -> torch.Tensor:
        times = torch.arange(x_blx.shape[1], device=x_blx.device)
        distances = times.unsqueeze(1) - times
        visible = ((distances >= 0) & (distances < self.context)).expand(len(x_blx), -1, -1)
        return self.output(self.transformer(self.embed(x_blx), times, visible))
