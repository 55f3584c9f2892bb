"""Reinforcement learning of the compact policy on Meta-World, from one demonstration per task.

The splits have fixed seeds: demonstrations 777, training 42, validation 2024, test 4242.
"""

from collections.abc import Iterable

from rrf.algorithms.vla.configs import DecoupledCfg, GRPOCfg, ReinforceCfg, VLAPPOCfg
from rrf.algorithms.vla.residual_sac_configs import ResidualSACCfg
from rrf.envs.foreign.configs import ForeignVecEnvCfg
from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.envs.metaworld.tasks import INSTRUCTIONS, TASKS
from rrf.networks.configs import InstructionEncoderCfg
from rrf.networks.vocabulary import vocabulary_of
from rrf.policies.vla.configs import (
    DiscreteTokenHeadCfg,
    FlowMatchingHeadCfg,
    GaussianHeadCfg,
    ValueHeadCfg,
)
from rrf.policies.vla.residual_configs import ResidualVLACfg
from rrf.presets.compact_vla import DEMONSTRATED_TASKS, TARGET_TASKS, pretrain, sft, with_head
from rrf.runners.configs import ScheduleCfg
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.vla_rl.configs import CurriculumCfg, VLARLRunnerCfg
from rrf.runners.vla_rl.residual_configs import ResidualSACRunnerCfg

_TWO_VIEWS = ("workspace", "gripperPOV")
_EXPLORING_HEAD = GaussianHeadCfg(persistent_share=0.3)


def pretrain_others() -> SupervisedRunnerCfg:
    """Pretraining for the demo, on the demonstrated tasks that are not target tasks."""
    cfg = with_head(pretrain(), "compact-vla-pretrain-others", GaussianHeadCfg())
    return cfg.replace(
        instructions=[
            INSTRUCTIONS[task] for task in DEMONSTRATED_TASKS if task not in TARGET_TASKS
        ],
        max_steps=500,
    )


def one_demo_sft() -> SupervisedRunnerCfg:
    """Fine-tuning on the six target tasks with one demonstration each and a Gaussian head."""
    return with_head(sft(), "compact-vla-one-demo", GaussianHeadCfg()).replace(
        episodes_per_instruction=1,
        validation_fraction=0.0,
        max_steps=300,
    )


def one_demo_sft_tokens() -> SupervisedRunnerCfg:
    """`one_demo_sft` with discrete action tokens."""
    return with_head(one_demo_sft(), "compact-vla-one-demo-tokens", DiscreteTokenHeadCfg())


def one_demo_sft_flow() -> SupervisedRunnerCfg:
    """`one_demo_sft` with a flow-matching head."""
    return with_head(one_demo_sft(), "compact-vla-one-demo-flow", FlowMatchingHeadCfg())


def mt50_sft() -> SupervisedRunnerCfg:
    """Fine-tuning on all 50 tasks with one demonstration each, from their own dataset."""
    return one_demo_sft().replace(
        experiment_name="compact-vla-mt50",
        dataset="metaworld-mt50",
        instructions=None,
        episodes_per_instruction=None,
        max_steps=1500,
    )


def two_views_sft() -> SupervisedRunnerCfg:
    """Imitation from an overview of the workspace and the camera on the hand, of any tasks; set
    `dataset` to recordings of both cameras."""
    cfg = one_demo_sft()
    return cfg.replace(
        experiment_name="compact-vla-two-views",
        instructions=None,
        episodes_per_instruction=None,
        policy=cfg.policy.replace(cameras=list(_TWO_VIEWS)),
        max_steps=1500,
    )


def mt50_two_views_sft() -> SupervisedRunnerCfg:
    """`two_views_sft` of all 50 tasks from a few demonstrations of each that were repeated in other
    initial states."""
    return two_views_sft().replace(
        experiment_name="compact-vla-mt50-two-views",
        dataset="metaworld-two-views",
        max_steps=9000,
        batch_size=128,
        save_interval=1000,
    )


def mt50_two_views_robust() -> SupervisedRunnerCfg:
    """Fine-tuning on all 50 tasks as they are and with one thing changed at a time, in other
    colours each time; set `init_from=<checkpoint of compact-vla-mt50-two-views>`."""
    cfg = mt50_two_views_sft().replace(
        experiment_name="compact-vla-mt50-two-views-robust",
        dataset="metaworld-two-views-robust",
        mixture={"metaworld-two-views": 1.0},
        max_steps=4000,
    )
    return cfg.override({"algorithm.augmentation.color": 0.5})


def metaworld_grpo_compact() -> VLARLRunnerCfg:
    """GRPO on the target tasks; set `init_from=<checkpoint of compact-vla-one-demo>`."""
    policy = one_demo_sft().policy
    return VLARLRunnerCfg(
        experiment_name="metaworld-grpo-compact",
        policy=policy.replace(head=_EXPLORING_HEAD),
        env=MetaWorldCfg(num_envs=32, max_episode_steps=30),
        tasks=list(TARGET_TASKS),
        algorithm=GRPOCfg(),
        noise_schedule=ScheduleCfg(kind="cosine", warmup_fraction=0.0, final_factor=0.4),
        max_rounds=38,
    )


def metaworld_grpo_two_views() -> VLARLRunnerCfg:
    """GRPO of a policy of `compact-vla-two-views`; set `init_from` and `tasks`."""
    cfg = metaworld_grpo_compact()
    return cfg.replace(
        experiment_name="metaworld-grpo-two-views",
        policy=cfg.policy.replace(
            cameras=list(_TWO_VIEWS), head=_EXPLORING_HEAD.replace(temperature=0.4)
        ),
        env=MetaWorldCfg(num_envs=32, max_episode_steps=40, cameras=list(_TWO_VIEWS)),
        curriculum=CurriculumCfg(hope_episodes=8),
        validation_interval=8,
        max_rounds=24,
    )


def other_simulator_sft(
    name: str, dataset: str, env: ForeignVecEnvCfg, instructions: Iterable[str]
) -> SupervisedRunnerCfg:
    """Imitation of two views in another simulator, by a policy that fits `env`."""
    cfg = two_views_sft()
    policy = cfg.policy.replace(
        cameras=list(env.cameras),
        state_dim=env.state_dim,
        action_dim=env.action_dim,
        instruction_encoder=InstructionEncoderCfg(vocabulary=vocabulary_of(instructions)),
    )
    return cfg.replace(experiment_name=name, dataset=dataset, policy=policy)


def other_simulator_grpo() -> VLARLRunnerCfg:
    """GRPO of two views where an episode costs a second: little noise, small steps, few rounds; set
    policy, env and tasks."""
    cfg = metaworld_grpo_two_views()
    return cfg.replace(
        policy=cfg.policy.replace(head=GaussianHeadCfg(persistent_share=0.3, temperature=0.3)),
        optimizer=cfg.optimizer.replace(lr=1e-4),
        num_groups=16,
        max_groups=40,
        validation_episodes=25,
        validation_interval=4,
        max_rounds=12,
    )


def metaworld_rloo_compact() -> VLARLRunnerCfg:
    """Leave-one-out advantages (RLOO) instead of GRPO's; set `init_from` as for it."""
    return metaworld_grpo_compact().replace(
        experiment_name="metaworld-rloo-compact", algorithm=ReinforceCfg()
    )


def metaworld_reinforce_compact() -> VLARLRunnerCfg:
    """REINFORCE++: advantages over all episodes of a round; set `init_from` as for GRPO.

    Episodes of one initial state need not differ, so none are given up.
    """
    return metaworld_grpo_compact().replace(
        experiment_name="metaworld-reinforce-compact",
        algorithm=ReinforceCfg(group_size=1, baseline="batch", normalizes=True),
        num_groups=192,
        max_groups=192,
        max_rounds=64,
    )


def metaworld_grpo_demo() -> VLARLRunnerCfg:
    """GRPO with fewer rounds, for `make demo`."""
    return metaworld_grpo_compact().replace(
        experiment_name="metaworld-grpo-demo", max_rounds=16, validation_interval=8
    )


def metaworld_grpo_tokens() -> VLARLRunnerCfg:
    """GRPO with action tokens; starts from compact-vla-one-demo-tokens."""
    return metaworld_grpo_compact().replace(
        experiment_name="metaworld-grpo-tokens", policy=one_demo_sft_tokens().policy, max_rounds=24
    )


def metaworld_grpo_flow() -> VLARLRunnerCfg:
    """GRPO with a flow-matching head; starts from compact-vla-one-demo-flow.

    It uses flow_sde, whose last step leaves noise in the action. With flow_cps, later steps remove
    the added noise again, so that its log-probabilities say little about the action. All steps are
    random, so that a small change of the policy changes the ratio a lot. A narrow clip range keeps
    the updates small.
    """
    head = FlowMatchingHeadCfg(noise_method="flow_sde", stochastic_steps="all", noise_level=0.5)
    cfg = metaworld_grpo_compact()
    return cfg.replace(
        experiment_name="metaworld-grpo-flow",
        policy=one_demo_sft_flow().policy.replace(head=head),
        algorithm=cfg.algorithm.replace(clip_low=0.08, clip_high=0.1),
        optimizer=cfg.optimizer.replace(lr=1e-4),
        validation_episodes=25,
        validation_interval=8,
        max_rounds=36,
    )


def metaworld_grpo_mt50() -> VLARLRunnerCfg:
    """GRPO on all 50 tasks; starts from compact-vla-mt50 and takes some hours on two cores.

    It uses half the noise of the six tasks, because with more noise the gripper drops objects.
    """
    cfg = metaworld_grpo_compact()
    return cfg.replace(
        experiment_name="metaworld-grpo-mt50",
        tasks=list(TASKS),
        policy=cfg.policy.replace(head=_EXPLORING_HEAD.replace(temperature=0.5)),
        env=MetaWorldCfg(num_envs=32, max_episode_steps=40, max_engines=32),
        algorithm=GRPOCfg(minibatch_size=512),
        num_groups=48,
        max_groups=144,
        curriculum=CurriculumCfg(hope_episodes=8),
        validation_interval=20,
        max_rounds=80,
    )


def metaworld_grpo_mt50_two_views() -> VLARLRunnerCfg:
    """GRPO on all 50 tasks; starts from compact-vla-mt50-two-views.

    Its policy already solves most initial states, so an episode may last as long as the longest
    tasks need.
    """
    cfg = metaworld_grpo_two_views()
    return cfg.replace(
        experiment_name="metaworld-grpo-mt50-two-views",
        tasks=list(TASKS),
        env=cfg.env.replace(max_episode_steps=60, max_engines=32),
        algorithm=GRPOCfg(minibatch_size=512),
        num_groups=48,
        max_groups=144,
        validation_episodes=6,
        validation_interval=10,
        max_rounds=40,
    )


def metaworld_ppo_compact() -> VLARLRunnerCfg:
    """PPO with a value head on the policy's features; set `init_from` as for GRPO."""
    cfg = metaworld_grpo_compact()
    return cfg.replace(
        experiment_name="metaworld-ppo-compact",
        policy=cfg.policy.replace(value_head=ValueHeadCfg()),
        algorithm=VLAPPOCfg(),
        num_groups=192,
        max_groups=192,
        max_rounds=64,
    )


def metaworld_sac_residual() -> ResidualSACRunnerCfg:
    """SAC of an actor that corrects the chunks of a frozen policy; set `init_from` as for GRPO, or
    to any policy of the same tasks, whatever its head."""
    return ResidualSACRunnerCfg(
        experiment_name="metaworld-sac-residual",
        policy=ResidualVLACfg(base_share=0.5),
        env=MetaWorldCfg(num_envs=32, max_episode_steps=30),
        tasks=list(TARGET_TASKS),
        algorithm=ResidualSACCfg(updates_per_step=0.1),
        num_groups=256,
        max_rounds=48,
        validation_interval=12,
        validation_episodes=20,
    )


def metaworld_ppo_async() -> VLARLRunnerCfg:
    """PPO that plays the next round during an update, with the decoupled loss."""
    cfg = metaworld_ppo_compact()
    return cfg.replace(
        experiment_name="metaworld-ppo-async",
        algorithm=cfg.algorithm.replace(decoupled=DecoupledCfg()),
        max_staleness=1,
    )
