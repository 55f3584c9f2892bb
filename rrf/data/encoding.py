"""How a dataset's images are stored: as files inside parquet, or as video."""

import dataclasses
import typing

Codec = typing.Literal["h264", "av1"]
KEYFRAME_INTERVAL = 10  # frames; random access decodes at most this many
MAX_KEYFRAME_INTERVAL_S = 2.0


@dataclasses.dataclass(frozen=True)
class Encoding:
    """How images are stored."""

    storage: str = "image"  # "image" or "video"
    codec: Codec = "h264"  # of video
    keyframe_interval_s: float | None = None  # of video; 10 frames, but at most 2 s, if None
    keeps_encoded: bool = True  # images that come as JPEG or PNG are stored byte for byte

    def __post_init__(self):
        if self.storage not in ("image", "video"):
            raise ValueError(f"storage is '{self.storage}', must be 'image' or 'video'")

    def keyframe_interval(self, fps: float) -> int:
        """Frames from one keyframe to the next, at most."""
        if self.keyframe_interval_s is not None:
            return max(1, int(self.keyframe_interval_s * fps))
        return max(1, min(KEYFRAME_INTERVAL, int(MAX_KEYFRAME_INTERVAL_S * fps)))
