"""Successive frames of a video that somebody else encoded: in any codec that PyAV decodes, with any
distance between keyframes.

Legend: T frames, F frames of a file, H height, W width.
"""

import contextlib
import dataclasses
import math
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer

from rrf.data.dataset.depth import CODE_FORMAT
from rrf.data.memory import check_fits


@dataclasses.dataclass
class Clip:
    """Successive frames of a video file."""

    images: np.ndarray  # uint8 [T, H, W, 3], RGB; of depth uint16 [T, H, W], codes
    num_extra: int  # frames that the file holds after these
    fps: float | None  # frames per second, as the file says


def read_clip(
    path: Path, num_frames: int, start_s: float | None = None, is_depth: bool = False
) -> Clip:
    """`num_frames` frames in the order they are shown, of any codec that PyAV decodes (h264, AV1,
    ...).

    Args:
        path: The file.
        num_frames: How many, T.
        start_s: The time stamp of the first frame, to within half a frame. By default the clip
            starts at the file's first frame, whatever its time stamp.
        is_depth: Whether the pixels are codes of `rrf.data.dataset.depth`.

    Raises:
        ValueError: If the file is missing, damaged, or holds fewer frames, or if the frames do not
            fit into memory; the message names the file.
    """
    try:
        with contextlib.closing(av.open(str(path))) as container:
            return _read(container, path, num_frames, start_s, is_depth)
    except (av.FFmpegError, IndexError, OSError) as error:
        raise ValueError(_damaged(path, error)) from error


def frame_times(path: Path) -> np.ndarray:
    """When the frames of a file are shown, s, float64 [F], ascending. Nothing is decoded.

    Raises:
        ValueError: If the file is missing or damaged, naming the file.
    """
    try:
        with contextlib.closing(av.open(str(path))) as container:
            stream = container.streams.video[0]
            ticks = [
                packet.pts
                for packet in container.demux(stream)
                if packet.pts is not None and not packet.is_discard
            ]
            return np.sort(np.array(ticks, np.float64)) * float(stream.time_base or 0)
    except (av.FFmpegError, IndexError, OSError) as error:
        raise ValueError(_damaged(path, error)) from error


def _damaged(path: Path, error: Exception) -> str:
    return f"{path} is missing, truncated or not a video ({error}); download it again"


def _read(
    container: InputContainer, path: Path, num_frames: int, start_s: float | None, is_depth: bool
) -> Clip:
    stream = container.streams.video[0]
    if not stream.codec_context:
        raise ValueError(f"{path} is damaged, its codec is not known; download it again")
    stream.thread_type, stream.thread_count = "NONE", 1
    fps = float(stream.average_rate) if stream.average_rate else None
    earliest_s = -math.inf
    if start_s is not None:
        assert stream.time_base is not None
        container.seek(int(start_s / stream.time_base), stream=stream)
        earliest_s = start_s - 0.5 / (fps or 1000.0)
    pixels, dtype = (CODE_FORMAT, np.uint16) if is_depth else ("rgb24", np.uint8)
    shape = (num_frames, stream.height, stream.width, *([] if is_depth else [3]))
    check_fits(shape, np.dtype(dtype).itemsize, f"{path}, decoded to {np.dtype(dtype)}")
    images = np.empty(shape, dtype)
    num_read = 0
    for frame in container.decode(stream):
        if frame.time is not None and frame.time < earliest_s:
            continue
        if num_read < num_frames:
            if frame.is_corrupt or (frame.height, frame.width) != images.shape[1:3]:
                raise ValueError(f"{path}: frame {num_read} is damaged; download it again")
            images[num_read] = frame.to_ndarray(format=pixels)
        elif start_s is not None:
            break
        num_read += 1
    if num_read < num_frames:
        raise ValueError(f"{path} holds {num_read} frames, the table {num_frames}")
    return Clip(images, num_read - num_frames, fps)
