"""Images of a recording as small pictures that a page shows.

Legend: T frames, H height, W width.
"""

import io

import numpy as np
from PIL import Image

from rrf.data.images import decode_image, resize
from rrf.data.schema import EncodedImages


class Pictures:
    """Images of one camera, decoded one at a time and made small."""

    def __init__(self, images: np.ndarray | EncodedImages, where: str):
        self._images, self._where = images, where

    def __len__(self) -> int:
        return len(self._images)

    def small(self, frame: int, size: int) -> np.ndarray:
        """uint8 [H, W, 3] with even sides, the longer one at most `size` px."""
        image = self._image(frame)
        height, width, _ = image.shape
        scale = min(1.0, size / max(height, width))
        sides = (max(2, round(side * scale) // 2 * 2) for side in (height, width))
        height, width = sides
        return image if image.shape[:2] == (height, width) else resize(image, (height, width))

    def jpeg(self, frame: int, size: int) -> bytes:
        """The same as a JPEG file."""
        buffer = io.BytesIO()
        Image.fromarray(self.small(frame, size)).save(buffer, "JPEG", quality=85)
        return buffer.getvalue()

    def _image(self, frame: int) -> np.ndarray:
        if isinstance(self._images, np.ndarray):
            return self._images[frame]
        try:
            return decode_image(self._images.blobs[frame])
        except ValueError as error:
            raise ValueError(f"{self._where} at frame {frame}: {error}") from error
