"""A training file of ours for a config of RLinf: the nearest preset, and what differs from it."""

import dataclasses
import json
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from rrf.config import TYPE_KEY, first_error, parse_overrides
from rrf.presets import PRESETS
from rrf.presets.rlinf.composition import composed
from rrf.presets.rlinf.policies import recipes
from rrf.presets.rlinf.source import Row, Source
from rrf.presets.rlinf.translation import translated
from rrf.runners.vla_rl.configs import VLARLRunnerCfg


@dataclasses.dataclass(frozen=True)
class Imported:
    """A config of RLinf as ours."""

    file: Path
    cfg: VLARLRunnerCfg
    preset: str
    overrides: dict[str, typing.Any]
    """What differs from the preset, by dotted path."""
    rows: list[Row]
    """What became of each key."""

    def text(self) -> str:
        """The training file, with what has no counterpart as comments."""
        lacking = [row for row in self.rows if row.ours is None and not row.is_harmless]
        lines = [
            f"# {self.file.name} of RLinf. Each key: rrf import-config {self.file.name} --keys",
            *(f"# without counterpart: {row.path}={row.value}: {row.text}" for row in lacking),
        ]
        data = {"preset": self.preset, "overrides": self.overrides}
        body = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)
        return "\n".join([*(" ".join(line.split()) for line in lines), body])


def import_config(
    file: Path, search_path: Sequence[Path] = (), overrides: Iterable[str] = ()
) -> Imported:
    """Read a config of RLinf.

    Args:
        file: The YAML file.
        search_path: Further directories with its groups; see `composed`.
        overrides: Changes of our config, as words "path=value".

    Raises:
        ValueError: For a file that cannot be read or composed, and for a training that has no
            counterpart; with the file's name and all reasons.
    """
    source = Source(composed(file, search_path))
    try:
        cfg = translated(source).override(parse_overrides(overrides))
    except ValueError as error:
        raise ValueError(f"{file} has no counterpart here: {first_error(error)}") from error
    preset, changes = _nearest(cfg)
    assert PRESETS.get(preset)().override(changes) == cfg, "the file would say something else"
    return Imported(file, cfg, preset, changes, source.rows())


def _nearest(cfg: VLARLRunnerCfg) -> tuple[str, dict[str, typing.Any]]:
    """The preset from which a config differs least, and the differences."""
    options = {name: _differences(base.to_dict(), cfg.to_dict()) for name, base in recipes()}
    name = min(options, key=lambda name: len(json.dumps(options[name])))
    return name, options[name]


def _differences(base: Mapping, wanted: Mapping, start: str = "") -> dict[str, typing.Any]:
    """Overrides that make one config, as plain data, of another of the same class."""
    changes: dict[str, typing.Any] = {}
    for name, value in wanted.items():
        before, path = base.get(name), f"{start}{name}"
        if before == value:
            continue
        is_config = isinstance(value, Mapping) and TYPE_KEY in value
        if is_config and isinstance(before, Mapping) and before.get(TYPE_KEY) == value[TYPE_KEY]:
            changes |= _differences(before, value, f"{path}.")
        else:
            changes[path] = value
    left_out = [name for name in base if name not in wanted]  # they are empty
    return changes | {f"{start}{name}": False for name in left_out}
