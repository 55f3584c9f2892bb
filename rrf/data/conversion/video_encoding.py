"""Video of many episodes: each episode is encoded for itself, then joined to others without being
encoded again.

An encoder starts with an episode and ends with it, runs in one thread and uses no B-frames. So an
episode's bytes depend on nothing but its frames, an episode starts with a keyframe, and files can
be joined and split between episodes by copying packets. Frames are yuv420p: colours are halved in
resolution, so height and width must be even.

Legend: T frames, H height, W width.
"""

import contextlib
import io
import os
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.video.stream import VideoStream

from rrf.data.encoding import Codec
from rrf.data.remedies import again

_ENCODERS = {
    # zerolatency: no B-frames and no lookahead
    "h264": (
        "libx264",
        {"preset": "veryfast", "tune": "zerolatency", "crf": "18", "sc_threshold": "0"},
    ),
    # lp: threads; pred-struct 1: no B-frames; scd 0: keyframes at fixed distances
    "av1": (
        "libsvtav1",
        {"preset": "12", "crf": "30", "svtav1-params": "lp=1:pred-struct=1:scd=0"},
    ),
}


def check_video_size(height: int, width: int) -> None:
    """Raise ValueError for a size that cannot be stored as video."""
    if height % 2 or width % 2:
        raise ValueError(
            f"video storage needs even sizes, got {height}x{width}; use storage: image"
        )


def encode_video(
    images: Iterable[np.ndarray],
    fps: float,
    size: tuple[int, int],
    codec: Codec,
    keyframe_interval: int,
) -> bytes:
    """An mp4 file of uint8 [H, W, 3] images, which are consumed one at a time.

    Args:
        images: The frames of one episode.
        fps: Frames per second.
        size: Height and width, px.
        codec: How it is compressed.
        keyframe_interval: Frames from one keyframe to the next, at most.
    """
    encoder, options = _ENCODERS[codec]
    os.environ.setdefault("SVT_LOG", "1")  # else the av1 encoder greets on stderr, each time
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        options = options | {"g": str(keyframe_interval)}
        rate = exact_rate(fps)
        stream = container.add_stream(encoder, rate=rate, options=options)
        assert isinstance(stream, VideoStream)
        (stream.height, stream.width), stream.pix_fmt = size, "yuv420p"
        stream.thread_count = 1
        with _same_scheduling():
            stream.codec_context.open()
        for index, image in enumerate(images):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
            frame.pts, frame.time_base = index, 1 / rate
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return buffer.getvalue()


def exact_rate(fps: float) -> Fraction:
    """Frames per second as a fraction, of at most three decimals."""
    return Fraction(round(fps * 1000), 1000)


@contextlib.contextmanager
def _same_scheduling() -> Iterator[None]:
    """Keep the scheduling policy of this thread.

    As root, SVT-AV1 gives real-time priority to the thread that opens an encoder, and leaves it so:
    whatever it and its child processes do later would keep all others from running.
    """
    if not hasattr(os, "sched_getscheduler"):  # not on macOS
        yield
        return
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        if os.sched_getscheduler(0) != policy:
            os.sched_setscheduler(0, policy, parameters)


def cut_video(path: Path, fps: float, first: int, num_frames: int) -> bytes:
    """An mp4 file of some frames of another, as they are compressed.

    Raises:
        ValueError: Naming the file if it is damaged, ends too early, or has no keyframe at `first`.
    """
    buffer = io.BytesIO()
    num_copied = 0
    try:
        with av.open(str(path), "r") as source, av.open(buffer, "w", format="mp4") as container:
            template = source.streams.video[0]
            stream = container.add_stream_from_template(template, opaque=True)
            stream.time_base = template.time_base
            assert template.time_base is not None
            ticks = round(1 / (exact_rate(fps) * template.time_base))
            source.seek(first * ticks, stream=template)
            for packet in source.demux(template):
                if num_copied == num_frames:
                    break
                if packet.pts is None or packet.pts < first * ticks:
                    continue
                if packet.pts != (first + num_copied) * ticks or packet.pts != packet.dts:
                    raise ValueError(f"{path}: the frames are not in order; convert it again")
                if num_copied == 0 and not packet.is_keyframe:
                    raise ValueError(f"{path}: frame {first} is no keyframe; convert it again")
                packet.stream = stream
                packet.pts = packet.dts = num_copied * ticks
                container.mux(packet)
                num_copied += 1
    except (av.FFmpegError, IndexError) as error:
        raise ValueError(f"{path} is truncated or no video ({error}); {again(path)}") from error
    if num_copied < num_frames:
        raise ValueError(f"{path} ends before frame {first + num_copied}; {again(path)}")
    return buffer.getvalue()


def open_video(video: bytes) -> InputContainer:
    """An mp4 file of one episode, to copy from."""
    return av.open(io.BytesIO(video), "r")


def decoder_settings(source: InputContainer) -> bytes:
    """What a decoder is told once, before the first frame. Only files that agree in it can be
    joined.
    """
    return source.streams.video[0].codec_context.extradata or b""


class VideoFile:
    """One mp4 file that grows by whole episodes, all with the same `decoder_settings`."""

    def __init__(self, path: Path, fps: float):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._container = av.open(str(path), "w")
        self._stream: VideoStream | None = None
        self._fps = fps
        self.num_frames = 0
        self.num_bytes = 0

    def add(self, source: InputContainer, num_bytes: int) -> None:
        """Append the frames of an episode's file of so many bytes, as they are compressed."""
        template = source.streams.video[0]
        if self._stream is None:
            self._stream = self._container.add_stream_from_template(template, opaque=True)
            self._stream.time_base = template.time_base
        assert template.time_base is not None
        ticks = round(1 / (exact_rate(self._fps) * template.time_base))  # of one frame
        for packet in source.demux(template):
            if packet.pts is None:  # the flushing packet at the end
                continue
            packet.stream = self._stream
            packet.pts = packet.dts = self.num_frames * ticks
            self._container.mux(packet)
            self.num_frames += 1
        self.num_bytes += num_bytes

    def close(self) -> None:
        """Finish the file."""
        self._container.close()
