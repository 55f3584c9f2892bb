"""One of lerobot's policies behind our contract.

observation -> images to [0, 1] -> lerobot's preprocessor -> lerobot's policy -> its postprocessor

The processors normalise by our statistics (`rrf.policies.vla.lerobot.build` says which those of
images are), and inputs and outputs are in physical units. The loss is that of lerobot's `forward`,
which leaves out padding, but for Diffusion (unless do_mask_loss_for_padding is set) and VQ-BeT.

These policies have no density: log-probabilities are None and policy gradients cannot train them.

Legend: B rows, H steps in an action chunk, A action dimension.
"""

import contextlib
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn

from rrf.data.schema import ACTION, IMAGE_PREFIX, STATE, Batch, Observation
from rrf.policies.policy import Evaluation, Generators, Sample
from rrf.policies.vla.lerobot import build, vlm_directory
from rrf.policies.vla.lerobot.configs import LENGTHS, LerobotPolicyCfg
from rrf.policies.vla.lerobot.sampling import CHUNKS, Draw
from rrf.policies.vla.observations import check_observation

_IS_PAD = "action_is_pad"
_READ = ("observation.", ACTION)  # what a policy reads begins so


class LerobotPolicy(nn.Module):
    """Implements `rrf.policies.policy.Policy`.

    `before` and `after` are lerobot's processors.

    Args:
        cfg: Its config, with all dimensions known.
        norm_stats: The content of norm_stats.json; statistics of cameras may be among it.
        assets: A checkpoint directory, whose weights are loaded later; None for a new training.
    """

    num_values = 0

    def __init__(
        self, cfg: LerobotPolicyCfg, norm_stats: Mapping[str, Mapping], assets: Path | None = None
    ):
        super().__init__()
        cfg.require_dims()
        self.cfg = cfg
        self.chunk_length, self.action_dim = cfg.chunk_length, cfg.action_dim
        self._noise_factor = 1.0
        self._assets: dict[str, str] = {}
        if cfg.kind == "smolvla" and assets is None:
            name = build.build_config(cfg).vlm_model_name  # type: ignore[attr-defined]
            self._assets = vlm_directory.texts_of(name)
            self._build(norm_stats, {})
        elif cfg.kind == "smolvla":
            assert assets is not None
            self._assets = vlm_directory.texts_in(assets)
            with vlm_directory.directory_of(self._assets) as folder:
                self._build(norm_stats, {"vlm_model_name": folder, "load_vlm_weights": False})
            if cfg.options.get("load_vlm_weights"):  # which lerobot holds in bfloat16
                self.policy.model.vlm_with_expert.vlm.to(torch.bfloat16)  # type: ignore[attr-defined]
        else:
            is_new = assets is None or "pretrained_backbone_weights" not in cfg.options
            self._build(norm_stats, {} if is_new else {"pretrained_backbone_weights": None})

    def _build(self, norm_stats: Mapping[str, Mapping], changes: Mapping) -> None:
        config = build.build_config(self.cfg, changes)
        self.policy = build.build_policy(config)
        self.before, self.after = build.build_processors(config, norm_stats)
        self._at = torch.device("cpu")

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def is_executed(self) -> torch.Tensor:
        return torch.ones(self.chunk_length, self.action_dim, dtype=torch.bool, device=self.device)

    def inputs(self, observation: Observation) -> dict[str, typing.Any]:
        """An observation as lerobot's datasets give it, before its preprocessor.

        Raises:
            ValueError: If the shape or dtype of images or states differs from the training data.
        """
        check_observation(observation, self.cfg.cameras, self.cfg.image_size, self.cfg.state_dim)
        found: dict[str, typing.Any] = {"task": list(observation.instruction)}
        found[STATE] = torch.from_numpy(np.ascontiguousarray(observation.state)).to(self.device)
        for name in self.cfg.cameras:
            images_bhwc = torch.from_numpy(observation.images[name]).to(self.device)
            images_bchw = images_bhwc.permute(0, 3, 1, 2).contiguous()
            found[IMAGE_PREFIX + name] = images_bchw.float() / 255
        return found

    @torch.no_grad()
    def sample(
        self,
        observation: Observation,
        generator: Generators = None,
        greedy: bool = False,
    ) -> Sample:
        inputs = self._prepared(self.inputs(observation))
        with self._evaluating():
            draw = Draw(generator, greedy, self._noise_factor)
            chunk_bha = CHUNKS[self.cfg.kind](self.policy, inputs, draw)[:, : self.chunk_length]
        actions_bha = self.after(chunk_bha.float())
        return Sample(actions=actions_bha.float().cpu().numpy(), log_prob=None, replay={})

    def evaluate(self, observation: Observation, replay: dict[str, torch.Tensor]) -> Evaluation:
        raise NotImplementedError(
            f"lerobot's {self.cfg.kind} has no density, so policy gradients cannot train it; use a "
            "policy with a head that has one: VLMPolicyCfg or CompactVLACfg with GaussianHeadCfg, "
            "DiscreteTokenHeadCfg or FlowMatchingHeadCfg"
        )

    def set_noise_factor(self, factor: float) -> None:
        self._noise_factor = factor

    def blocks(self) -> list[nn.Module]:
        return []

    def assets(self) -> dict[str, str]:
        return self._assets

    def loss(self, batch: Batch) -> tuple[torch.Tensor, dict[str, float]]:
        """lerobot's loss.

        In evaluation mode, ACT's is without the divergence of its variational encoder, which acting
        does not use, and VQ-BeT's codes do not learn.

        Raises:
            ValueError: If a frame of training data has less than the policy is to predict.
        """
        self._require_trainable()
        inputs = self.inputs(batch.observation)
        inputs[ACTION] = torch.from_numpy(np.ascontiguousarray(batch.action)).to(self.device)
        inputs[_IS_PAD] = torch.from_numpy(batch.is_pad).to(self.device)
        inputs = self._prepared(inputs)
        if self.cfg.kind in ("diffusion", "vqbet"):  # which have an axis of past observations
            for key in (STATE, *self.policy.config.image_features):
                inputs[key] = inputs[key].unsqueeze(1)
        with contextlib.nullcontext() if self.training else self._validating():
            loss, facts = self.policy.forward(inputs)
        return loss, self._metrics(facts or {})

    def _prepared(self, inputs: dict[str, typing.Any]) -> dict[str, typing.Any]:
        """The inputs after lerobot's preprocessor, on this module's device."""
        if self._at != self.device:
            self._at = self.device
            build.move(self.before, self._at)
        found = self.before(inputs)
        return {key: value for key, value in found.items() if key.startswith(_READ)}

    def _require_trainable(self) -> None:
        config, cfg = self.policy.config, self.cfg
        needs_more = cfg.kind == "vqbet" and config.n_action_pred_token > 1  # type: ignore[attr-defined]
        if config.n_obs_steps > 1 or needs_more:
            raise ValueError(
                f"a frame of training data has one observation and one chunk, but {cfg.kind} is to "
                "learn from several; set options.n_obs_steps=1"
                + (" and options.n_action_pred_token=1" if needs_more else "")
            )
        if cfg.predicted_length != cfg.chunk_length:
            name = LENGTHS[cfg.kind][0]
            raise ValueError(
                f"the policy predicts {cfg.predicted_length} actions, but a frame of training data "
                f"has chunk_length={cfg.chunk_length} of them; set chunk_length="
                f"{cfg.predicted_length}, or leave options.{name} out"
            )

    def _metrics(self, facts: Mapping) -> dict[str, float]:
        if self.cfg.kind == "vqbet":  # whose facts differ before and after the codes have learned
            return {}
        return {
            f"loss/{n.removesuffix('_loss')}": float(v) for n, v in facts.items() if n != "loss"
        }

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        was_training = self.policy.training
        self.policy.eval()
        try:
            yield
        finally:
            self.policy.train(was_training)

    @contextlib.contextmanager
    def _validating(self) -> Iterator[None]:
        """A loss in evaluation mode changes nothing, and needs what only training computes."""
        config: typing.Any = self.policy.config
        has_encoder = self.cfg.kind == "act" and config.use_vae
        learns = self.cfg.kind == "vqbet"
        before = {n: b.clone() for n, b in self.policy.named_buffers()} if learns else {}
        if has_encoder:
            config.use_vae = False
        try:
            yield
        finally:
            if has_encoder:
                config.use_vae = True
            for name, buffer in self.policy.named_buffers() if learns else ():
                buffer.copy_(before[name])
