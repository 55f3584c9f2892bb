"""A policy that joins any backbone with any head that can read it.

images + prompt -> backbone ─┬─ pooled + state -> trunk ─ head   (heads that read one vector)
                             └─ Context ───────────────── head   (heads that read more)

The policy normalises internally: its inputs and outputs are in physical units. A head may work on
wider, padded vectors; its log-probabilities are cut to what the robot executes.

Legend: B batch, H steps in an action chunk, A action dimension, P padded action dimension,
D width of the backbone, V values, F features.
"""

import typing
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from rrf.data.dataset.action_representation import PREDICTED
from rrf.data.dataset.transforms import Mode, ModeOfDimension
from rrf.data.schema import ACTION, STATE, Batch, Observation
from rrf.networks.mlp import MLP
from rrf.networks.vlm.backbone import View
from rrf.networks.vlm.build import base_assets, build_backbone
from rrf.policies.policy import Evaluation, Generators, Sample, check_observation
from rrf.policies.vla.context import Context, SeenObservation
from rrf.policies.vla.real_time import RunningChunk
from rrf.policies.vla.robots import normalizers, of_rows, shown, tags_of
from rrf.policies.vla.vlm_configs import VLMPolicyCfg

_STATE_BINS = 256
_ADVANTAGES = {1: "Advantage: positive", -1: "Advantage: negative", 0: ""}


class VLMPolicy(nn.Module):
    """Implements `rrf.policies.policy.Policy`.

    Args:
        cfg: Its config, with all dimensions known.
        norm_stats: The content of norm_stats.json.
        assets: A checkpoint directory with the files of `assets`; None to take them from where the
            config says.
    """

    def __init__(
        self, cfg: VLMPolicyCfg, norm_stats: Mapping[str, Mapping], assets: Path | None = None
    ):
        super().__init__()
        cfg.require_dims()
        self.cfg = cfg
        self.chunk_length, self.action_dim = cfg.chunk_length, cfg.action_dim
        self.representation, self.past = cfg.representation, cfg.past
        action_key = ACTION if self.representation.is_absolute else PREDICTED
        self.normalize_state, self.normalize_action = normalizers(
            cfg, norm_stats, STATE, action_key
        )
        self.backbone = build_backbone(cfg.backbone, assets)
        tokens, self._pooled_width = self._add_parts()
        self._reads_vector = cfg.head.reads == "pooled"
        if self._reads_vector:
            self.state_encoder = nn.Linear(cfg.state_width, cfg.state_features)
            joined = self._pooled_width + cfg.state_features
            self.trunk = MLP(cfg.trunk, joined, cfg.features)
        if self._reads_vector:
            self.head = cfg.head.build(cfg.features, cfg.head_steps, cfg.action_width)
        else:
            files = {"assets": assets} if cfg.head.has_assets else {}
            self.head = cfg.head.build(
                tokens, cfg.head_steps, cfg.action_width, cfg.state_width, **files
            )
        self.head.leave_out(range(cfg.action_dim, cfg.action_width))
        self.num_values = 0
        if cfg.value_head:
            self.num_values = cfg.chunk_length if cfg.value_head.level == "action" else 1
            self.value_head = (
                MLP(cfg.value_head.mlp, cfg.features, self.num_values)
                if self._reads_vector
                else Critic(cfg, self._pooled_width, self.num_values)
            )

    def _add_parts(self) -> tuple[typing.Any, int]:
        """For subclasses: add what is between backbone and head.

        Returns:
            What heads read tokens of, as if it was the backbone; and the width of `_pooled`.
        """
        return self.backbone, self.backbone.width

    @property
    def num_features(self) -> int:
        """See `rrf.policies.policy.FeaturePolicy`."""
        return self._pooled_width + self.cfg.state_width

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def is_executed(self) -> torch.Tensor:
        return torch.ones(self.chunk_length, self.action_dim, dtype=torch.bool, device=self.device)

    def context(self, observation: Observation) -> Context:
        """What heads see of an observation.

        Raises:
            ValueError: If the shape or dtype of images or states differs from the training data.
        """
        seen = observation.features if isinstance(observation, SeenObservation) else None
        cameras = self.past.views(self.cfg.cameras) if seen is None else []
        check_observation(observation, cameras, self.cfg.image_size, self.cfg.seen_state_dim)
        tags = tags_of(self.cfg, observation)
        states_bpd = observation.state.reshape(len(observation), -1, self.cfg.state_dim)
        # the present one, then the past
        states_bpd = of_rows(self.normalize_state, observation).apply(states_bpd)
        if self.cfg.clips_state:
            states_bpd = clipped(states_bpd, self.cfg.state_normalization, self.cfg.state_modes)
        state = states_bpd.reshape(len(observation), -1)
        images = [] if seen else [self._images(observation, name) for name in self.cfg.slots]
        is_shown = shown(self.cfg, tags)[:, : len(images)]
        view = View(
            images=tuple(image.to(self.device) for image in images),
            is_shown=torch.from_numpy(is_shown).to(self.device),
            prompts=[
                prompt_of(self.cfg.prompt, text, prompt_state(self.cfg, row, tag), advantage)
                for text, row, tag, advantage in zip(
                    map(self.cfg.backbone.cleaned, observation.instruction),
                    states_bpd[:, 0],
                    tags,
                    advantages_of(observation),
                    strict=True,
                )
            ],
        )
        slots = {tag: self.cfg.embodiment_slot(tag) for tag in set(tags)}
        embodiment = torch.tensor([slots[tag] for tag in tags], device=self.device)
        state = np.pad(state, ((0, 0), (0, self.cfg.state_width - state.shape[1])))
        context = Context(self.backbone, view, self._tensor(state), embodiment)
        if seen is not None:
            context.features = seen.to(self.device)
        return context

    @torch.no_grad()
    def sample(
        self,
        observation: Observation,
        generator: Generators = None,
        greedy: bool = False,
    ) -> Sample:
        return self._sample(self.context(observation), observation, generator, greedy)

    @torch.no_grad()
    def sample_and_features(
        self,
        observation: Observation,
        generator: Generators = None,
        greedy: bool = False,
    ) -> tuple[Sample, torch.Tensor]:
        """See `rrf.policies.policy.FeaturePolicy`: pooled ones of the backbone, and the state."""
        context = self.context(observation)
        sample = self._sample(context, observation, generator, greedy)
        return sample, torch.cat([self._pooled(context), context.state], 1)

    @torch.no_grad()
    def resume(
        self,
        observation: Observation,
        running: np.ndarray,
        num_frozen: int,
        generator: Generators = None,
        greedy: bool = False,
    ) -> np.ndarray:
        """See `rrf.policies.policy.ResumablePolicy`."""
        self.cfg.require_one_robot()
        known = RunningChunk(self._target(running, observation), num_frozen)
        sample = self.head.resume(self._input(self.context(observation)), known, generator, greedy)
        return self._executable(sample.actions, observation)

    def evaluate(self, observation: Observation, replay: dict[str, torch.Tensor]) -> Evaluation:
        return self._evaluate(self.context(observation), replay)

    def _evaluate(self, context: Context, replay: dict[str, torch.Tensor]) -> Evaluation:
        given = self._input(context)
        log_prob, entropy = self.head.evaluate(given, replay)
        return Evaluation(self._cut(log_prob), self._cut(entropy), self._value(context, given))

    def set_noise_factor(self, factor: float) -> None:
        self.head.noise_factor = factor

    def loss(self, batch: Batch) -> tuple[torch.Tensor, dict[str, float]]:
        context = self.context(batch.observation)
        target_bha = self._target(batch.action, batch.observation)
        is_pad = torch.from_numpy(batch.is_pad).to(self.device)
        if later := self.cfg.head_steps - is_pad.shape[1]:
            is_pad = functional.pad(is_pad, (0, later), value=True)
            target_bha = functional.pad(target_bha, (0, 0, 0, later))
        if absent := self.cfg.action_width - target_bha.shape[2]:
            target_bha = functional.pad(target_bha, (0, absent))
            is_pad_bha = is_pad.unsqueeze(2).expand(-1, -1, self.action_dim)
            is_pad = functional.pad(is_pad_bha, (0, absent), value=True)
        return self.head.loss(self._input(context), target_bha, is_pad)

    def blocks(self) -> list[nn.Module]:
        """See `rrf.policies.policy.Policy.blocks`."""
        return self.backbone.blocks()

    def assets(self) -> dict[str, str]:
        """Files that a checkpoint needs besides config and weights: name -> content."""
        return self.backbone.assets() | base_assets(self.backbone) | self.head.assets()

    def _sample(
        self, context: Context, observation: Observation, generator: Generators, greedy: bool
    ) -> Sample:
        self.cfg.require_one_robot()
        given = self._input(context)
        sample = self.head.sample(given, generator, greedy)
        return Sample(
            actions=self._executable(sample.actions, observation),
            log_prob=None if sample.log_prob is None else self._cut(sample.log_prob),
            replay=sample.replay,
            value=self._value(context, given),
        )

    def _target(self, action_bha: np.ndarray, observation: Observation) -> torch.Tensor:
        """What the head should predict for actions in physical units, [B, H, A]."""
        predicted = self.representation.apply(action_bha, observation.state)
        normalized = of_rows(self.normalize_action, observation).apply(predicted)
        return self._tensor(self._clipped_action(normalized))

    def _executable(self, actions_bhp: torch.Tensor, observation: Observation) -> np.ndarray:
        """What the head predicted as actions in physical units, float32 [B, H, A]."""
        executed = actions_bhp[:, : self.chunk_length, : self.action_dim]
        predicted = executed.float().cpu().numpy()
        predicted = self._clipped_action(predicted)
        return self.representation.invert(
            of_rows(self.normalize_action, observation).invert(predicted), observation.state
        )

    def _clipped_action(self, normalized: np.ndarray) -> np.ndarray:
        if not self.cfg.clips_actions:
            return normalized
        return clipped(normalized, self.cfg.action_normalization, self.cfg.action_modes)

    def _images(self, observation: Observation, camera: str | None) -> torch.Tensor:
        """uint8 [B, H, W, 3]; black where the robot has no such camera."""
        if camera is not None:
            return torch.from_numpy(observation.images[camera])
        size = self.cfg.backbone.image.size
        return torch.zeros(len(observation), *size, 3, dtype=torch.uint8)

    def _input(self, context: Context) -> torch.Tensor | Context:
        return self._joined(context) if self._reads_vector else context

    def _joined(self, context: Context) -> torch.Tensor:
        """The joined features of view and state, float32 [B, F]."""
        pooled_bd = self._pooled(context)
        state_bd = functional.relu(self.state_encoder(context.state))
        return self.trunk(torch.cat([pooled_bd, state_bd], dim=1))

    def _pooled(self, context: Context) -> torch.Tensor:
        return context.features.pooled(self.cfg.pooling).float()

    def _value(self, context: Context, given: torch.Tensor | Context) -> torch.Tensor | None:
        if self.cfg.value_head is None:
            return None
        if isinstance(given, Context):
            return self.value_head(self._pooled(context), context.state)
        return self.value_head(given.detach() if self.cfg.value_head.detaches else given)

    def _cut(self, values_bt: torch.Tensor) -> torch.Tensor:
        """The elements that the robot executes, [B, H * P] -> [B, H * A]."""
        values_bhp = values_bt.unflatten(1, (self.cfg.head_steps, -1))
        return values_bhp[:, : self.chunk_length, : self.action_dim].flatten(1)

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).to(self.device)


def clipped(
    values: np.ndarray, normalization: Mode, modes: Mapping[int, ModeOfDimension]
) -> np.ndarray:
    """Normalised values [..., D], clipped to [-1, 1] where not mean and std normalise them."""
    is_clipped = [modes.get(d, normalization) != "mean_std" for d in range(values.shape[-1])]
    return np.where(is_clipped, values.clip(-1, 1), values)


def advantages_of(observation: Observation) -> list[int]:
    """The advantage that each row asks for; see `Observation.advantage`."""
    advantage = observation.advantage
    return [1] * len(observation) if advantage is None else advantage.tolist()


def prompt_state(cfg: VLMPolicyCfg, state_d: np.ndarray, tag: str | None) -> np.ndarray:
    """The dimensions of a row's normalised state that its prompt holds, if it holds a state."""
    if "{state}" not in cfg.prompt:
        return state_d
    robot_state_d = state_d[: cfg.robots[tag].state_dim] if tag in cfg.robots else state_d
    return np.pad(robot_state_d, (0, max(0, cfg.prompt_state_dims - len(robot_state_d))))


def prompt_of(template: str, instruction: str, state_d: np.ndarray, advantage: int = 1) -> str:
    """The prompt of one row. The state, normalised to about [-1, 1], is written as bins 0 to 255,
    as pi0.5 (arXiv:2504.16054) does, and the advantage as in pi*0.6 (arXiv:2511.14759); one that is
    not told leaves no space behind."""
    advantage_text = _ADVANTAGES[advantage]
    prompt = template if advantage_text else template.replace(" {advantage}", "")
    prompt = prompt.replace("{advantage}", advantage_text).replace("{instruction}", instruction)
    if "{state}" in prompt:
        bins = np.digitize(state_d, np.linspace(-1, 1, _STATE_BINS + 1)[:-1]) - 1
        prompt = prompt.replace("{state}", " ".join(map(str, bins.tolist())))
    return prompt


class Critic(nn.Module):
    """A vector of the backbone and the state -> values, for heads that read more than one vector.

    With such a head the policy joins no vector that a value could be read from, so the critic has
    the layers for it. All of them are new when a policy is first trained by PPO, and only the value
    loss trains them.

    Args:
        cfg: The policy's config, with a value head.
        width: Width of the backbone's vector.
        num_values: Values per chunk.
    """

    def __init__(self, cfg: VLMPolicyCfg, width: int, num_values: int):
        super().__init__()
        assert cfg.value_head is not None
        self._detaches = cfg.value_head.detaches
        self.state_encoder = nn.Linear(cfg.state_width, cfg.state_features)
        self.trunk = MLP(cfg.trunk, width + cfg.state_features, cfg.features)
        self.mlp = MLP(cfg.value_head.mlp, cfg.features, num_values)

    def forward(self, pooled_bd: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """float32 [B, V]."""
        if self._detaches:
            pooled_bd = pooled_bd.detach()
        state_bd = functional.relu(self.state_encoder(state))
        return self.mlp(self.trunk(torch.cat([pooled_bd, state_bd], dim=1)))
