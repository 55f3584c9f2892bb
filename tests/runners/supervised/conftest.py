"""A tiny imitation problem on disk: 16 px images of two coloured squares, one of which the
instruction names.

The expert moves towards the named square, so neither the image nor the instruction alone tells the
action.
"""

import json

import numpy as np
import pytest

from rrf.algorithms import AugmentationCfg, BehaviorCloningCfg
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.dataset.stats import norm_stats
from rrf.data.schema import Episode, Schema, Vector
from rrf.networks import ImageEncoderCfg, InstructionEncoderCfg, MLPCfg
from rrf.policies import CompactVLACfg
from rrf.runners import AdamWCfg, EMACfg, SupervisedRunnerCfg

SIZE = 16
INSTRUCTIONS = ("go to the red square", "go to the blue square")
SCHEMA = Schema(
    fps=16,
    image_size=(SIZE, SIZE),
    cameras=("front",),
    state=Vector(("x", "y"), "m"),
    action=Vector(("dx", "dy"), "1", (-1.0, -1.0), (1.0, 1.0)),
    has_reward=False,
    has_success=False,
)


def make_episode(number: int, length: int = 12) -> Episode:
    rng = np.random.default_rng(number)
    squares, target = rng.integers(0, SIZE - 4, (2, 2)), number // 4 % 2
    image = np.full((SIZE, SIZE, 3), 40, np.uint8)
    for color, (row, column) in zip((0, 2), squares, strict=True):
        image[row : row + 4, column : column + 4, color] = 250
    goal = (squares[target][::-1] + 2) / SIZE * 2 - 1
    position, states, actions = rng.uniform(-1, 1, 2), [], []
    for _ in range(length):
        states.append(position)
        actions.append(np.clip((goal - position) * 2, -1, 1))
        position = position + 0.2 * actions[-1]
    return Episode(
        images={"front": np.repeat(image[None], length, 0)},
        state=np.array(states, np.float32),
        action=np.array(actions, np.float32),
        instruction=INSTRUCTIONS[target],
        source=f"synthetic:{number}",
    )


def write_synthetic(root, num_episodes: int):
    write_dataset(root, SCHEMA, (make_episode(number) for number in range(num_episodes)))
    (root / "norm_stats.json").write_text(json.dumps(norm_stats(root)))
    return root


def tiny_policy_cfg(**changes) -> CompactVLACfg:
    cfg = CompactVLACfg(
        cameras=["front"],
        image_size=(SIZE, SIZE),
        state_dim=2,
        action_dim=2,
        chunk_length=2,
        image_encoder=ImageEncoderCfg(
            channels=[8, 16],
            kernel_sizes=[3, 3],
            strides=[2, 2],
            num_film_layers=1,
            out_features=32,
        ),
        instruction_encoder=InstructionEncoderCfg(
            vocabulary=["blue", "go", "red", "square", "the", "to"], out_features=8
        ),
        state_features=8,
        trunk=MLPCfg(hidden_features=[32], activations=[[("ReLU", {})], [("ReLU", {})]]),
        features=32,
    )
    return cfg.replace(**changes)


def tiny_run_cfg(dataset, **changes) -> SupervisedRunnerCfg:
    cfg = SupervisedRunnerCfg(
        experiment_name="tiny",
        dataset=str(dataset),
        trackers=[],
        policy=tiny_policy_cfg(),
        algorithm=BehaviorCloningCfg(augmentation=AugmentationCfg(shift_px=1, state_noise=0.02)),
        optimizer=AdamWCfg(lr=3e-3),
        ema=EMACfg(decay=0.9),
        max_steps=20,
        batch_size=16,
        validation_fraction=0.25,
        validation_interval=10,
        save_interval=10,
        log_interval=5,
    )
    return cfg.replace(**changes)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory):
    return write_synthetic(tmp_path_factory.mktemp("datasets") / "squares", num_episodes=8)
