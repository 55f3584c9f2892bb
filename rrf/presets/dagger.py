"""DAgger of the compact policy on Meta-World, from one demonstration per task."""

from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.presets.compact_vla import TARGET_TASKS
from rrf.presets.vla_rl import one_demo_sft
from rrf.runners.dagger.configs import DAggerRunnerCfg


def metaworld_dagger_compact() -> DAggerRunnerCfg:
    """DAgger on the target tasks; set `init_from=<checkpoint of compact-vla-one-demo>`."""
    cloning = one_demo_sft()
    return DAggerRunnerCfg(
        experiment_name="metaworld-dagger-compact",
        instructions=cloning.instructions,
        episodes_per_instruction=cloning.episodes_per_instruction,
        policy=cloning.policy,
        algorithm=cloning.algorithm,
        optimizer=cloning.optimizer,
        schedule=cloning.schedule,
        ema=cloning.ema,
        env=MetaWorldCfg(num_envs=16, max_episode_steps=40),
        tasks=list(TARGET_TASKS),
        episodes_per_task=8,
        max_rounds=4,
        max_steps=400,
    )
