"""Checkpoints: directories that are written atomically, checked by a manifest and loaded strictly.

global_step_N/
    config.yaml             the resolved config of the run
    model.safetensors       the weights to deploy (the averaged ones if the run averages weights);
                            above 5 GB several files and an index, see `rrf.networks.tensor_files`
    norm_stats.json         the statistics with which the policy normalises
    interface.json          the environment's interface; only for state-based policies
    manifest.json           SHA-256 of every file, kind of policy, step, lineage, format_version
    trainer_state/          only needed for training; a deployable checkpoint does not have it
        optimizer.safetensors   optimizer state; under "weights/" the weights being trained, if
                                averaged weights are deployed
        state.json              step and accumulated time

Torch is imported by the functions that read or write weights, so that commands find a checkpoint
without it.
"""

import dataclasses
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rrf import atomic, formats, workspace
from rrf.config import first_error, read_yaml
from rrf.lineage import Lineage
from rrf.policies.vla.configs import PolicyCfg
from rrf.run_directory import TrainingResult
from rrf.runners.checkpoints.deployable import (
    KIND,
    TRAINER_STATE,
    copy_deployable,
)
from rrf.runners.configs import RunnerCfg

if TYPE_CHECKING:
    import torch
    from torch import nn

CONFIG, WEIGHTS, NORM_STATS = "config.yaml", "model.safetensors", "norm_stats.json"
_OPTIMIZER = "optimizer.safetensors"
_PREFIX = "global_step_"


@dataclasses.dataclass
class TrainerState:
    """The state that a run needs, besides the deployable weights, to resume exactly."""

    tensors: "dict[str, torch.Tensor]"
    facts: dict  # plain data


def save(
    run_dir: str | Path,
    step: int,
    config: RunnerCfg,
    weights: "Mapping[str, torch.Tensor]",
    norm_stats: Mapping,
    trainer_state: TrainerState,
    lineage: Lineage,
    texts: Mapping[str, str] | None = None,
) -> Path:
    """Write `<run_dir>/global_step_<step>` atomically; replaces a checkpoint of the same step.

    `texts` are further files to deploy, by name.
    """
    from rrf.networks import tensor_files

    path = Path(run_dir) / f"{_PREFIX}{step}"
    with atomic.directory(path) as root:
        (root / CONFIG).write_text(config.to_yaml(), encoding="utf-8")
        tensor_files.write(root / WEIGHTS, weights)
        (root / NORM_STATS).write_text(json.dumps(norm_stats, indent=2, allow_nan=False) + "\n")
        for name, text in (texts or {}).items():
            (root / name).write_text(text, encoding="utf-8")
        (root / TRAINER_STATE).mkdir()
        tensor_files.write(root / TRAINER_STATE / _OPTIMIZER, trainer_state.tensors)
        (root / TRAINER_STATE / "state.json").write_text(
            json.dumps(trainer_state.facts, indent=2) + "\n"
        )
        facts = {"step": step, "lineage": lineage.to_dict(), KIND: config.policy_kind}
        atomic.write_manifest(root, **formats.CHECKPOINT.mark, **facts)
    return path


def steps(run_dir: str | Path) -> dict[int, Path]:
    """The checkpoints of a run by step, the oldest first. Names like `global_step_2.bak` are not
    checkpoints.
    """
    paths = Path(run_dir).glob(f"{_PREFIX}*")
    numbered = [(path.name.removeprefix(_PREFIX), path) for path in paths]
    return dict(sorted((int(step), path) for step, path in numbered if step.isdecimal()))


def latest(run_dir: str | Path) -> Path | None:
    """The newest checkpoint of a run, or None."""
    return next(reversed(steps(run_dir).values()), None)


def find(path: str | Path, *, newest: bool = False) -> Path:
    """The checkpoint at `path`, which may also be a run directory, from here or in the workspace,
    or one that rrf ships (`workspace.find`). Of a finished run it is the one that its result names
    (with validations, the best), of another, or where `newest` is asked for, the newest.

    Raises:
        ValueError: If there is no checkpoint at `path`.
    """
    if (name := str(path).removeprefix("models:/")) != str(path):
        raise ValueError(
            f"'{path}' is in the model registry; fetch it first: rrf models fetch {name} --out "
            "DIRECTORY"
        )
    path = workspace.find(path)
    if (path / atomic.MANIFEST).is_file():
        return path
    if last := latest(path):
        result = None if newest else TrainingResult.read(path)
        # Only the name is used, because the run may have been moved.
        chosen = path / Path(result.checkpoint).name if result else last
        return chosen if chosen.is_dir() else last
    run = workspace.state() / "runs" / path
    hint = f"; that run lies in {run}" if path.name and latest(run) else ""
    raise ValueError(
        f"'{path}' is neither a checkpoint (it has no {atomic.MANIFEST}) nor a run directory with "
        f"a checkpoint{hint or '; those of this workspace: rrf runs'}"
    )


def load_config(checkpoint: str | Path) -> dict:
    """The resolved config with which the checkpoint was trained, as plain data.

    Raises ValueError like `read_yaml`.
    """
    return read_yaml(Path(checkpoint) / CONFIG)


def config_differences(saved: Mapping, current: Mapping, free: Collection[str] = ()) -> list[str]:
    """The differences of two configs, as "algorithm.gamma: 0.99 -> 0.98". Ignores fields `free`."""
    lines = []
    for name in sorted({*saved, *current} - set(free)):
        old, new = saved.get(name), current.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            lines += [f"{name}.{line}" for line in config_differences(old, new)]
        elif old != new:
            lines.append(f"{name}: {old} -> {new}")
    return lines


def load_norm_stats(checkpoint: str | Path) -> dict:
    """The statistics with which the checkpoint's policy normalises."""
    file = Path(checkpoint) / NORM_STATS
    return atomic.parse_json(file.read_bytes(), file)


def load_policy(checkpoint: str | Path, device: str = "cpu") -> "nn.Module":
    """The policy in a checkpoint, in evaluation mode, on one device. For weights that one cannot
    hold, see `rrf.runners.checkpoints.placement`.

    Raises:
        ValueError: If a file is missing, changed or unlisted, if the weights do not fit the config,
            or if the policy was trained on several robots and acts as none of them.
    """
    cfg = deployed_cfg(checkpoint)
    policy = cfg.rebuild(load_norm_stats(checkpoint), Path(checkpoint))
    load_weights(policy, checkpoint)
    return policy.to(device).eval()


def deployed_cfg(checkpoint: str | Path) -> PolicyCfg:
    """The config of the policy in a checkpoint, whose files are checked. Raises like
    `load_policy`."""
    atomic.check_manifest(checkpoint)
    try:
        cfg = PolicyCfg.from_dict(load_config(checkpoint)["policy"])
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{checkpoint}/{CONFIG} has no valid policy config: {first_error(error)}"
        ) from error
    cfg.require_one_robot()
    return cfg


def load_weights(
    policy: "nn.Module", checkpoint: str | Path, may_lack: tuple[str, ...] = ()
) -> None:
    """Fill `policy` with the deployable weights of a checkpoint.

    Args:
        policy: Filled in place.
        checkpoint: A checkpoint directory.
        may_lack: Beginnings of names of parameters that may be missing in the checkpoint. These
            keep their values then.

    Raises:
        ValueError: If parameters differ in name or shape. The message lists them, and nothing is
            loaded.
    """
    weights = read_weights(checkpoint)
    if may_lack:
        present = {n: value for n, value in policy.state_dict().items() if n.startswith(may_lack)}
        weights = present | weights
    fill(policy, weights, what=str(checkpoint))


def read_weights(checkpoint: str | Path) -> "dict[str, torch.Tensor]":
    """The deployable weights of a checkpoint, by name."""
    from rrf.networks import tensor_files

    return tensor_files.read(Path(checkpoint) / WEIGHTS)


def fill(policy: "nn.Module", weights: "Mapping[str, torch.Tensor]", what: str) -> None:
    """Copy `weights` into `policy`.

    Raises:
        ValueError: If names or shapes do not agree exactly. The message names the differences.
    """
    from rrf.networks import tensor_files

    check_architecture(policy, tensor_files.shapes_of(weights), what)
    policy.load_state_dict(dict(weights))


def check_architecture(
    policy: "nn.Module", shapes: Mapping[str, tuple[int, ...]], what: str
) -> None:
    """Raise ValueError if `shapes` are not those of the policy's tensors, name by name."""
    from rrf.networks import tensor_files

    wrong = tensor_files.differences(
        tensor_files.shapes_of(policy.state_dict()),
        shapes,
        missing="{} is not in the checkpoint",
        unexpected="{} is only in the checkpoint",
    )
    if wrong:
        raise ValueError(
            f"{what} does not have the architecture of the configured policy: "
            f"{tensor_files.listed(wrong)}"
        )


def load_trainer_state(checkpoint: str | Path) -> TrainerState:
    """The trainer state of a checkpoint.

    Raises:
        ValueError: If the checkpoint is a deployable one, which has no trainer state.
    """
    from rrf.networks import tensor_files

    root = Path(checkpoint) / TRAINER_STATE
    if not root.is_dir():
        raise ValueError(
            f"{checkpoint} is a deployable checkpoint without {TRAINER_STATE}/, so training cannot "
            f"resume from it; start a new run from its weights with init_from={checkpoint}"
        )
    facts = atomic.parse_json((root / "state.json").read_bytes(), root / "state.json")
    return TrainerState(tensor_files.read(root / _OPTIMIZER), facts)


def export(checkpoint: str | Path, out: str | Path) -> Path:
    """Copy the deployable part of a checkpoint to the directory `out`, atomically.

    The copy has its own manifest.
    """
    out = Path(out)
    with atomic.directory(out) as root:
        copy_deployable(checkpoint, root)
    return out


def require_new(out: Path) -> None:
    """Raise ValueError if there is something at `out`."""
    if not atomic.is_vacant(out):
        raise ValueError(f"--out {out} exists already; give a directory that is new or empty")


def changed_fields(path: Path, cfg: RunnerCfg, free: Collection[str] = ()) -> list[str]:
    """The top-level fields, apart from `free`, in which the config of a checkpoint differs."""
    saved, current = load_config(path), cfg.to_dict()
    names = {*saved, *current} - set(free)
    return sorted(name for name in names if saved.get(name) != current.get(name))


def prune(run_dir: str | Path, num_kept: int, keep: Collection[int] = ()) -> None:
    """Remove all checkpoints of a run but the newest `num_kept` and those of the steps `keep`."""
    for step, path in list(steps(run_dir).items())[:-num_kept]:
        if step not in keep:
            atomic.remove(path)
