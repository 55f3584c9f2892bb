"""The compact policy on CALVIN: imitation of a few demonstrations, then GRPO."""

from rrf.envs.calvin.configs import CAMERAS, CalvinCfg
from rrf.envs.calvin.tasks import INSTRUCTIONS
from rrf.policies.vla.configs import CompactVLACfg
from rrf.presets.vla_rl import other_simulator_grpo, other_simulator_sft
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.vla_rl.configs import VLARLRunnerCfg

_TASKS = ("open_drawer", "move_slider_left", "turn_on_led", "lift_red_block_table")


def calvin_all_sft() -> SupervisedRunnerCfg:
    """Imitation of eight demonstrations of each of the 34 tasks, for chains of instructions."""
    env = CalvinCfg(cameras=list(CAMERAS))
    cfg = other_simulator_sft("compact-vla-calvin-all", "calvin-demo", env, INSTRUCTIONS.values())
    return cfg.replace(max_steps=1500)


def calvin_sft() -> SupervisedRunnerCfg:
    """Imitation of two demonstrations of each of four tasks, from random weights."""
    return calvin_all_sft().replace(
        experiment_name="compact-vla-calvin",
        instructions=[INSTRUCTIONS[task] for task in _TASKS],
        episodes_per_instruction=2,
        max_steps=300,
    )


def calvin_grpo() -> VLARLRunnerCfg:
    """GRPO on the four tasks; set `init_from=<checkpoint of compact-vla-calvin>`."""
    cfg = other_simulator_grpo()
    assert isinstance(cfg.policy, CompactVLACfg)
    return cfg.replace(
        experiment_name="calvin-grpo-compact",
        policy=calvin_sft().policy.replace(head=cfg.policy.head),
        env=CalvinCfg(
            num_envs=8,
            action_repeat=3,
            max_episode_steps=40,
            cameras=list(CAMERAS),
            later_starts=0.0,
        ),
        tasks=list(_TASKS),
        num_groups=8,
        max_groups=16,
        validation_episodes=12,
        worker_timeout_s=120.0,
    )
