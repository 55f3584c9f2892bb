"""Protocols from files: of which class one is, and which one is for a policy."""

from collections.abc import Mapping
from pathlib import Path

from rrf.config import TYPE_KEY, first_error, read_yaml
from rrf.evaluation.candidate import Candidate
from rrf.evaluation.protocols.base import BaseProtocolCfg
from rrf.registry import Registry

PROTOCOLS = Registry(
    "protocol for policies of kind",
    {
        "control": "rrf.evaluation.control.protocol:ControlProtocolCfg",
        "vla": "rrf.evaluation.vla.protocol:ProtocolCfg",
    },
)
"""Kind of policy -> the class that evaluates and plays it."""


def parse_protocol(data: Mapping) -> BaseProtocolCfg:
    """The protocol that plain data describes. Without `type` it is one of state-based control where
    `env` has fields of its own, and one of policies that see images where it is a name.

    Raises:
        ValueError: For an unknown field or a value out of range.
    """
    if TYPE_KEY in data:
        return BaseProtocolCfg.from_dict(data)
    kind = "control" if isinstance(data.get("env"), Mapping) else "vla"
    return PROTOCOLS.get(kind).from_dict(data)


def load_protocol(path: str | Path) -> BaseProtocolCfg:
    """A protocol from a YAML file. Raises ValueError as `parse_protocol` does, naming the file."""
    try:
        return parse_protocol(read_yaml(path))
    except ValueError as error:
        text = first_error(error)
        raise ValueError(text if str(path) in text else f"{path}: {text}") from error


def find_protocol(folder: str | Path, candidate: Candidate) -> Path:
    """The one file of `folder` whose protocol is about a policy.

    Raises:
        ValueError: If there is none, or several.
    """
    found = []
    for path in sorted(Path(folder).glob("*.yaml")):
        protocol = load_protocol(path)
        if protocol.policy_kind == candidate.kind and protocol.is_about(candidate.config):
            found.append(path)
    if len(found) == 1:
        return found[0]
    what = (candidate.config.get("env") or {}).get("task") or candidate.label
    if found:
        names = ", ".join(path.stem for path in found)
        raise ValueError(f"several protocols are about {what}: {names}; choose by --protocol")
    raise ValueError(
        f"no protocol in {folder} is about {what}; write one like cartpole.yaml there, or give "
        "--protocol"
    )
