"""How a policy learns the toy tasks: a little imitation, then reinforcement."""

from rrf.algorithms import BehaviorCloningCfg, GRPOCfg
from rrf.networks import ImageEncoderCfg, InstructionEncoderCfg, MLPCfg
from rrf.policies import CompactVLACfg, GaussianHeadCfg
from rrf.runners import AdamWCfg, EMACfg, SupervisedRunnerCfg
from rrf.runners.dagger.configs import DAggerRunnerCfg
from rrf.runners.vla_rl.configs import VLARLRunnerCfg

from .configs import INSTRUCTIONS, ToyCfg


def policy() -> CompactVLACfg:
    """A small policy of 16 px images."""
    words = sorted({word for sentence in INSTRUCTIONS.values() for word in sentence.split()})
    return CompactVLACfg(
        cameras=["top"],
        image_size=(16, 16),
        state_dim=2,
        action_dim=2,
        chunk_length=2,
        image_encoder=ImageEncoderCfg(
            channels=[8, 16],
            kernel_sizes=[3, 3],
            strides=[2, 2],
            num_film_layers=2,
            out_features=48,
        ),
        instruction_encoder=InstructionEncoderCfg(vocabulary=words, out_features=8),
        state_features=8,
        trunk=MLPCfg(hidden_features=[48], activations=[[("ReLU", {})], [("ReLU", {})]]),
        features=48,
        head=GaussianHeadCfg(),
    )


def sft() -> SupervisedRunnerCfg:
    """Imitation of the dataset `toy`."""
    return SupervisedRunnerCfg(
        experiment_name="toy-sft",
        dataset="toy",
        policy=policy(),
        algorithm=BehaviorCloningCfg(),
        optimizer=AdamWCfg(lr=3e-3),
        max_steps=300,
        batch_size=32,
        validation_fraction=0.0,
        save_interval=300,
        trackers=[],
    )


def grpo() -> VLARLRunnerCfg:
    """GRPO; give `init_from=<checkpoint of toy-sft>`."""
    return VLARLRunnerCfg(
        experiment_name="toy-grpo",
        policy=policy(),
        env=ToyCfg(num_envs=16, max_episode_steps=8),
        tasks=list(INSTRUCTIONS),
        algorithm=GRPOCfg(),
        num_groups=12,
        max_groups=36,
        optimizer=AdamWCfg(lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0),
        ema=EMACfg(decay=0.9),
        max_rounds=20,
        validation_interval=10,
        validation_episodes=20,
        trackers=[],
    )


def dagger() -> DAggerRunnerCfg:
    """DAgger; give `init_from=<checkpoint of toy-sft>`."""
    cloning = sft()
    return DAggerRunnerCfg(
        experiment_name="toy-dagger",
        dataset=cloning.dataset,
        policy=cloning.policy,
        optimizer=cloning.optimizer,
        batch_size=cloning.batch_size,
        max_steps=150,
        env=ToyCfg(num_envs=16, max_episode_steps=8),
        tasks=list(INSTRUCTIONS),
        episodes_per_task=10,
        max_rounds=2,
        validation_episodes=20,
        trackers=[],
    )
