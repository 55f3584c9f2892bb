"""Frames of a video by number, whatever its keyframes are."""

from fractions import Fraction

import av
import numpy as np
import pytest

from rrf.data.video import VideoReader
from tests.data.conftest import draw

FPS = 10


def write(path, images, **options):
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS, options={"crf": "20", **options})
        stream.height, stream.width, stream.pix_fmt = *images.shape[1:3], "yuv420p"
        for index, image in enumerate(images):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, FPS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def in_sequence(path):
    """All frames as PyAV gives them one after the other."""
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


@pytest.mark.parametrize(
    "options",
    [
        {"g": "2"},
        {"g": "10", "tune": "zerolatency"},
        {"g": "250", "sc_threshold": "0"},  # with frames stored out of order
        {"g": "12", "bf": "3", "x264-params": "open-gop=1"},
    ],
    ids=str,
)
def test_any_frames_in_any_calls_are_those_of_the_sequence(tmp_path, options):
    path = write(tmp_path / "a.mp4", draw(0, 60), **options)
    expected = in_sequence(path)
    reader = VideoReader(path, FPS)
    random = np.random.default_rng(0)
    for _ in range(12):
        numbers = np.sort(random.integers(0, 60, 9))
        np.testing.assert_array_equal(reader.read(numbers), expected[numbers])
    np.testing.assert_array_equal(reader.read(np.arange(60)), expected)
    assert reader.num_frames == 60
    reader.close()


def test_a_width_that_the_decoder_pads_is_cut_off_again(tmp_path):
    images = np.repeat(draw(1, 3)[:, :, :, :], 3, axis=2)[:, :, :38]
    path = write(tmp_path / "a.mp4", np.ascontiguousarray(images))
    np.testing.assert_array_equal(VideoReader(path, FPS).read(np.arange(3)), in_sequence(path))


def test_few_keyframes_cost_one_seek_and_not_one_for_each_frame(tmp_path):
    path = write(tmp_path / "a.mp4", draw(0, 120), g="250", sc_threshold="0", tune="zerolatency")
    reader = VideoReader(path, FPS)
    reader.read(np.array([100]))  # learns that 100 frames have no keyframe
    reader.read(np.array([0]))
    container, reader._container = reader._container, None  # a seek would need it
    np.testing.assert_array_equal(reader.read(np.array([30, 60, 90]))[2], in_sequence(path)[90])
    reader._container = container


def test_what_cannot_be_read_is_named_and_the_reader_stays_usable(tmp_path):
    path = write(tmp_path / "a.mp4", draw(0, 20))
    reader = VideoReader(path, FPS)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"a\.mp4 ends before frame 25; make it again where"):
            reader.read(np.array([3, 25]))
    np.testing.assert_array_equal(reader.read(np.array([19])), in_sequence(path)[[19]])
    (tmp_path / "b.mp4").write_bytes(b"no video")
    with pytest.raises(ValueError, match=r"b\.mp4 is missing or no video"):
        VideoReader(tmp_path / "b.mp4", FPS)
    with pytest.raises(ValueError, match=r"c\.mp4 is missing or no video"):
        VideoReader(tmp_path / "c.mp4", FPS)
