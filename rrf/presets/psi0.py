"""Policies in two parts at laptop size: a small Qwen3-VL as System 2, a flow-matching head as
System 1 (a diffusion transformer), which sees the state and the first camera itself.

Weights are random at first and all are trained together, in minutes of one core. Another head is an
override, e.g. `policy.head={type: rrf.policies.vla.configs:RegressionHeadCfg}` or
`{type: rrf.policies.vla.heads.diffusion_configs:DiffusionHeadCfg}`; another System 2
likewise. On recordings of humanoids see also `rrf.presets.recordings`.
"""

from rrf.envs.humanoid.configs import INSTRUCTIONS as TABLE
from rrf.envs.humanoid.configs import HumanoidCfg
from rrf.networks.configs import ImageEncoderCfg
from rrf.networks.dit_configs import DiTCfg
from rrf.networks.vlm.configs import TokenizerCfg
from rrf.networks.vocabulary import vocabulary_of
from rrf.policies.vla.configs import GaussianHeadCfg
from rrf.policies.vla.heads.dit_configs import DiTHeadCfg
from rrf.policies.vla.psi0_configs import FastViewCfg, Psi0PolicyCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets.qwen import qwen3vl_laptop
from rrf.presets.recordings import g1_sft_laptop, gr1_sft_laptop
from rrf.presets.vla_rl import other_simulator_grpo
from rrf.runners.dagger.configs import DAggerRunnerCfg
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.vla_rl.configs import VLARLRunnerCfg

_SHOWN = (
    *("walk-to-table", "touch-red-cube-left", "push-green-cube-left", "push-red-cube-right"),
    *("pick-red-cube", "place-red-cube-blue"),
)
"""Tasks of the table that the demonstrations are of."""


def psi0_laptop() -> SupervisedRunnerCfg:
    """On Meta-World's ten demonstrated tasks. Where it is evaluated, System 1 acts 8 times a second
    of simulated time, and System 2 looks at every third chunk: 2.7 times."""
    return _in_two_parts(qwen3vl_laptop(), "psi0-laptop", max_feature_age_s=0.25, feature_period=3)


def psi0_gr1_laptop() -> SupervisedRunnerCfg:
    """On 5 episodes of a simulated GR1 humanoid, with features of up to a second."""
    return _in_two_parts(gr1_sft_laptop(), "psi0-gr1-laptop")


def psi0_g1_laptop() -> SupervisedRunnerCfg:
    """On one episode of a real Unitree G1. Its segments are shorter than a second, and so is the
    age of features."""
    return _in_two_parts(g1_sft_laptop(), "psi0-g1-laptop", max_feature_age_s=0.5)


def psi0_g1_table() -> SupervisedRunnerCfg:
    """On demonstrations of a simulated G1 with hands at its table, recorded through a System 0.
    System 1 acts twice a second, in chunks of five commands, and System 2 looks once a second."""
    cfg = qwen3vl_laptop()
    assert isinstance(cfg.policy, VLMPolicyCfg)
    backbone = cfg.policy.backbone.replace(
        tokenizer=TokenizerCfg(words=vocabulary_of(TABLE.values())),
        hidden_size=64,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        intermediate_size=192,
        vision_depth=2,
        vision_width=64,
        vision_heads=2,
        vision_intermediate=128,
        patch_size=8,
        deepstack=[0],
    )
    policy = cfg.policy.replace(backbone=backbone)
    cfg = _in_two_parts(
        cfg.replace(dataset="g1-table-demo", policy=policy.replace(chunk_length=5)),
        "psi0-g1-table",
        feature_period=2,
    )
    policy = cfg.policy.replace(head=GaussianHeadCfg())  # half the time of a flow's on a CPU
    return cfg.replace(policy=policy, instructions=None, max_steps=5000, batch_size=64)


def psi0_humanoid() -> SupervisedRunnerCfg:
    """On 14 demonstrations of each of humanoid-psi0's 14 pick-and-place instructions: the same
    policy as psi0-g1-table."""
    return psi0_g1_table().replace(experiment_name="psi0-humanoid", dataset="humanoid-psi0")


def psi0_g1_table_grpo() -> VLARLRunnerCfg:
    """GRPO of a policy of psi0-g1-table, through System 0 as it is; set `init_from` to it."""
    cfg, whole = other_simulator_grpo(), psi0_g1_table().policy
    return cfg.replace(
        experiment_name="psi0-g1-table-grpo",
        # With more noise in 36 numbers, the sampled policy solves a fifth of what the mean does,
        # and what is learned then is of no use to the mean.
        policy=whole.replace(head=GaussianHeadCfg(persistent_share=0.3, temperature=0.1)),
        optimizer=cfg.optimizer.replace(lr=3e-5),
        env=_table(whole.chunk_length, max_episode_steps=150),
        tasks=list(_SHOWN),
        worker_timeout_s=120.0,
    )


def psi0_g1_table_dagger() -> DAggerRunnerCfg:
    """The experts of the table correct a policy of psi0-g1-table where it goes itself, through
    System 0 as it is; set `init_from` to it."""
    cloning = psi0_g1_table()
    return DAggerRunnerCfg(
        experiment_name="psi0-g1-table-dagger",
        dataset=cloning.dataset,
        instructions=None,
        policy=cloning.policy,
        algorithm=cloning.algorithm,
        optimizer=cloning.optimizer,
        schedule=cloning.schedule,
        ema=cloning.ema,
        batch_size=cloning.batch_size,
        env=_table(cloning.policy.chunk_length, max_episode_steps=120),
        tasks=list(_SHOWN),
        episodes_per_task=10,
        max_rounds=3,
        max_steps=800,
        worker_timeout_s=120.0,
    )


def _table(chunk_length: int, max_episode_steps: int) -> HumanoidCfg:
    """Where a policy of these tasks plays; what is neither picked nor placed takes less time."""
    horizons = {name: 60 for name in _SHOWN if not name.startswith(("pick", "place"))}
    return HumanoidCfg(
        num_envs=16,
        chunk_length=chunk_length,
        max_episode_steps=max_episode_steps,
        horizons=horizons,
    )


def _in_two_parts(cfg: SupervisedRunnerCfg, name: str, **changes) -> SupervisedRunnerCfg:
    """The same training of a policy in two parts, with the backbone and chunks of `cfg`."""
    whole = cfg.policy
    assert isinstance(whole, VLMPolicyCfg)
    policy = Psi0PolicyCfg(
        backbone=whole.backbone,
        chunk_length=whole.chunk_length,
        relative_actions=whole.relative_actions,
        # an MLP narrower than the chunk (704 numbers of the GR1) could not pass the noise on
        head=DiTHeadCfg(dit=DiTCfg(num_layers=4, num_heads=4, head_width=32), num_noise_draws=4),
        fast_view=FastViewCfg(encoder=ImageEncoderCfg(channels=[16, 32, 32, 32], out_features=64)),
        **changes,
    )
    return cfg.replace(experiment_name=name, policy=policy)
