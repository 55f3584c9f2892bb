"""Reinforcement learning on Meta-World of the families at laptop size.

Each starts from the family's own laptop preset: `init_from=<checkpoint of openvla-oft-laptop>`. An
update costs several times that of the compact policy, so that a round of OpenVLA-OFT and GR00T
learns from fewer groups, and from each row once.
"""

import typing

from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets.groot import groot_laptop
from rrf.presets.openvla import openvla_oft_laptop, openvla_oft_tokens_laptop
from rrf.presets.pi import pi05_laptop
from rrf.presets.vla_rl import metaworld_grpo_compact, metaworld_grpo_flow
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.vla_rl.configs import VLARLRunnerCfg

_ENV = MetaWorldCfg(num_envs=32, max_episode_steps=40)
_FROM_ZERO: dict[str, typing.Any] = {
    "noise_method": "flow_sde",
    "stochastic_steps": "all",
    "start_noise": 0.0,
}
"""Chunks start without noise. That of training takes 13 to 18 points of sampled success away, and
no update can change what it does."""


def metaworld_grpo_oft_laptop() -> VLARLRunnerCfg:
    """GRPO with a normal distribution around the chunk of OpenVLA-OFT."""
    cfg = _laptop_recipe(
        metaworld_grpo_compact(), "metaworld-grpo-oft-laptop", openvla_oft_laptop()
    )
    return _with_head(cfg, persistent_share=0.3)


def metaworld_grpo_oft_tokens_laptop() -> VLARLRunnerCfg:
    """GRPO with the action tokens of OpenVLA-OFT, as RLinf and SimpleVLA-RL train it."""
    return _laptop_recipe(
        metaworld_grpo_compact(), "metaworld-grpo-oft-tokens-laptop", openvla_oft_tokens_laptop()
    )


def metaworld_grpo_pi05_laptop() -> VLARLRunnerCfg:
    """GRPO with pi0.5 in a single denoising step.

    The chunk is then one prediction, and the density of the normal noise around it says how likely
    the action is. With four steps, of which each takes out noise that the one before added, nothing
    was gained.
    """
    cfg = metaworld_grpo_compact()
    cfg = cfg.replace(
        experiment_name="metaworld-grpo-pi05-laptop",
        policy=pi05_laptop().policy,
        env=_ENV,
        algorithm=cfg.algorithm.replace(clip_low=0.1, clip_high=0.14),
        validation_episodes=25,
        validation_interval=8,
        max_rounds=36,
    )
    return _with_head(cfg, num_denoise_steps=1, **_FROM_ZERO, noise_level=0.25)


def metaworld_grpo_groot_laptop() -> VLARLRunnerCfg:
    """GRPO with the random denoising steps of GR00T N1.7; see `metaworld_grpo_flow`."""
    cfg = _laptop_recipe(metaworld_grpo_flow(), "metaworld-grpo-groot-laptop", groot_laptop())
    cfg = cfg.replace(optimizer=cfg.optimizer.replace(lr=5e-5), max_rounds=30)
    return _with_head(cfg, **_FROM_ZERO, noise_level=0.3)


def _laptop_recipe(
    recipe: VLARLRunnerCfg, name: str, laptop: SupervisedRunnerCfg
) -> VLARLRunnerCfg:
    return recipe.replace(
        experiment_name=name,
        policy=laptop.policy,
        env=_ENV,
        algorithm=recipe.algorithm.replace(num_epochs=1),
        num_groups=12,
        max_groups=48,
        validation_episodes=10,
        validation_interval=10,
        max_rounds=60,
    )


def _with_head(cfg: VLARLRunnerCfg, **changes) -> VLARLRunnerCfg:
    assert isinstance(cfg.policy, VLMPolicyCfg)
    return cfg.replace(policy=cfg.policy.replace(head=cfg.policy.head.replace(**changes)))
