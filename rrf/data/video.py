"""Frames of a video file by number, read with PyAV."""

import itertools
import typing
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
from av.video.reformatter import VideoReformatter

from rrf.data.encoding import KEYFRAME_INTERVAL
from rrf.data.files import RemotePath
from rrf.data.remedies import again

_REMOTE_BLOCK_BYTES = 256 << 10
_REMOTE_BLOCKS = 64


class VideoReader:
    """Frames of one mp4 file by number. Of a remote file only what the frames need is fetched.

    Args:
        path: The file.
        fps: Its frames per second.
        pixels: How they are read: "rgb24", or "gray12le" for the 12-bit codes of depth.
    """

    def __init__(
        self,
        path: Path | RemotePath,
        fps: float,
        pixels: typing.Literal["rgb24", "gray12le"] = "rgb24",
    ):
        self._path = path
        self._fps = fps
        self._format = pixels
        try:
            self._file = None
            if isinstance(path, RemotePath):
                self._file = path.open("rb", _REMOTE_BLOCK_BYTES, _REMOTE_BLOCKS)
            self._container = av.open(self._file or str(path), "r")
            self._stream = self._container.streams.video[0]
        except (av.FFmpegError, IndexError, OSError) as error:
            raise ValueError(f"{path} is missing or no video ({error}); {self._hint()}") from error
        self._stream.thread_type = "NONE"
        self._stream.thread_count = 1
        self._reformatter = VideoReformatter()  # one for all frames: each sets up a converter
        self._decoded: Iterator[av.VideoFrame] = iter(())
        self._next: int | None = None  # number of the frame the decoder gives next
        self._keyframe_interval = KEYFRAME_INTERVAL  # the longest seen so far

    @property
    def num_frames(self) -> int:
        """How many frames the file declares."""
        return self._stream.frames

    def read(self, numbers: np.ndarray) -> np.ndarray:
        """Frames `numbers`, ascending, as uint8 [len(numbers), H, W, 3], or uint16 codes
        [len(numbers), H, W].

        Raises:
            ValueError: Naming the file and the first frame that cannot be decoded.
        """
        size = len(numbers), self._stream.height, self._stream.width
        is_rgb = self._format == "rgb24"
        images = np.empty((*size, 3), np.uint8) if is_rgb else np.empty(size, np.uint16)
        for row, number in enumerate(numbers.tolist()):
            if row and number == numbers[row - 1]:
                images[row] = images[row - 1]
            else:
                images[row] = self._pixels(self._frame(number))
        return images

    def is_keyframe(self, number: int) -> bool:
        """Whether the file can be cut before this frame without compressing it again."""
        return bool(self._frame(number).key_frame)

    def close(self) -> None:
        """Close the file."""
        self._container.close()
        if self._file is not None:
            self._file.close()

    def _pixels(self, frame: av.VideoFrame) -> np.ndarray:
        """uint8 [H, W, 3] or uint16 [H, W], a view that holds until the next frame is decoded."""
        plane = self._reformatter.reformat(frame, format=self._format).planes[0]
        content = typing.cast(typing.Any, plane)  # has the buffer protocol, which its stub lacks
        rows = np.frombuffer(content, np.uint8).reshape(plane.height, plane.line_size)
        if self._format != "rgb24":
            return rows.view("<u2")[:, : plane.width]
        return rows[:, : plane.width * 3].reshape(plane.height, plane.width, 3)

    def _frame(self, number: int) -> av.VideoFrame:
        try:
            if self._next is None or not 0 <= number - self._next <= self._keyframe_interval:
                self._seek(number)
            for frame in self._decoded:
                self._next = self._number(frame) + 1
                if self._next == number + 1:
                    return frame
                if self._next > number + 1:
                    break
        except (av.FFmpegError, OSError) as error:
            self._next = None
            raise ValueError(f"{self._path}: frame {number} cannot be decoded ({error})") from error
        self._next = None
        raise ValueError(f"{self._path} ends before frame {number}; {self._hint()}")

    def _seek(self, number: int) -> None:
        """Go to the last keyframe up to `number`, and learn how far apart keyframes are."""
        time_base = self._stream.time_base
        assert time_base is not None
        self._container.seek(round(number / self._fps / time_base), stream=self._stream)
        decoded = self._container.decode(self._stream)
        first = next(decoded, None)
        if first is not None:
            skipped = number - self._number(first)
            self._keyframe_interval = max(self._keyframe_interval, skipped)
            decoded = itertools.chain([first], decoded)
        self._decoded = decoded

    def _number(self, frame: av.VideoFrame) -> int:
        assert frame.time is not None
        return round(frame.time * self._fps)

    def _hint(self) -> str:
        return again(self._path)
