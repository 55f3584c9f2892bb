"""Checkpoints of OpenVLA (arXiv:2406.09246) and OpenVLA-OFT (arXiv:2502.19645), read and written.

A folder has config.json with the statistics of its datasets, safetensors, tokenizer.json and, for
OFT, components such as action_head--100000_checkpoint.pt. Parameters have the same names as ours
but for `scale_factor`, which timm calls `gamma`, and for the blocks that FiLM wraps: those are
plain in the safetensors and wrapped in vision_backbone--*.pt, which also holds unmerged adapters.
Of OpenVLA-OFT with tokens, the projector of the state may stand among the safetensors, and the
critic of training, which is left out (`openvla_rl`).

Statistics become those of a dataset of ours: `proprio` is the state, and `mask` says which
dimensions are normalised. Where a range is empty, its upper end is raised by 1e-8, as in OFT's own
formula, so that a constant stays a constant.

Images and instructions are prepared as in their evaluations (experiments/robot of either project):
a JPEG of quality 95, Lanczos to 224 pixels, the middle 90 % of the area, small letters; OFT clips
the normalised state to [-1, 1]. TensorFlow reads JPEGs by a less exact transform, which differs by
1 of 255 on the mean. config.json of a policy of rrf says how that one did it.
"""

import functools
import json
import pickle
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import safetensors
import torch

from rrf import atomic
from rrf.data.formats.json_files import read_object
from rrf.data.schema import ACTION, STATE
from rrf.networks import tensor_files
from rrf.networks.tensor_files import shapes_of
from rrf.networks.vlm.build import merged_weights
from rrf.networks.vlm.configs import ImageRuleCfg
from rrf.networks.vlm.prismatic.configs import OPENVLA_IMAGE, PrismaticCfg
from rrf.networks.vlm.prismatic.names import own_name, published_name
from rrf.networks.vlm.weights import check_names, plain_tensors, weight_files
from rrf.policies.vla.heads.action_tokens_configs import ActionTokenHeadCfg
from rrf.policies.vla.published import openvla_rl
from rrf.policies.vla.published.folders import with_tokenizer
from rrf.policies.vla.vlm import VLMPolicy
from rrf.policies.vla.vlm_configs import VLMPolicyCfg

WEIGHTS = "model.safetensors"
_BACKBONE = "backbone."
_VISION = "vision_backbone."
_COMPONENTS = {
    "proprio_projector": "head.proprio_projector.",
    "noisy_action_projector": "head.noisy_action_projector.",
    "action_head": "head.",
}
_CRITIC = "value_head."
_OWN = ("head.log_std_ha",)  # the std of reinforcement learning, which no published file has
_EMPTY_RANGE = 1e-8
STATISTICS = "dataset_statistics.json"
_ONLY = {
    "image_resize_strategy": "resize-naive",
    "use_fused_vision_backbone": True,
    "arch_specifier": "no-align+fused-gelu-mlp",
    "output_projector_states": False,
}
"""Settings of config.json that have one value here."""
_HONOURED = ("norm_stats", "image_sizes", "n_action_bins", "pad_to_multiple_of", "text_config")
_HARMLESS = {
    "rrf": "our own",
    "auto_map": "which code of the hub reads the model",
    "hf_llm_id": "a name; the sizes are those of the weights",
    "llm_backbone_id": "a name",
    "vision_backbone_id": "a name",
    "timm_model_ids": "names",
    "llm_max_length": "prompts are shorter",
    "pad_token_id": "padding is masked",
    "timm_override_act_layers": "checked",
    "torch_dtype": "number format of the file",
    "model_type": "checked",
}
_JPEG_QUALITY = 95  # of TensorFlow's encode_jpeg
_OURS = "rrf"  # in config.json: how a policy of rrf sees images and reads instructions
_ADAPTER_ALPHA = 16  # OFT's alpha is the rank, but at most this

Published = tuple[tuple[int, ...], Callable[[], torch.Tensor]]  # a tensor's shape, and its loader


def read(folder: str | Path, dataset: str, cfg: VLMPolicyCfg) -> VLMPolicy:
    """The policy of a published checkpoint.

    Args:
        folder: The checkpoint.
        dataset: One of the datasets whose statistics it has.
        cfg: What the policy is, e.g. that of the preset openvla-sft, with cameras and image size.
            The checkpoint fills in the tokenizer, and dimensions that are 0.

    Raises:
        ValueError: For a dataset that it does not know, tensors that are missing, unexpected or of
            another shape, sizes that differ from `cfg`, and files that cannot be read safely.
    """
    folder = Path(folder)
    config = config_of(folder)
    stats = norm_stats_of(config, dataset, cfg.state_dim)
    cfg = with_tokenizer(cfg, folder).replace(
        state_dim=cfg.state_dim or len(stats[STATE]["q01"]),
        action_dim=cfg.action_dim or len(stats[ACTION]["q01"]),
    )
    policy = cfg.build(stats)
    fill(policy, folder)
    return policy


def fill(policy: VLMPolicy, folder: str | Path) -> None:
    """Copy the weights of a checkpoint into a policy.

    Raises:
        ValueError: For tensors that are missing, unexpected or of another shape; none is copied.
    """
    folder = Path(folder)
    _check_sizes(config_of(folder), policy.cfg, folder)
    targets = plain_tensors(policy)
    expected = shapes_of({name: targets[name] for name in targets if name not in _OWN})
    published = tensors_of(folder, _backbone_cfg(policy.cfg).film)
    shapes = {name: shape for name, (shape, _) in published.items()}
    check_names(expected, shapes, f"{folder}", "the policy")
    with torch.no_grad():
        for name, (_, load) in published.items():
            targets[name].copy_(load())


def fitted(folder: Path, cfg: VLMPolicyCfg) -> VLMPolicyCfg:
    """`cfg` with images and instructions as the original's evaluation prepares them, or as the
    policy of rrf that was written into the folder did."""
    config, backbone = config_of(folder), _backbone_cfg(cfg)
    _check_config(config, backbone, folder / "config.json")
    cfg = openvla_rl.fitted(cfg, config)
    backbone = _backbone_cfg(cfg)
    if (ours := config.get(_OURS)) is None:
        size = tuple(config.get("image_sizes") or backbone.image.size)
        image = OPENVLA_IMAGE.replace(size=size, jpeg_quality=_JPEG_QUALITY)
        image = openvla_rl.image_of(config, image)
        backbone = backbone.replace(image=image, instructions="lower")
        return cfg.replace(backbone=backbone, clips_state=cfg.head.sees_state)
    image = ImageRuleCfg.from_dict(ours["image"])
    backbone = backbone.replace(image=image, instructions=ours["instructions"])
    return cfg.replace(backbone=backbone, clips_state=ours["clips_state"])


def norm_stats_of(config: Mapping, dataset: str, state_dim: int = 0) -> dict[str, dict]:
    """The statistics of a dataset in config.json as those of one of our datasets.

    Args:
        config: The content of config.json.
        dataset: The dataset.
        state_dim: Dimensions of the state, if the checkpoint has no statistics of it; it is then
            not normalised.

    Raises:
        ValueError: For a dataset that it does not know; the message names those it does.
    """
    known = config.get("norm_stats") or {}
    if dataset not in known:
        raise ValueError(
            f"the checkpoint has no statistics of dataset '{dataset}'; known: "
            f"{', '.join(sorted(known)) or 'none'}"
        )
    entry = known[dataset]
    width = state_dim or len(entry["action"]["q01"])
    plain = {"q01": [-1.0] * width, "q99": [1.0] * width}
    statistics = {STATE: entry.get("proprio", plain), ACTION: entry["action"]}
    return {key: _with_ranges(stats) for key, stats in statistics.items()}


def tensors_of(folder: Path, film: bool) -> dict[str, Published]:
    """Our name of every published tensor -> its shape, and how to load it."""
    tensors: dict[str, Published] = {}
    for file in weight_files(folder):
        with safetensors.safe_open(file, "pt") as shard:
            for name in shard.keys():  # noqa: SIM118 (not a mapping)
                if name.startswith(_CRITIC):
                    continue
                tensors[_place(name, film)] = (
                    tuple(shard.get_slice(name).get_shape()),
                    functools.partial(_load, file, name),
                )
    for component, prefix in _COMPONENTS.items():
        for name, tensor in _component(folder, component).items():
            tensors[prefix + name] = _in_memory(tensor)
    if film:
        for name, tensor in merged(_component(folder, "vision_backbone")).items():
            name = _VISION + name.removeprefix(_VISION)
            tensors[_BACKBONE + own_name(name, film)] = _in_memory(tensor)
    return tensors


def _place(name: str, film: bool) -> str:
    """Our name of a published parameter among the safetensors."""
    if name.startswith("proprio_projector."):
        return f"head.{name}"
    return _BACKBONE + own_name(name, film)


def merged(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Weights with their low-rank adapters added to them in float32: W + min(1, 16 / rank) B A."""
    result = {}
    for name, tensor in tensors.items():
        if ".lora_" in name:
            continue
        down = tensors.get(name.replace(".base_layer.weight", ".lora_A.default.weight"))
        if ".base_layer.weight" in name and down is not None:
            up = tensors[name.replace(".base_layer.weight", ".lora_B.default.weight")]
            product = up.float().flatten(1) @ down.float().flatten(1)
            product = product.view_as(tensor)  # a convolution's is 4-D
            tensor = tensor.float() + min(1.0, _ADAPTER_ALPHA / len(down)) * product
        result[name.replace(".base_layer.", ".")] = tensor
    return result


def write(policy: VLMPolicy, folder: str | Path, dataset: str, norm_stats: Mapping) -> None:
    """Write a policy in the published layout. Adapters are merged into the weights.

    The std of a Gaussian head has no place in it.

    Args:
        policy: A policy with OpenVLA's backbone.
        folder: A folder that is made if it does not exist.
        dataset: The name under which its statistics are written.
        norm_stats: Those it was built with.
    """
    folder, cfg = Path(folder), _backbone_cfg(policy.cfg)
    of_tokens = openvla_rl.settings_of(policy.cfg)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().cpu() for name, value in merged_weights(policy).items()}
    backbone = {n.removeprefix(_BACKBONE): t for n, t in tensors.items() if n.startswith(_BACKBONE)}
    named = {name: t for parameter, t in backbone.items() if (name := published_name(parameter))}
    tensor_files.write(folder / WEIGHTS, named, {"format": "pt"})
    rest = {name: tensors[name] for name in tensors.keys() - set(_OWN)}
    for component, prefix in _COMPONENTS.items():
        names = [name for name in rest if name.startswith(prefix)]
        _write_component(folder, component, {n.removeprefix(prefix): rest.pop(n) for n in names})
    if cfg.film:
        vision = {n: t for n, t in backbone.items() if n.startswith(_VISION)}
        renamed = {name.replace(".gamma", ".scale_factor"): t for name, t in vision.items()}
        _write_component(folder, "vision_backbone", renamed)
    for name, text in policy.assets().items():
        (folder / name).write_text(text, encoding="utf-8")
    stats = {"action": dict(norm_stats[ACTION]), "proprio": dict(norm_stats[STATE])}
    text = {"model_type": "llama", "vocab_size": cfg.language.vocabulary_size}
    theirs = openvla_rl.image_of(of_tokens, OPENVLA_IMAGE)
    used, expected = ((rule.filter, rule.keeps) for rule in (cfg.image, theirs))
    if (*used, cfg.instructions) != (*expected, "lower"):
        kept = "all" if theirs.keeps == 1 else "the middle 90 %"
        warnings.warn(
            f"other programs resize images with {theirs.filter}, keep {kept} of their area and "
            "write instructions in small letters; this policy was trained with filter "
            f"{cfg.image.filter}, {cfg.image.keeps**2:.0%} of the area, and instructions "
            f"{cfg.instructions} (policy.backbone.image, policy.backbone.instructions)",
            stacklevel=2,
        )
    config = {
        "architectures": ["OpenVLAForActionPrediction"],
        "model_type": "openvla",
        "image_sizes": list(cfg.image.size),
        "image_resize_strategy": "resize-naive",
        "use_fused_vision_backbone": True,
        "text_config": text,
        "norm_stats": {dataset: stats},
        _OURS: {
            "image": cfg.image.to_dict(),
            "instructions": cfg.instructions,
            "clips_state": policy.cfg.clips_state,
        },
    }
    if isinstance(policy.cfg.head, ActionTokenHeadCfg):
        config["n_action_bins"] = policy.cfg.head.num_bins
        config["pad_to_multiple_of"] = policy.cfg.head.num_reserved_tokens
    config |= of_tokens
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def _with_ranges(stats: Mapping) -> dict:
    result = {name: list(values) for name, values in stats.items() if isinstance(values, list)}
    for low, high in (("q01", "q99"), ("min", "max")):
        if low in result and high in result:
            pairs = zip(result[low], result[high], strict=True)
            result[high] = [b + _EMPTY_RANGE * (a == b) for a, b in pairs]
    return result


def _backbone_cfg(cfg: VLMPolicyCfg) -> PrismaticCfg:
    if not isinstance(cfg.backbone, PrismaticCfg):
        raise ValueError(
            f"policy.backbone is {type(cfg.backbone).__name__}, but OpenVLA's checkpoints need "
            "PrismaticCfg"
        )
    return cfg.backbone


def config_of(folder: Path) -> dict:
    """The content of config.json. Raises ValueError if it is of another family."""
    file = folder / "config.json"
    if not file.is_file():
        raise ValueError(f"there is no {file}; give the folder of a checkpoint of OpenVLA")
    config = atomic.parse_json(file.read_text(encoding="utf-8"))
    if config.get("model_type") != "openvla":
        raise ValueError(
            f"{file} is of model_type '{config.get('model_type')}', expected 'openvla': this is a "
            "checkpoint of another family"
        )
    statistics = folder / STATISTICS
    if statistics.is_file():  # of a fine-tuning; config.json then has those of its base
        config["norm_stats"] = read_object(statistics)
    return config


def _check_config(config: Mapping, cfg: PrismaticCfg, file: Path) -> None:
    """Raise ValueError for a setting that is neither honoured nor known to change no action."""
    for name, allowed in _ONLY.items():
        if config.get(name, allowed) != allowed:
            raise ValueError(
                f"{file} has {name} {config[name]}, which cannot be had; allowed: {allowed}"
            )
    if any(config.get("timm_override_act_layers") or ()):
        raise ValueError(f"{file} overrides activations (timm_override_act_layers), allowed: null")
    text, language = config.get("text_config") or {}, cfg.language
    for name, ours in (("rms_norm_eps", language.norm_eps), ("rope_theta", language.rope_theta)):
        if text.get(name, ours) != ours:
            raise ValueError(
                f"{file} has text_config.{name} {text[name]}, but the policy has {ours}"
            )
    if text.get("rope_scaling") is not None:
        raise ValueError(f"{file} has text_config.rope_scaling, which cannot be had")
    from transformers import PretrainedConfig

    known = {*_ONLY, *_HONOURED, *_HARMLESS, *PretrainedConfig().to_dict()}
    added = {name: value for name, value in config.items() if name not in known}
    openvla_rl.SETTINGS.check(file, added)


def _check_sizes(config: Mapping, cfg: VLMPolicyCfg, folder: Path) -> None:
    backbone, head = _backbone_cfg(cfg), cfg.head
    pairs = [
        ("text_config.vocab_size", config["text_config"].get("vocab_size"),
         "backbone.language.vocabulary_size", backbone.language.vocabulary_size),
    ]  # fmt: skip
    if isinstance(head, ActionTokenHeadCfg):
        pairs += [
            ("n_action_bins", config.get("n_action_bins"), "head.num_bins", head.num_bins),
            ("pad_to_multiple_of", config.get("pad_to_multiple_of"),
             "head.num_reserved_tokens", head.num_reserved_tokens),
        ]  # fmt: skip
    pairs += openvla_rl.sizes(config, cfg)
    for published_key, value, field, expected in pairs:
        if value is not None and value != expected:
            raise ValueError(
                f"{folder}/config.json has {published_key} {value}, but {field} is {expected}; set "
                f"{field}={value}"
            )


def _component(folder: Path, name: str) -> dict[str, torch.Tensor]:
    files = sorted(folder.glob(f"{name}--*.pt"))
    if len(files) > 1:
        raise ValueError(
            f"{folder} has {len(files)} files {name}--*.pt, allowed: one; remove those of other "
            "steps"
        )
    if not files:
        return {}
    try:
        tensors = torch.load(files[0], map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(
            f"{files[0]} holds more than tensors or is damaged, so it is not read: {error}"
        ) from error
    return {key.removeprefix("module."): value for key, value in tensors.items()}


def _load(file: Path, name: str) -> torch.Tensor:
    with safetensors.safe_open(file, "pt") as shard:
        return shard.get_tensor(name)


def _in_memory(tensor: torch.Tensor) -> Published:
    return tuple(tensor.shape), lambda: tensor


def _write_component(folder: Path, name: str, tensors: Mapping[str, torch.Tensor]) -> None:
    if tensors:
        torch.save(dict(tensors), folder / f"{name}--0_checkpoint.pt")
