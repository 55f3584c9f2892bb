"""config.json of OpenVLA-OFT whose chunks are tokens of the language, as RLinf (arXiv:2510.06710)
and SimpleVLA-RL (arXiv:2509.09674) train it.

RLinf writes its whole model config into it, SimpleVLA-RL use_proprio and proprio_dim. RLinf has two
versions of the model. "official" is that of OpenVLA-OFT: the end token stands after the slots.
"rlinf" leaves it out, and resizes images by torchvision's bicubic filter without cutting them.
"""

from collections.abc import Mapping
from pathlib import Path

from rrf.networks.vlm.configs import ImageRuleCfg
from rrf.networks.vlm.prismatic.configs import OPENVLA_IMAGE, PrismaticCfg
from rrf.policies.vla.heads.oft_configs import (
    OFTDiffusionHeadCfg,
    OFTRegressionHeadCfg,
    OFTTokenHeadCfg,
)
from rrf.policies.vla.published.settings import Settings
from rrf.policies.vla.vlm_configs import VLMPolicyCfg

_VERSIONS = ("rlinf", "official")
_ALOHA_DIM = 14
_END = 2  # Llama's end token
_CODE, _MARK = "modeling_prismatic.py", "NUM_ACTIONS_CHUNK"
_LOADING = "it says how the original loads the weights"
_NAMES = "the names of the weights say it"
_CRITIC = "it belongs to the critic of training, which is not read"
_DEAD = "nothing reads it"
SETTINGS = Settings(
    honoured=(
        *("num_action_chunks", "action_dim", "use_proprio", "proprio_dim", "use_film"),
        *("num_images_in_input", "image_size", "center_crop", "unnorm_key"),
        *("vocab_size", "hidden_size"),
    ),
    harmless={
        "value_type": _CRITIC,
        "add_value_head": _CRITIC,
        "max_prompt_length": "it says to which length prompts are padded, and padding is masked",
        "policy_setup": "it says how RLinf's environment reads actions",
        "is_lora": _NAMES,
        "lora_rank": _NAMES,
        "lora_path": _NAMES,
        "model_path": _LOADING,
        "precision": _LOADING,
        "attn_implementation": _LOADING,
        "low_cpu_mem_usage": _LOADING,
        "trust_remote_code": _LOADING,
        "add_bias_linear": _DEAD,
        "add_qkv_bias": _DEAD,
    },
    only={"implement_version": (_VERSIONS, f"known are {' and '.join(_VERSIONS)}")},
)
"""What RLinf and SimpleVLA-RL add to OpenVLA's settings."""
TOKENS, PLAIN, REGRESSION = "openvla-oft-tokens-sft", "openvla-sft", "openvla-oft-sft"


def preset_of(folder: Path, config: Mapping, is_tuned: bool) -> str:
    """The preset whose policy is that of a folder.

    Args:
        folder: A checkpoint of OpenVLA's family.
        config: Its config.json.
        is_tuned: Whether it is a fine-tuning, which may be of either family.

    Raises:
        ValueError: If no file says how a fine-tuned policy decodes a chunk.
    """
    if any(folder.glob("action_head--*.pt")):
        return REGRESSION
    if "num_action_chunks" in config:
        return TOKENS if config["num_action_chunks"] > 1 else PLAIN
    code = folder / _CODE
    has_code = code.is_file() and _MARK in code.read_text(encoding="utf-8", errors="replace")
    if "use_proprio" in config or has_code:
        return TOKENS
    if is_tuned and "rrf" not in config:
        raise ValueError(
            f"no file in {folder} says whether the policy decodes one action at a time (OpenVLA: "
            f"--preset {PLAIN}) or the tokens of a chunk in one pass (OpenVLA-OFT of RLinf and "
            f"SimpleVLA-RL: --preset {TOKENS}); give one of them"
        )
    return PLAIN


def fitted(cfg: VLMPolicyCfg, config: Mapping) -> VLMPolicyCfg:
    """`cfg` with what RLinf and SimpleVLA-RL say of a policy with tokens."""
    head, backbone = cfg.head, cfg.backbone
    if not isinstance(head, OFTTokenHeadCfg) or not isinstance(backbone, PrismaticCfg):
        return cfg
    if "use_proprio" in config:
        head = head.replace(uses_state=bool(config["use_proprio"]))
    return cfg.replace(
        chunk_length=config.get("num_action_chunks", cfg.chunk_length),
        head=head,
        backbone=backbone.replace(
            film=bool(config.get("use_film", backbone.film)),
            slot_suffix_ids=[] if config.get("implement_version") == "rlinf" else [_END],
        ),
    )


def image_of(config: Mapping, image: ImageRuleCfg) -> ImageRuleCfg:
    """How a policy of RLinf sees images; `image` if the config says nothing of it."""
    if "image_size" in config:
        image = image.replace(size=tuple(config["image_size"]))
    if config.get("implement_version") == "rlinf":
        return ImageRuleCfg(size=image.size, fit="stretch", filter="bicubic")
    return image if config.get("center_crop", True) else image.replace(keeps=1.0)


def group_of(config: Mapping, group: str | None) -> str | None:
    """The statistics that RLinf acts by, if none are asked for."""
    key = config.get("unnorm_key")
    if group is not None or key is None:
        return group
    known = config.get("norm_stats") or {}
    return f"{key}_no_noops" if key not in known and f"{key}_no_noops" in known else key


def normalization(cfg: VLMPolicyCfg) -> str:
    """How OpenVLA and OpenVLA-OFT normalise the actions of a policy: OFT's constants for ALOHA,
    which are the only ones of 14 dimensions, take the whole range."""
    kinds = (OFTTokenHeadCfg, OFTRegressionHeadCfg, OFTDiffusionHeadCfg)
    is_aloha = isinstance(cfg.head, kinds) and cfg.action_dim == _ALOHA_DIM
    return "min_max" if is_aloha else "quantile"


def sizes(config: Mapping, cfg: VLMPolicyCfg) -> list[tuple[str, object, str, object]]:
    """Setting, its value, our field, its value: what must be alike."""
    head, backbone = cfg.head, cfg.backbone
    if not isinstance(head, OFTTokenHeadCfg) or not isinstance(backbone, PrismaticCfg):
        return []
    words = backbone.language.vocabulary_size - head.num_reserved_tokens
    of_state = config.get("proprio_dim") if head.uses_state else None
    return [
        ("action_dim", config.get("action_dim"), "action_dim", cfg.action_dim),
        ("proprio_dim", of_state, "state_dim", cfg.state_dim),
        ("num_images_in_input", config.get("num_images_in_input"),
         "the number of cameras", len(cfg.cameras)),
        ("vocab_size", config.get("vocab_size"),
         "backbone.language.vocabulary_size less head.num_reserved_tokens", words),
        ("hidden_size", config.get("hidden_size"), "backbone.language.width", backbone.width),
    ]  # fmt: skip


def settings_of(cfg: VLMPolicyCfg) -> dict[str, object]:
    """What RLinf and SimpleVLA-RL must know of a policy; {} for one without tokens of a chunk."""
    head, backbone = cfg.head, cfg.backbone
    if not isinstance(head, OFTTokenHeadCfg) or not isinstance(backbone, PrismaticCfg):
        return {}
    suffix = backbone.slot_suffix_ids
    if suffix not in ([], [_END]):
        raise ValueError(
            f"policy.backbone.slot_suffix_ids is {suffix}, but OpenVLA-OFT has [{_END}] after its "
            "slots, and RLinf's own version []; train with one of these"
        )
    has_crop = backbone.image.keeps == OPENVLA_IMAGE.keeps
    return {
        "implement_version": "official" if suffix else "rlinf",
        "num_action_chunks": cfg.chunk_length,
        "action_dim": cfg.action_dim,
        "use_proprio": head.uses_state,
        "proprio_dim": cfg.state_dim,
        "use_film": backbone.film,
        "num_images_in_input": len(cfg.cameras),
        "center_crop": has_crop,
    }
