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


def norm_stats(state_dim: int, action_dim: int) -> dict[str, dict]:
    return {STATE: stats(state_dim), ACTION: stats(action_dim)}


def sizes(version: str = "pi0") -> dict:
    """The sizes of a golden file."""
    with np.load(GOLDEN / f"{version}.npz", allow_pickle=False) as data:
        return json.loads(str(data["config_json"]))["weights"]


def tiny(version: str, head: dict | None = None, **changes) -> VLMPolicyCfg:
    """A policy of the sizes of the golden data."""
    golden = sizes(version)
    vision, expert, dims = golden["vis"], golden["exp"], golden["action_dim"]
    image_size = (vision["image_size"], vision["image_size"])
    backbone = PaliGemmaCfg(
        vision=SiglipCfg(
            width=vision["hidden_size"],
            depth=vision["num_hidden_layers"],
            mlp_dim=vision["intermediate_size"],
            num_heads=vision["num_attention_heads"],
            patch_size=vision["patch_size"],
        ),
        gemma=GemmaCfg(**golden["vlm"]),
        vocabulary_size=golden["vocab"],
        image=ImageRuleCfg(size=image_size),
    )
    expert = {key: expert[key] for key in ("width", "mlp_dim", "num_heads")}
    robot = {"cameras": [f"{number}" for number in range(len(golden["img"]))]}
    robot |= {"image_size": image_size, "state_dim": dims, "action_dim": dims}
    return VLMPolicyCfg(
        backbone=backbone,
        head=PiExpertHeadCfg(**{"version": version, "max_dims": dims, **expert, **(head or {})}),
        **{**robot, "chunk_length": golden["horizon"], **changes},
    )


def golden_policy(version: str, head: dict | None = None):
    cfg = tiny(version, head)
    policy = cfg.build(norm_stats(cfg.state_dim, cfg.action_dim))
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
    batch = len(inputs["state"])
    view = View((), inputs["img_masks"].T, [""] * batch)
    context = Context(policy.backbone, view, inputs["state"], torch.zeros(batch, dtype=torch.long))
    context.features = policy.backbone.read(golden_prefix(policy, inputs))
    return context
