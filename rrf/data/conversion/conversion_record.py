"""What a conversion wrote down about its recordings, in meta/conversion.json of the dataset:

    {"format_version": 1, "format": "rlds", "path": "datasets/raw/bridge", "warnings": ["..."]}

If the recordings tell where episodes end by themselves, there is also "cut_episodes", the numbers
of those that were cut in the middle. If they have time stamps or statistics of their own, there is
"problems", [{"episode": 3, "check": "timestamps", "value": "..."}]: where they contradict the
recordings, and which check of validation says so. An edited dataset also has "origin", the dataset
it was made from with the digest of its content, and "steps", what was done.
If episodes were left out, there is "skipped", [{"episode": 3, "why": "..."}], by their numbers
among the recordings. "unsettled" has the keys of the state of which the format does not say whether
they were recorded before or after the action.

Paths are as in the config and the warnings are sorted, so the same recordings give the same file on
every machine.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rrf import atomic, formats
from rrf.data.remedies import again

CONVERSION = "meta/conversion.json"
UNSETTLED = {"d4rl": "infos", "minari": "infos"}
"""Format -> the keys, below this one, of which its layout does not say whether they were recorded
before or after the action."""
_MOST_ALIKE = 3
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d.]*(?:e-?\d+)?(?!\w)")  # and not that of a name

Problems = Sequence[tuple[str, str]]  # of an episode: check, what is wrong


def write_conversion(
    root: str | Path,
    source: str,
    path: str,
    warnings: Iterable[str],
    continues: Sequence[bool | None] = (),
    problems: Sequence[Problems | None] = (),
    more: Mapping = {},
) -> None:
    """Write the record into a dataset that is being made.

    Args:
        root: The dataset's directory.
        source: Format of the recordings.
        path: Where they lie, as the config says.
        warnings: What was odd about them.
        continues: Of each episode whether its last frame leads to the next one's first, None where
            that is not known.
        problems: Of each episode what its recording contradicts of itself, None where not known.
        more: More entries, plain data.
    """
    said = {"format": source, "path": path, "warnings": sorted(warnings)}
    record: dict = {**formats.DATASET.mark, **said, **more}
    if any(flag is not None for flag in continues):
        record["cut_episodes"] = [number for number, flag in enumerate(continues) if flag]
    if any(found is not None for found in problems):
        record["problems"] = [
            {"episode": number, "check": check, "value": value}
            for number, found in enumerate(problems)
            for check, value in found or ()
        ]
    content = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    (Path(root) / CONVERSION).write_text(content, encoding="utf-8")


def by_kind(warnings: Iterable[str], raw: str) -> list[str]:
    """The warnings, of more than `_MOST_ALIKE` that differ in files below `raw` and in numbers only
    the first, with how many there are.
    """
    kinds: dict[str, list[str]] = {}
    for text in warnings:
        without_files = re.sub(rf"{re.escape(raw)}\S*", "FILE", text)
        kinds.setdefault(_NUMBER.sub("N", without_files), []).append(text)
    return [
        text
        for alike in kinds.values()
        for text in (
            alike
            if len(alike) <= _MOST_ALIKE
            else [f"{alike[0]} (and {len(alike) - 1} more warnings of this kind)"]
        )
    ]


def read_conversion(root: str | Path) -> dict | None:
    """The record, None if the dataset was converted elsewhere.

    Raises ValueError if it is damaged, or if a newer rrf wrote it.
    """
    path = Path(root) / CONVERSION
    if not path.is_file():
        return None
    try:
        record = atomic.parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); {again(path)}") from error
    if isinstance(record, dict):
        record = formats.DATASET.read(record, path)
    if not isinstance(record, dict) or not isinstance(record.get("warnings"), list):
        raise ValueError(f"{path} has no list 'warnings'; {again(path)}")
    cut = record.get("cut_episodes", [])
    if not isinstance(cut, list) or not all(isinstance(number, int) for number in cut):
        raise ValueError(f"{path}: 'cut_episodes' is no list of numbers; {again(path)}")
    problems = record.get("problems", [])
    if not isinstance(problems, list) or not all(
        isinstance(entry, dict) and {"episode", "check", "value"} <= entry.keys()
        for entry in problems
    ):
        raise ValueError(f"{path}: 'problems' is no list of episode, check, value; {again(path)}")
    return record


def problems_of(record: Mapping, episode: int) -> Problems | None:
    """What a record says of one episode."""
    if "problems" not in record:
        return None
    return [(p["check"], p["value"]) for p in record["problems"] if p["episode"] == episode]
