"""Frozen transforms of numpy arrays, each with its exact inverse (up to float32 rounding).

Transforms hold plain numbers, so a checkpoint can rebuild them from its norm_stats.json.
"""

import dataclasses
import typing
from collections.abc import Mapping, Sequence

import numpy as np

Mode = typing.Literal["mean_std", "min_max", "quantile"]
ModeOfDimension = typing.Literal["mean_std", "min_max", "quantile", "none"]
STATISTICS = {"mean_std": ("mean", "std"), "min_max": ("min", "max"), "quantile": ("q01", "q99")}
"""Mode -> the two statistics that it uses."""


@dataclasses.dataclass(frozen=True)
class Affine:
    """y = (x - offset) / scale per dimension of the last axis, in float32; or per dimension and
    step of the last two."""

    offset: tuple
    scale: tuple

    def __post_init__(self):
        if len(self.offset) != len(self.scale):
            raise ValueError(f"{len(self.offset)} offsets for {len(self.scale)} scales")
        if not (
            np.isfinite(self.offset).all()
            and np.isfinite(self.scale).all()
            and np.min(self.scale) > 0
        ):
            raise ValueError(
                f"offset {self.offset} and scale {self.scale} must be finite, scale positive"
            )

    def apply(self, x: np.ndarray) -> np.ndarray:
        offset, scale = self._arrays(x)
        return ((x - offset) / scale).astype(np.float32)

    def invert(self, y: np.ndarray) -> np.ndarray:
        offset, scale = self._arrays(y)
        return (y * scale + offset).astype(np.float32)

    def _arrays(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        offset, scale = np.asarray(self.offset, np.float64), np.asarray(self.scale, np.float64)
        if values.shape[-1] != scale.shape[-1]:
            raise ValueError(f"{values.shape[-1]} dimensions, expected {scale.shape[-1]}")
        if scale.ndim == 1:
            return offset, scale
        if (steps := values.shape[-2]) > len(scale):
            raise ValueError(f"{steps} steps, but there are statistics of {len(scale)}")
        return offset[:steps], scale[:steps]


@dataclasses.dataclass(frozen=True, init=False)
class Normalize(Affine):
    """Normalise by the statistics of one feature.

    "mean_std" gives mean 0 and standard deviation 1. "min_max" and "quantile" map [min, max] or
    [q01, q99] to [-1, 1]. Values outside are not clipped, so the inverse is exact. A dimension that
    never changes is only shifted. Statistics may have a `mask`, as those of OpenVLA do: a dimension
    where it is false, e.g. a gripper, is not changed at all. Statistics of a chunk of actions may
    have a list per step, as those of GR00T N1.7's relative actions.

    `modes` gives single dimensions a mode of their own; "none" does not change them.
    """

    mode: Mode

    def __init__(
        self,
        stats: Mapping[str, Sequence[float]],
        mode: Mode = "mean_std",
        modes: Mapping[int, ModeOfDimension] | None = None,
    ):
        if mode not in STATISTICS:
            raise ValueError(
                f"normalisation mode is '{mode}', must be one of: {', '.join(STATISTICS)}"
            )
        offset, scale = _offset_and_scale(stats, mode)
        num_dims = scale.shape[-1]
        is_normalized = np.array(stats.get("mask", np.ones(num_dims)), bool)
        for dimension, mode_of_dimension in (modes or {}).items():
            if not 0 <= dimension < num_dims:
                raise ValueError(
                    f"dimension {dimension} has a mode of its own, but there are {num_dims}"
                )
            if mode_of_dimension == "none":
                is_normalized[dimension] = False
            else:
                of_dimension = _offset_and_scale(stats, mode_of_dimension)
                offset[..., dimension], scale[..., dimension] = (
                    values[..., dimension] for values in of_dimension
                )
        offset = np.where(is_normalized, offset, 0.0)
        scale = np.where((scale > 0) & is_normalized, scale, 1.0)
        object.__setattr__(self, "offset", _tuples(offset.tolist()))
        object.__setattr__(self, "scale", _tuples(scale.tolist()))
        object.__setattr__(self, "mode", mode)
        self.__post_init__()


def _tuples(values: list) -> tuple:
    return tuple(_tuples(value) if isinstance(value, list) else value for value in values)


def _offset_and_scale(
    stats: Mapping[str, Sequence[float]], mode: Mode
) -> tuple[np.ndarray, np.ndarray]:
    lacking = [name for name in STATISTICS[mode] if name not in stats]
    if lacking:
        raise ValueError(
            f"mode '{mode}' needs the statistics {lacking}; there are: {sorted(stats)}"
        )
    first, second = (np.array(stats[name], np.float64) for name in STATISTICS[mode])
    if mode == "mean_std":
        return first, second
    return (first + second) / 2, (second - first) / 2
