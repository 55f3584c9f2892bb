"""The two parts of a policy in two parts as artifacts of their own, and the policy that two make.

Each artifact is a deployable checkpoint like any other, with the tensors of its part alone and a
config in which the other part is absent. System 1's names the fingerprint of the System 2 that it
was trained with. Two parts make a policy only if System 1 reads what System 2 sends, which takes
the same System 2: other weights say the same in other numbers. So System 1 can be trained again on
a frozen System 2 (`freezes_system2`), and the earlier one be replaced.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch

from rrf import atomic
from rrf.networks import tensor_files
from rrf.networks.vlm.build import BASE
from rrf.policies.vla.psi0_configs import (
    SYSTEM1,
    SYSTEM2,
    AbsentBackboneCfg,
    AbsentHeadCfg,
    Psi0PolicyCfg,
)
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.deployable import deployable_digest, load_lineage, manifest_of
from rrf.runners.configs import RunnerCfg

_WEIGHTS = "model"  # how the names of files with weights begin
_SEEN = ("cameras", "image_size", "prompt")
_SENT = ("feature_tokens", "feature_width", "feature_dtype", "pooling")


def split(path: Path, out: Path) -> tuple[Path, Path]:
    """Write the parts of a checkpoint to `out`/system2 and `out`/system1, `out` atomically.

    Returns:
        Their directories, System 2's first.

    Raises:
        ValueError: If the policy has not two parts; or if a file is missing, changed or unlisted.
    """
    run, policy = _read(path)
    if not (policy.has_system1 and policy.has_system2):
        raise ValueError(f"{path} is one part of a policy already: {_named(policy)}")
    digest = deployable_digest(path)
    weights, files = checkpoint.read_weights(path), _files(path)
    system2, system1 = _by_part(weights)
    seeing = policy.replace(head=AbsentHeadCfg(), value_head=None, fast_view=None)
    acting = policy.replace(
        backbone=AbsentBackboneCfg(fingerprint=fingerprint(policy, system2, files))
    )
    with atomic.directory(out) as root:
        names = {"parent_checkpoint": digest}
        _write(root / "system2", run, seeing, system2, path, names, files)
        _write(root / "system1", run, acting, system1, path, names, {})
    return out / "system2", out / "system1"


def join(system2: Path, system1: Path, out: Path, feature_period: int | None = None) -> Path:
    """Write the policy of two parts to `out`, atomically. Its config, statistics and lineage are
    those of System 1.

    Args:
        system2: What `split` wrote as System 2.
        system1: What it wrote as System 1.
        out: The directory.
        feature_period: See `Psi0PolicyCfg`; None for that of System 1.

    Raises:
        ValueError: If one of them is not that part, or if System 1 was trained with another System
            2 (the message says in what they differ); or if a file is missing, changed or unlisted.
    """
    _, seeing = _read(system2)
    run, acting = _read(system1)
    for where, policy, what in ((system2, seeing, "System 2"), (system1, acting, "System 1")):
        if _named(policy) != f"{what} alone":
            raise ValueError(
                f"{where} is {_named(policy)}, not {what} alone; write the parts of a policy with "
                "rrf models split CHECKPOINT --out DIRECTORY"
            )
    assert isinstance(acting.backbone, AbsentBackboneCfg)
    digests = [deployable_digest(path) for path in (system2, system1)]
    if wrong := [
        f"{name} is {getattr(acting, name)} in System 1, {getattr(seeing, name)} in System 2"
        for name in (*_SENT, *_SEEN)
        if getattr(acting, name) != getattr(seeing, name)
    ]:
        raise ValueError(f"{system1} does not fit {system2}: {'; '.join(wrong)}")
    files, weights = _files(system2), checkpoint.read_weights(system2)
    if fingerprint(seeing, weights, files) != acting.backbone.fingerprint:
        raise ValueError(
            f"{system1} does not fit {system2}: it was trained with a System 2 of other weights, "
            "whose features mean something else; take that one, or train System 1 on this one "
            "(init_from=CHECKPOINT policy.freezes_system2=true)"
        )
    own = checkpoint.read_weights(system1)
    for where, names, beginnings in ((system2, weights, SYSTEM2), (system1, own, SYSTEM1)):
        if foreign := [name for name in names if not name.startswith(beginnings)]:
            raise ValueError(f"{where} has a weight of the other part: {foreign[0]}")
    period = acting.feature_period if feature_period is None else feature_period
    joined = acting.replace(backbone=seeing.backbone, feature_period=period)
    names = {"system2_checkpoint": digests[0], "system1_checkpoint": digests[1]}
    _write(out, run, joined, weights | own, system1, names, files)
    return out


def fingerprint(
    policy: Psi0PolicyCfg, weights: Mapping[str, torch.Tensor], files: Mapping[str, bytes]
) -> str:
    """A digest of what decides System 2's features: its config, its weights, and its files."""
    own = policy.backbone
    words = own.tokenizer.replace(files=None)  # the tokenizer itself is one of the files
    own = own.replace(weights=None, tuning="full", gradient_checkpointing=False, tokenizer=words)
    contents = {
        # where its published weights are does not matter
        name: atomic.parse_json(content, name)["digest"]
        if name == BASE
        else hashlib.sha256(content).hexdigest()
        for name, content in files.items()
    }
    facts = {name: getattr(policy, name) for name in (*_SENT, *_SEEN)}
    facts |= {"backbone": own.to_dict(), "files": contents}
    tensors = dict(sorted(weights.items()))
    return atomic.digest_of(facts | {"weights": tensor_files.digest_of(tensors)})


def _read(path: Path) -> tuple[RunnerCfg, Psi0PolicyCfg]:
    """The configs of the run and of the policy of a checkpoint, whose files are checked."""
    atomic.check_manifest(path)
    run = RunnerCfg.from_dict(checkpoint.load_config(path))
    policy = getattr(run, "policy", None)
    if not isinstance(policy, Psi0PolicyCfg):
        raise ValueError(
            f"{path} has not two parts: its policy is a {type(policy).__name__}, not a "
            "Psi0PolicyCfg"
        )
    return run, policy


def _named(policy: Psi0PolicyCfg) -> str:
    if not policy.has_system1:
        return "System 2 alone"
    return "a whole policy" if policy.has_system2 else "System 1 alone"


def _by_part(
    weights: Mapping[str, torch.Tensor],
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The tensors of System 2, and those of System 1."""
    system2, system1 = (
        {name: value for name, value in weights.items() if name.startswith(beginnings)}
        for beginnings in (SYSTEM2, SYSTEM1)
    )
    assert len(system2) + len(system1) == len(weights), "a weight of neither part"
    return system2, system1


def _files(path: Path) -> dict[str, bytes]:
    """The files of System 2 besides its weights: its tokenizer, and which base it needs."""
    listed = atomic.read_manifest(path)["files"]
    own = {checkpoint.CONFIG, checkpoint.NORM_STATS}
    return {
        name: (path / name).read_bytes()
        for name in sorted(listed)
        if "/" not in name and name not in own and not name.startswith(_WEIGHTS)
    }


def _write(
    out: Path,
    run: RunnerCfg,
    policy: Psi0PolicyCfg,
    weights: Mapping[str, torch.Tensor],
    source: Path,
    origins: Mapping[str, str],
    files: Mapping[str, bytes],
) -> None:
    """A deployable checkpoint, whose statistics and facts are those of `source`, but for its
    `origins`: fields of its lineage."""
    saved = {name: value for name, value in manifest_of(source).items() if name != "files"}
    lineage = load_lineage(source).replace(**origins)
    with atomic.directory(out) as root:
        text = run.replace(policy=policy).to_yaml()
        (root / checkpoint.CONFIG).write_text(text, encoding="utf-8")
        tensor_files.write(root / checkpoint.WEIGHTS, weights)
        (root / checkpoint.NORM_STATS).write_bytes((source / checkpoint.NORM_STATS).read_bytes())
        for name, content in files.items():
            (root / name).write_bytes(content)
        atomic.write_manifest(root, **{**saved, "lineage": lineage.to_dict()})
