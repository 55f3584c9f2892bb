"""h264 video of many episodes, written and read with PyAV.

The encoder runs in one thread, without B-frames, and starts every episode with a keyframe, so the
same frames give the same bytes and an episode is decoded without its neighbours. Frames are
yuv420p: colours are halved in resolution, so height and width must be even.

Legend: T frames, H height, W width.
"""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.video.frame import PictureType
from av.video.stream import VideoStream

KEYFRAME_INTERVAL = (
    10  # frames; random access decodes at most this many. 2 s or less from 5 frames/s upwards
)
# zerolatency: no B-frames and no lookahead, so the bytes written so far are known at any time
_OPTIONS = {"preset": "veryfast", "tune": "zerolatency", "crf": "18", "sc_threshold": "0"}


class VideoWriter:
    """One mp4 file, encoded as episodes come."""

    def __init__(self, path: Path, fps: int, height: int, width: int):
        if height % 2 or width % 2:
            raise ValueError(
                f"video storage needs even sizes, got {height}x{width}; use storage: image"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        self._container = av.open(str(path), "w")
        interval = max(1, min(KEYFRAME_INTERVAL, 2 * fps))
        options = _OPTIONS | {"g": str(interval)}
        stream = self._container.add_stream("libx264", rate=fps, options=options)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.thread_count = 1
        self._stream, self._time_base = stream, Fraction(1, fps)
        self.num_frames = 0
        self.num_bytes = 0

    def add(self, images_thwc: np.ndarray) -> None:
        """Append the uint8 [T, H, W, 3] frames of one episode."""
        for index, image in enumerate(images_thwc):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
            frame.pts, frame.time_base = self.num_frames, self._time_base
            frame.pict_type = PictureType.I if index == 0 else PictureType.NONE
            self._mux(frame)
            self.num_frames += 1

    def close(self) -> None:
        """Flush the encoder and finish the file."""
        self._mux(None)
        self._container.close()

    def _mux(self, frame: av.VideoFrame | None) -> None:
        for packet in self._stream.encode(frame):
            self.num_bytes += packet.size
            self._container.mux(packet)


class VideoReader:
    """Frames of one mp4 file by number."""

    def __init__(self, path: Path, fps: int):
        self._path = path
        self._fps = fps
        try:
            self._container = av.open(str(path))
            self._stream = self._container.streams.video[0]
        except (av.FFmpegError, IndexError, OSError) as error:
            raise ValueError(f"{path} is missing or no video ({error}); run: dvc repro") from error
        self._stream.thread_type = "NONE"
        self._stream.thread_count = 1
        self._decoded = iter(())
        self._next: int | None = None  # number of the frame the decoder gives next

    @property
    def num_frames(self) -> int:
        """How many frames the file declares."""
        return self._stream.frames

    def read(self, numbers: np.ndarray) -> np.ndarray:
        """Frames `numbers`, ascending, as uint8 [len(numbers), H, W, 3].

        Raises:
            ValueError: Naming the file and the first frame that cannot be decoded.
        """
        images = np.empty((len(numbers), self._stream.height, self._stream.width, 3), np.uint8)
        for row, number in enumerate(numbers.tolist()):
            if row and number == numbers[row - 1]:
                images[row] = images[row - 1]
            else:
                images[row] = self._frame(number).to_ndarray(format="rgb24")
        return images

    def close(self) -> None:
        """Close the file."""
        self._container.close()

    def _frame(self, number: int) -> av.VideoFrame:
        if self._next is None or not self._next <= number <= self._next + KEYFRAME_INTERVAL:
            time_base = self._stream.time_base
            assert time_base is not None
            self._container.seek(round(number / self._fps / time_base), stream=self._stream)
            self._decoded = iter(self._container.decode(self._stream))
        try:
            for frame in self._decoded:
                assert frame.time is not None
                self._next = round(frame.time * self._fps) + 1
                if self._next == number + 1:
                    return frame
                if self._next > number + 1:
                    break
        except av.FFmpegError as error:
            raise ValueError(f"{self._path}: frame {number} cannot be decoded ({error})") from error
        raise ValueError(f"{self._path} ends before frame {number}; run: dvc repro")
