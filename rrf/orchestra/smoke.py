"""A short run of all roles, to see that a machine or a cluster can play and train.

A small policy with random weights learns by PPO on two tasks for a few rounds. It learns nothing
worth keeping; what is checked is that every part works together.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from rrf.algorithms.vla.configs import VLAPPOCfg
from rrf.envs.metaworld.configs import ACTION_NAMES, STATE_NAMES, MetaWorldCfg
from rrf.lineage import Lineage
from rrf.networks import ImageEncoderCfg
from rrf.policies.vla.configs import CompactVLACfg, GaussianHeadCfg, ValueHeadCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.vla_rl.configs import RayCfg, VLARLRunnerCfg
from rrf.runners.vla_rl.roles import RoundProgress

_TASKS = ["drawer-open-v3", "window-open-v3"]
_SIDE = 32
_STATS = {
    "observation.state": {"mean": [0.0, 0.6, 0.2, 0.5], "std": [0.1, 0.1, 0.1, 0.5]},
    "action": {"min": [-1.0] * len(ACTION_NAMES), "max": [1.0] * len(ACTION_NAMES)},
}


def smoke(
    ray: RayCfg | None, num_rounds: int, on_progress: Callable[[RoundProgress], None]
) -> None:
    """Run some rounds.

    Args:
        ray: Where the roles run; None for the inline backend with two environment processes.
        num_rounds: Rounds of a few short episodes.
        on_progress: Called after each.

    Raises:
        ValueError: If Ray is not installed, if no cluster answers, or if a role fails.
    """
    policy = CompactVLACfg(
        image_size=(_SIDE, _SIDE),
        state_dim=len(STATE_NAMES),
        action_dim=len(ACTION_NAMES),
        image_encoder=ImageEncoderCfg(
            channels=[8, 8], kernel_sizes=[3, 3], strides=[4, 2], num_film_layers=1, out_features=32
        ),
        head=GaussianHeadCfg(initial_std=0.5),
        value_head=ValueHeadCfg(),
    )
    cfg = VLARLRunnerCfg(
        experiment_name="smoke",
        policy=policy,
        env=MetaWorldCfg(num_envs=4, max_episode_steps=6, image_size=_SIDE),
        tasks=_TASKS,
        algorithm=VLAPPOCfg(num_epochs=1),
        num_groups=8,
        max_groups=8,
        max_rounds=num_rounds,
        validation_episodes=1,
        validation_interval=num_rounds,
        save_interval=num_rounds,
        inference_batch=4,
        trackers=[],
        ray=ray,
    )
    with tempfile.TemporaryDirectory() as scratch, torch.random.fork_rng():
        torch.manual_seed(0)
        parent = checkpoint.save(
            Path(scratch, "parent"),
            0,
            SupervisedRunnerCfg(policy=policy),
            policy.build(_STATS).state_dict(),
            _STATS,
            checkpoint.TrainerState({}, {}),
            Lineage(),
        )
        cfg.replace(init_from=str(parent)).build(Path(scratch, "run")).run(on_progress=on_progress)
