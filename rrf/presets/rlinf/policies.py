"""The policy of a config of RLinf as ours."""

import functools
import typing
from collections.abc import Callable

from rrf.algorithms.vla.configs import PolicyGradientCfg, VLAPPOCfg
from rrf.networks.vlm.configs import LoRACfg
from rrf.policies.vla.configs import FlowHeadCfg, ValueHeadCfg
from rrf.policies.vla.heads.action_tokens_configs import ActionTokenHeadCfg
from rrf.policies.vla.heads.groot_configs import NEW, GrootHeadCfg
from rrf.policies.vla.heads.oft_configs import OFTRegressionHeadCfg, OFTTokenHeadCfg
from rrf.policies.vla.heads.pi_configs import PiExpertHeadCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets import PRESETS
from rrf.presets.rlinf.source import Source
from rrf.runners.vla_rl.configs import VLARLRunnerCfg

_NOISE = {"flow_sde": "flow_sde", "flow_cps": "flow_cps", "reinflow": "reinflow"}
_NOISE |= {"flow_noise": "reinflow"}
_KINDS = ("openvla", "openvla_oft", "openpi", "openpi_rlinf", "gr00t", "gr00t_n1d7")
_IMITATED = {
    "pi0": "pi0-sft",
    "pi05": "pi05-sft",
    "gr00t": "groot-n15-sft",
    "gr00t_n1d7": "groot-n17-sft",
    "openvla": "openvla-sft",
    "openvla_oft": "openvla-oft-sft",
}
"""Family -> the preset that fine-tunes it by imitation."""


@functools.cache
def recipes() -> tuple[tuple[str, VLARLRunnerCfg], ...]:
    """The presets that train published families at their real size."""
    names = [name for name in PRESETS if "-grpo-" in name or "-ppo-" in name]
    presets = [(name, PRESETS.get(name)()) for name in names]
    return tuple(
        (name, cfg)
        for name, cfg in presets
        if isinstance(cfg, VLARLRunnerCfg) and isinstance(cfg.policy, VLMPolicyCfg)
        if cfg.device == "cuda"
    )


def family_of(source: Source) -> str | None:
    """The family of a config's policy; None without a counterpart."""
    kind = source.get("actor.model.model_type")
    if kind not in _KINDS:
        return None
    if not str(kind).startswith("openpi"):
        return kind
    name = str(source.get("actor.model.openpi.config_name", ""))
    is_newer = name.startswith("pi05") or source.get("actor.model.openpi.pi05")
    return "pi05" if is_newer or kind == "openpi_rlinf" else "pi0"


def refusal(source: Source) -> str | None:
    """Why there is no such policy here; None if there is."""
    if family_of(source):
        return None
    kind = source.get("actor.model.model_type")
    return (
        f"actor.model.model_type is {kind}, with a counterpart: {', '.join(_KINDS)}"
        if kind
        else "it has no actor.model.model_type"
    )


def policy_of(source: Source, algorithm: PolicyGradientCfg) -> VLMPolicyCfg:
    """The policy, before it is fitted to a simulator."""
    family = family_of(source)
    assert family is not None
    given = [cfg.policy for _, cfg in recipes() if _is_of(cfg.policy, family)]
    policy: typing.Any = given[0] if given else PRESETS.get(_IMITATED[family])().policy
    if family == "openvla_oft":  # RLinf's has tokens
        policy = next((p for p in given if _has_tokens(p)), policy)
    names = ("actor.model.model_type", "actor.model.openpi.config_name")
    source.became("policy", f"{family}, {type(policy.head).__name__}", *names)
    changes: dict[str, typing.Any] = {
        "head": _head(source, policy),
        "backbone": _backbone(source, policy, family),
        "value_head": _value_head(source, policy, algorithm),
    }
    chunk_length = source.count(name := "actor.model.num_action_chunks") or policy.chunk_length
    source.became("policy.chunk_length", chunk_length, name)
    changes["chunk_length"] = chunk_length
    steps = source.count(name := "actor.model.openpi.action_horizon")
    changes["predicted_steps"] = steps if steps and steps > chunk_length else 0
    source.became("policy.predicted_steps", steps, name)
    tag = source.get(name := "actor.model.embodiment_tag")
    if isinstance(policy.head, GrootHeadCfg) and tag in policy.head.tags:
        changes["embodiment"] = None if tag == NEW else tag
        source.became("policy.embodiment", tag, name)
    elif tag is not None:
        source.lacks(name, f"give it to the import: rrf models import … --statistics {tag}")
    return policy.replace(**changes)


def _has_tokens(policy: typing.Any) -> bool:
    return isinstance(policy.head, ActionTokenHeadCfg)


def _is_of(policy: typing.Any, family: str) -> bool:
    head = policy.head
    match family:
        case "openvla":
            return type(head) is ActionTokenHeadCfg
        case "openvla_oft":
            has_parallel_tokens = _has_tokens(policy) and type(head) is not ActionTokenHeadCfg
            return has_parallel_tokens or isinstance(head, OFTRegressionHeadCfg)
        case "gr00t" | "gr00t_n1d7":
            version = "n15" if family == "gr00t" else "n17"
            return isinstance(head, GrootHeadCfg) and head.version == version
    return isinstance(head, PiExpertHeadCfg) and head.version == family


def _head(source: Source, policy: VLMPolicyCfg) -> typing.Any:
    head, of_pi = policy.head, "actor.model.openpi."
    names = [f"{part}.sampling_params.temperature_train" for part in ("rollout", "algorithm")]
    if (temperature := source.first(*names, read=source.number)) is not None:
        if isinstance(head, ActionTokenHeadCfg):
            head = head.replace(temperature=temperature)
            source.became("policy.head.temperature", temperature, *names)
        elif isinstance(head, FlowHeadCfg):
            for name in names:
                source.ignored(name, "denoising has no temperature")
        else:
            for name in names:
                source.lacks(name, f"{type(head).__name__} has no tokens; its noise has its own")
    if isinstance(head, OFTTokenHeadCfg):
        reads_state = bool(source.get(name := "actor.model.use_proprio", False))
        head = head.replace(uses_state=reads_state)
        source.became("policy.head.uses_state", reads_state, name)
    if not isinstance(head, FlowHeadCfg):
        return head
    changes: dict[str, typing.Any] = {}

    def take(names: str, ours: str, convert: Callable[[str], typing.Any]) -> None:
        for name in names.split():
            path = f"actor.model.{name}"
            if source.get(path) is not None and ours not in changes:
                changes[ours] = convert(path)
            source.became(f"policy.head.{ours}", changes.get(ours), path)

    def both(name: str) -> str:
        return f"openpi.{name} rl_head_config.{name}"

    steps = "num_steps denoising_steps rl_head_config.denoising_steps"
    take(steps, "num_denoise_steps", source.count)

    def method(path: str) -> str | None:
        given = source.get(path)
        if given not in _NOISE:
            raise ValueError(
                f"{path} is {given}, with a counterpart: {', '.join(_NOISE)}; the others have no "
                "log-probabilities"
            )
        return _NOISE[given]

    take(both("noise_method"), "noise_method", method)
    is_learned = changes.get("noise_method") == "reinflow"
    if is_learned:
        for part in ("openpi", "rl_head_config"):
            source.ignored(f"actor.model.{part}.noise_level", "the noise is learned")
            given = source.items(path := f"actor.model.{part}.noise_params", int | float)
            if len(given) > 1:
                changes |= {"max_std": float(given[0]), "min_std": float(given[1])}
                source.became("policy.head.max_std, min_std", given[:2], path)
    else:
        take(both("noise_level"), "noise_level", source.number)
    joint = source.first(*(f"actor.model.{name}" for name in both("joint_logprob").split()))
    changes["stochastic_steps"] = "all" if joint else "one"
    paths = [f"actor.model.{name}" for name in both("joint_logprob").split()]
    source.became("policy.head.stochastic_steps", changes["stochastic_steps"], *paths)
    if not source.get(f"{of_pi}use_dsrl"):
        for name in source.below(of_pi.removesuffix(".")):
            if name.startswith("dsrl_"):
                source.ignored(of_pi + name, "use_dsrl is false")
    return head.replace(**changes)


def _backbone(source: Source, policy: VLMPolicyCfg, family: str) -> typing.Any:
    backbone = policy.backbone
    changes: dict[str, typing.Any] = {}
    saves_memory = source.get(name := "actor.fsdp_config.gradient_checkpointing")
    if saves_memory is not None:
        changes["gradient_checkpointing"] = bool(saves_memory)
        source.became("policy.backbone.gradient_checkpointing", saves_memory, name)
    is_lora = bool(source.get("actor.model.is_lora", False))
    if family.startswith("openvla") or is_lora:
        rank = source.count("actor.model.lora_rank", 32)
        target = backbone.tuning.target if isinstance(backbone.tuning, LoRACfg) else None
        changes["tuning"] = LoRACfg(rank=rank, alpha=rank, target=target) if is_lora else "full"
        what = f"adapters of rank {rank}" if is_lora else "full"
        source.became("policy.backbone.tuning", what, "actor.model.is_lora")
        if is_lora:
            source.became("policy.backbone.tuning", what, "actor.model.lora_rank")
    elif family.startswith("pi"):
        is_frozen = bool(source.get(name := "actor.model.openpi.train_expert_only", False))
        changes["tuning"] = "frozen" if is_frozen else "full"
        source.became("policy.backbone.tuning", changes["tuning"], name)
        source.became("policy.backbone.tuning", changes["tuning"], "actor.model.is_lora")
    else:
        source.became("policy.backbone.tuning", backbone.tuning, "actor.model.is_lora")
    return backbone.replace(**changes)


def _value_head(
    source: Source, policy: VLMPolicyCfg, algorithm: PolicyGradientCfg
) -> ValueHeadCfg | None:
    names = ["actor.model.add_value_head", "actor.model.value_type"]
    if not isinstance(algorithm, VLAPPOCfg):
        for name in names:
            source.ignored(name, "no critic is used")
        return None
    head = (policy.value_head or ValueHeadCfg()).replace(level=algorithm.reward_level)
    parts = ("openpi", "rl_head_config")
    paths = [f"actor.model.{part}.detach_critic_input" for part in parts]
    if (detaches := source.first(*paths)) is not None:
        head = head.replace(detaches=bool(detaches))
        source.became("policy.value_head.detaches", detaches, *paths)
    source.became("policy.value_head", f"level {head.level}", *names)
    return head
