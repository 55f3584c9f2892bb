"""What a policy needs, computed and not measured: parameters, memory, operations.

It is built on torch's meta device, so nothing of its size is allocated.

    weights, gradients   as many bytes as the parameters have
    optimizer            Adam's two states in the parameters' format, or in 8 bits
    activations          inputs and outputs of all linear layers times the tokens that pass them;
                         with gradient checkpointing inputs of all blocks, and all of one block
    operations           2 per parameter and token (arXiv:2001.08361), without attention scores;
                         backward is twice forward

Memory that libraries, fragmentation and loaded images need comes on top.
"""

import dataclasses
import typing
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import nn

from rrf.data.dataset.action_representation import PREDICTED
from rrf.data.schema import ACTION, STATE
from rrf.networks.vlm.catalogue import located
from rrf.networks.vlm.configs import LoRACfg, TokenizerCfg
from rrf.networks.vlm.tokenizer import FILE
from rrf.networks.vlm.weights import ADAPTER
from rrf.policies.vla.configs import PolicyCfg
from rrf.policies.vla.psi0 import Psi0Policy
from rrf.policies.vla.psi0_configs import SYSTEM1
from rrf.policies.vla.vlm import prompt_of, prompt_state
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.runners.supervised.configs import SupervisedRunnerCfg

Tuning = typing.Literal["inference", "frozen", "lora", "full"]
Part = typing.Literal["vision", "language", "embeddings", "adapters", "head"]
PARTS: tuple[Part, ...] = ("vision", "language", "embeddings", "adapters", "head")
PROMPT_TOKENS = 30
ASSUMED = {
    "cameras": ["camera"],
    "image_size": (224, 224),
    "state_dim": 8,
    "action_dim": 7,
    "control_hz": 30.0,  # of policies in two parts
}
"""What a policy sees whose preset leaves it to the dataset."""
_BF16 = 2
_DIMS = {"mean": 0.0, "std": 1.0, "min": -1.0, "max": 1.0, "q01": -1.0, "q99": 1.0}


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes."""

    weights: int
    gradients: int
    optimizer: int
    activations: int  # of one sample

    def total(self, batch_size: int) -> int:
        """All of it, for a number of samples that are computed at once."""
        return self.fixed + self.activations * batch_size

    @property
    def fixed(self) -> int:
        """What does not depend on the number of samples."""
        return self.weights + self.gradients + self.optimizer

    def largest_batch(self, available: float) -> int:
        """The most samples at once that fit into so many bytes."""
        return max(0, int((available - self.fixed) // max(self.activations, 1)))


class Footprint:
    """The needs of one policy.

    Args:
        policy: The policy; on the meta device, or a real one.
        cfg: The run that trains it.
        prompt_tokens: Tokens of a prompt, with the marks of the family.
    """

    def __init__(
        self, policy: nn.Module, cfg: SupervisedRunnerCfg, prompt_tokens: int = PROMPT_TOKENS
    ):
        self.policy, self._cfg, self.prompt_tokens = policy, cfg, prompt_tokens
        self._of: dict[int, Part] = {
            id(p): _part(name, policy) for name, p in policy.named_parameters()
        }

    def parameters(self) -> dict[Part, int]:
        """Number of parameters by part. A table of embeddings that also gives the logits counts
        once."""
        counts: dict[Part, int] = dict.fromkeys(PARTS, 0)
        for parameter in self.policy.parameters():
            counts[self._of[id(parameter)]] += parameter.numel()
        return {part: count for part, count in counts.items() if count}

    def tokens(self) -> dict[Part, int]:
        """Tokens of one sample that pass each part."""
        policy = self._cfg.policy
        patches, merged = _image_tokens(policy)
        images = len(policy.past.views(policy.cameras))
        language = images * merged + self.prompt_tokens
        slots = policy.chunk_length * policy.action_dim
        reads = getattr(getattr(policy, "head", None), "reads", "pooled")
        if reads in ("slots", "slot_words", "language"):
            language += slots
        steps = 1 if reads == "pooled" else policy.chunk_length + 1
        return {"vision": images * patches, "language": language, "head": steps}

    def flops(self, training: bool) -> float:
        """Operations of one sample: of its chunk in inference, or of a training step that trains
        everything."""
        count, tokens = self.parameters(), self.tokens()
        head = getattr(self._cfg.policy, "head", None)
        passes = getattr(head, "num_noise_draws" if training else "num_denoise_steps", 1)
        forward = sum(
            2.0 * count.get(part, 0) * num * (passes if part == "head" else 1)
            for part, num in tokens.items()
        )
        return forward * (3 if training else 1)

    def memory(self, tuning: Tuning) -> Memory:
        """What one process needs, if nothing is divided among several."""
        trained = [p for p in self.policy.parameters() if self._is_trained(p, tuning)]
        weights = sum(p.numel() * p.element_size() for p in self.policy.parameters())
        gradients = sum(p.numel() * p.element_size() for p in trained)
        state = 1 if self._cfg.optimizer.is_8bit else None
        optimizer = sum(2 * p.numel() * (state or p.element_size()) for p in trained)
        if self._cfg.ema and tuning != "inference":
            weights *= 2
        return Memory(weights, gradients, optimizer, self._activations(tuning))

    def _is_trained(self, parameter: nn.Parameter, tuning: Tuning) -> bool:
        part = self._of[id(parameter)]
        if tuning == "inference":
            return False
        if part == "head" or tuning == "full":
            return part != "adapters"
        return part == "adapters" and tuning == "lora"

    def _activations(self, tuning: Tuning) -> int:
        tokens = self.tokens()
        size = _BF16 if self._cfg.precision == "bf16" else None
        blocks = list(_blocks(self.policy))
        checkpoints = getattr(self._cfg.policy, "backbone", None)
        checkpoints = bool(checkpoints and checkpoints.gradient_checkpointing)
        kept = most = 0
        inner = {id(m) for block in blocks for m in block.modules()}
        for block in blocks:
            every = _linear_bytes(block.modules(), self._of, tokens, size)
            most = max(most, every)
            is_head = self._part_of(block) == "head"
            if tuning == "inference" or (tuning == "frozen" and not is_head):
                continue
            if checkpoints and not is_head:
                kept += _input_bytes(block, self._of, tokens, size)
            else:
                kept += every
        outside = [m for m in self.policy.modules() if id(m) not in inner]
        rest = _linear_bytes(outside, self._of, tokens, size)
        if tuning == "inference":
            return most + rest
        return kept + rest + (most if checkpoints or tuning == "frozen" else 0)

    def _part_of(self, module: nn.Module) -> Part | None:
        return next((self._of[id(p)] for p in module.parameters()), None)


def footprint(
    cfg: SupervisedRunnerCfg, tuning: Tuning = "full", instructions: Sequence[str] = ()
) -> Footprint:
    """The needs of the policy of a run config.

    Args:
        cfg: The config. What it leaves to the dataset is assumed (`ASSUMED`).
        tuning: "lora" adds adapters to the backbone: those of the config, or the default ones.
        instructions: The longest prompt with one of them is counted, if the policy has a tokenizer
            and it is here; otherwise a prompt has `PROMPT_TOKENS`.
    """
    policy, can_count = completed(cfg.policy), False
    if isinstance(policy, VLMPolicyCfg):
        old = policy.backbone.tuning
        new = "full"
        if tuning == "lora":
            new = old if isinstance(old, LoRACfg) else LoRACfg()
        tokenizer = policy.backbone.tokenizer
        if not (can_count := tokenizer_is_here(tokenizer)):
            tokenizer = TokenizerCfg()
        backbone = policy.backbone.replace(weights=None, tuning=new, tokenizer=tokenizer)
        policy = policy.replace(backbone=backbone)
    stats = {
        name: {key: [value] * dims for key, value in _DIMS.items()}
        for name, dims in (
            (STATE, policy.state_dim),
            (ACTION, policy.action_dim),
            (PREDICTED, policy.action_dim),
        )
    }
    with torch.device("meta"):
        built = policy.build(stats)
    run = cfg.replace(policy=policy)
    if not isinstance(policy, VLMPolicyCfg) or not (can_count and instructions):
        return Footprint(built, run)
    state_d = prompt_state(policy, np.zeros(policy.state_dim, np.float32), None)
    return Footprint(
        built,
        run,
        max(
            built.backbone.num_prompt_tokens(
                prompt_of(policy.prompt, policy.backbone.cleaned(instruction), state_d)
            )
            for instruction in instructions
        ),
    )


def tokenizer_is_here(cfg: TokenizerCfg) -> bool:
    """Whether a tokenizer needs no file, or its file is on this machine."""
    if cfg.files is None:
        return True
    try:
        return (located(cfg.files) / FILE).is_file()
    except ValueError:
        return False


def completed(policy: PolicyCfg) -> PolicyCfg:
    """A policy config in which nothing is left to the dataset."""
    most = getattr(getattr(policy, "head", None), "max_dims", None)  # pi0 pads both to this
    given = {
        name: min(value, most) if most and isinstance(value, int) else value
        for name, value in ASSUMED.items()
        if hasattr(policy, name)
        and not any(old if isinstance(old := getattr(policy, name), list | tuple) else [old])
    }
    return policy.replace(**given)


def _part(name: str, policy: nn.Module) -> Part:
    if ADAPTER in name:
        return "adapters"
    first, _, rest = name.partition(".")
    is_system1 = isinstance(policy, Psi0Policy) and name.startswith(SYSTEM1)
    if is_system1 or (first != "backbone" and not first.endswith("encoder")):
        return "head"
    if "image" in first or any(word.startswith("vis") for word in rest.split(".")[:2]):
        return "vision"
    owner = policy.get_submodule(name.rpartition(".")[0])
    return "embeddings" if isinstance(owner, nn.Embedding) else "language"


def _image_tokens(policy: PolicyCfg) -> tuple[int, int]:
    """Patches of an image in the vision tower, and its tokens in the language model."""
    backbone = getattr(policy, "backbone", None)
    if backbone is None:
        return 1, 1
    height, width = backbone.image.size
    towers = [backbone, *(getattr(backbone, n, None) for n in ("vision", "featurizer"))]
    patch = next(t.patch_size for t in towers if t is not None and hasattr(t, "patch_size"))
    patches = (height // patch) * (width // patch)
    return patches, patches // backbone.patches_per_token


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    """Repeated layers: members of the outermost lists of modules of one kind."""
    for child in module.children():
        members = list(child.children())
        is_list = isinstance(child, nn.ModuleList | nn.Sequential) and len(members) > 1
        if is_list and len({type(member) for member in members}) == 1:
            yield from members
        else:
            yield from _blocks(child)


def _linear_bytes(modules, of: dict[int, Part], tokens: dict[Part, int], size: int | None) -> int:
    return sum(
        (m.in_features + m.out_features)
        * _tokens_of(m, of, tokens)
        * (size or m.weight.element_size())
        for m in modules
        if isinstance(m, nn.Linear)
    )


def _input_bytes(
    block: nn.Module, of: dict[int, Part], tokens: dict[Part, int], size: int | None
) -> int:
    first = next((m for m in block.modules() if isinstance(m, nn.Linear)), None)
    if first is None:
        return 0
    return first.in_features * _tokens_of(first, of, tokens) * (size or first.weight.element_size())


def _tokens_of(module: nn.Linear, of: dict[int, Part], tokens: dict[Part, int]) -> int:
    part = of.get(id(module.weight), "language")
    return tokens.get("language" if part == "adapters" else part, 1)
