"""How strict validation of a dataset is: part of `configs/datasets/NAME.yaml`."""

import typing

from rrf.config import Cfg, configclass

Severity = typing.Literal["error", "warn", "off"]


@configclass
class LimitsCfg(Cfg):
    """Numbers the checks compare with."""

    min_episode_length: int = 2
    """Fewest frames in an episode."""
    max_episode_length: int = 100_000
    """Most frames in an episode."""
    max_timestamp_error_s: float = 1e-4
    """How far a frame's timestamp may be from frame_index / fps."""
    max_fps_error: float = 0.01
    """By which fraction the measured frames per second may differ from the declared ones."""
    min_image_std: float = 2.0
    """Below this standard deviation of its pixels (0..255), in every channel, a frame counts as
    blank.
    """
    max_frozen_fraction: float = 0.9
    """Largest fraction of an episode's frames that may equal the frame before."""
    max_keyframe_interval_s: float = 2.0
    """Longest time between keyframes of a video."""
    max_saturated_fraction: float = 0.5
    """Largest fraction of frames in which a dimension may stand at an end of its range."""
    max_leaked_fraction: float = 0.2
    """Largest fraction of a held-out episode's frames that training episodes may hold too."""
    max_late_ratio: float = 0.7
    """The state counts as recorded after the action if the action of its frame leaves less than
    this fraction of what the action before leaves unexplained of the step that led to it.
    """
    max_drift: float = 0.5
    """How far a dimension's mean may move, and its standard deviation change, from one version of
    the dataset to the next, in standard deviations of the version before.
    """
    min_hold_previous_error: float = 0.05
    """A dataset where repeating the last action is this good (L1 in action standard deviations)
    proves little.
    """


@configclass
class ChecksCfg(Cfg):
    """How strict validation is."""

    severity: dict[str, Severity] = {}
    """Check id -> error (stops the pipeline), warn (is reported) or off, where the default should
    not hold.
    """
    limits: LimitsCfg = LimitsCfg()
    """Numbers the checks compare with."""
    held_out_fraction: float = 0.08
    """Share of the episodes that training holds out, its validation_fraction; none of their content
    may be among the others.
    """

    def __post_init__(self):
        if not 0 <= self.held_out_fraction <= 0.5:
            raise ValueError(f"held_out_fraction is {self.held_out_fraction}, allowed: 0 to 0.5")
