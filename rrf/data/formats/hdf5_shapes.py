"""Arrays of HDF5 files in shapes that are common and not ours: one observation more than actions,
images with a fourth channel or as float.

Legend: T actions of an episode, H W image height and width.
"""

import numpy as np

from rrf.config import Cfg, configclass
from rrf.data.formats import hdf5
from rrf.data.memory import check_fits

_TOLERANCE = 1e-3  # of white


@configclass
class ShapeOptions(Cfg):
    """Options of formats whose arrays may have other shapes."""

    drop_final: bool = False
    """Of arrays with T+1 rows for T actions, drop the last row: it was seen after the last action.
    """
    drop_alpha: bool = False
    """Images have a fourth channel, alpha, which is dropped."""
    white: float | None = None
    """Images are stored as float, and this is white: 1 or 255."""

    def __post_init__(self):
        if self.white is not None and self.white <= 0:
            raise ValueError(f"white is {self.white}, allowed: above 0, such as 1 or 255")


def shaped(
    values: np.ndarray, options: ShapeOptions, num_actions: int | None, where: str
) -> np.ndarray:
    """An array as the options say, images as uint8 [T, H, W, 3].

    Args:
        values: As stored.
        options: What may be done to it.
        num_actions: T, None where it is not known.
        where: The beginning of every message, with the key.

    Raises:
        ValueError: For pixels brighter than white, or darker than 0.
    """
    if options.drop_final and num_actions is not None and len(values) == num_actions + 1:
        values = values[:-1]
    if is_image(values.shape, values.dtype, options):
        if values.shape[3] not in (3, 4):
            values = values.transpose(0, 2, 3, 1)
        values = values[..., :3]
        if options.white is not None and values.dtype.kind == "f":
            values = _as_bytes(values, options.white, where)
        return np.ascontiguousarray(values)
    return hdf5.channels_last(values)


def is_image(shape: tuple[int, ...], dtype: np.dtype, options: ShapeOptions) -> bool:
    """Whether the options say that an array holds RGB images."""
    if len(shape) != 4:
        return False
    channels = shape[3] if shape[3] in (3, 4) else shape[1]
    has_number = channels == 3 or (channels == 4 and options.drop_alpha)
    is_float = dtype.kind == "f" and options.white is not None
    is_rgba = dtype == np.uint8 and options.drop_alpha
    return has_number and (is_float or is_rgba)


def describe(dataset, options: ShapeOptions) -> str | None:
    """As `hdf5.describe`, of what `shaped` gives."""
    if dataset.shape and is_image(dataset.shape, dataset.dtype, options):
        shape = dataset.shape
        height, width = shape[1:3] if shape[3] in (3, 4) else shape[2:]
        return f"image[{height}, {width}]"
    return hdf5.describe(dataset)


def _as_bytes(values: np.ndarray, white: float, where: str) -> np.ndarray:
    check_fits(values.shape, 9, f"{where}, from {values.dtype} to uint8")  # and a copy as float64
    low, high = float(values.min()), float(values.max())
    if not (low >= -_TOLERANCE * white and high <= (1 + _TOLERANCE) * white):
        raise ValueError(
            f"{where} holds pixels from {low:g} to {high:g}, but white is {white:g}; change "
            "options: {white: …}, or make it an array of 0 to white"
        )
    return np.round(np.clip(values / white, 0.0, 1.0) * 255.0).astype(np.uint8)
