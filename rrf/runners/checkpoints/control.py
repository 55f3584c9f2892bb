"""Load a state-based policy from its checkpoint."""

import dataclasses
import json
from pathlib import Path

from rrf import atomic
from rrf.config import first_error
from rrf.envs.control_env import Interface
from rrf.policies.control.actor_critic import ControlPolicy, Deployed
from rrf.policies.control.configs import ControlPolicyCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.deployable import CONTROL, INTERFACE, kind_of


def interface_text(interface: Interface) -> str:
    """The content of interface.json."""
    return json.dumps(dataclasses.asdict(interface), indent=2) + "\n"


def load_interface(path: str | Path) -> Interface:
    """The environment's interface, as stored in the checkpoint.

    Raises:
        ValueError: If this version of rrf cannot read the file.
    """
    file = Path(path) / INTERFACE
    try:
        return Interface(**atomic.parse_json(file.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{file} is not a valid interface ({error}); the file is damaged, or another version "
            "of rrf wrote it"
        ) from error


def load_module(path: str | Path, device: str = "cpu") -> Deployed:
    """The module in a checkpoint, in evaluation mode.

    Raises:
        ValueError: If a file is missing, changed or unlisted, or the weights do not fit the config.
    """
    atomic.check_manifest(path)
    if kind_of(path) != CONTROL:
        raise ValueError(f"{path} does not hold a state-based policy: it has no {INTERFACE}")
    try:
        cfg = ControlPolicyCfg.from_dict(checkpoint.load_config(path)["policy"])
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{path}/{checkpoint.CONFIG} has no valid policy config: {first_error(error)}"
        ) from error
    module = cfg.build(load_interface(path))
    checkpoint.load_weights(module, path)
    return module.to(device).eval()


def load_control_policy(path: str | Path, device: str = "cpu") -> tuple[ControlPolicy, Interface]:
    """The policy in a checkpoint and its environment's interface. Raises like `load_module`."""
    module = load_module(path, device)
    return module.deployable(), load_interface(path)


def require_same_shapes(trained: Interface, present: Interface, label: str) -> None:
    """Raise ValueError if an environment has another interface than a policy was trained with."""
    for name in ("observation_dims", "num_actions", "num_choices"):
        before, now = getattr(trained, name), getattr(present, name)
        if before != now:
            raise ValueError(
                f"{label} was trained with {name} {before}, but {present.task} now has {now}"
            )
