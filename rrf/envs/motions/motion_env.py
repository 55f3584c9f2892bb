"""The contract of environments with reference motions. Legend: N environments, D width of a frame,
T frames of a motion, J joints."""

import typing

import torch


@typing.runtime_checkable
class MotionEnv(typing.Protocol):
    """A `ControlEnv` that sees its robots and reference motions alike, as frames."""

    pose_width: int
    """J: the first J numbers of a frame are the positions of the joints."""

    def frames(self) -> torch.Tensor:
        """The current frames, float32 [N, D]: the observation group that a discriminator sees."""
        ...

    def reference_frames(self) -> list[torch.Tensor]:
        """The reference motions at the control rate, each float32 [T, D]."""
        ...
