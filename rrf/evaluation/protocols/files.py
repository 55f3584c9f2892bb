"""Load protocols from files, and find the protocol for a policy."""

from collections.abc import Mapping
from pathlib import Path

from rrf import workspace
from rrf.config import TYPE_KEY, first_error, read_yaml, readable
from rrf.evaluation.candidate import Candidate
from rrf.evaluation.protocols.base import BaseProtocolCfg
from rrf.lookup import Lookup

PROTOCOLS = Lookup(
    "protocol for policies of kind",
    {
        "control": "rrf.evaluation.control.configs:ControlProtocolCfg",
        "vla": "rrf.evaluation.vla.configs:ProtocolCfg",
    },
)
"""Kind of policy -> the config of its protocols."""

_CHANGES = "changes"


def parse_protocol(data: Mapping) -> BaseProtocolCfg:
    """The protocol that plain data describes.

    Without `type`, the form of `env` decides. If `env` is a mapping, the protocol is for
    state-based control; if it is a name, the protocol is for policies that see images.

    `changes` is a shorthand for tasks with one thing changed: with `changes: [camera, light]`, each
    task is there as it is, as TASK@camera and as TASK@light, in a group of each kind.

    Raises:
        ValueError: For an unknown field or a value out of range.
    """
    if _CHANGES in data:
        data = _with_changes(data)
    if TYPE_KEY in data:
        return BaseProtocolCfg.from_dict(data)
    kind = "control" if isinstance(data.get("env"), Mapping) else "vla"
    return PROTOCOLS.get(kind).from_dict(data)


def _with_changes(data: Mapping) -> dict:
    tasks = _names(data, "tasks")
    groups = {"as trained": tasks}
    groups |= {change: [f"{task}@{change}" for task in tasks] for change in _names(data, _CHANGES)}
    if twice := sorted(groups.keys() & (data.get("groups") or {}).keys()):
        raise ValueError(f"groups: {', '.join(twice)}: {_CHANGES} make these groups themselves")
    all_tasks = [task for group in groups.values() for task in group]
    written = {key: value for key, value in data.items() if key != _CHANGES}
    return written | {"tasks": all_tasks, "groups": groups | (data.get("groups") or {})}


def _names(data: Mapping, key: str) -> list[str]:
    value = data.get(key)
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise ValueError(f"{key} is {value!r}; with {_CHANGES}, it is a list of names")
    return value


def load_protocol(path: str | Path) -> BaseProtocolCfg:
    """Load a protocol from YAML. Raises the ValueError of `parse_protocol` with the file's name."""
    path = workspace.find(path)
    try:
        return parse_protocol(read_yaml(path))
    except ValueError as error:
        text = first_error(error)
        raise ValueError(text if str(path) in text else f"{path}: {text}") from error


def find_protocol(candidate: Candidate) -> Path:
    """The only protocol of the workspace that is the default one for this policy; if none there is,
    the only one of those that rrf ships. A file that cannot be read is left out with a warning.

    Raises:
        ValueError: If there is no such file, or more than one.
    """
    files, folder = workspace.configs("protocols").values(), workspace.home() / "configs/protocols"
    protocols = readable(files, load_protocol)
    fits = [path for path, protocol in protocols.items() if _is_for(protocol, candidate)]
    candidates = [path for path in fits if path.parent == folder] or fits
    if len(candidates) == 1:
        return candidates[0]
    what = (candidate.config.get("env") or {}).get("task") or candidate.label
    if candidates:
        names = ", ".join(path.stem for path in candidates)
        raise ValueError(f"several protocols are for {what}: {names}; choose one with --protocol")
    example = workspace.shipped() / "configs/protocols/cartpole.yaml"
    raise ValueError(
        f"no protocol in {folder} is for {what}; write one there like {example}, or choose one "
        "with --protocol"
    )


def _is_for(protocol: BaseProtocolCfg, candidate: Candidate) -> bool:
    return protocol.policy_kind == candidate.kind and protocol.is_about(candidate.config)
