"""A source of JPEG images for tests: one .npz per recording, registered as format "jpegs"."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rrf.data.formats.sources import SOURCES
from rrf.data.raw import RawEpisode, Recording
from rrf.data.schema import EncodedImages
from tests.data.conftest import draw


def make_jpeg(image: np.ndarray, mode: str = "RGB") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).convert(mode).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def write_jpegs(path: Path, episode: int, num_frames: int, dims: int = 3, mode: str = "RGB"):
    """A recording of one episode. Returns its images."""
    blobs = [make_jpeg(image, mode) for image in draw(episode, num_frames)]
    path.parent.mkdir(parents=True, exist_ok=True)
    frames = np.arange(num_frames, dtype=np.float64)
    np.savez(
        path,
        state=np.stack([frames, frames], axis=1),
        action=np.tile(frames[:, None] / 100, (1, dims)),
        sizes=[len(blob) for blob in blobs],
        blobs=np.frombuffer(b"".join(blobs), np.uint8),
    )
    return blobs


class JpegSource:
    def __init__(self, path: Path, options: dict):
        assert options == {}
        self._path = path

    def recordings(self):
        return [Recording(path.stem, (path,), 1) for path in sorted(self._path.glob("*.npz"))]

    def keys(self):
        return {"state": "float64[2]", "action": "float64[3]", "image": "image[16, 16]"}

    def episodes(self, recording, keys):
        with np.load(recording.paths[0]) as file:
            ends = np.cumsum(file["sizes"])
            content = file["blobs"].tobytes()
            blobs = [content[end - size : end] for end, size in zip(ends, file["sizes"])]  # noqa: B905
            yield RawEpisode(
                arrays={key: file[key] for key in keys if key != "image"},
                images={"image": EncodedImages(blobs, "jpg")} if "image" in keys else {},
                instruction="pull it",
                source=f"{recording.paths[0]}:0",
            )


@pytest.fixture
def jpegs(monkeypatch):
    """The format "jpegs"."""
    monkeypatch.setitem(SOURCES._targets, "jpegs", "tests.data.jpeg_source:JpegSource")
