"""Published checkpoints of GR00T N1.5 and N1.7: nvidia/GR00T-N1.5-3B and their fine-tuned kin.

    backbone.model.*          N1.7: Qwen3-VL, in transformers' names (with lm_head, which is unused)
    backbone.eagle_model.*    N1.5: Eagle 2.5. A checkpoint with backbone.eagle_linear.*, a layer
                              after it that the configuration of N1.5 leaves out, is refused.
    action_head.*             the head, in the names of `rrf.policies.vla.heads.groot`

Only safetensors files are read. A file with a name that we do not know, or without one that we
need, is refused.
"""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from rrf.data.dataset.floors import FloorsCfg
from rrf.data.formats.groot_metadata import KINDS, NUMBERS, EmbodimentData, write_metadata
from rrf.data.schema import ACTION, STATE
from rrf.networks import tensor_files
from rrf.networks.vlm.build import merged_weights
from rrf.networks.vlm.configs import ImageRuleCfg
from rrf.networks.vlm.eagle.configs import N15_IMAGE, EagleCfg
from rrf.networks.vlm.weights import fill, read_shapes
from rrf.policies.vla.heads.groot import GrootHead
from rrf.policies.vla.published import groot_n17
from rrf.policies.vla.vlm import VLMPolicy

HEAD = "action_head."
BACKBONES = {"n15": "backbone.eagle_model.", "n17": "backbone.model."}
WEIGHTS = "model.safetensors"
MODEL_TYPES = {"n15": "gr00t_n1_5", "n17": "Gr00tN1d7"}
"""`model_type` in config.json. That of N1.7 follows the one of N1.6 and was not verified."""
_FAR = 1e8
_OURS = "rrf"  # in config.json: how a policy of rrf sees images
_OWN = "explore_noise."  # parts of our head that no published file has


def image_of_n15(config: Mapping, backbone: EagleCfg) -> ImageRuleCfg:
    """How a published N1.5 sees images: as gr00t's data configs prepare them, which its files do
    not hold, or as the policy of rrf did that was written into the folder."""
    if ours := config.get(_OURS):
        return ImageRuleCfg.from_dict(ours["image"])
    return N15_IMAGE.replace(size=backbone.image.size)


def stats_of_n15(stats: Mapping[str, Mapping]) -> dict[str, dict]:
    """Statistics with which, by minimum and maximum, what never moved is 0 as state, as in N1.5,
    and keeps its value as action, up to a floor: fine-tuning divides by what N1.5 leaves at 0."""
    results = {}
    for key, half in ((STATE, _FAR), (ACTION, FloorsCfg().absolute)):
        low, high = (np.asarray(stats[key][name], np.float64) for name in ("min", "max"))
        results[key] = {
            **stats[key],
            "min": np.where(low == high, low - half, low).tolist(),
            "max": np.where(low == high, high + half, high).tolist(),
        }
    return results


def head_name(name: str) -> str | None:
    """Our name of a published tensor of the head; None for one of the backbone."""
    return name.removeprefix(HEAD) if name.startswith(HEAD) else None


def load_head(head: GrootHead, folder: str | Path) -> None:
    """Copy a published head into ours.

    Raises:
        ValueError: If names or shapes do not agree, or if a file is no safetensors file.
    """
    _require_no_std_network(head)
    fill(head, folder, head_name, f"GR00T's head ({head.cfg.version})")


def load_policy(policy: VLMPolicy, folder: str | Path) -> None:
    """Copy a published checkpoint into a policy with GR00T's head and the backbone it has.

    Raises:
        ValueError: If names or shapes do not agree; nothing is loaded then into the part at fault.
    """
    head = _head_of(policy)
    prefix = BACKBONES[head.cfg.version]
    strange = [n for n in read_shapes(folder) if not n.startswith((HEAD, prefix))]
    if strange:
        raise ValueError(
            f"{folder} has {strange[0]}, but a checkpoint of GR00T {head.cfg.version} only has "
            f"names that begin with {HEAD} or {prefix}; is it one of another family or version?"
        )
    load_head(head, folder)

    def backbone_name(name: str) -> str | None:
        if not name.startswith(prefix):
            return None
        return policy.backbone.published_name(name.removeprefix(prefix))

    fill(policy.backbone, folder, backbone_name, f"the {type(policy.cfg.backbone).__name__}")


def published_weights(policy: VLMPolicy) -> dict[str, torch.Tensor]:
    """The weights of a policy under their published names, with adapters merged into them; without
    an unused lm_head."""
    head = _head_of(policy)
    _require_no_std_network(head)
    prefix = BACKBONES[head.cfg.version]
    return {
        **{HEAD + name: value for name, value in merged_weights(head).items()},
        **{prefix + name: value for name, value in merged_weights(policy.backbone).items()},
    }


def write(policy: VLMPolicy, norm_stats: Mapping, folder: str | Path, tag: str) -> None:
    """Write weights, config.json, the statistics (experiment_cfg/metadata.json) and tokenizer; for
    N1.7 also the files of its processor, if they can say how the policy prepares its inputs.

    Each camera, the state and the action are one part of their group.

    Args:
        policy: A policy with GR00T's head.
        norm_stats: Those it was built with.
        folder: A directory that does not exist or is empty.
        tag: The embodiment under which the statistics are written.

    Raises:
        ValueError: If the head is another one, or if a statistic that GR00T needs is missing.
    """
    folder, head = Path(folder), _head_of(policy)
    weights = published_weights(policy)
    height, width = policy.cfg.image_size
    video = {"resolution": [width, height], "channels": 3, "fps": None}
    statistics, parts = {}, {}
    for kind, key in KINDS.items():
        lacking = [name for name in NUMBERS if name not in norm_stats[key]]
        if lacking:
            raise ValueError(
                f"the policy's statistics of {key} lack {', '.join(lacking)}, which GR00T's "
                "metadata.json has"
            )
        values = {name: list(norm_stats[key][name]) for name in NUMBERS}
        statistics[kind] = {kind: values}
        part = {"absolute": True, "rotation_type": None, "continuous": True}
        parts[kind] = {kind: {**part, "shape": [len(values["min"])]}}
    modalities = {"video": dict.fromkeys(policy.cfg.cameras, video), **parts}
    folder.mkdir(parents=True, exist_ok=True)
    tensor_files.write(folder / WEIGHTS, weights, {"format": "pt"})
    config = {
        "model_type": MODEL_TYPES[head.cfg.version],
        "action_horizon": policy.cfg.head_steps,
        "action_dim": head.cfg.max_action_dim,
        _OURS: {"image": policy.cfg.backbone.image.to_dict()},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    write_metadata(folder, {tag: EmbodimentData(statistics, modalities)})
    if head.cfg.version == "n17":
        if groot_n17.can_write(policy.cfg):
            slot = policy.cfg.embodiment_slot(policy.cfg.embodiment)
            groot_n17.write(folder, policy.cfg, statistics, tag, slot)
        else:
            warnings.warn(
                "no processor_config.json is written, because it could not say how this policy "
                "prepares images, instructions or states (those of groot-n17-sft can)",
                stacklevel=2,
            )
    for name, text in policy.backbone.assets().items():
        (folder / name).write_text(text, encoding="utf-8")


def _head_of(policy: VLMPolicy) -> GrootHead:
    if not isinstance(policy.head, GrootHead):
        raise ValueError(
            f"the policy has a {type(policy.head).__name__}, but GR00T's checkpoints need a "
            "GrootHead; choose one of the presets groot-n15-sft and groot-n17-sft"
        )
    return policy.head


def _require_no_std_network(head: GrootHead) -> None:
    if any(name.startswith(_OWN) for name in head.state_dict()):
        raise ValueError(
            "the head has a std network (noise_method: reinflow), which published checkpoints do "
            "not have; load or export with another noise_method"
        )
