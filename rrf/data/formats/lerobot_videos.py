"""The frames of an episode of a LeRobot directory, from its video.

How many frames there are is asked of the file. What the metadata say about it, `to_timestamp`, is
not used: some writers put the time of the last frame there, others the end of that frame. In a file
with several episodes, one ends where the next one begins. If the file holds exactly as many frames
as its episodes have rows, they follow each other without a gap, whatever `from_timestamp` says. An
episode that its file lacks is read from the next one, if that has so many frames to spare.
Somebody else encoded the videos: in any codec that PyAV decodes, with any distance between
keyframes.

Legend: T frames of an episode, F frames of a file, H W image height and width.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer

from rrf.data.dataset.depth import CODE_FORMAT, metres
from rrf.data.dataset.layout import is_depth
from rrf.data.formats.lerobot_files import EpisodePlace, Index, next_video
from rrf.data.formats.time_stamps import FPS_TOLERANCE
from rrf.data.memory import check_fits

_MAX_TRAILING = 2  # frames that a recorder wrote after the last row, at whatever rate


class EpisodeVideos:
    """Reads the videos of one directory.

    Args:
        index: Where they are.
        warn: Called with what is odd.
    """

    def __init__(self, index: Index, warn: Callable[[str], None]):
        self._index, self._warn = index, warn
        self._times = functools.lru_cache(maxsize=16)(frame_times)

    def read(
        self, place: EpisodePlace, key: str, length: int, fps: float, where: str
    ) -> np.ndarray:
        """The images of one camera, uint8 [T, H, W, 3], or its depth, float32 metres [T, H, W].
        Image i belongs to row i.

        Args:
            place: The episode.
            key: The camera's feature.
            length: Rows of the episode's table, T.
            fps: Rows per second.
            where: The beginning of every message.

        Raises:
            ValueError: If the file is missing or damaged, lacks frames, or holds others than those
                of the rows.
        """
        video = place.videos.get(key)
        if video is None:
            raise ValueError(f"{where}: {key} has no video in the list of episodes")
        start_s = num_frames = None
        feature = self._index.features[key]
        try:
            path = video.path
            if video.start_s is not None:
                start_s, num_frames = self._frames_of(path, place.number)
                if num_frames < length:
                    following = self._next_holder(path, length)
                    if following is None:
                        raise ValueError(
                            f"{path} holds {num_frames} frames, the table {length}; "
                            "download it again"
                        )
                    self._warn(f"{where}: {key} lies in {following}, not in {path}")
                    path, num_frames = following, length
                    start_s = float(self._times(path)[0])
            clip = read_clip(path, length, start_s, is_depth(feature))
        except ValueError as error:
            raise ValueError(f"{where}: {key}: {error}") from error
        num_extra = clip.num_extra if num_frames is None else num_frames - length
        if num_extra:
            counts = f"{where}: {key} has {length + num_extra} frames, the table {length}"
            is_other = clip.fps is not None and abs(clip.fps - fps) > FPS_TOLERANCE * fps
            if is_other and num_extra > _MAX_TRAILING:
                raise ValueError(
                    f"{counts}, and {clip.fps:g} frames/s in {video.path}, the table {fps:g}. If "
                    "row i belongs to frame i of the video, say so in the config, source: {fps: "
                    f"{clip.fps:g}}}; if not, encode the video again, one frame for each row"
                )
            self._warn(f"{counts}; the last {num_extra} are dropped")
        self._check_size(clip.images, key, where)
        return metres(clip.images, feature) if is_depth(feature) else clip.images

    def _next_holder(self, path: Path, length: int) -> Path | None:
        """The next file of the camera, if it holds so many frames more than its episodes have."""
        following = next_video(path)
        if following is None:
            return None
        listed = self._index.shared_videos.get(following, [])
        surplus = len(self._times(following)) - sum(episode.length for episode in listed)
        return following if surplus == length else None

    def _frames_of(self, path: Path, number: int) -> tuple[float, int]:
        """Where in a file with several episodes the frames of one begin, s, and how many there are
        up to the next one.
        """
        times_f = self._times(path)
        episodes = sorted(self._index.shared_videos[path])
        starts_s = np.array([episode.start_s for episode in episodes])
        half = 0.5 * float(np.median(np.diff(times_f))) if len(times_f) > 1 else 0.0
        firsts = np.searchsorted(times_f, starts_s - half)
        at = [episode.number for episode in episodes].index(number)
        lengths = np.array([episode.length for episode in episodes])
        if len(times_f) == lengths.sum():
            joined = np.cumsum(lengths) - lengths
            if (firsts != joined).any():
                self._warn(
                    f"{path} holds as many frames as its episodes have rows, but from_timestamp "
                    "puts them elsewhere; the frames are taken one after the other"
                )
            firsts = joined
        bounds = [*firsts.tolist(), len(times_f)]
        first = bounds[at]
        start_s = float(times_f[first]) if first < len(times_f) else float(starts_s[at])
        return start_s, bounds[at + 1] - first

    def _check_size(self, images: np.ndarray, key: str, where: str) -> None:
        declared = image_size(self._index.features[key])
        if images.shape[1:3] != declared:
            size = list(images.shape[1:3])
            self._warn(f"{where}: {key} is {size} px, meta/info.json says {list(declared)}")


def image_size(feature: dict) -> tuple[int, ...]:
    """(height, width) of an image feature, whichever of the two orders its shape has.

    `names` is not used: it is often absent, and in some datasets it contradicts the shape.
    """
    shape = feature["shape"]
    is_first = len(shape) == 3 and shape[0] in (1, 3) and shape[2] not in (1, 3)
    return tuple(shape[1:] if is_first else shape[:2])


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
