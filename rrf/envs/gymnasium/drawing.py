"""Pictures of Gymnasium's environments that have no MuJoCo model.

CartPole and Pendulum are drawn with PIL from their state. Other tasks draw themselves, for which
Gymnasium's own (Acrobot, MountainCar, LunarLander) need the package pygame.
"""

import typing

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv
from PIL import Image, ImageDraw, ImageOps

_ARRAY = "rgb_array"  # Gymnasium's name of the mode in which tasks return their picture
_PAPER, _INK, _CART, _ROD = (245, 245, 245), (30, 30, 30), (60, 90, 140), (190, 110, 50)
_OVERSAMPLING = 2  # PIL draws without anti-aliasing


def draw(env: gymnasium.Env, image_size: tuple[int, int]) -> np.ndarray:
    """A picture of an environment that was reset, uint8 [H, W, 3].

    `image_size` is (height, width) in pixels.

    Raises:
        ValueError: For an environment that does not draw itself, or that fails to.
    """
    if not isinstance(env.unwrapped, CartPoleEnv | PendulumEnv):
        size = image_size[1], image_size[0]
        picture = ImageOps.pad(Image.fromarray(_own_picture(env)), size, color=_PAPER)
        return np.asarray(picture)
    height, width = _OVERSAMPLING * image_size[0], _OVERSAMPLING * image_size[1]
    image = Image.new("RGB", (width, height), _PAPER)
    canvas = ImageDraw.Draw(image)
    bare: typing.Any = env.unwrapped
    if isinstance(bare, CartPoleEnv):
        _draw_cart_pole(canvas, bare, width, height)
    else:
        _draw_pendulum(canvas, bare, width, height)
    return np.asarray(image.resize((image_size[1], image_size[0]), Image.Resampling.BOX))


def _own_picture(env: gymnasium.Env) -> np.ndarray:
    """What the task draws, uint8 [H, W, 3]."""
    bare: typing.Any = env.unwrapped
    if _ARRAY not in env.metadata.get("render_modes", ()):
        raise ValueError(f"it has no render mode '{_ARRAY}'")
    bare.render_mode = _ARRAY  # it was made without one: most environments are never drawn
    try:
        picture = np.asarray(env.render())
    except Exception as error:  # the code is not ours and may raise anything
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
        raise ValueError(
            f"render() returned {picture.dtype} {list(picture.shape)} instead of uint8 [H, W, 3]"
        )
    return picture


def _draw_cart_pole(canvas: ImageDraw.ImageDraw, env: typing.Any, width: int, height: int) -> None:
    """The track spans the picture: its ends are the |x| threshold at which the episode ends."""
    position, _, angle, _ = env.state
    scale = width / (2 * env.x_threshold)  # pixels per m
    rail_y = 0.75 * height
    cart_x = width / 2 + position * scale
    half_w, half_h = 0.25 * scale, 0.13 * scale
    canvas.line([(0, rail_y), (width, rail_y)], fill=_INK, width=2)
    canvas.rectangle(
        [cart_x - half_w, rail_y - half_h, cart_x + half_w, rail_y + half_h], fill=_CART
    )
    # `env.length` is half the length of the pole; a positive angle leans right.
    length = 2 * env.length * scale
    _draw_rod(canvas, (cart_x, rail_y - half_h), length, angle, thickness=0.08 * scale)


def _draw_pendulum(canvas: ImageDraw.ImageDraw, env: typing.Any, width: int, height: int) -> None:
    """Angle 0 is upright; a positive angle leans left."""
    scale = min(width, height) / 2.4
    pivot = (width / 2, height / 2)
    _draw_rod(canvas, pivot, env.l * scale, -env.state[0], thickness=0.15 * scale)
    dot = 0.05 * scale
    canvas.ellipse([pivot[0] - dot, pivot[1] - dot, pivot[0] + dot, pivot[1] + dot], fill=_INK)


def _draw_rod(
    canvas: ImageDraw.ImageDraw,
    foot: tuple[float, float],
    length: float,
    angle: float,
    thickness: float,
) -> None:
    """Draw a rod from `foot`; `angle` (rad) is clockwise from straight up."""
    tip = (foot[0] + length * np.sin(angle), foot[1] - length * np.cos(angle))
    canvas.line([foot, tip], fill=_ROD, width=round(thickness))
    for x, y in (foot, tip):
        r = thickness / 2
        canvas.ellipse([x - r, y - r, x + r, y + r], fill=_ROD)
