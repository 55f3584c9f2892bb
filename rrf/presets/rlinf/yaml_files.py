"""YAML files as OmegaConf reads them: with aliases, and with 5e-6 as a number."""

import re
from pathlib import Path

import yaml

from rrf.config import NOT_YAML, closest

_MAX_VALUES = 100_000  # ten aliases of aliases of a file of 2 kB would be gigabytes
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$")


class _Loader(yaml.SafeLoader):
    """PyYAML follows YAML 1.1 and reads 5e-6 as text."""


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


def read_mapping(path: Path) -> dict:
    """The mapping in a file.

    Raises:
        ValueError: If the file is missing, holds something else, or is larger than a config once
            its aliases are written out.
    """
    if not path.is_file():
        near = closest(path.name, [p.name for p in path.parent.glob("*.yaml")])
        hint = f"; did you mean '{path.with_name(near)}'?" if near else ""
        raise ValueError(f"no file '{path}'{hint}")
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
        if node is not None and _size(node, {}, ()) > _MAX_VALUES:
            raise yaml.YAMLError(f"more than {_MAX_VALUES:,} values with its aliases written out")
        data = {} if node is None else loader.construct_document(node)
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply") from error
    except NOT_YAML as error:
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path} must hold a mapping at top level, found {type(data).__name__}")
    return data


def _size(node: yaml.Node, known: dict[int, int], above: tuple[int, ...]) -> int:
    """Number of values at and below a node with all aliases written out."""
    if id(node) in above:
        raise yaml.YAMLError(f"an anchor holds itself{node.start_mark}")
    if id(node) not in known:
        children = []
        if isinstance(node, yaml.MappingNode):
            children = [child for pair in node.value for child in pair]
        elif isinstance(node, yaml.SequenceNode):
            children = node.value
        inside = (*above, id(node))
        known[id(node)] = 1 + sum(_size(child, known, inside) for child in children)
    return known[id(node)]
