"""The golden data of openpi, and our policy of the same tiny sizes."""

import json
import typing

import numpy as np
import torch

from rrf.data.schema import ACTION, STATE
from rrf.networks.vlm.backbone import View
from rrf.networks.vlm.configs import ImageRuleCfg
from rrf.networks.vlm.paligemma.configs import GemmaCfg, PaliGemmaCfg, SiglipCfg
from rrf.policies.vla.context import Context
from rrf.policies.vla.heads.pi_configs import PiExpertHeadCfg
from rrf.policies.vla.published.pi_checkpoints import renamed
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from tests.golden_files import GOLDEN


class Golden(typing.NamedTuple):
    norms: dict[str, float]
    weights: dict[str, torch.Tensor]
    inputs: dict[str, torch.Tensor]
    outputs: dict[str, torch.Tensor]
    grads: dict[str, torch.Tensor]


def golden_pi(version: str) -> Golden:
    with np.load(GOLDEN / f"{version}.npz", allow_pickle=False) as data:
        config = json.loads(str(data["config_json"]))
        groups = [
            {
                key.removeprefix(f"{group}/"): torch.from_numpy(data[key])
                for key in data.files
                if key.startswith(f"{group}/")
            }
            for group in ("weights", "inputs", "outputs", "grads")
        ]
    return Golden(config["grad_norms_of_mean_loss"], *groups)


def stats(dims: int, scale: float = 1.0) -> dict[str, list[float]]:
    low, high = [-scale] * dims, [scale] * dims
    return {"mean": [0.0] * dims, "std": high, "min": low, "max": high, "q01": low, "q99": high}


def norm_stats(state_dim: int = 32, action_dim: int = 32) -> dict[str, dict]:
    return {STATE: stats(state_dim), ACTION: stats(action_dim)}


def tiny(version: str, head: dict | None = None, **changes) -> VLMPolicyCfg:
    """The sizes of the golden data."""
    backbone = PaliGemmaCfg(
        vision=SiglipCfg(width=32, depth=2, mlp_dim=48, num_heads=2),
        gemma=GemmaCfg(width=64, depth=2, mlp_dim=128, head_dim=16),
        vocabulary_size=300,
        image=ImageRuleCfg(size=(28, 28)),
    )
    expert = {"version": version, "width": 32, "mlp_dim": 64}
    sizes = {"cameras": ["a", "b", "c"], "image_size": (28, 28), "state_dim": 32, "action_dim": 32}
    return VLMPolicyCfg(
        backbone=backbone,
        head=PiExpertHeadCfg(**{**expert, **(head or {})}),
        **{**sizes, "chunk_length": 6, **changes},
    )


def golden_policy(version: str, head: dict | None = None):
    policy = tiny(version, head).build(norm_stats())
    policy.load_state_dict(renamed(golden_pi(version).weights))
    return policy.eval()


def golden_prefix(policy, inputs: dict[str, torch.Tensor]):
    return policy.backbone.prefix(
        inputs["images"].transpose(0, 1),
        inputs["img_masks"].T,
        inputs["tokens"],
        inputs["token_mask"],
    )


def golden_context(policy, inputs: dict[str, torch.Tensor]) -> Context:
    """The context of the golden inputs, whose images are floats and not pixels."""
    view = View((), inputs["img_masks"].T, ["", ""])
    context = Context(policy.backbone, view, inputs["state"], torch.zeros(2, dtype=torch.long))
    context.features = policy.backbone.read(golden_prefix(policy, inputs))
    return context
