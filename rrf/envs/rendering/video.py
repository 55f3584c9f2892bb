"""Videos of episodes: captions, borders that show success, grids, and H.264 files that browsers
play.

All frames are uint8 [H, W, 3] RGB, row 0 on top.
"""

import functools
import io
import itertools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from rrf import atomic

SUCCESS_COLOR = (46, 160, 67)
FAILURE_COLOR = (218, 54, 51)
NEUTRAL_COLOR = (90, 90, 90)
_CAPTION_COLOR = (255, 255, 255)
_BACKGROUND = (20, 20, 20)
_FONT_PX = 13
_BAR_PX = 18


def write_video(path: str | Path, frames: Iterable[np.ndarray] | np.ndarray, fps: int) -> None:
    """Write an MP4 (H.264, yuv420p, index in front), atomically.

    Args:
        path: The file.
        frames: uint8 [T, H, W, 3]; an iterator is encoded as it goes. The format needs an even
            height and width, so an odd one gets one more row or column.
        fps: Frames per second.

    Raises:
        ValueError: For no frames, frames of different shapes, or frames that are not uint8 RGB.
    """
    if fps < 1:
        raise ValueError(f"{path}: fps={fps} must be at least 1")
    rest = iter(frames)
    first = next(rest, None)
    if first is None:
        raise ValueError(f"{path}: a video needs at least one frame")
    with tempfile.TemporaryDirectory() as scratch:
        file = (
            Path(scratch) / "video.mp4"
        )  # a real file: moving the index to the front reads it back
        _encode(file, first, rest, fps, str(path))
        atomic.write_bytes(path, file.read_bytes())


def preview(path: str | Path, seconds: float = 6.0, fps: int = 8) -> bytes:
    """The beginning of a video as an animated WebP, small enough to store in a database."""
    import av

    pictures: list[Image.Image] = []
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            if frame.time > seconds:
                break
            if frame.time * fps >= len(pictures):
                pictures.append(frame.to_image())
    file = io.BytesIO()
    first, *rest = pictures
    first.save(
        file, "WEBP", save_all=True, append_images=rest, duration=1000 // fps, loop=0, quality=50
    )
    return file.getvalue()


def enlarge(frame: np.ndarray, size: int) -> np.ndarray:
    """`frame` with its longer side at `size` pixels. Each pixel becomes a block, so that a small
    image is not blurred.
    """
    height, width = frame.shape[:2]
    scale = size / max(height, width)
    resized = Image.fromarray(frame).resize(
        (round(width * scale), round(height * scale)), Image.Resampling.NEAREST
    )
    return np.asarray(resized)


def caption(frame: np.ndarray, text: str) -> np.ndarray:
    """`frame` with a bar below it that shows `text`. Text that is too long ends in an ellipsis."""
    height, width = frame.shape[:2]
    image = Image.new("RGB", (width, height + _BAR_PX), _BACKGROUND)
    image.paste(Image.fromarray(frame), (0, 0))
    draw = ImageDraw.Draw(image)
    draw.text((3, height + 2), _fitting(draw, text, width - 6), fill=_CAPTION_COLOR, font=_font())
    return np.asarray(image)


def border(frame: np.ndarray, success: bool | None, width: int = 3) -> np.ndarray:
    """`frame` with its outer pixels green for success, red for failure, grey while undecided
    (None).
    """
    color = {True: SUCCESS_COLOR, False: FAILURE_COLOR, None: NEUTRAL_COLOR}[success]
    framed = frame.copy()
    for edge in (framed[:width], framed[-width:], framed[:, :width], framed[:, -width:]):
        edge[:] = color
    return framed


def tile(frames: Sequence[np.ndarray], columns: int | None = None) -> np.ndarray:
    """Frames of one shape as a grid, row by row. Empty cells are dark.

    The grid is about square unless `columns` is given.

    Raises:
        ValueError: For no frames, or frames of different shapes.
    """
    if not frames:
        raise ValueError("a grid needs at least one frame")
    height, width, _ = shape = np.shape(frames[0])
    columns = columns or int(np.ceil(np.sqrt(len(frames))))
    rows = -(-len(frames) // columns)
    grid = np.empty((rows * height, columns * width, 3), np.uint8)
    grid[:] = _BACKGROUND
    for index, frame in enumerate(frames):
        _check_frame(frame, shape, f"frame {index}")
        top, left = index // columns * height, index % columns * width
        grid[top : top + height, left : left + width] = frame
    return grid


def tile_episodes(
    episodes: Sequence[Sequence[np.ndarray]], columns: int | None = None
) -> list[np.ndarray]:
    """Episodes side by side as one list of frames. Shorter episodes stay on their last frame."""
    if not episodes or not all(len(episode) for episode in episodes):
        raise ValueError("a grid of episodes needs at least one frame of each episode")
    length = max(len(episode) for episode in episodes)
    return [
        tile([episode[min(step, len(episode) - 1)] for episode in episodes], columns)
        for step in range(length)
    ]


def _encode(
    file: Path, first: np.ndarray, rest: Iterator[np.ndarray], fps: int, where: str
) -> None:
    import av

    shape = np.shape(first)
    _check_frame(first, shape, f"{where}, frame 0")
    pad = ((0, shape[0] % 2), (0, shape[1] % 2), (0, 0))
    with av.open(str(file), "w", options={"movflags": "faststart"}) as container:
        stream = container.add_stream("libx264", rate=fps, options={"crf": "20", "preset": "fast"})
        stream.pix_fmt = "yuv420p"
        stream.thread_count = 1
        stream.height, stream.width = shape[0] + pad[0][1], shape[1] + pad[1][1]
        for index, frame in enumerate(itertools.chain([first], rest)):
            _check_frame(frame, shape, f"{where}, frame {index}")
            even = np.pad(frame, pad, mode="edge")
            container.mux(stream.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))
        container.mux(stream.encode())


def _check_frame(frame: np.ndarray, shape: tuple[int, ...], where: str) -> None:
    frame = np.asarray(frame)
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
        raise ValueError(f"{where}: {frame.dtype}{list(frame.shape)}, expected uint8[H, W, 3]")
    if frame.shape != tuple(shape):
        raise ValueError(f"{where}: shape {list(frame.shape)}, but the first one is {list(shape)}")


@functools.cache
def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(_FONT_PX)


def _fitting(draw: ImageDraw.ImageDraw, text: str, width: int) -> str:
    if draw.textlength(text, font=_font()) <= width:
        return text
    while text and draw.textlength(text + "…", font=_font()) > width:
        text = text[:-1]
    return text + "…"
