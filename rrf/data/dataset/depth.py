"""Depth maps as lerobot 0.6 stores them: features whose info says `is_depth_map`.

    dtype video    12-bit codes (HEVC, gray12le) of the logarithm of the depth, or of the depth
                   itself; info has video.depth_min, video.depth_max, video.shift (all m) and
                   video.use_log. Read as float32 metres, to which depth_min and depth_max are the
                   nearest and the farthest that a code can mean.
    dtype image    TIFF files, uint16 millimetres or float32 metres as info's depth_unit says

To the reader they are maps, not cameras, called as the camera would be. Formulas and defaults:
`lerobot/datasets/depth_utils.py` and `lerobot/configs/video.py` of 0.6.1.

Legend: T frames, H height, W width.
"""

import io
import math
from collections.abc import Iterable, Mapping

import numpy as np
from PIL import Image, UnidentifiedImageError

from rrf.data.schema import PixelMap

CODE_FORMAT = "gray12le"  # of the pixels of a depth video
_MAX_CODE = 4095
_DEFAULTS: dict[str, float] = {"depth_min": 0.01, "depth_max": 10.0, "shift": 3.5, "use_log": True}


def metres(codes_thw: np.ndarray, feature: Mapping) -> np.ndarray:
    """The codes of a depth video as float32 metres.

    Raises ValueError if the parameters in the feature's info allow no logarithm.
    """
    info = feature.get("info") or {}
    encoding = {name: info.get(f"video.{name}") for name in _DEFAULTS}
    low, high, shift, use_log = (
        _DEFAULTS | {k: v for k, v in encoding.items() if v is not None}
    ).values()
    if not use_log:
        depth = codes_thw.astype(np.float32) * np.float32((high - low) / _MAX_CODE)
        return np.clip(depth + np.float32(low), low, high, dtype=np.float32)
    if low + shift <= 0:
        raise ValueError(f"video.depth_min + video.shift is {low + shift}, must be positive")
    begin, end = math.log(low + shift), math.log(high + shift)
    depth = codes_thw.astype(np.float32) * np.float32((end - begin) / _MAX_CODE) + np.float32(begin)
    return np.clip(np.exp(depth) - np.float32(shift), low, high, dtype=np.float32)


def decode_depth(blobs: Iterable[bytes], kind: PixelMap, where: str) -> np.ndarray:
    """TIFF files as [T, H, W] of the map's dtype.

    Raises ValueError naming the frame of an image that is damaged or of another kind.
    """
    frames = []
    for frame, blob in enumerate(blobs):
        try:
            with Image.open(io.BytesIO(blob)) as image:
                values = np.array(image)
        except (UnidentifiedImageError, OSError, SyntaxError) as error:
            raise ValueError(
                f"{where} at frame {frame}: {len(blob)} bytes of a damaged depth map"
            ) from error
        if values.shape != kind.size or not np.can_cast(values.dtype, kind.dtype, "same_kind"):
            raise ValueError(
                f"{where} at frame {frame} is {values.dtype}{list(values.shape)}, expected "
                f"{kind.dtype}{list(kind.size)}"
            )
        frames.append(values.astype(kind.dtype, copy=False))
    return np.stack(frames)
