"""Isaac Lab's tasks with the settings that Isaac Lab's own rsl_rl configs have for them.

The presets say how many environments fit two CPU cores, and where a setting differs from those.
`rrf train --task Isaac-…` reads the settings of any task (`ppo_of`).
"""

import typing
from collections.abc import Mapping, Sequence

from rrf.algorithms.on_policy.configs import PPOCfg
from rrf.envs.isaaclab.configs import IsaacLabCfg, IsaacLabEnvCfg, StateTermCfg
from rrf.envs.isaaclab.tasks import require
from rrf.networks.configs import InstructionEncoderCfg, plain_mlp
from rrf.networks.vocabulary import vocabulary_of
from rrf.policies.control.configs import (
    ActorCriticPackCfg,
    MemoryCfg,
    StateIndStdActorCfg,
    VNetworkCfg,
)
from rrf.policies.vla.configs import CompactVLACfg
from rrf.presets.vla_rl import other_simulator_grpo, two_views_sft
from rrf.runners.control.configs import OnPolicyRunnerCfg
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.vla_rl.configs import VLARLRunnerCfg

_OF_PPO = (
    *("clip_param", "entropy_coef", "value_loss_coef", "use_clipped_value_loss", "gamma", "lam"),
    *("num_learning_epochs", "num_mini_batches", "learning_rate", "schedule", "desired_kl"),
    *("max_grad_norm", "normalize_advantage_per_mini_batch"),
)
_ACTIVATIONS = {"elu": "ELU", "relu": "ReLU", "tanh": "Tanh", "selu": "SELU", "lrelu": "LeakyReLU"}


def isaaclab_cartpole_ppo() -> OnPolicyRunnerCfg:
    """Isaac Lab's cart-pole, balanced after a minute on a CPU; 800,000 steps in two."""
    return OnPolicyRunnerCfg(
        experiment_name="isaaclab-cartpole-ppo",
        env=IsaacLabEnvCfg(task="Isaac-Cartpole", num_envs=512, clip_actions=3.0),
        policy=_pack([32, 32]),
        algorithm=PPOCfg(entropy_coef=0.005),
        num_steps_per_env=16,
        max_iterations=100,
        save_interval=50,
    )


def isaaclab_ant_ppo() -> OnPolicyRunnerCfg:
    """Isaac Lab's ant, with Newton's model of it."""
    return OnPolicyRunnerCfg(
        experiment_name="isaaclab-ant-ppo",
        env=IsaacLabEnvCfg(task="Isaac-Ant", num_envs=512),
        policy=_pack([400, 200, 100]),
        algorithm=PPOCfg(entropy_coef=0.0, learning_rate=5e-4),
        num_steps_per_env=32,
        max_iterations=1000,
        save_interval=50,
    )


def isaaclab_go2_flat_ppo() -> OnPolicyRunnerCfg:
    """A Go2 that follows commanded velocities on flat ground."""
    return _walker("isaaclab-go2-flat-ppo", "Isaac-Velocity-Flat-UnitreeGo2")


def isaaclab_a1_flat_ppo() -> OnPolicyRunnerCfg:
    """An A1 that follows commanded velocities on flat ground."""
    return _walker("isaaclab-a1-flat-ppo", "IsaacContrib-Velocity-Flat-UnitreeA1")


def isaaclab_go1_flat_ppo() -> OnPolicyRunnerCfg:
    """A Go1 that follows commanded velocities on flat ground."""
    return _walker("isaaclab-go1-flat-ppo", "IsaacContrib-Velocity-Flat-UnitreeGo1")


def isaaclab_anymal_c_flat_ppo() -> OnPolicyRunnerCfg:
    """An ANYmal C that follows commanded velocities on flat ground."""
    cfg = _walker("isaaclab-anymal-c-flat-ppo", "IsaacContrib-Velocity-Flat-AnymalC")
    return cfg.replace(algorithm=cfg.algorithm.replace(entropy_coef=0.005))


def isaaclab_reach_franka_ppo() -> OnPolicyRunnerCfg:
    """A Panda whose hand goes to commanded poses."""
    return OnPolicyRunnerCfg(
        experiment_name="isaaclab-reach-franka-ppo",
        env=IsaacLabEnvCfg(task="Isaac-Reach-Franka", num_envs=256),
        policy=_pack([64, 64]),
        algorithm=PPOCfg(entropy_coef=0.001, num_learning_epochs=8),
        num_steps_per_env=24,
        max_iterations=1000,
        save_interval=50,
    )


def ppo_of(task: str, experiment_name: str) -> OnPolicyRunnerCfg:
    """PPO of a task with the settings of its rsl_rl config, or of Isaac Lab's walkers without one.

    Raises:
        ValueError: For a task that does not exist, or whose settings name networks that we do not
            have; and if Isaac Lab is not set up.
    """
    said = require(task)["rsl_rl"]
    env = IsaacLabEnvCfg(task=task)
    if not said:
        return _walker(experiment_name, task).replace(env=env)
    kind = said.get("class_name", "OnPolicyRunner")
    if kind != "OnPolicyRunner" or not said.get("actor"):
        raise ValueError(
            f"rsl_rl trains {task} by its {kind}; of that there are no settings for PPO here. "
            "Write a preset, see docs/how-to/isaac-lab.md"
        )
    groups = said.get("obs_groups") or {}
    actor, critic = said["actor"], said["critic"]
    shared = {
        who: {"observation_groups": groups.get(who), **_network(part, task)}
        for who, part in (("actor", actor), ("critic", critic))
    }
    spread = actor.get("distribution_cfg") or {}
    algorithm = {name: said["algorithm"][name] for name in _OF_PPO if name in said["algorithm"]}
    return OnPolicyRunnerCfg(
        experiment_name=experiment_name,
        env=env.replace(clip_actions=said.get("clip_actions")),
        policy=ActorCriticPackCfg(
            actor_cfg=StateIndStdActorCfg(
                init_std=spread.get("init_std", 1.0),
                use_log_std=spread.get("std_type") == "log",
                **shared["actor"],
            ),
            critic_cfg=VNetworkCfg(**shared["critic"]),
        ),
        algorithm=PPOCfg(**algorithm),
        num_steps_per_env=said["num_steps_per_env"],
        max_iterations=said["max_iterations"],
        save_interval=said["save_interval"],
    )


def _network(part: Mapping[str, typing.Any], task: str) -> dict[str, typing.Any]:
    """The fields of a network in the words of our configs."""
    kind = part["class_name"]
    if kind not in ("MLPModel", "RNNModel"):
        raise ValueError(
            f"rsl_rl trains {task} with a {kind}, which is not among the networks for states here; "
            "its settings cannot be used"
        )
    memory = None
    if kind == "RNNModel":
        memory = MemoryCfg(
            kind=part["rnn_type"],
            hidden_size=part["rnn_hidden_dim"],
            num_layers=part["rnn_num_layers"],
        )
    return {
        "backbone_cfg": plain_mlp(part["hidden_dims"], _ACTIVATIONS[part["activation"]]),
        "obs_normalization": bool(part["obs_normalization"]),
        "memory": memory,
    }


def _walker(name: str, task: str) -> OnPolicyRunnerCfg:
    """The settings that Isaac Lab has for quadrupeds on flat ground, with 512 environments instead
    of 4,096, and one step of the solver per step of the physics (5 ms) instead of two."""
    return OnPolicyRunnerCfg(
        experiment_name=name,
        env=IsaacLabEnvCfg(task=task, num_envs=512, overrides={"sim.physics.num_substeps": 1}),
        policy=_pack([128, 128, 128]),
        algorithm=PPOCfg(entropy_coef=0.01),
        num_steps_per_env=24,
        max_iterations=400,
        save_interval=25,
    )


def _pack(hidden: Sequence[int]) -> ActorCriticPackCfg:
    """An actor and a critic without normalisers, as in Isaac Lab."""
    backbone = plain_mlp(list(hidden), "ELU")
    return ActorCriticPackCfg(
        actor_cfg=StateIndStdActorCfg(backbone_cfg=backbone, obs_normalization=False),
        critic_cfg=VNetworkCfg(backbone_cfg=backbone, obs_normalization=False),
    )


_WORDS = InstructionEncoderCfg(vocabulary=vocabulary_of(["balance the pole"]))
_IMAGES = IsaacLabCfg(
    num_envs=16,
    chunk_length=2,
    cameras=["tiled_camera"],
    policy_group="critic",
    states=[
        StateTermCfg(key="joint_pos_rel", slice=[0, 1]),
        StateTermCfg(key="joint_vel_rel", slice=[0, 2]),
    ],
    action_bound=3.0,
    success="survived",
    max_episode_steps=150,
)


def compact_vla_isaaclab() -> SupervisedRunnerCfg:
    """Imitation of a policy of states: the angle of the pole has to be seen."""
    cfg = two_views_sft()
    return cfg.replace(
        experiment_name="compact-vla-isaaclab",
        dataset="isaaclab-cartpole",
        policy=cfg.policy.replace(
            cameras=list(_IMAGES.cameras),
            instruction_encoder=_WORDS,
            state_dim=_IMAGES.state_dim,
            action_dim=_IMAGES.action_dim,
        ),
        max_steps=1000,
    )


def isaaclab_grpo_compact() -> VLARLRunnerCfg:
    """GRPO of a policy of `compact-vla-isaaclab` (`init_from`): success is standing for 2.5 s."""
    cfg = other_simulator_grpo()
    assert isinstance(cfg.policy, CompactVLACfg)
    return cfg.replace(
        experiment_name="isaaclab-grpo-compact",
        policy=compact_vla_isaaclab().policy.replace(head=cfg.policy.head.replace(temperature=0.3)),
        env=_IMAGES,
        tasks=[_IMAGES.task],
        worker_timeout_s=600.0,
        max_rounds=8,
    )
