"""What a video file holds, counted from its packets: nothing is decoded."""

import contextlib
import dataclasses
from pathlib import Path

import av
import numpy as np

from rrf.data.formats.time_stamps import gaps


@dataclasses.dataclass(frozen=True)
class VideoFacts:
    """What a video file holds."""

    num_frames: int
    fps: float | None  # None for a single frame
    keyframe_interval_s: float  # longest time from a keyframe to the next, or to the last frame


def video_facts(path: Path) -> VideoFacts:
    """Count the packets of a file's first video stream.

    Raises ValueError naming the file if it is missing, damaged or no video.
    """
    shown, keys, time_base = [], [], 0.0
    try:
        with contextlib.closing(av.open(str(path))) as container:
            stream = container.streams.video[0]
            for packet in container.demux(stream):
                if packet.pts is not None:
                    shown.append(packet.pts)
                    if packet.is_keyframe:
                        keys.append(packet.pts)
            time_base = float(stream.time_base or 0)
    except (av.FFmpegError, IndexError, OSError) as error:
        raise ValueError(f"{path} is missing, truncated or no video ({error})") from error
    if not keys:
        raise ValueError(f"{path} holds no keyframe")
    steps = np.diff(np.sort(np.array(shown, np.float64))) * time_base
    intervals = np.diff(np.sort(np.array([*keys, max(shown)], np.float64))) * time_base
    is_timed = len(steps) > 0 and float(np.median(steps)) > 0
    fps = 1 / float(steps[~gaps(steps)].mean()) if is_timed else None
    return VideoFacts(len(shown), fps, float(intervals.max(initial=0.0)))
