"""Reinforcement learning of the compact policy on Meta-World, from one demonstration per task.

The splits are fixed: demonstrations seed 777, training 42, validation 2024, test 4242.
"""

from rrf.algorithms.configs import GRPOCfg, VLAPPOCfg
from rrf.components.configs import GaussianHeadCfg, ValueHeadCfg
from rrf.presets.compact_vla import TARGET_TASKS, sft
from rrf.runners.configs import SupervisedRunnerCfg, VLARLRunnerCfg


def one_demo_sft() -> SupervisedRunnerCfg:
    """The six target tasks from one demonstration each, with a Gaussian head."""
    cfg = sft()
    return cfg.replace(
        experiment_name="compact-vla-one-demo",
        policy=cfg.policy.replace(head=GaussianHeadCfg()),
        episodes_per_instruction=1,
        validation_fraction=0.0,
        max_steps=300,
    )


def metaworld_grpo_compact() -> VLARLRunnerCfg:
    """GRPO; give `init_from=<checkpoint of compact-vla-one-demo>`."""
    return VLARLRunnerCfg(
        experiment_name="metaworld-grpo-compact",
        policy=one_demo_sft().policy,
        tasks=list(TARGET_TASKS),
        algorithm=GRPOCfg(),
    )


def metaworld_ppo_compact() -> VLARLRunnerCfg:
    """PPO with a value head on the policy's features; `init_from` as for GRPO."""
    cfg = metaworld_grpo_compact()
    return cfg.replace(
        experiment_name="metaworld-ppo-compact",
        policy=cfg.policy.replace(value_head=ValueHeadCfg()),
        algorithm=VLAPPOCfg(),
        num_groups=192,
        max_groups=192,
    )
