"""ManiSkill3: the compact policy by GRPO, and OpenVLA by PPO with RLinf's published numbers."""

from rrf.algorithms.vla.configs import VLAPPOCfg
from rrf.envs.maniskill.configs import INSTRUCTIONS, ManiskillCfg
from rrf.networks.configs import InstructionEncoderCfg, MLPCfg
from rrf.networks.vocabulary import vocabulary_of
from rrf.policies.vla.configs import CompactVLACfg, ValueHeadCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets.openvla import openvla_sft
from rrf.presets.vla_rl import other_simulator_grpo, two_views_sft
from rrf.runners.configs import AdamWCfg, ScheduleCfg
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.vla_rl.configs import VLARLRunnerCfg
from rrf.runners.vla_rl.early_stop_configs import EarlyStopCfg

_CAMERAS = ("workspace", "hand_camera")
_CFG = ManiskillCfg(num_envs=8, max_episode_steps=50, cameras=list(_CAMERAS))
_SIZES = {"state_dim": len(_CFG.state_names), "action_dim": _CFG.action_dim}


def compact_vla_maniskill() -> SupervisedRunnerCfg:
    """Imitation of demonstrations, seen from the front and from the hand."""
    cfg = two_views_sft()
    words = InstructionEncoderCfg(vocabulary=vocabulary_of(INSTRUCTIONS.values()))
    return cfg.replace(
        experiment_name="compact-vla-maniskill",
        dataset="maniskill-demo",
        policy=cfg.policy.replace(cameras=list(_CAMERAS), instruction_encoder=words, **_SIZES),
    )


def maniskill_grpo_compact() -> VLARLRunnerCfg:
    """GRPO of a policy of `compact-vla-maniskill`; set `init_from`."""
    cfg = other_simulator_grpo()
    assert isinstance(cfg.policy, CompactVLACfg)
    return cfg.replace(
        experiment_name="maniskill-grpo-compact",
        policy=compact_vla_maniskill().policy.replace(
            head=cfg.policy.head.replace(temperature=0.15)
        ),
        env=_CFG.replace(num_envs=16, max_episode_steps=40),
        tasks=["PickCube-v1"],
        worker_timeout_s=300.0,  # the first images of a process take long
        early_stop=EarlyStopCfg(),
    )


def maniskill_ppo_openvla() -> VLARLRunnerCfg:
    """PPO of OpenVLA with the numbers that RLinf published for ManiSkill; set `init_from`.

    RLinf's `maniskill_ppo_openvla` (arXiv:2509.15965): 128 environments of 80 steps, adapters of
    rank 32, learning rates 1e-4 and 3e-3 (critic), 640 rows per update, gradients cut at 10, ratios
    and rewards by action, gamma 0.99, lambda 0.95, clip range 0.2, one epoch. The critic is a
    network of 512 and 128 units. Ours differs in what an episode is: it ends with success, while
    RLinf plays all 80 steps. Its task, PutOnPlateInScene25, needs assets that are not in the
    package.
    """
    sft = openvla_sft()
    assert isinstance(sft.policy, VLMPolicyCfg)
    critic = MLPCfg(hidden_features=[512, 128], activations=[[("GELU", {})], [("GELU", {})], []])
    return VLARLRunnerCfg(
        experiment_name="maniskill-ppo-openvla",
        policy=sft.policy.replace(
            cameras=["base_camera"],
            image_size=(224, 224),
            value_head=ValueHeadCfg(mlp=critic, detaches=False),
            **{"state_dim": _SIZES["state_dim"], "action_dim": 7},
        ),
        env=ManiskillCfg(
            num_envs=128,
            chunk_length=1,
            max_episode_steps=80,
            image_size=224,
            controller="pd_ee_delta_pose",
        ),
        tasks=["PickCube-v1"],
        algorithm=VLAPPOCfg(
            log_prob_level="action",
            reward_level="action",
            gamma=0.99,
            lam=0.95,
            clip_low=0.2,
            clip_high=0.2,
            num_epochs=1,
            minibatch_size=640,
            critic_warmup_rounds=0,
        ),
        num_groups=128,
        max_groups=128,
        optimizer=AdamWCfg(lr=1e-4, weight_decay=0.0),
        value_lr=3e-3,
        schedule=ScheduleCfg(kind="constant"),
        ema=None,
        max_grad_norm=10.0,
        precision="bf16",
        device="cuda",
        micro_batch_size=8,
    )
