"""Checkpoints of pi0 and pi0.5 as openpi's PyTorch port and lerobot write them.

Weights only change their names. lerobot puts "model." before openpi's names. Two tensors need care:

* the output layer of PaliGemma is its embedding table, and either name or both may be in a file.
  lerobot 0.6 trains the table alone, so that they differ; actions depend on the table only;
* the action expert has an output layer that nothing uses. It is dropped when read; when written it
  is zeros, because openpi and lerobot refuse a file without it.

Only safetensors files are read, never a pickle.
"""

import typing
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from rrf.data.schema import ACTION, STATE
from rrf.networks.tensor_files import differences, listed
from rrf.networks.vlm.build import merged_weights
from rrf.networks.vlm.paligemma.configs import PaliGemmaCfg
from rrf.networks.vlm.weights import plain_tensors, weight_files
from rrf.policies.vla.heads.pi_configs import PiExpertHeadCfg
from rrf.policies.vla.published import lerobot_pi, pi_norm_stats
from rrf.policies.vla.published.folders import require_vacant
from rrf.policies.vla.published.settings import Settings
from rrf.policies.vla.vlm import VLMPolicy
from rrf.policies.vla.vlm_configs import VLMPolicyCfg

Layout = typing.Literal["openpi", "lerobot"]

WEIGHTS = "model.safetensors"
_LEROBOT = "model."
_PALIGEMMA = "paligemma_with_expert.paligemma."
_EXPERT = "paligemma_with_expert.gemma_expert."
TIED = f"{_PALIGEMMA}lm_head.weight"
UNUSED = f"{_EXPERT}lm_head.weight"
_PREFIXES = {
    "backbone.vision.": f"{_PALIGEMMA}model.vision_tower.",
    "backbone.projector.": f"{_PALIGEMMA}model.multi_modal_projector.linear.",
    "backbone.embedding.": f"{_PALIGEMMA}model.language_model.embed_tokens.",
    "backbone.language.": f"{_PALIGEMMA}model.language_model.",
    "head.expert.": f"{_EXPERT}model.",
    "head.": "",
}
"""Start of our names -> start of openpi's. The first that fits holds, in both directions."""
_EMBEDDING = f"{_PALIGEMMA}model.language_model.embed_tokens.weight"
_OURS = ("state_encoder.", "trunk.", "value_head.", "head.explore_noise.")
"""Parts of a policy that no published checkpoint has: critic, and ReinFlow's noise."""


OPENPI = Settings(
    honoured=(
        "action_dim",
        "action_horizon",
        "paligemma_variant",
        "action_expert_variant",
        "pi05",
        "max_token_len",
        "discrete_state_input",
    ),
    harmless={
        "precision": "it says in which numbers openpi holds the weights",
        "dtype": "it says in which numbers openpi computes",
        "pytorch_compile_mode": "it only makes openpi faster",
    },
)
"""openpi's config.json: what its converter writes, and the fields of its model's config."""
RELATIVE = (
    "whether its actions are relative to the state (use_delta_joint_actions or "
    "extra_delta_transform in openpi's config); say policy.relative_actions='[]' if they are not, "
    "or the dimensions of action and state, e.g. policy.relative_actions='[[0, 0], [1, 1]]'. A "
    "policy with adapt_to_pi (ALOHA) cannot be had: openpi converts its joints in code"
)


def our_name(name: str) -> str:
    """Our name of a tensor of openpi."""
    prefix, published_prefix = next(pair for pair in _PREFIXES.items() if name.startswith(pair[1]))
    return prefix + name.removeprefix(published_prefix)


def published_name(name: str) -> str:
    """openpi's name of a tensor of ours. Raises StopIteration if openpi has no such part."""
    prefix, published_prefix = next(pair for pair in _PREFIXES.items() if name.startswith(pair[0]))
    return published_prefix + name.removeprefix(prefix)


def renamed(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights of openpi or lerobot under our names."""
    is_lerobot = all(name.startswith(_LEROBOT) for name in weights)
    tensors = {n.removeprefix(_LEROBOT) if is_lerobot else n: t for n, t in weights.items()}
    tensors.pop(UNUSED, None)
    if (tied := tensors.pop(TIED, None)) is not None:
        tensors.setdefault(_EMBEDDING, tied)
    return {our_name(name): tensor for name, tensor in tensors.items()}


def fill(policy: VLMPolicy, folder: str | Path) -> None:
    """Copy the weights of a published checkpoint into a policy of the same architecture.

    Raises:
        ValueError: If there is no safetensors file, or if names or shapes do not agree exactly. The
            message lists what is missing and what is unexpected.
    """
    require_pi(policy.cfg)
    weights: dict[str, torch.Tensor] = {}
    for file in weight_files(folder):
        weights |= load_file(file)
    published = renamed(weights)
    tensors = plain_tensors(policy)
    needed = {
        name: tensors[name] for name in tensors if name in published or not name.startswith(_OURS)
    }
    wrong = differences(
        *(
            {published_name(n): tuple(t.shape) for n, t in part.items()}
            for part in (needed, published)
        ),
        missing="missing {}",
        unexpected="unexpected {}",
    )
    if wrong:
        raise ValueError(
            f"{folder} does not have the architecture of the configured policy: {listed(wrong)}"
        )
    for name, tensor in published.items():
        tensors[name].copy_(tensor)


def fitted_openpi(
    folder: Path,
    config: Mapping[str, typing.Any],
    cfg: VLMPolicyCfg,
    version: typing.Literal["pi0", "pi05"],
) -> VLMPolicyCfg:
    """`cfg` with what a folder of openpi says of its policy.

    Raises:
        ValueError: For a setting of config.json that is neither honoured nor harmless.
    """
    file = folder / "config.json"
    OPENPI.check(file, config)
    reads_state = version == "pi05"
    if config.get("discrete_state_input", reads_state) not in (None, reads_state):
        raise ValueError(
            f"{file} has discrete_state_input {config['discrete_state_input']}, allowed for "
            f"{version}: {reads_state}; its prompt would hold the state otherwise than trained"
        )
    head, backbone = typing.cast(PiExpertHeadCfg, cfg.head), typing.cast(PaliGemmaCfg, cfg.backbone)
    of_head: dict[str, typing.Any] = {"version": version}
    of_backbone: dict[str, typing.Any] = {"instructions": "openpi"}
    changes: dict[str, typing.Any] = {"prompt": lerobot_pi.PROMPTS[version]}
    if "action_dim" in config:
        of_head["max_dims"] = config["action_dim"]
    if "action_expert_variant" in config:
        expert = lerobot_pi.variant(folder, "action_expert_variant", config)
        of_head |= {name: getattr(expert, name) for name in ("width", "mlp_dim", "num_heads")}
    if "paligemma_variant" in config:
        of_backbone["gemma"] = lerobot_pi.variant(folder, "paligemma_variant", config)
    if "max_token_len" in config:
        of_backbone["max_tokens"] = config["max_token_len"]
    if "action_horizon" in config:
        changes["chunk_length"] = config["action_horizon"]
    for name in ("state_normalization", "action_normalization"):
        changes[name] = pi_norm_stats.OPENPI_MODES[version]
    statistics = pi_norm_stats.statistics_file(folder)
    stats = pi_norm_stats.read_file(statistics) if statistics else {}
    for name, key in (("state_dim", STATE), ("action_dim", ACTION)):
        if not getattr(cfg, name) and key in stats:
            changes[name] = len(next(iter(stats[key].values())))
    changes |= {"head": head.replace(**of_head), "backbone": backbone.replace(**of_backbone)}
    return cfg.replace(**changes)


def write(
    policy: VLMPolicy, norm_stats: Mapping[str, Mapping], folder: str | Path, layout: Layout
) -> Path:
    """Write weights, normalisation and what else the layout needs to `folder`, which must not exist
    or be empty.

    Adapters are merged into the weights. A critic and ReinFlow's noise are left out, because the
    layouts have no place for them.

    Raises:
        ValueError: If the policy is no pi0 or pi0.5, if the layout does not know its normalisation,
            or if the folder has content.
    """
    cfg, folder = policy.cfg, Path(folder)
    require_pi(cfg)
    texts = pi_norm_stats.openpi_files if layout == "openpi" else pi_norm_stats.lerobot_files
    files = texts(cfg, norm_stats)
    require_vacant(folder)
    start = _LEROBOT if layout == "lerobot" else ""
    tensors = {
        published_name(name): tensor.detach().cpu().contiguous()
        for name, tensor in merged_weights(policy).items()
        if not name.startswith(_OURS)
    }
    table = tensors[_EMBEDDING]
    tensors[TIED] = table.clone()  # a file may not hold one tensor under two names
    width = typing.cast(PiExpertHeadCfg, cfg.head).width
    tensors[UNUSED] = table.new_zeros(len(table), width)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({start + name: tensor for name, tensor in tensors.items()}, folder / WEIGHTS)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            (folder / name).write_text(content, encoding="utf-8")
        else:
            save_file(content, folder / name)
    return folder


def require_pi(cfg: VLMPolicyCfg) -> None:
    """Raise ValueError unless a policy has the parts of pi0 and pi0.5."""
    if not isinstance(cfg.backbone, PaliGemmaCfg) or not isinstance(cfg.head, PiExpertHeadCfg):
        raise ValueError(
            f"the policy joins {type(cfg.backbone).__name__} and {type(cfg.head).__name__}, but "
            "openpi's and lerobot's layouts are for PaliGemmaCfg with PiExpertHeadCfg"
        )
