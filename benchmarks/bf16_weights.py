"""How many weights does a small step not change if they are kept in bfloat16?
`python -m benchmarks.bf16_weights`

Trains the small pi0 with weights in bfloat16 and in float32, on the same random batches, with the
optimizer of pi0-sft at its peak learning rate. Prints the share of weights with a gradient that a
step leaves as they were.
"""

import numpy as np
import torch

from benchmarks.vla_gpu import batch_of, stats_of
from rrf.data.schema import ACTION, STATE
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets import resolve
from rrf.runners.optimizers import build_adamw
from rrf.runners.supervised.configs import SupervisedRunnerCfg

STEPS = 10
ROWS = 4


def unchanged_share(dtype: str) -> float:
    """The mean over the steps of the share of unchanged weights."""
    small, real = resolve("pi0-laptop"), resolve("pi0-sft")
    assert isinstance(small, SupervisedRunnerCfg)
    assert isinstance(real, SupervisedRunnerCfg)
    cfg = small.policy
    assert isinstance(cfg, VLMPolicyCfg)
    cfg = cfg.replace(
        backbone=cfg.backbone.replace(dtype=dtype), head=cfg.head.replace(dtype=dtype),
        cameras=["front"], image_size=(64, 64), state_dim=4, action_dim=4,
    )  # fmt: skip
    torch.manual_seed(0)
    policy = cfg.build({STATE: stats_of(4), ACTION: stats_of(4)})
    optimizer = build_adamw(policy, real.optimizer)
    rng, shares = np.random.default_rng(0), []
    for _ in range(STEPS):
        loss, _ = policy.loss(batch_of(cfg, rng, ROWS))
        optimizer.zero_grad()
        loss.backward()
        learned = [p for p in policy.parameters() if p.grad is not None]
        before = [p.detach().clone() for p in learned]
        optimizer.step()
        same = total = 0
        for parameter, old in zip(learned, before, strict=True):
            assert parameter.grad is not None
            moves = parameter.grad != 0
            same += int(((parameter == old) & moves).sum())
            total += int(moves.sum())
        shares.append(same / total)
    return float(np.mean(shares))


def main() -> None:
    for dtype in ("bf16", "fp32"):
        print(f"{dtype}: {unchanged_share(dtype):.1%} of the weights unchanged by a step")


if __name__ == "__main__":
    main()
