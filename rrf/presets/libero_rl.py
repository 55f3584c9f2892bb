"""Reinforcement learning on LIBERO of published families at their real size, on a GPU.

Numbers of episodes, rates, clip ranges and horizons are those of RLinf's configs for 8 GPUs
(libero_10_grpo_openvlaoft, libero_spatial_ppo_gr00t, libero_10_ppo_openpi_pi05, commit a3816b5).
What differs on purpose:

* They train on the 50 recorded initial states of a task that they are evaluated on. Here training
  and validation draw states of their own by the rules of the task, and the recorded ones are left
  for the evaluation (`configs/protocols/libero-*.yaml`).
* Episodes begin after 10 settle steps, not 15.
* OpenVLA-OFT is the published model with an L1 head and adapters. It explores by normal noise
  around the chunk, which a part of the noise outlasts; RLinf's fork predicts tokens, and samples
  them at a temperature of 1.6.
* The critic reads the mean of the backbone's tokens and the state (`rrf.policies.vla.vlm:Critic`).

Each starts from a policy that was fine-tuned on LIBERO with the same chunk length, as
`init_from=CHECKPOINT`.
"""

from rrf.algorithms.vla.configs import GRPOCfg, VLAPPOCfg
from rrf.envs.libero.configs import LiberoCfg
from rrf.envs.libero.tasks import SUITES
from rrf.networks.vlm.configs import BackboneCfg
from rrf.policies.vla.configs import ActionHeadCfg, ValueHeadCfg
from rrf.policies.vla.heads.groot_configs import GrootHeadCfg
from rrf.policies.vla.heads.oft_configs import OFTRegressionHeadCfg
from rrf.policies.vla.heads.pi_configs import PiExpertHeadCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets.groot import groot_n15_sft
from rrf.presets.openvla import openvla_oft_sft
from rrf.presets.pi import pi05
from rrf.runners.configs import AdamWCfg, ScheduleCfg
from rrf.runners.vla_rl.configs import VLARLRunnerCfg

_ENV = LiberoCfg(num_envs=64, initial_states="drawn")
_FLOW = {"noise_method": "flow_sde", "noise_level": 0.5, "stochastic_steps": "one"}
_PPO = VLAPPOCfg(
    log_prob_level="chunk",
    time_cost=0.0,
    gamma=0.99,
    lam=0.95,
    num_epochs=4,
    critic_warmup_rounds=0,
)


def libero10_grpo_openvla_oft() -> VLARLRunnerCfg:
    """GRPO of OpenVLA-OFT on the ten long tasks; from a checkpoint of `openvla-oft-sft`."""
    policy = openvla_oft_sft().policy
    assert isinstance(policy, VLMPolicyCfg)
    assert isinstance(policy.head, OFTRegressionHeadCfg)
    return _run(
        "libero10-grpo-openvla-oft",
        "libero-10",
        _libero_policy(policy, 8, policy.head.replace(persistent_share=0.3)),
        max_episode_steps=512,
    ).replace(
        algorithm=GRPOCfg(time_cost=0.0, num_epochs=1, minibatch_size=16384),
        num_groups=128,
        max_groups=128,
        optimizer=AdamWCfg(lr=2e-5, betas=(0.9, 0.999), weight_decay=0.01),
        micro_batch_size=32,
        save_interval=25,
    )


def libero_spatial_ppo_groot() -> VLARLRunnerCfg:
    """PPO of GR00T N1.5 on the ten tasks of LIBERO-Spatial; from a checkpoint of `groot-n15-sft`
    with policy.chunk_length=5."""
    policy = groot_n15_sft().policy
    assert isinstance(policy, VLMPolicyCfg)
    assert isinstance(policy.head, GrootHeadCfg)
    cfg = _run(
        "libero-spatial-ppo-groot",
        "libero-spatial",
        _libero_policy(policy, 5, policy.head.replace(num_denoise_steps=4, **_FLOW)),
        max_episode_steps=240,
    )
    return _with_critic(cfg).replace(algorithm=_PPO.replace(minibatch_size=1024), save_interval=100)


def libero10_ppo_pi05() -> VLARLRunnerCfg:
    """PPO of pi0.5 on the ten long tasks, its action expert only; from a checkpoint of `pi05-sft`
    with policy.chunk_length=10."""
    policy = pi05()
    assert isinstance(policy.head, PiExpertHeadCfg)
    cfg = _run(
        "libero10-ppo-pi05",
        "libero-10",
        _libero_policy(
            policy,
            10,
            policy.head.replace(num_denoise_steps=5, **_FLOW),
            policy.backbone.replace(tuning="frozen"),
        ),
        max_episode_steps=480,
    )
    return _with_critic(cfg).replace(
        algorithm=_PPO.replace(minibatch_size=2048),
        schedule=ScheduleCfg(kind="cosine", warmup_fraction=0.0, final_factor=0.1),
        save_interval=40,
    )


def _libero_policy(
    policy: VLMPolicyCfg,
    chunk_length: int,
    head: ActionHeadCfg,
    backbone: BackboneCfg | None = None,
) -> VLMPolicyCfg:
    return policy.replace(
        cameras=list(_ENV.cameras),
        image_size=(_ENV.image_size, _ENV.image_size),
        state_dim=_ENV.state_dim,
        action_dim=_ENV.action_dim,
        chunk_length=chunk_length,
        head=head,
        backbone=backbone or policy.backbone,
    )


def _run(name: str, suite: str, policy: VLMPolicyCfg, max_episode_steps: int) -> VLARLRunnerCfg:
    """What the recipes share: all episodes are played, 64 at a time, and the last weights count."""
    return VLARLRunnerCfg(
        experiment_name=name,
        policy=policy,
        env=_ENV.replace(chunk_length=policy.chunk_length, max_episode_steps=max_episode_steps),
        num_workers=16,
        worker_timeout_s=600.0,
        tasks=list(SUITES[suite]),
        stop_after_successes=None,
        stop_after_failures=None,
        max_rounds=1000,
        validation_interval=20,
        schedule=ScheduleCfg(kind="constant"),
        ema=None,
        device="cuda",
        precision="bf16",
    )


def _with_critic(cfg: VLARLRunnerCfg) -> VLARLRunnerCfg:
    """512 episodes a round, and a critic beside the policy."""
    assert isinstance(cfg.policy, VLMPolicyCfg)
    return cfg.replace(
        policy=cfg.policy.replace(value_head=ValueHeadCfg()),
        num_groups=512,
        max_groups=512,
        optimizer=AdamWCfg(lr=5e-6, betas=(0.9, 0.95), weight_decay=0.01),
        value_lr=1e-4,
        micro_batch_size=128,
    )
