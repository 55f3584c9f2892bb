"""lerobot's policies in our training loop: the numbers of lerobot's own loop, and all that follows
a training."""

import numpy as np
import pytest
import torch

from rrf.algorithms import BehaviorCloningCfg
from rrf.data.schema import ACTION, IMAGE_PREFIX, STATE
from rrf.policies.vla.lerobot.configs import LerobotPolicyCfg
from rrf.policies.vla.published import lerobot
from rrf.runners import AdamWCfg, EMACfg, ScheduleCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.deployed_vla import DeployedVLA
from rrf.runners.interruption import Interrupted
from rrf.runners.supervised.parallel import own_parts
from rrf.runners.supervised.runner import build_runner
from tests.policies.vla.lerobot.lerobot_cases import OPTIONS, as_lerobot
from tests.runners.supervised.conftest import tiny_run_cfg
from tests.runners.supervised.test_supervised_runner import (
    RecordingTracker,
    StopAfter,
    assert_same_bits,
)

STEPS, BATCH, CLIP = 6, 8, 1.0


def act_cfg(dataset, **changes):
    """A tiny ACT with all that is random in it: its variational encoder and dropout."""
    policy = LerobotPolicyCfg(kind="act", options=OPTIONS["act"], chunk_length=4)
    given = {
        "policy": policy,
        "algorithm": BehaviorCloningCfg(augmentation=None),
        "optimizer": AdamWCfg(lr=1e-3, weight_decay=1e-4),
        "schedule": ScheduleCfg(kind="constant"),
        "ema": None,
        "max_steps": STEPS,
        "batch_size": BATCH,
        "max_grad_norm": CLIP,
        "log_interval": 1,
        "validation_interval": STEPS,
        **changes,
    }
    return tiny_run_cfg(dataset, **given)


def losses_of_lerobot(runner, initial) -> list[float]:
    """The losses of lerobot's own policy, processors, optimizer and update on the same batches."""
    from accelerate import Accelerator
    from lerobot.policies.act.modeling_act import ACTPolicy
    from lerobot.policies.act.processor_act import make_act_pre_post_processors
    from lerobot.scripts.lerobot_train import update_policy
    from lerobot.utils.logging_utils import AverageMeter, MetricsTracker

    cfg, norm_stats = runner.cfg, runner.norm_stats
    policy = ACTPolicy(runner.policy.policy.config)
    policy.load_state_dict(initial)
    imagenet = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    stats = {key: {n: np.array(v) for n, v in norm_stats[key].items()} for key in (STATE, ACTION)}
    stats["observation.images.front"] = {
        name: np.array(values).reshape(3, 1, 1) for name, values in imagenet.items()
    }
    before, _ = make_act_pre_post_processors(policy.config, stats)
    # lerobot's default learning rate of the backbone is that of all the others.
    policy.config.optimizer_lr_backbone = cfg.optimizer.lr
    optimizer = torch.optim.AdamW(
        policy.get_optim_params(), lr=cfg.optimizer.lr, weight_decay=cfg.optimizer.weight_decay
    )
    meters = {name: AverageMeter(name, ":f") for name in ("loss", "grad_norm", "lr", "update_s")}
    tracker = MetricsTracker(BATCH, 1, 1, meters)
    accelerator, losses = Accelerator(cpu=True), []
    for step in range(STEPS):
        frames = runner.split.training.draw(BATCH, cfg.seed, step)
        (part,) = own_parts(cfg, frames, step)
        drawn = runner.split.training.batch(part.frames)
        batch = as_lerobot(drawn.observation, ["front"])
        batch |= {ACTION: torch.from_numpy(drawn.action)}
        batch |= {"action_is_pad": torch.from_numpy(drawn.is_pad)}
        torch.manual_seed(part.seed)
        update_policy(tracker, policy, before(batch), optimizer, CLIP, accelerator)
        losses.append(tracker.loss.val)
    return losses


def test_our_loop_computes_what_lerobots_loop_computes(dataset, tmp_path):
    runner, tracker = build_runner(act_cfg(dataset), tmp_path), RecordingTracker()
    initial = {name: value.clone() for name, value in runner.policy.policy.state_dict().items()}
    runner.run(tracker)
    losses = [metrics["loss/total"] for _, metrics in tracker.rows]
    assert losses == pytest.approx(losses_of_lerobot(runner, initial), rel=1e-5)
    assert losses[-1] < losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["act", "diffusion"])
def test_a_trained_policy_resumes_and_is_deployed_like_every_other(kind, dataset, tmp_path):
    policy = LerobotPolicyCfg(kind=kind, options=OPTIONS[kind], chunk_length=4)
    cfg = act_cfg(dataset, policy=policy, ema=EMACfg(decay=0.9), max_steps=8, save_interval=4)
    straight = build_runner(cfg, tmp_path / "straight")
    found = straight.run()
    assert found["metrics"]["validation/total"] > 0
    stop = StopAfter(3)
    with pytest.raises(Interrupted):
        build_runner(cfg, tmp_path / "resumed").run(on_progress=stop, signals=stop)
    resumed = build_runner(cfg, tmp_path / "resumed")
    resumed.run()
    assert_same_bits(straight, resumed)

    seen = straight.split.training.batch(np.arange(3)).observation
    generators = [[torch.Generator().manual_seed(seed) for seed in range(3)] for _ in range(3)]
    expected = straight.deployed.sample(seen, generators[0]).actions
    saved = checkpoint.export(found["checkpoint"], tmp_path / "deployable")
    loaded = checkpoint.load_policy(saved)
    np.testing.assert_allclose(loaded.sample(seen, generators[1]).actions, expected, atol=1e-6)
    inputs = {IMAGE_PREFIX + "front": seen.images["front"], STATE: seen.state}
    answer = DeployedVLA(saved).answer({**inputs, "instruction": np.array(seen.instruction)}, {})
    np.testing.assert_array_equal(answer, loaded.sample(seen, greedy=True).actions)
    theirs, _ = lerobot.read(lerobot.write(loaded, tmp_path / "pretrained_model"))
    np.testing.assert_allclose(theirs.sample(seen, generators[2]).actions, expected, atol=1e-6)
