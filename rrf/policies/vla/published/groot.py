"""Published checkpoints of GR00T N1.5 and N1.7: nvidia/GR00T-N1.5-3B and their fine-tuned kin.

    backbone.model.*          N1.7: Qwen3-VL, in transformers' names (with lm_head, which is unused)
    backbone.eagle_model.*    N1.5: Eagle 2.5. A checkpoint with backbone.eagle_linear.*, a layer
                              after it that the configuration of N1.5 leaves out, is refused.
    action_head.*             the head, in the names of `rrf.policies.vla.heads.groot`

Only safetensors files are read. A file with a name that we do not know, or without one that we
need, is refused.
"""

from collections.abc import Mapping
from pathlib import Path

import torch

from rrf.networks.vlm.weights import fill, read_shapes
from rrf.policies.vla.heads.groot import GrootHead
from rrf.policies.vla.vlm import VLMPolicy

HEAD = "action_head."
BACKBONES = {"n15": "backbone.eagle_model.", "n17": "backbone.model."}
_OWN = "explore_noise."  # parts of our head that no published file has


def head_name(name: str) -> str | None:
    """Our name of a published tensor of the head; None for one of the backbone."""
    return name.removeprefix(HEAD) if name.startswith(HEAD) else None


def load_head(head: GrootHead, folder: str | Path) -> None:
    """Copy a published head into ours.

    Raises:
        ValueError: If names or shapes do not agree, or if a file is no safetensors file.
    """
    _require_no_own(head)
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
    """The weights of a policy under their published names; without an unused lm_head."""
    head = _head_of(policy)
    _require_no_own(head)
    prefix = BACKBONES[head.cfg.version]
    named: Mapping[str, torch.Tensor] = {
        **{HEAD + name: value for name, value in head.state_dict().items()},
        **{prefix + name: value for name, value in policy.backbone.state_dict().items()},
    }
    return dict(named)


def _head_of(policy: VLMPolicy) -> GrootHead:
    if not isinstance(policy.head, GrootHead):
        raise ValueError(
            f"the policy has a {type(policy.head).__name__}, but GR00T's checkpoints need a "
            "GrootHead; choose one of the presets groot-n15-sft and groot-n17-sft"
        )
    return policy.head


def _require_no_own(head: GrootHead) -> None:
    if any(name.startswith(_OWN) for name in head.state_dict()):
        raise ValueError(
            "the head has a std network (noise_method: reinflow), which published checkpoints do "
            "not have; load or export with another noise_method"
        )
