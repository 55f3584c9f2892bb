"""Reading golden files: shapes, constants and the list of cases stand in them, so that another set
of the same kind can be laid in their place."""

import json
import re
from pathlib import Path

import numpy as np
import torch

GOLDEN = Path(__file__).parent / "golden"


def configs(file: str) -> dict[str, dict]:
    """Name of each case -> its scalar settings."""
    with np.load(GOLDEN / file, allow_pickle=False) as data:
        return json.loads(str(data["config_json"]))


def cases(file: str, pattern: str, **settings) -> list[str]:
    """Names that match the whole `pattern`, of cases with these settings."""
    return [
        name
        for name, config in sorted(configs(file).items())
        if re.fullmatch(pattern, name) and all(config.get(k) == v for k, v in settings.items())
    ]


def golden(file: str, case: str) -> tuple[dict, dict[str, torch.Tensor]]:
    """Settings and arrays of one case."""
    with np.load(GOLDEN / file, allow_pickle=False) as data:
        keys = [key for key in data.files if key.startswith(f"{case}/")]
        arrays = {key.removeprefix(f"{case}/"): torch.from_numpy(data[key]) for key in keys}
        return json.loads(str(data["config_json"]))[case], arrays


def activation(name: str) -> str:
    """Torch's name of an activation that a golden file writes in lower case."""
    return next(found for found in dir(torch.nn) if found.lower() == name.lower())
