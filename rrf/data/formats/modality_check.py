"""Does a GR00T modality.json fit the dataset that it lies in? Compared with meta/info.json."""

import itertools
import math
from pathlib import Path

from rrf.config import did_you_mean
from rrf.data.formats.json_files import read_object
from rrf.data.formats.modality import PATH, Modality, Part, read_modality

INFO = "meta/info.json"


def checked_modality(root: str | Path) -> Modality:
    """`meta/modality.json` of a dataset, if it fits its `meta/info.json`.

    Raises:
        ValueError: If the file is missing or damaged, or names what the dataset does not have.
    """
    root = Path(root)
    modality = read_modality(root)
    if modality is None:
        raise ValueError(
            f"{root} has no {PATH}, which says which dimensions are which limb; a dataset gets it "
            "from `modality: {}` in configs/datasets/NAME.yaml"
        )
    features = features_of(root)
    for kind, parts in (("state", modality.state), ("action", modality.action)):
        for name, part in parts.items():
            _check_part(part, f"{root / PATH}: {kind}.{name}", features)
        _check_overlap(parts, f"{root / PATH}: {kind}")
    for name, key in modality.video.items():
        if features.get(key, {}).get("dtype") not in ("video", "image"):
            known = [k for k, f in features.items() if f.get("dtype") in ("video", "image")]
            raise ValueError(
                f"{root / PATH}: video.{name} is '{key}', which is no camera of the dataset; it "
                f"has: {', '.join(known)}{did_you_mean(key, known)}"
            )
    for name, key in modality.annotation.items():
        if key not in features:
            raise ValueError(
                f"{root / PATH}: annotation.{name} is in column '{key}', which the dataset does "
                f"not have{did_you_mean(key, features)}"
            )
    return modality


def features_of(root: Path) -> dict[str, dict]:
    """The features of `meta/info.json`: name -> dtype, shape and more."""
    features = read_object(root / INFO).get("features")
    if not isinstance(features, dict) or not all(isinstance(f, dict) for f in features.values()):
        raise ValueError(f"{root / INFO} has no mapping 'features' of mappings")
    return features


def _check_part(part: Part, where: str, features: dict[str, dict]) -> None:
    if part.original_key not in features:
        raise ValueError(
            f"{where} is a part of '{part.original_key}', which the dataset does not have"
            f"{did_you_mean(part.original_key, features)}"
        )
    size = math.prod(features[part.original_key].get("shape") or [1])
    if part.end > size:
        raise ValueError(
            f"{where} goes from {part.start} to {part.end}, but '{part.original_key}' has {size} "
            "dimensions"
        )


def _check_overlap(parts: dict[str, Part], where: str) -> None:
    for (one, a), (other, b) in itertools.combinations(parts.items(), 2):
        if a.original_key == b.original_key and a.start < b.end and b.start < a.end:
            raise ValueError(
                f"{where}.{one} ({a.start} to {a.end}) and {other} ({b.start} to {b.end}) overlap"
            )
