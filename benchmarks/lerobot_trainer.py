"""Our training loop beside lerobot's on the same policies and data: `python -m
benchmarks.lerobot_trainer [ID ...] [--dataset DATASET]`

Samples per CPU-second, one thread each, in one process, in turns. lerobot's side is its own
LeRobotDataset in a DataLoader without workers, its processors, and `update_policy` of its training
script with its optimizer. Both read the images that the dataset holds as JPEG or PNG; ours decodes
each once, before the measurement, as every run does in its first epoch, and lerobot each time.
"""

import argparse
import functools
import json
import tempfile
import typing
from pathlib import Path

import numpy as np

from benchmarks import harness
from benchmarks.clock import median_cpu_s
from benchmarks.harness import Bench
from benchmarks.peers import PEERS
from rrf import workspace
from tests.policies.vla.lerobot.tiny_smolvlm import write_tiny_smolvlm

STEPS, ROUNDS, BATCH, CHUNK = 10, 5, 32, 8
SEED = 0
SMOLVLA = {
    "num_vlm_layers": 2,
    "resize_imgs_with_padding": [32, 32],
    "max_state_dim": 8,
    "max_action_dim": 8,
    "expert_width_multiplier": 0.5,
}
ACT = {
    "dim_model": 128,
    "n_heads": 4,
    "dim_feedforward": 512,
    "n_encoder_layers": 2,
    "n_vae_encoder_layers": 2,
}


class Ours:
    """Trains with our runner."""

    def __init__(self, kind: str, options: dict, dataset: str, folder: Path):
        from rrf.algorithms import BehaviorCloningCfg
        from rrf.policies.vla.lerobot.configs import LerobotPolicyCfg
        from rrf.runners import SupervisedRunnerCfg
        from rrf.runners.supervised.runner import build_runner

        cfg = SupervisedRunnerCfg(
            dataset=dataset,
            policy=LerobotPolicyCfg(kind=kind, options=options, chunk_length=CHUNK),
            algorithm=BehaviorCloningCfg(augmentation=None),
            ema=None,
            batch_size=BATCH,
            max_grad_norm=10.0,
            seed=SEED,
        )
        self.runner = build_runner(cfg, folder)
        frames = self.runner.split.training
        frames.batch(np.arange(frames.num_frames))  # decode once, outside the measurement

    def step(self) -> None:
        self.runner._train_step()


class Lerobots:
    """Trains with lerobot's loop a policy of the same config."""

    def __init__(self, config: typing.Any, dataset: str):
        from accelerate import Accelerator
        from lerobot.datasets.lerobot_dataset import LeRobotDataset
        from lerobot.policies.factory import get_policy_class, make_pre_post_processors
        from lerobot.utils.constants import IMAGENET_STATS
        from lerobot.utils.logging_utils import AverageMeter, MetricsTracker
        from lerobot.utils.utils import cycle
        from torch.utils.data import DataLoader

        root = workspace.dataset(dataset)
        fps = json.loads((Path(root) / "meta" / "info.json").read_text())["fps"]
        steps = {"action": [step / fps for step in range(CHUNK)]}
        data = LeRobotDataset(f"local/{Path(root).name}", root=root, delta_timestamps=steps)
        stats: typing.Any = data.meta.stats
        for camera in data.meta.camera_keys:
            stats[camera] |= {n: np.array(v) for n, v in IMAGENET_STATS.items()}
        self.before, _ = make_pre_post_processors(config, dataset_stats=stats)
        self.policy = get_policy_class(config.type)(config)
        self.optimizer = config.get_optimizer_preset().build(self.policy.get_optim_params())
        self.batches = cycle(DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=0))
        meters = {n: AverageMeter(n, ":f") for n in ("loss", "grad_norm", "lr", "update_s")}
        self.tracker = MetricsTracker(BATCH, len(data), data.num_episodes, meters)
        self.accelerator = Accelerator(cpu=True)

    def step(self) -> None:
        from lerobot.scripts.lerobot_train import update_policy

        batch = self.before(next(self.batches))
        update_policy(self.tracker, self.policy, batch, self.optimizer, 10.0, self.accelerator)


def measure(name: str, kind: str, options: dict, bench: Bench) -> dict:
    """Samples per CPU-second of our loop, beside those of lerobot's."""
    import torch

    torch.set_num_threads(1)
    dataset, steps = bench.options.dataset, bench.size(STEPS, 1)
    with tempfile.TemporaryDirectory() as folder:
        if kind == "smolvla":
            options = {**options, "vlm_model_name": write_tiny_smolvlm(Path(folder, "vlm"))}
        ours = Ours(kind, options, dataset, Path(folder, "run"))
        peer = Lerobots(ours.runner.policy.policy.config, dataset)
        rounds = bench.size(ROUNDS, 1)
        ours_s, peer_s = median_cpu_s(ours.step, peer.step, repeats=rounds, times=steps)
    return bench.compare(
        name,
        BATCH / ours_s,
        "samples/CPU-s",
        f"{PEERS['lerobot'].name}'s training loop",
        BATCH / peer_s,
        seeds=[SEED],
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dataset", default="metaworld-demo")


IDS = {
    name: functools.partial(measure, name, kind, options)
    for name, kind, options in (
        ("lerobot_act_samples_per_cpu_s", "act", ACT),
        ("lerobot_smolvla_tiny_samples_per_cpu_s", "smolvla", SMOLVLA),
    )
}


if __name__ == "__main__":
    harness.main("lerobot_trainer", __doc__, IDS, add_options=add_options)
