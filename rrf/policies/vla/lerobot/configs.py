"""The config of lerobot's own policies. This file imports neither torch nor lerobot."""

import typing
from pathlib import Path

from rrf.config import configclass, did_you_mean
from rrf.policies.vla.configs import PolicyCfg
from rrf.policies.vla.lerobot.fields import config_fields

KINDS = ("act", "diffusion", "vqbet", "smolvla")
_ELSEWHERE = {
    "pi0": "use the preset pi0-sft (lerobot's own needs a patched transformers)",
    "pi05": "use the preset pi05-sft (lerobot's own needs a patched transformers)",
    "pi0_fast": "use VLMPolicyCfg with PaliGemmaCfg and FastHeadCfg",
    "groot": "use the preset groot-n15-sft",
    "tdmpc": "it learns from rewards, not by imitation; see the presets ending in -sac",
    "sac": "it learns from rewards, not by imitation; see the presets ending in -sac",
    "xvla": "it is not supported",
    "wall_x": "it is not supported",
}
_FROM_SCRATCH = {"pretrained_backbone_weights": None}
DEFAULTS: dict[str, dict[str, typing.Any]] = {
    "act": _FROM_SCRATCH,
    "diffusion": {**_FROM_SCRATCH, "use_group_norm": True, "n_obs_steps": 1},
    "vqbet": {
        **_FROM_SCRATCH,
        "use_group_norm": True,
        "n_obs_steps": 1,
        "n_action_pred_token": 1,
    },
    "smolvla": {},
}
"""Where our defaults are not lerobot's: nothing is downloaded, and a policy sees one observation
and predicts one chunk, which is what a frame of training data has."""
LENGTHS = {
    "act": ("chunk_size", "n_action_steps"),
    "diffusion": ("horizon", "n_action_steps"),
    "vqbet": ("action_chunk_size", None),
    "smolvla": ("chunk_size", "n_action_steps"),
}
"""lerobot's names for the number of actions that are predicted, and that are executed."""
_SAMPLER = "lerobot's own sampler of frames reads it; rrf draws all frames and marks padding"
_NOT_OPTIONS = {
    "n_action_steps": "it is chunk_length",
    "action_chunk_size": "it is chunk_length",
    "temporal_ensemble_coeff": "it belongs to lerobot's own loop of single actions",
    "rtc_config": "it belongs to lerobot's own loop of single actions",
    "compile_model": "it renames the weights, so that other programs could not read them",
    "compile_mode": "it belongs to compile_model",
    "drop_n_last_frames": _SAMPLER,
}

_PREFIXES = ("optimizer_", "scheduler_")


def is_option(name: str) -> bool:
    """Whether a field of lerobot's config may stand in `options`."""
    return name not in _NOT_OPTIONS and not name.startswith(_PREFIXES)


@configclass(builds="rrf.policies.vla.lerobot.policy:LerobotPolicy")
class LerobotPolicyCfg(PolicyCfg):
    """One of lerobot's policies, with the settings of lerobot's own config class."""

    kind: str = "act"
    """Which: act, diffusion, vqbet or smolvla. Only smolvla reads the instruction."""
    options: dict[str, typing.Any] = {}
    """Fields of lerobot's config of that kind, e.g. {dim_model: 256}. What is not given is
    lerobot's default, but for: no pretrained weights (pretrained_backbone_weights: null), so that
    Diffusion and VQ-BeT normalise images in groups (use_group_norm: true), and one observation and
    one chunk (n_obs_steps: 1, n_action_pred_token: 1)."""
    cameras: list[str] = []
    """Camera names, in the order in which the policy reads them. Empty: the dataset's."""
    image_size: tuple[int, int] = (0, 0)
    """Height and width of each image in pixels. 0: the dataset's."""
    state_dim: int = 0
    """Dimensions of the proprioceptive state. 0: the dataset's."""
    action_dim: int = 0
    """Dimensions of one action. 0: the dataset's."""
    chunk_length: int = 8
    """Number of actions per observation: lerobot's chunk_size, horizon and n_action_steps."""

    def __post_init__(self):
        super().__post_init__()
        if self.kind not in KINDS:
            hint = _ELSEWHERE.get(self.kind)
            known = f": {hint}" if hint else did_you_mean(self.kind, KINDS)
            raise ValueError(f"kind is '{self.kind}', allowed: {', '.join(KINDS)}{known}")
        known = config_fields(self.kind)
        for name in self.options:
            reason = _NOT_OPTIONS.get(name)
            if name.startswith(_PREFIXES):
                reason = "the run's optimizer and schedule have it"
            if reason:
                raise ValueError(f"options names '{name}', which is not used here: {reason}")
            if name not in known:
                allowed = [field for field in known if is_option(field)]
                raise ValueError(
                    f"options names '{name}', which lerobot's config of {self.kind} does not have"
                    f"{did_you_mean(name, allowed)}"
                )
        if self.predicted_length < self.chunk_length:
            raise ValueError(
                f"options.{LENGTHS[self.kind][0]} is {self.predicted_length}, allowed: "
                f"chunk_length ({self.chunk_length}) or more"
            )

    @property
    def predicted_length(self) -> int:
        """Number of actions that the network predicts. Training needs chunk_length to be this."""
        return self.options.get(LENGTHS[self.kind][0], self.chunk_length)

    def rebuild(self, norm_stats: typing.Mapping, checkpoint: Path):
        return self.build(norm_stats, assets=checkpoint)
