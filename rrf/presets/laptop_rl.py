"""Reinforcement learning on Meta-World of the families at laptop size, in a quarter of an hour.

Each starts from the family's own laptop preset: `init_from=<checkpoint of openvla-oft-laptop>`. An
update costs several times that of the compact policy, so that a round learns from fewer groups, and
from each row once.
"""

from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets.groot import groot_laptop
from rrf.presets.openvla import openvla_oft_laptop
from rrf.presets.pi import pi05_laptop
from rrf.presets.vla_rl import metaworld_grpo_compact, metaworld_grpo_flow
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.vla_rl.configs import VLARLRunnerCfg


def metaworld_grpo_oft_laptop() -> VLARLRunnerCfg:
    """GRPO with a normal distribution around the chunk of OpenVLA-OFT."""
    cfg = _of(metaworld_grpo_compact(), "metaworld-grpo-oft-laptop", openvla_oft_laptop())
    return _with_head(cfg, persistent_share=0.3)


def metaworld_grpo_pi05_laptop() -> VLARLRunnerCfg:
    """GRPO with the random denoising steps of pi0.5."""
    return _denoising("metaworld-grpo-pi05-laptop", pi05_laptop(), noise_level=0.2)


def metaworld_grpo_groot_laptop() -> VLARLRunnerCfg:
    """GRPO with the random denoising steps of GR00T N1.7."""
    return _denoising("metaworld-grpo-groot-laptop", groot_laptop(), noise_level=0.3)


def _denoising(name: str, laptop: SupervisedRunnerCfg, noise_level: float) -> VLARLRunnerCfg:
    """The settings of `metaworld_grpo_flow`, which says why, for another policy.

    Chunks start without noise: that of training takes 13 to 18 points of success away, and no
    update can change what it does.
    """
    cfg = _of(metaworld_grpo_flow(), name, laptop)
    return _with_head(
        cfg.replace(optimizer=cfg.optimizer.replace(lr=5e-5), max_rounds=30),
        noise_method="flow_sde",
        stochastic_steps="all",
        noise_level=noise_level,
        start_noise=0.0,
    )


def _of(recipe: VLARLRunnerCfg, name: str, laptop: SupervisedRunnerCfg) -> VLARLRunnerCfg:
    return recipe.replace(
        experiment_name=name,
        policy=laptop.policy,
        env=MetaWorldCfg(num_envs=32, max_episode_steps=40),
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
