"""Protocols from files: which of the two kinds one is, and which one judges a task."""

from collections.abc import Mapping
from pathlib import Path

from rrf.config import TYPE_KEY, first_error, read_yaml
from rrf.envs.control_configs import ControlEnvCfg
from rrf.evaluation.control_protocol import ControlProtocolCfg
from rrf.evaluation.protocol import BaseProtocolCfg, ProtocolCfg


def parse_protocol(data: Mapping) -> BaseProtocolCfg:
    """The protocol that plain data describes. Where `env` has fields of its own it is one of
    state-based control, where it is a name, of policies that see images.

    Raises:
        ValueError: For an unknown field or a value out of range.
    """
    if TYPE_KEY in data:
        return BaseProtocolCfg.from_dict(data)
    is_control = isinstance(data.get("env"), Mapping)
    return (ControlProtocolCfg if is_control else ProtocolCfg).from_dict(data)


def load_protocol(path: str | Path) -> BaseProtocolCfg:
    """A protocol from a YAML file. Raises ValueError as `parse_protocol` does, naming the file."""
    try:
        return parse_protocol(read_yaml(path))
    except ValueError as error:
        text = first_error(error)
        raise ValueError(text if str(path) in text else f"{path}: {text}") from error


def find_protocol(folder: str | Path, env: ControlEnvCfg) -> Path:
    """The one file of `folder` whose protocol is about a policy trained in `env`.

    Raises:
        ValueError: If there is none, or several.
    """
    found = [
        path
        for path in sorted(Path(folder).glob("*.yaml"))
        if isinstance(cfg := load_protocol(path), ControlProtocolCfg) and cfg.is_about(env)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(path.stem for path in found)
        raise ValueError(f"several protocols are about {env.task}: {names}; choose by --protocol")
    raise ValueError(
        f"no protocol in {folder} is about {env.task}; write one like cartpole.yaml there, or give "
        "--protocol"
    )
