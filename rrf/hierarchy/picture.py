"""A picture of the three systems at work, to be shown beside the robot.

From above: what System 2 sent, and its age; what System 1 sends, each number between its limits;
what System 0 wants of the 15 joints that it drives, beside their angles.
"""

import typing

import numpy as np
from PIL import Image, ImageDraw

from rrf.envs.humanoid import body, command
from rrf.hierarchy.runtime import Runtime

_BACKGROUND, _TEXT, _AXIS = (20, 20, 24), (230, 230, 230), (80, 80, 90)
_COLORS = {2: (120, 170, 255), 1: (255, 180, 90), 0: (120, 220, 140)}
_LARGEST_RAD = 0.5  # of a bar of System 0
_MARGIN = 8


class Signals(typing.NamedTuple):
    """What the three systems send at a moment."""

    features: np.ndarray | None  # of System 2, [1, T, W]
    feature_age_s: float
    stopped: str  # why, or ""
    command_36: np.ndarray
    joints_29: np.ndarray | None  # targets of `body.JOINTS`, rad


def signals(runtime: Runtime) -> Signals:
    """Those of now; they stay as they are."""
    features, joints = runtime.features, runtime.joints_29
    return Signals(
        None if features is None else np.array(features, np.float32),
        runtime.feature_age_s,
        runtime.stopped.reason if runtime.stopped else "",
        runtime.command_36.copy(),
        None if joints is None else joints.copy(),
    )


def panel(sent: Signals, joints_29: np.ndarray, size: int) -> np.ndarray:
    """uint8 [size, size, 3].

    Args:
        sent: What is shown.
        joints_29: Angles of `body.JOINTS` at that moment, rad.
        size: In pixels.
    """
    image = Image.new("RGB", (size, size), _BACKGROUND)
    draw, third = ImageDraw.Draw(image), size // 3
    said = "nothing yet" if sent.features is None else f"features, age {sent.feature_age_s:.2f} s"
    state = f"stopped: {sent.stopped}" if sent.stopped else "36 numbers"
    titles = (f"System 2: {said}", f"System 1: {state}", "System 0: 15 joints")
    for row, (number, title) in enumerate(zip((2, 1, 0), titles, strict=True)):
        draw.text((_MARGIN, row * third + 4), title[: size // 7], _TEXT)
        top, bottom = row * third + 22, (row + 1) * third - _MARGIN
        if number == 2 and sent.features is not None:
            _heat(image, sent.features[0], top, bottom)
        elif number == 1:
            middle, half = (command.HIGH + command.LOW) / 2, (command.HIGH - command.LOW) / 2
            _bars(draw, (sent.command_36 - middle) / half, top, bottom, size, _COLORS[1])
        elif number == 0 and sent.joints_29 is not None:
            off = (sent.joints_29 - joints_29)[: len(body.DRIVEN)] / _LARGEST_RAD
            _bars(draw, off, top, bottom, size, _COLORS[0])
    return np.asarray(image)


def _heat(image: Image.Image, features_tw: np.ndarray, top: int, bottom: int) -> None:
    share = np.clip(features_tw / 4 + 0.5, 0, 1)[..., None]
    colors = np.array(_BACKGROUND) * (1 - share) + np.array(_COLORS[2]) * share
    width = image.width - 2 * _MARGIN
    strip = Image.fromarray(colors.astype(np.uint8)).resize((width, bottom - top), 0)
    image.paste(strip, (_MARGIN, top))


def _bars(
    draw: ImageDraw.ImageDraw,
    values: np.ndarray,
    top: int,
    bottom: int,
    size: int,
    color: tuple[int, int, int],
) -> None:
    """Bars from the middle, of values from -1 to 1."""
    middle, half = (top + bottom) / 2, (bottom - top) / 2
    step = (size - 2 * _MARGIN) / len(values)
    draw.line((_MARGIN, middle, size - _MARGIN, middle), _AXIS)
    for number, value in enumerate(np.clip(values, -1, 1).tolist()):
        left = _MARGIN + number * step
        ends = sorted((middle, middle - value * half))
        draw.rectangle((left + 1, ends[0], left + max(step - 1, 2), ends[1]), color)
