"""What differs among the rows of a batch of several robots: normalisation, cameras, dimensions.

Vectors are padded with zeros at the end, in physical units and normalised alike.

Legend: B rows, C images of a row, D padded dimensions.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from rrf.data.dataset.transforms import Affine, Normalize
from rrf.data.schema import Observation
from rrf.policies.vla.vlm_configs import VLMPolicyCfg


@dataclasses.dataclass(frozen=True)
class RowAffine:
    """`rrf.data.dataset.transforms.Affine` with numbers of its own for each row, of [B, D] or
    [B, K, D].
    """

    offset_bd: np.ndarray  # float64
    scale_bd: np.ndarray  # float64

    def apply(self, x: np.ndarray) -> np.ndarray:
        offset, scale = self._shaped_for(x)
        return ((x - offset) / scale).astype(np.float32)

    def invert(self, y: np.ndarray) -> np.ndarray:
        offset, scale = self._shaped_for(y)
        return (y * scale + offset).astype(np.float32)

    def _shaped_for(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        both = self.offset_bd, self.scale_bd
        return both if x.ndim == 2 else (both[0][:, None], both[1][:, None])


class NormalizeByRobot:
    """Normalises each row with the statistics of its robot. Padded dimensions do not change."""

    def __init__(self, by_tag: Mapping[str, Normalize], width: int):
        self._affine_of_tag = {
            tag: np.array(
                [_padded(normalize.offset, width, 0.0), _padded(normalize.scale, width, 1.0)]
            )
            for tag, normalize in by_tag.items()
        }

    def rows(self, tags: Sequence[str]) -> RowAffine:
        return RowAffine(*np.stack([self._affine_of_tag[tag] for tag in tags], axis=1))


AnyNormalize = Normalize | NormalizeByRobot


def normalizers(
    cfg: VLMPolicyCfg, norm_stats: Mapping, state_key: str, action_key: str
) -> tuple[AnyNormalize, AnyNormalize]:
    """What normalises state and action, from the statistics of one robot, or of several by tag."""

    def normalizers_of(stats: Mapping) -> tuple[Normalize, Normalize]:
        return (
            Normalize(stats[state_key], cfg.state_normalization, cfg.state_modes),
            Normalize(stats[action_key], cfg.action_normalization, cfg.action_modes),
        )

    if not cfg.is_shared:
        return normalizers_of(norm_stats)
    both = {tag: normalizers_of(norm_stats[tag]) for tag in cfg.robots}
    return (
        NormalizeByRobot({tag: state for tag, (state, _) in both.items()}, cfg.state_width),
        NormalizeByRobot({tag: action for tag, (_, action) in both.items()}, cfg.action_width),
    )


def of_rows(normalize: AnyNormalize, observation: Observation) -> Affine | RowAffine:
    """What normalises the rows of an observation."""
    if isinstance(normalize, Normalize):
        return normalize
    return normalize.rows(observation.robots or [])


def tags_of(cfg: VLMPolicyCfg, observation: Observation) -> list[str | None]:
    """The robot of each row.

    Raises:
        ValueError: If the policy is in training on several robots, and the observation does not
            say which one a row is of, or names one that the policy does not know.
    """
    if not cfg.is_shared:
        return [cfg.embodiment] * len(observation)
    if observation.robots is None:
        cfg.require_one_robot()
    tags = observation.robots or []
    unknown = next((tag for tag in tags if tag not in cfg.robots), None)
    if unknown is not None:
        raise ValueError(f"a row is of robot '{unknown}', known: {', '.join(cfg.robots)}")
    return list(tags)


def shown(cfg: VLMPolicyCfg, tags: Sequence[str | None]) -> np.ndarray:
    """Which images each row has, bool [B, C]."""
    if not cfg.robots:
        return np.ones((len(tags), len(cfg.slots)), bool)
    has = {tag: [camera is not None for camera in cfg.shown_by(tag)] for tag in cfg.robots}
    return np.array([has[tag or ""] for tag in tags], bool).reshape(len(tags), -1)


def _padded(values: Sequence[float], width: int, fill: float) -> list[float]:
    return [*values, *[fill] * (width - len(values))]
