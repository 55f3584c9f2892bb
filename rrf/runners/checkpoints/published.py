"""Published policies as checkpoints of ours, and the other way."""

import warnings
from collections.abc import Collection, Mapping
from pathlib import Path

from rrf import atomic
from rrf.data.dataset.action_representation import PREDICTED
from rrf.data.dataset.floors import with_floors
from rrf.data.schema import ACTION, STATE
from rrf.networks.vlm.build import Dtype, Merge, merge_adapters
from rrf.networks.vlm.catalogue import located
from rrf.networks.vlm.configs import LoRACfg
from rrf.networks.vlm.weights import is_float32
from rrf.policies.vla.heads.pi_configs import PiExpertHeadCfg
from rrf.policies.vla.psi0 import Psi0Policy
from rrf.policies.vla.published.folders import with_tokenizer
from rrf.policies.vla.published.formats import FORMATS, Format, format_at
from rrf.policies.vla.published.overlay import Overlay
from rrf.policies.vla.vlm import VLMPolicy
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.runners.checkpoints import checkpoint, lerobot_policies
from rrf.runners.checkpoints.deployable import VLA, described, kind_of
from rrf.runners.checkpoints.imported import save_imported
from rrf.runners.supervised.configs import SupervisedRunnerCfg

_NORMALIZED = (STATE, ACTION)


def fill(policy: object, name: str) -> None:
    """Copy the weights of a published policy into a new one.

    Args:
        policy: Filled in place.
        name: A name in the catalogue, or a directory.

    Raises:
        ValueError: If it is not here, or if the weights do not fit exactly.
    """
    if not isinstance(policy, VLMPolicy):
        raise ValueError(
            f"pretrained is '{name}', but {type(policy).__name__} has no published weights; leave "
            "it out"
        )
    folder = located(name)
    format_at(folder).fill(policy, folder)


def fitted(
    cfg: SupervisedRunnerCfg, folder: Path, layout: Format, group: str | None
) -> SupervisedRunnerCfg:
    """`cfg` with the policy in a folder: what its files know, and all weights its own.

    Raises:
        ValueError: If the policy of `cfg` has no backbone, or if the folder has several statistics.
    """
    if not isinstance(cfg.policy, VLMPolicyCfg):
        raise ValueError(
            f"the preset's policy is {type(cfg.policy).__name__}; choose one with a backbone, e.g. "
            f"--preset {layout.preset(folder)}"
        )
    policy = layout.fitted(folder, cfg.policy, group)
    # All weights come from the folder and are saved, so no other files are needed later.
    backbone = policy.backbone.replace(weights=None, tuning="full")
    if backbone.dtype == "bf16" and is_float32(folder):  # e.g. of merged adapters
        backbone = backbone.replace(dtype="fp32")
    policy = with_tokenizer(policy.replace(backbone=backbone), folder)
    return cfg.replace(policy=policy, pretrained=None, ema=None)


def require_said(folder: Path, layout: Format, paths: Collection[str]) -> None:
    """Refuse an import that leaves open what no file in the folder says.

    Args:
        folder: The published policy.
        layout: Its layout.
        paths: The dotted overrides that were given.

    Raises:
        ValueError: Saying what to give.
    """
    for name, text in layout.unsaid(folder).items():
        if f"policy.{name}" not in paths:
            raise ValueError(f"no file in {folder} says {text}")


def import_policy(
    name: str,
    layout: Format,
    cfg: SupervisedRunnerCfg,
    out: Path,
    group: str | None = None,
    norm_stats: Mapping[str, Mapping] | None = None,
    overlay: Overlay | None = None,
) -> Path:
    """Write a published policy as a checkpoint.

    Args:
        name: A name in the catalogue, or a directory.
        layout: Its layout.
        cfg: The run config of the checkpoint, from `fitted`.
        out: A directory that does not exist or is empty.
        group: Which of several statistics.
        norm_stats: A dataset's statistics to use instead of the published ones, with the floors of
            `cfg`. Published ones are used as they are.
        overlay: Newer weights of it.

    Raises:
        ValueError: If `out` has content, if weights or statistics do not fit, or if cameras or
            image size are unknown.
    """
    checkpoint.require_new(out)
    folder, policy_cfg = overlay.folder if overlay else located(name), cfg.policy
    assert isinstance(policy_cfg, VLMPolicyCfg)
    lacking = [n for n in ("cameras", "image_size") if not any(getattr(policy_cfg, n))]
    if lacking:
        raise ValueError(
            f"{folder} does not say the policy's {' and '.join(lacking)}; give them, e.g. "
            "policy.cameras='[front]' policy.image_size='[224, 224]'"
        )
    if norm_stats:
        dims = {key: [str(d) for d in range(len(norm_stats[key]["mean"]))] for key in _NORMALIZED}
        stats, raised = with_floors(norm_stats, cfg.floors, dims)
        for line in raised:
            warnings.warn(f"the given statistics: {line}", stacklevel=2)
    else:
        stats = layout.norm_stats(folder, policy_cfg, group)
    if PREDICTED not in stats and not policy_cfg.representation.is_absolute:
        raise ValueError(
            "the policy's actions are relative to the state, and the statistics that are given say "
            f"nothing of those ({PREDICTED}); leave out --norm-stats, or give the norm_stats.json "
            "of a checkpoint that was trained with the same policy.relative_actions"
        )
    policy: VLMPolicy = policy_cfg.build(stats)
    layout.fill(policy, folder)
    return save_imported(name, cfg, policy, stats, out, overlay.facts() if overlay else {})


def export_policy(
    path: Path, layout: str, out: Path, group: str | None = None, dtype: Dtype | None = None
) -> Merge:
    """Write the policy of a checkpoint in a published layout, with adapters merged.

    The merged layers are compared with those of the adapters before anything is written.

    Args:
        path: The checkpoint.
        layout: A name in `FORMATS`.
        out: A directory that does not exist or is empty.
        group: The name of its statistics, where a layout has several.
        dtype: Number format of the weights; None: float32 if there are adapters, else as they are.

    Raises:
        ValueError: For an unknown layout, a policy of another family, if `out` has content, or if
            most of what the adapters learned would be rounded away.
    """
    if layout not in FORMATS:
        raise ValueError(f"--format is '{layout}', allowed: {', '.join(FORMATS)}")
    checkpoint.require_new(out)
    if (kind := kind_of(path)) != VLA:
        raise ValueError(
            f"{path} holds {described(kind)}, which has no published layout; see: rrf export"
        )
    policy = checkpoint.load_policy(path)
    if lerobot_policies.is_own(policy):
        if dtype:
            raise ValueError("--dtype is for policies with a backbone of rrf's; leave it out")
        lerobot_policies.export_policy(policy, layout, out, group)
        return Merge()
    if not isinstance(policy, VLMPolicy):
        raise ValueError(
            f"{path} holds a {type(policy).__name__}, which has no published layout; only policies "
            "with a backbone (presets pi0, pi05, openvla, groot) and lerobot's own have one"
        )
    if isinstance(policy, Psi0Policy):
        raise ValueError(
            f"{path} holds a policy in two parts, which no published layout has; rrf models split "
            "writes its parts"
        )
    if policy.past:
        raise ValueError(
            f"{path} holds a policy that sees past frames (past_images, past_states), which no "
            "published layout has"
        )
    has_adapters = isinstance(policy.cfg.backbone.tuning, LoRACfg)
    merge = merge_adapters(policy, dtype)
    if dtype or has_adapters:
        policy.cfg = _in_dtype(policy.cfg, dtype or "fp32")
    with atomic.directory(out) as tree:
        FORMATS[layout].write(policy, checkpoint.load_norm_stats(path), tree, group)
    return merge


def _in_dtype(cfg: VLMPolicyCfg, dtype: Dtype) -> VLMPolicyCfg:
    """`cfg` as it describes a policy whose weights are of `dtype`."""
    head = cfg.head.replace(dtype=dtype) if isinstance(cfg.head, PiExpertHeadCfg) else cfg.head
    return cfg.replace(backbone=cfg.backbone.replace(dtype=dtype, tuning="full"), head=head)
