import av
import numpy as np
import pytest

from rrf.envs.rendering.video import (
    FAILURE_COLOR,
    SUCCESS_COLOR,
    border,
    caption,
    enlarge,
    tile,
    tile_episodes,
    write_video,
)


def solid(value, height=32, width=48):
    return np.full((height, width, 3), value, np.uint8)


def read(path):
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        codec = (stream.codec_context.name, stream.codec_context.pix_fmt, stream.average_rate)
        return codec, [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def test_a_video_is_h264_that_browsers_play_and_shows_the_frames(tmp_path):
    path = tmp_path / "deep" / "run.mp4"
    frames = [solid(value) for value in (10, 120, 240)]
    write_video(path, frames, fps=16)
    codec, decoded = read(path)
    assert codec == ("h264", "yuv420p", 16)
    assert len(decoded) == 3
    for frame, shown in zip(frames, decoded, strict=True):
        assert np.abs(frame.astype(int) - shown).mean() < 4
    content = path.read_bytes()
    assert content.index(b"moov") < content.index(b"mdat")  # plays before it is loaded
    assert [p.name for p in path.parent.iterdir()] == ["run.mp4"]


def test_colours_survive(tmp_path):
    red = solid(0)
    red[..., 0] = 255
    write_video(tmp_path / "red.mp4", [red] * 2, fps=5)
    shown = read(tmp_path / "red.mp4")[1][0].mean((0, 1))
    assert shown[0] > 230
    assert shown[1:].max() < 25


def test_odd_sizes_are_padded_to_even_ones(tmp_path):
    write_video(tmp_path / "odd.mp4", np.zeros((2, 33, 47, 3), np.uint8), fps=10)
    assert read(tmp_path / "odd.mp4")[1][0].shape == (34, 48, 3)


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([], "at least one frame"),
        ([solid(0).astype(np.float32)], r"frame 0: float32\[32, 48, 3\], expected uint8"),
        ([solid(0), solid(0, 30)], r"frame 1: shape \[30, 48, 3\], but the first one is"),
    ],
)
def test_bad_frames_are_named_and_nothing_is_written(tmp_path, frames, message):
    with pytest.raises(ValueError, match=message):
        write_video(tmp_path / "bad.mp4", frames, fps=10)
    assert list(tmp_path.iterdir()) == []


def test_a_video_replaces_an_older_one_only_when_it_is_complete(tmp_path):
    write_video(tmp_path / "v.mp4", [solid(9)], fps=10)
    before = (tmp_path / "v.mp4").read_bytes()
    with pytest.raises(ValueError, match="frame 1"):
        write_video(tmp_path / "v.mp4", [solid(0), solid(0, 30)], fps=10)
    assert (tmp_path / "v.mp4").read_bytes() == before


def test_a_caption_stands_below_the_frame_and_is_cut_to_fit():
    frame = solid(7, 32, 100)
    short, long = caption(frame, "abc"), caption(frame, "an instruction far too long for this")
    assert short.shape == long.shape == (50, 100, 3)
    np.testing.assert_array_equal(short[:32], frame)
    assert (short[32:] > 200).any()
    assert (long[32:, -3:] < 60).all()  # nothing runs over the edge


def test_a_border_tells_success_from_failure():
    frame = solid(7)
    assert border(frame, True)[0, 0].tolist() == list(SUCCESS_COLOR)
    assert border(frame, False)[-1, -1].tolist() == list(FAILURE_COLOR)
    assert border(frame, True)[5, 5].tolist() == [7, 7, 7]
    assert frame[0, 0].tolist() == [7, 7, 7]  # the original stays as it is


def test_tiles_are_laid_out_row_by_row():
    grid = tile([solid(value, 4, 6) for value in (10, 20, 30)], columns=2)
    assert grid.shape == (8, 12, 3)
    assert grid[0, 0, 0] == 10
    assert grid[0, 6, 0] == 20
    assert grid[4, 0, 0] == 30
    assert tile([solid(0, 4, 6)] * 5).shape == (8, 18, 3)  # 3 columns, 2 rows


def test_a_shorter_episode_waits_on_its_last_frame():
    frames = tile_episodes([[solid(1), solid(2)], [solid(9)]])
    assert len(frames) == 2
    assert frames[1][0, 0, 0] == 2
    assert frames[1][0, 48, 0] == 9
    with pytest.raises(ValueError, match="at least one frame"):
        tile_episodes([[solid(1)], []])


def test_enlarging_keeps_pixels_as_blocks():
    small = np.zeros((2, 2, 3), np.uint8)
    small[0, 1] = 255
    big = enlarge(small, 8)
    assert big.shape == (8, 8, 3)
    assert (big[:4, 4:] == 255).all()
    assert big.sum() == 255 * 3 * 16
