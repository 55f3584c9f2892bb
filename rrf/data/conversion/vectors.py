"""What a config does to vectors: of the k recorded frames that become one, actions are picked or
summed; then values are converted.

Legend: T frames of an episode, D dimensions, k recorded frames per frame of the dataset.
"""

import math

import numpy as np

from rrf.data.conversion.vector_cfg import ConvertCfg, VectorCfg


def pick_actions(recorded_td: np.ndarray, summed: list[int], step: int) -> np.ndarray:
    """One action for every `step` recorded ones: the dimensions `summed` are increments and added
    up, of the others the last is taken.
    """
    last = np.minimum(np.arange(0, len(recorded_td), step) + step, len(recorded_td)) - 1
    picked = recorded_td[last]
    picked[:, summed] = sums(recorded_td[:, summed], step)
    return picked


def convert(
    values_td: np.ndarray,
    cfg: VectorCfg,
    state_td: np.ndarray | None = None,
    state_cfg: VectorCfg | None = None,
) -> np.ndarray:
    """`cfg.convert` applied to float64 [T, D], in order; `state` is what deltas refer to."""
    values = values_td.copy()
    for conversion in cfg.convert:
        columns = [cfg.names.index(name) for name in conversion.names]
        reference = np.zeros(1)
        if conversion.reference:
            assert state_td is not None
            assert state_cfg is not None
            reference = state_td[:, [state_cfg.names.index(name) for name in conversion.reference]]
        values[:, columns] = _converted(values[:, columns], conversion, reference)
    return values


def _converted(values: np.ndarray, cfg: ConvertCfg, reference: np.ndarray) -> np.ndarray:
    if cfg.kind == "scale":
        return values * cfg.factor + cfg.offset
    if cfg.kind == "gripper":
        assert cfg.open is not None
        assert cfg.closed is not None
        return (values - cfg.closed) / (cfg.open - cfg.closed)
    if cfg.kind == "xyzw_to_wxyz":
        return values[:, [3, 0, 1, 2]]
    result = values + reference if cfg.kind == "delta_to_absolute" else values - reference
    return (result + math.pi) % (2 * math.pi) - math.pi if cfg.wrap else result


def sums(values: np.ndarray, step: int) -> np.ndarray:
    """Sums of each `step` successive rows; the last sum may be of fewer."""
    if step == 1:
        return values
    return np.add.reduceat(values, np.arange(0, len(values), step), axis=0)
