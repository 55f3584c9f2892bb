"""lerobot's own policies as checkpoints of ours, and back.

Their folders say everything: settings, statistics, weights. So a preset gives only the settings of
a further training.
"""

import typing
from collections.abc import Mapping
from pathlib import Path

from rrf import atomic
from rrf.networks.vlm.catalogue import located
from rrf.policies.vla.lerobot.configs import LerobotPolicyCfg
from rrf.policies.vla.lerobot.kinds import KINDS
from rrf.runners.checkpoints.imported import save_imported
from rrf.runners.supervised.configs import SupervisedRunnerCfg

_DENOISERS = ("diffusion", "vqbet", "multi_task_dit")
_PRESETS = {"act": "lerobot-act", **dict.fromkeys(_DENOISERS, "lerobot-diffusion")}
_OPTIONS = "policy.options."


def is_at(folder: Path) -> bool:
    """Whether a folder holds one of lerobot's own policies, by its config.json."""
    return _kind(folder) in KINDS


def preset_of(folder: Path) -> str:
    """The preset with lerobot's recipe for the policy in a folder, or for the one most like it."""
    return _PRESETS.get(_kind(folder), "lerobot-smolvla")


def import_policy(
    name: str, cfg: SupervisedRunnerCfg, overrides: Mapping[str, typing.Any], out: Path
) -> SupervisedRunnerCfg:
    """Write a policy as a checkpoint.

    Args:
        name: A directory: lerobot's `pretrained_model`.
        cfg: The run whose training settings the checkpoint gets.
        overrides: Changes of them; of the policy itself only the directories of the models in it.
        out: A directory that does not exist or is empty.

    Returns:
        The config in the checkpoint.

    Raises:
        ValueError: For such an override, or whatever `rrf.policies.vla.published.lerobot.read`
            refuses: weights that are missing or unexpected are listed.
    """
    from rrf.policies.vla.published import lerobot

    folder, changes = located(name), dict(overrides)
    options = KINDS[_kind(folder)].directories
    models = {
        name: str(changes.pop(_OPTIONS + name)) for name in options if _OPTIONS + name in changes
    }
    for path in changes:
        if path.partition(".")[0] == "policy":
            given = ", ".join(_OPTIONS + name for name in options)
            raise ValueError(
                f"{path} cannot be changed: {folder} says what the policy is"
                + (f"; only {given} may be given" if given else "")
            )
    policy, stats = lerobot.read(folder, models)
    cfg = cfg.replace(policy=policy.cfg, pretrained=None, ema=None).override(changes)
    save_imported(name, cfg, policy, stats, out)
    return cfg


def is_own(policy: typing.Any) -> bool:
    """Whether a policy that was loaded is one of lerobot's own."""
    return isinstance(policy.cfg, LerobotPolicyCfg)


def export_policy(policy: typing.Any, layout: str, out: Path, group: str | None) -> None:
    """Write a policy that was loaded as lerobot's `pretrained_model` folder.

    Raises:
        ValueError: For another layout, or a name of statistics.
    """
    from rrf.policies.vla.published import lerobot

    if layout != "lerobot" or group is not None:
        raise ValueError(
            f"one of lerobot's own policies ({policy.cfg.kind}) is written with --format lerobot, "
            "and without --statistics"
        )
    with atomic.directory(out) as tree:
        lerobot.write(policy, tree)


def _kind(folder: Path) -> str:
    file = folder / "config.json"
    if not file.is_file():
        return ""
    try:
        config = atomic.parse_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {error}") from error
    return str(config.get("type", "")) if isinstance(config, dict) else ""
