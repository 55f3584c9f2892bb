"""How a policy learns to push: a little imitation, then reinforcement."""

from rrf.algorithms import BehaviorCloningCfg, GRPOCfg
from rrf.networks import ImageEncoderCfg, InstructionEncoderCfg, MLPCfg
from rrf.networks.vocabulary import vocabulary_of
from rrf.policies import CompactVLACfg, GaussianHeadCfg
from rrf.runners import AdamWCfg, EMACfg, SupervisedRunnerCfg
from rrf.runners.vla_rl.configs import VLARLRunnerCfg

from .configs import INSTRUCTIONS, PusherCfg


def policy() -> CompactVLACfg:
    """A small policy of 32 px images."""
    return CompactVLACfg(
        cameras=["front"],
        image_size=(32, 32),
        state_dim=2,
        action_dim=2,
        chunk_length=2,
        image_encoder=ImageEncoderCfg(
            channels=[16, 32, 32],
            kernel_sizes=[3, 3, 3],
            strides=[2, 2, 2],
            num_film_layers=2,
            out_features=64,
        ),
        instruction_encoder=InstructionEncoderCfg(
            vocabulary=vocabulary_of(INSTRUCTIONS.values()), out_features=8
        ),
        state_features=8,
        trunk=MLPCfg(hidden_features=[64], activations=[[("ReLU", {})], [("ReLU", {})]]),
        features=64,
        head=GaussianHeadCfg(),
    )


def sft() -> SupervisedRunnerCfg:
    """Imitation of the dataset `pusher`."""
    return SupervisedRunnerCfg(
        experiment_name="pusher-sft",
        dataset="pusher",
        policy=policy(),
        algorithm=BehaviorCloningCfg(),
        optimizer=AdamWCfg(lr=3e-3),
        max_steps=400,
        batch_size=32,
        validation_fraction=0.0,
        save_interval=400,
        trackers=[],
    )


def grpo() -> VLARLRunnerCfg:
    """GRPO; give `init_from=<checkpoint of pusher-sft>`."""
    return VLARLRunnerCfg(
        experiment_name="pusher-grpo",
        policy=policy(),
        env=PusherCfg(num_envs=16),
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
