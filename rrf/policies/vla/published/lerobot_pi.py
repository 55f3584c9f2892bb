"""pi0 and pi0.5 as lerobot's folders describe them: config.json and the two processors.

lerobot acts by the steps of its processors, not by config.json, so both are read and must agree.
The tables hold what lerobot 0.4 to 0.6.1 write, and what its development adds for pi0.5.
"""

import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

from rrf import atomic
from rrf.data.dataset.transforms import Mode
from rrf.data.schema import ACTION, IMAGE_PREFIX, STATE
from rrf.networks.vlm.paligemma.configs import GemmaCfg, PaliGemmaCfg
from rrf.policies.vla.heads.pi_configs import PiExpertHeadCfg
from rrf.policies.vla.published.settings import LEROBOT_BASE, Settings
from rrf.policies.vla.vlm_configs import VLMPolicyCfg

BEFORE, AFTER = "policy_preprocessor", "policy_postprocessor"
MODES: dict[str, Mode] = {"MEAN_STD": "mean_std", "MIN_MAX": "min_max", "QUANTILES": "quantile"}
"""lerobot's modes of normalisation -> ours. IDENTITY is a mode of each dimension with us."""
VARIANTS = {
    "gemma_300m": GemmaCfg(width=1024, mlp_dim=4096),
    "gemma_2b": GemmaCfg(width=2048, mlp_dim=16384),
}
"""openpi's and lerobot's names of the sizes of a language model and of an expert."""

PROMPTS = {
    "pi0": "{instruction}\n",
    "pi05": "Task: {instruction}, State: {state};\nAction: ",
}
"""The prompt of each model, in openpi and in lerobot."""

PADDED = (
    "whether the state in the prompt was padded (lerobot did so before 0.5.0, and 0.5.1 is the "
    "first whose config.json shows it); say policy.prompt_state_dims=32 if 0.4 trained it, or "
    "policy.prompt_state_dims=0 if 0.5.0 did"
)
_IDENTITY = "IDENTITY"
_TRAINING = "it belongs to training"
_LOOP = "it belongs to lerobot's own loop of single actions"
_MEMORY = "it sees past frames by layers of its own; train one without"
CONFIG = LEROBOT_BASE | Settings(
    honoured=(
        "normalization_mapping",
        "chunk_size",
        "num_inference_steps",
        "tokenizer_max_length",
        "image_resolution",
        "empty_cameras",
        "paligemma_variant",
        "action_expert_variant",
        "max_state_dim",
        "max_action_dim",
        "min_period",
        "max_period",
        "use_relative_actions",
        "relative_exclude_joints",
        "action_feature_names",
    ),
    harmless={
        "dtype": "it says in which numbers lerobot holds the weights; the preset says ours",
        "gradient_checkpointing": _TRAINING,
        "freeze_vision_encoder": _TRAINING,
        "train_expert_only": _TRAINING,
        "time_sampling_*": _TRAINING,
        "optimizer_*": _TRAINING,
        "scheduler_*": _TRAINING,
        "n_action_steps": f"{_LOOP}; the protocol says how many actions of a chunk are executed",
        "rtc_config": _LOOP,
        "rtc_training_max_delay": _TRAINING,
        "memory_*": "it says how past frames are seen, and the policy is refused if it sees some",
        "compile_model": "it only makes lerobot faster",
        "compile_mode": "it only makes lerobot faster",
    },
    only={
        "n_obs_steps": (1, "the policy sees one observation; train one with n_obs_steps=1"),
        "use_visual_memory": (False, _MEMORY),
        "use_proprioceptive_memory": (False, _MEMORY),
    },
)
_NO_SETTINGS = Settings((), {})
STEPS = {
    "rename_observations_processor": Settings(("rename_map",), {}),
    "to_batch_processor": _NO_SETTINGS,
    "pi0_new_line_processor": _NO_SETTINGS,
    "pi05_prepare_state_tokenizer_processor_step": _NO_SETTINGS,
    "tokenizer_processor": Settings(
        ("max_length", "tokenizer_name"),
        {
            "padding": "padding is attended to by nobody",
            "truncation": "a prompt that is too long is an error here, and never cut",
        },
        {
            "task_key": ("task", "the prompt is made of the instruction alone"),
            "padding_side": ("right", "the words follow the images at once"),
        },
    ),
    "device_processor": Settings(
        (),
        {"device": "it says where lerobot computes"},
        {"float_dtype": ((None, "float32"), "images and states would be rounded to it")},
    ),
    "relative_actions_processor": Settings(("enabled", "exclude_joints", "action_names"), {}),
    "absolute_actions_processor": Settings(("enabled",), {}),
    "normalizer_processor": Settings(
        ("features", "norm_map", "eps"),
        {},
        {"normalize_observation_keys": (None, "the state would not be normalised as trained")},
    ),
    "unnormalizer_processor": Settings(
        ("features", "norm_map", "eps"),
        {},
        {"normalize_observation_keys": (None, "it belongs to what comes in")},
    ),
}
"""Step -> its settings."""
_RELATIVE = "relative_actions_processor"
_ABSOLUTE = "absolute_actions_processor"
_NORMALIZE, _UNNORMALIZE = "normalizer_processor", "unnormalizer_processor"
_TOKENIZE = "tokenizer_processor"
_RENAME = "rename_observations_processor"
_ORDER = {
    "pi0": (
        *(_RENAME, "to_batch_processor", "pi0_new_line_processor", _TOKENIZE, "device_processor"),
        *(_RELATIVE, _NORMALIZE),
    ),
    "pi05": (
        *(_RENAME, "to_batch_processor", _RELATIVE, _NORMALIZE),
        *("pi05_prepare_state_tokenizer_processor_step", _TOKENIZE, "device_processor"),
    ),
}
_ORDER_AFTER = (_UNNORMALIZE, _ABSOLUTE, "device_processor")
_OPTIONAL = (_RELATIVE, _ABSOLUTE)  # steps that lerobot has had since 0.5

Steps = dict[str, dict[str, typing.Any]]
"""Name of a step -> its settings."""


def fitted(folder: Path, config: Mapping[str, typing.Any], cfg: VLMPolicyCfg) -> VLMPolicyCfg:
    """`cfg` with what a folder of lerobot says of its policy.

    Raises:
        ValueError: For a setting of config.json, or a step of a processor or its setting, that is
            neither honoured nor harmless, and where the two contradict each other.
    """
    file = folder / "config.json"
    CONFIG.check(file, config)
    before, after = steps_of(folder, config["type"])
    cameras, image_size, state_dim, action_dim = _features(file, config, before)
    modes = _modes(file, config)
    _check_normalizers(folder, config, modes, before, after)
    relative = _relative(folder, config, before, after, state_dim, action_dim)
    changes: dict[str, typing.Any] = {
        "cameras": cameras,
        "image_size": image_size,
        "state_dim": state_dim,
        "action_dim": action_dim,
        "relative_actions": relative,
        "delta_actions": [],
        "prompt": PROMPTS[config["type"]],
    }
    for kind, name, dims in (("STATE", "state", state_dim), ("ACTION", "action", action_dim)):
        is_left = modes[kind] == _IDENTITY
        changes[f"{name}_modes"] = dict.fromkeys(range(dims), "none") if is_left else {}
        if not is_left:
            changes[f"{name}_normalization"] = MODES[modes[kind]]
    if "chunk_size" in config:
        changes["chunk_length"] = config["chunk_size"]
    changes["backbone"] = _backbone(folder, config, cfg.backbone, before)
    changes["head"] = _head(file, config, cfg.head)
    return cfg.replace(**changes)


def check_periods(folder: Path, config: Mapping[str, typing.Any], cfg: VLMPolicyCfg) -> None:
    """Refuse weights that were trained with another encoding of time than a policy has.

    Raises:
        ValueError: Naming the field to set.
    """
    for name in ("min_period", "max_period"):
        if name in config and config[name] != (period := getattr(cfg.head, name)):
            raise ValueError(
                f"{folder}/config.json has {name} {config[name]}, but policy.head.{name} is "
                f"{period}; set policy.head.{name}={config[name]}"
            )


def steps_of(folder: Path, version: str) -> tuple[Steps, Steps]:
    """The steps before and after the policy; none of either, if a folder has no processors.

    Raises:
        ValueError: For a step or a setting that is not known, and for steps in another order.
    """
    orders = {BEFORE: _ORDER[version], AFTER: _ORDER_AFTER}
    before, after = (_steps(folder / f"{name}.json", order) for name, order in orders.items())
    if bool(before) != bool(after):
        lacking = AFTER if before else BEFORE
        raise ValueError(f"{folder}/{lacking}.json is missing, but the other processor is there")
    return before, after


def _steps(file: Path, order: Sequence[str]) -> Steps:
    if not file.is_file():
        return {}
    content = atomic.parse_json(file.read_text(encoding="utf-8"))
    steps: Steps = {}
    for step in content.get("steps", []):
        name = step.get("registry_name") or step.get("class")
        if name not in STEPS:
            raise ValueError(
                f"{file} has the step {name}, which would change inputs or actions; allowed: "
                f"{', '.join(STEPS)}"
            )
        steps[name] = step.get("config") or {}
        STEPS[name].check(f"{file}: {name}", steps[name])
    names = [step.get("registry_name") for step in content.get("steps", [])]
    expected = [name for name in order if name in names or name not in _OPTIONAL]
    if names != expected:
        raise ValueError(f"{file} has the steps {names}, expected {expected}")
    return steps


def _features(
    file: Path, config: Mapping[str, typing.Any], before: Steps
) -> tuple[list[str], tuple[int, int], int, int]:
    """Cameras, their size (0 if they differ), and dimensions of state and action."""
    inputs = dict(config.get("input_features") or {})
    outputs = dict(config.get("output_features") or {})
    state = inputs.pop(STATE, {"type": "STATE", "shape": [config.get("max_state_dim", 32)]})
    action = outputs.pop(ACTION, {"type": "ACTION", "shape": [config.get("max_action_dim", 32)]})
    strange = [key for key, feature in inputs.items() if feature["type"] != "VISUAL"]
    strange += [key for key in inputs if not key.startswith(IMAGE_PREFIX)]
    if strange or outputs or (state["type"], action["type"]) != ("STATE", "ACTION"):
        raise ValueError(
            f"{file} has the inputs and outputs {', '.join([*strange, *outputs]) or config}, "
            f"allowed: {STATE}, {ACTION} and cameras {IMAGE_PREFIX}NAME"
        )
    rename_map = before.get(_RENAME, {}).get("rename_map") or {}
    seen = names_on_robot(f"{file.parent}/{BEFORE}.json", list(inputs), rename_map)
    sizes = {tuple(inputs[key]["shape"]) for key in seen}
    flat = [shape for shape in sizes if len(shape) != 3 or shape[0] != 3]
    if flat:
        raise ValueError(f"{file} has images of {flat[0]}, allowed: [3, height, width]")
    size = next(iter(sizes))[1:] if len(sizes) == 1 else (0, 0)
    names = [name.removeprefix(IMAGE_PREFIX) for name in seen.values()]
    return names, size, state["shape"][0], action["shape"][0]


def names_on_robot(
    where: str, images: Sequence[str], rename_map: Mapping[str, str]
) -> dict[str, str]:
    """The images that a policy sees -> how the robot calls them.

    Cameras that lerobot adds as empty ones, masked out, are left out, unless one is renamed to it.

    Args:
        where: The file, for messages.
        images: The names that the policy has for them.
        rename_map: The robot's name -> that of the policy, as a processor has it.

    Raises:
        ValueError: If something else than a camera is renamed, or if one gets lost.
    """
    targets = list(rename_map.values())
    for source, target in rename_map.items():
        if target not in images or not source.startswith(IMAGE_PREFIX) or targets.count(target) > 1:
            raise ValueError(
                f"{where}: {_RENAME} has rename_map {source} -> {target}, allowed: names of "
                f"cameras that the policy sees ({', '.join(images)}), each of one "
                f"{IMAGE_PREFIX}NAME"
            )
        if source in images and source not in targets:
            raise ValueError(
                f"{where}: {_RENAME} has rename_map {source} -> {target}, which leaves the policy "
                f"without {source}; take one of the two names"
            )
    robots = {target: source for source, target in rename_map.items()}
    return {
        key: robots.get(key, key) for key in images if key in robots or not is_empty_camera(key)
    }


def is_empty_camera(key: str) -> bool:
    """Whether an image is one of those that lerobot adds and masks out."""
    return key.removeprefix(IMAGE_PREFIX).startswith("empty_camera_")


def _modes(file: Path, config: Mapping[str, typing.Any]) -> dict[str, str]:
    """lerobot's modes of normalisation, by kind of feature."""
    given = config.get("normalization_mapping") or {}
    modes = {kind: given.get(kind, _IDENTITY) for kind in ("VISUAL", "STATE", "ACTION")}
    for kind, mode in {**given, **modes}.items():
        allowed = (_IDENTITY,) if kind == "VISUAL" else (*MODES, _IDENTITY)
        if kind not in modes or mode not in allowed:
            known = ", ".join(allowed) if kind in modes else f"only {', '.join(modes)}"
            raise ValueError(f"{file} has normalization_mapping {kind}: {mode}, allowed: {known}")
    return modes


def _check_normalizers(
    folder: Path,
    config: Mapping[str, typing.Any],
    modes: Mapping[str, str],
    before: Steps,
    after: Steps,
) -> None:
    """Refuse a processor that normalises otherwise than config.json says."""
    for file, steps, name, needed in (
        (BEFORE, before, _NORMALIZE, {STATE: "STATE", ACTION: "ACTION"}),
        (AFTER, after, _UNNORMALIZE, {ACTION: "ACTION"}),
    ):
        if not steps:
            continue
        where, settings = f"{folder}/{file}.json: {name}", steps[name]
        norm_map = settings.get("norm_map") or {}
        for kind in modes:
            if (mode := norm_map.get(kind, _IDENTITY)) != modes[kind]:
                raise ValueError(
                    f"{where} has norm_map {kind}: {mode}, but config.json has "
                    f"normalization_mapping {kind}: {modes[kind]}; make them say the same"
                )
        features = {key: entry["type"] for key, entry in (settings.get("features") or {}).items()}
        for key, kind in needed.items():
            if features.get(key) != kind and modes[kind] != _IDENTITY:
                raise ValueError(
                    f"{where} has features without {key}, which would not be normalised, but "
                    f"config.json has normalization_mapping {kind}: {modes[kind]}"
                )


def _relative(
    folder: Path,
    config: Mapping[str, typing.Any],
    before: Steps,
    after: Steps,
    state_dim: int,
    action_dim: int,
) -> list[tuple[int, int]]:
    """The dimensions of an action that are relative to the same of the state."""
    is_relative = bool(config.get("use_relative_actions", False))
    for file, steps, name in ((BEFORE, before, _RELATIVE), (AFTER, after, _ABSOLUTE)):
        enabled = bool(steps.get(name, {}).get("enabled", False))
        if steps and enabled != is_relative:
            raise ValueError(
                f"{folder}/{file}.json: {name} has enabled {enabled}, but config.json has "
                f"use_relative_actions {is_relative}; make them say the same"
            )
    if not is_relative:
        return []
    step = before.get(_RELATIVE, {})
    excluded = step.get("exclude_joints", config.get("relative_exclude_joints", ["gripper"]))
    names = step.get("action_names", config.get("action_feature_names")) or []
    words = [str(word).lower() for word in excluded or [] if word]
    kept = {at for at, name in enumerate(names) if any(word in str(name).lower() for word in words)}
    dims = [at for at in range(action_dim) if at not in kept]
    if state_dim < action_dim:
        raise ValueError(
            f"{folder}/config.json has use_relative_actions, but a state of {state_dim} dimensions "
            f"for an action of {action_dim}, so that they cannot be relative to it"
        )
    return [(at, at) for at in dims]


def _backbone(
    folder: Path, config: Mapping[str, typing.Any], backbone: typing.Any, before: Steps
) -> PaliGemmaCfg:
    cfg = typing.cast(PaliGemmaCfg, backbone)
    changes: dict[str, typing.Any] = {
        "instructions": "lerobot" if config["type"] == "pi0" else "openpi"
    }
    if "tokenizer_max_length" in config:
        changes["max_tokens"] = config["tokenizer_max_length"]
    if "image_resolution" in config:
        changes["image"] = cfg.image.replace(size=tuple(config["image_resolution"]))
    if "paligemma_variant" in config:
        changes["gemma"] = variant(folder, "paligemma_variant", config)
    settings = before.get(_TOKENIZE, {})
    longest = settings.get("max_length", config.get("tokenizer_max_length"))
    if longest != config.get("tokenizer_max_length", longest):
        raise ValueError(
            f"{folder}/{BEFORE}.json: {_TOKENIZE} has max_length {longest}, but config.json has "
            f"tokenizer_max_length {config['tokenizer_max_length']}; make them say the same"
        )
    if "paligemma" not in (name := settings.get("tokenizer_name") or "paligemma").lower():
        raise ValueError(
            f"{folder}/{BEFORE}.json: {_TOKENIZE} has tokenizer_name {name}, allowed: that of "
            "PaliGemma; other words would have other tokens"
        )
    return cfg.replace(**changes)


def _head(file: Path, config: Mapping[str, typing.Any], head: typing.Any) -> PiExpertHeadCfg:
    cfg = typing.cast(PiExpertHeadCfg, head)
    changes: dict[str, typing.Any] = {
        name: config[name] for name in ("min_period", "max_period") if name in config
    }
    changes["version"] = config["type"]
    if "num_inference_steps" in config:
        changes["num_denoise_steps"] = config["num_inference_steps"]
    if "action_expert_variant" in config:
        expert = variant(file.parent, "action_expert_variant", config)
        changes |= {name: getattr(expert, name) for name in ("width", "mlp_dim", "num_heads")}
    dims = [config[name] for name in ("max_state_dim", "max_action_dim") if name in config]
    if config["type"] == "pi05":
        dims = dims[-1:]  # its head does not see the state
    if len(set(dims)) > 1:
        raise ValueError(
            f"{file} has max_state_dim {dims[0]} and max_action_dim {dims[1]}, allowed: the same "
            "for both"
        )
    if dims:
        changes["max_dims"] = dims[0]
    return cfg.replace(**changes)


def variant(folder: Path, name: str, config: Mapping[str, typing.Any]) -> GemmaCfg:
    """The sizes that a setting names.

    Raises:
        ValueError: For a name that is not in `VARIANTS`.
    """
    if config[name] not in VARIANTS:
        raise ValueError(
            f"{folder}/config.json has {name} {config[name]}, allowed: {', '.join(VARIANTS)}; "
            "merge adapters before"
        )
    return VARIANTS[config[name]]
