"""What somebody means who types a name of RLinf to us."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from rrf.config import TYPE_KEY
from rrf.presets.rlinf.keys import key_of, named_by
from rrf.presets.rlinf.yaml_files import read_mapping

_SECTIONS = {"runner", "algorithm", "actor", "rollout"}
_PAGE = "docs/how-to/rlinf-configs.md"
_NOTES = {
    "algorithm": "the type of algorithm (another preset has another one, or algorithm='{type: "
    '"rrf.algorithms.vla.configs:VLAPPOCfg"}\')',
    "max_groups": "max_groups: groups without both successes and failures are replaced up to it",
    "curriculum": "curriculum, which draws the initial states,",
    "policy.head.min_std": "policy.head.max_std and policy.head.min_std",
}


def is_config(file: Path) -> bool:
    """Whether a file is a config of RLinf's embodied training."""
    try:
        return len(_SECTIONS & set(read_mapping(file))) >= len(_SECTIONS) - 1
    except ValueError:
        return False


def foreign_name(paths: Iterable[str], config: Mapping) -> str | None:
    """What to write instead of the first path that is RLinf's; None if none is.

    Args:
        paths: Dotted paths that somebody gave for a config of ours.
        config: That config as plain data.
    """
    names = set(_names(config))
    for path in paths:
        is_whole = key_of(path) is not None
        if _is_field(path, config) or (not is_whole and path.rpartition(".")[2] in names):
            continue
        if (found := named_by(path)) is None or found[1].text == path:
            continue
        key, what = found
        if not is_whole and what.kind == "mapped" and what.text.split(".")[0] not in config:
            continue  # this config has no such field: whoever types the name means another one
        if what.kind == "mapped":
            note = _NOTES.get(what.text, what.text)
            return f"no config field '{path}'; RLinf's {key} is {note} here; all names: {_PAGE}"
        about = "changes nothing here" if what.kind == "harmless" else "has no counterpart"
        return f"no config field '{path}'; RLinf's {key} {about}: {what.text}"
    return None


def _is_field(path: str, config: Mapping) -> bool:
    node: object = config
    for key in path.split("."):
        if not isinstance(node, Mapping) or (TYPE_KEY in node and key not in node):
            return False
        node = node.get(key, {})
    return True


def _names(config: Mapping) -> Iterable[str]:
    for name, value in config.items():
        if name != TYPE_KEY:
            yield name
            if isinstance(value, Mapping) and TYPE_KEY in value:
                yield from _names(value)
