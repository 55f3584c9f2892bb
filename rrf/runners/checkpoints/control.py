"""Reading a state-based policy back from its checkpoint, ready to act."""

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
    """What the checkpoint's policy knows of its environment.

    Raises:
        ValueError: For a file that this version cannot read.
    """
    file = Path(path) / INTERFACE
    try:
        return Interface(**json.loads(file.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{file} describes no interface that this rrf knows ({error}); it is damaged, or of "
            "another version"
        ) from error


def load_module(path: str | Path, device: str = "cpu") -> Deployed:
    """The module in a checkpoint, in evaluation mode.

    Raises:
        ValueError: If a file is missing, changed or unlisted, or the weights do not fit the config.
    """
    atomic.check_manifest(path)
    if kind_of(path) != CONTROL:
        raise ValueError(f"{path} has no {INTERFACE}: it holds no state-based policy")
    try:
        cfg = ControlPolicyCfg.from_dict(checkpoint.load_config(path)["policy"])
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{path}/{checkpoint.CONFIG} describes no policy: {first_error(error)}"
        ) from error
    module = cfg.build(load_interface(path))
    checkpoint.load_weights(module, path)
    return module.to(device).eval()


def load_control_policy(path: str | Path, device: str = "cpu") -> tuple[ControlPolicy, Interface]:
    """The policy in a checkpoint and what it knows of its environment. Raises as `load_module`."""
    module = load_module(path, device)
    return module.deployable(), load_interface(path)
