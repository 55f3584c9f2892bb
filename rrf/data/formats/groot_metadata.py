"""GR00T N1.5's experiment_cfg/metadata.json: the statistics of a checkpoint, per robot and limb.

    {"gr1": {"embodiment_tag": "gr1",
             "statistics": {"state":  {"left_arm": {"max": [...], ...}, ...},
                            "action": {...}},
             "modalities": {"video":  {"ego_view": {"resolution": [width, height], ...}},
                            "state":  {"left_arm": {"absolute": true, "shape": [7], ...}},
                            "action": {...}}}}

Statistics are max, min, mean, std, q01 and q99. A camera also has channels and fps; a part also has
rotation_type and continuous (gr00t/data/schema.py). A vector of ours is the parts of such a group
one after the other.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from rrf import atomic
from rrf.config import did_you_mean
from rrf.data.formats.json_files import read_object
from rrf.data.schema import ACTION, STATE

PATH = "experiment_cfg/metadata.json"
KINDS = {"state": STATE, "action": ACTION}
NUMBERS = ("max", "min", "mean", "std", "q01", "q99")

NormStats = dict[str, dict[str, list]]


@dataclasses.dataclass(frozen=True)
class EmbodimentData:
    """What a checkpoint knows about the data of one robot."""

    statistics: dict[str, dict[str, dict[str, list]]]  # state | action -> part -> number -> values
    modalities: dict[str, dict[str, dict]]  # video | state | action -> name -> description

    def norm_stats(
        self, state_parts: Sequence[str] | None = None, action_parts: Sequence[str] | None = None
    ) -> NormStats:
        """Statistics in the form of norm_stats.json; there is no count.

        Args:
            state_parts: The parts of the state, in the order of its dimensions; by default all, in
                the file's order.
            action_parts: The same for the action.

        Raises:
            ValueError: If there is no such part.
        """
        chosen = {"state": state_parts, "action": action_parts}
        return {key: self._joined(kind, chosen[kind]) for kind, key in KINDS.items()}

    def _joined(self, kind: str, names: Sequence[str] | None) -> dict[str, list]:
        parts = self.statistics[kind]
        for name in names or ():
            if name not in parts:
                raise ValueError(
                    f"the checkpoint has no statistics of {kind}.{name}, it has: "
                    f"{', '.join(parts)}{did_you_mean(name, parts)}"
                )
        chosen = [parts[name] for name in (parts if names is None else names)]
        return {number: [x for part in chosen for x in part[number]] for number in NUMBERS}


def read_metadata(checkpoint: str | Path, tag: str) -> EmbodimentData:
    """The entry of one robot in a checkpoint's metadata.json.

    Raises:
        ValueError: If the file is missing or damaged, or does not know the tag.
    """
    path = Path(checkpoint) / PATH
    data = read_object(path)
    if tag not in data:
        raise ValueError(
            f"{path} has no statistics of embodiment '{tag}', it has: {', '.join(data)}"
            f"{did_you_mean(tag, data)}; statistics of a new robot come from its dataset"
        )
    entry = _mapping(data, tag, path)
    statistics, modalities = (_mapping(entry, k, path) for k in ("statistics", "modalities"))
    of_kinds = {kind: _mapping(statistics, kind, path) for kind in KINDS}
    for kind, parts in of_kinds.items():
        for name in parts:
            _check_numbers(_mapping(parts, name, path), f"{path}: {tag}.{kind}.{name}")
    described = {kind: _mapping(modalities, kind, path) for kind in modalities}
    return EmbodimentData(of_kinds, described)


def write_metadata(checkpoint: str | Path, entries: Mapping[str, EmbodimentData]) -> None:
    """Write `experiment_cfg/metadata.json`, one entry per embodiment tag."""
    data = {
        tag: dataclasses.asdict(entry) | {"embodiment_tag": tag} for tag, entry in entries.items()
    }
    atomic.write_json(Path(checkpoint) / PATH, data)


def _mapping(data: Mapping, key: str, path: Path) -> dict:
    if not isinstance(data.get(key), dict):
        raise ValueError(f"{path} has no mapping '{key}' where one must be")
    return data[key]


def _check_numbers(entry: Mapping, where: str) -> None:
    lengths = {
        number: len(entry[number]) for number in NUMBERS if isinstance(entry.get(number), list)
    }
    if set(lengths) != set(NUMBERS) or len(set(lengths.values())) != 1:
        raise ValueError(
            f"{where} has the statistics {lengths or 'none'}, must have lists of one length: "
            f"{', '.join(NUMBERS)}"
        )
