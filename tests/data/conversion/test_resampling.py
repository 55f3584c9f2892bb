"""Datasets of another rate than their recordings, by time: from files to what lerobot reads."""

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import SourceCfg, VectorCfg
from rrf.data.conversion.resample_cfg import ResampleCfg
from rrf.data.dataset.layout import read_info
from rrf.data.dataset.opening import open_dataset
from rrf.data.formats.time_stamps import read_time_stamps
from rrf.data.pages.card import render_card
from rrf.data.pages.episode_view import view_recordings
from rrf.data.validation.summary import summarise
from rrf.data.validation.validate import validate
from tests.data.conftest import draw, make_cfg
from tests.data.fixtures_lerobot_v2 import CAMERA, change_columns, data_path, write_v2


def polled(rate_hz: float, loop_hz: float, num_frames: int) -> np.ndarray:
    """When a loop that polls a camera sees each of its frames for the first time, s."""
    return np.ceil(np.arange(num_frames) / rate_hz * loop_hz - 1e-9) / loop_hz


@pytest.mark.parametrize(
    ("times", "fps"),
    [
        (polled(30, 50, 200), 30.0),  # a median says 25
        (polled(30, 100, 200), 30.0),
        (polled(45, 50, 200), 45.0),
        (np.arange(200) / 18.35, 18.35),
        (np.round(np.arange(200) / 30, 3), 30.0),  # of a clock of milliseconds
        (np.delete(np.arange(201) / 20, 100), 20.0),  # a frame was lost
    ],
)
def test_the_rate_is_that_of_the_whole_recording(times, fps):
    assert read_time_stamps(times, 10.0).fps == pytest.approx(fps, rel=2e-3)


def test_lost_frames_are_told_from_a_polled_camera():
    lost = np.delete(np.arange(201) / 20, 100)
    assert (
        "timestamp at frame 100 is 0.1 s after the one before"
        in read_time_stamps(lost, 20).breaks[0]
    )
    assert read_time_stamps(polled(45, 50, 200), 45.0).breaks == ()


@pytest.mark.parametrize("storage", ["image", "video"])
def test_a_rate_that_is_no_whole_number_is_kept_exactly(open_with_lerobot, raw, tmp_path, storage):
    source = SourceCfg(path="raw", fps=18.35)
    cfg = make_cfg(fps=18.35, source=source, storage=storage)
    convert(cfg, raw, tmp_path / "d")
    info = read_info(tmp_path / "d")
    assert info["fps"] == 18.35
    dataset = open_with_lerobot(tmp_path / "d", 18.35)
    reader = open_dataset(tmp_path / "d", 3)
    batch = reader.batch(np.arange(36))
    for index in range(36):
        item = dataset[index]
        image = (item["observation.images.front"].numpy().transpose(1, 2, 0) * 255).round()
        np.testing.assert_array_equal(image, batch.observation.images["front"][index])
        np.testing.assert_array_equal(item["action"], batch.action[index])
    assert dataset[5]["timestamp"].item() == pytest.approx(5 / 18.35)
    report = validate("toy", tmp_path / "d", cfg.checks, tmp_path / "reports")
    wrong = [check for check in report.checks if check.status in ("fail", "crashed")]
    assert wrong == []


def test_a_rate_of_more_decimals_is_refused():
    with pytest.raises(ValueError, match=r"fps is 29\.97003, must be positive, with at most three"):
        make_cfg(fps=29.97003)


def write_rates(path, length=60):
    """Joints at 100 Hz, a camera that a loop of 50 Hz polled at 30 frames/s, forces at 250 Hz that
    began later; all tell the time in milliseconds.
    """
    with h5py.File(path, "w") as file:
        demo = file.create_group("data/demo_0")
        file["data"].attrs["instruction"] = "go"
        joints = np.arange(2 * length) / 100
        camera, force = polled(30, 50, int(joints[-1] * 30)), 0.05 + np.arange(4 * length) / 250
        demo["actions"] = np.stack([joints, joints > 0.5, np.full_like(joints, 0.01)], axis=1)
        demo["obs/q"], demo["obs/grip"] = joints[:, None] * 2, joints > 0.5
        demo["obs/force"] = force[:, None] * 3
        demo["obs/cam"] = draw(0, len(camera))
        demo["obs/marks"] = np.arange(len(joints)) == 70
        for name, times in (("q", joints), ("cam", camera), ("force", force)):
            demo[f"time/{name}"] = times * 1000
    return camera


def rates_cfg(**changes):
    resample = ResampleCfg(
        times="time/q",
        times_of={"obs/cam": "time/cam", "obs/force": "time/force"},
        unit="ms",
        nearest=["grip"],
    )
    fields = dict(
        fps=20,
        resample=resample,
        cameras={"front": "obs/cam"},
        state=VectorCfg(
            keys=["obs/q", "obs/grip", "obs/force"], names=["q", "grip", "f"], unit="1"
        ),
        action=VectorCfg(keys=["actions"], names=["q", "grip", "d"], unit="1", deltas=["d"]),
        reward="obs/marks",
        success="obs/marks",
    )
    return make_cfg(**(fields | changes))


def test_several_rates_become_one_by_their_time_stamps(tmp_path):
    (tmp_path / "raw").mkdir()
    camera_s = write_rates(tmp_path / "raw/a.hdf5")
    cfg = rates_cfg()
    done = convert(cfg, tmp_path / "raw", tmp_path / "d")
    batch = open_dataset(tmp_path / "d", 1).batch(np.arange(done.frames))
    times = 0.05 + np.arange(done.frames) / 20  # from the first force on
    state = batch.observation.state
    np.testing.assert_allclose(state[:, 0], 2 * times, atol=1e-6)  # interpolated
    np.testing.assert_allclose(state[:, 2], 3 * times, atol=1e-6)
    np.testing.assert_array_equal(state[:, 1], times > 0.5 + 1e-6)  # 0 or 1 and nothing between
    action = batch.action[:, 0]
    np.testing.assert_allclose(action[:, 0], times, atol=1e-6)
    np.testing.assert_allclose(action[:-1, 2], 0.05, atol=1e-6)  # five increments of 0.01
    nearest = np.abs(camera_s[:, None] - times).argmin(axis=0)
    drawn = draw(0, len(camera_s))
    for frame, image in enumerate(batch.observation.images["front"]):
        np.testing.assert_array_equal(image, drawn[nearest[frame]])
    (told,) = [text for text in done.warnings if "resampled" in text]
    assert told.startswith(
        "resampled to 20 frames/s by time/q: states and actions are interpolated, images, maps, "
        "texts, grip the nearest"
    )
    assert "resampled to 20 frames/s by time/q" in render_card(summarise(tmp_path / "d"), None)


def test_the_page_about_recordings_shows_all_rates(tmp_path):
    (tmp_path / "raw").mkdir()
    write_rates(tmp_path / "raw/a.hdf5")
    view_recordings(rates_cfg(), tmp_path / "raw", [0], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    for key in ("obs/cam", "obs/force", "obs/q"):
        assert key in page


def test_a_reward_and_a_flag_are_not_lost_between_frames(tmp_path):
    (tmp_path / "raw").mkdir()
    write_rates(tmp_path / "raw/a.hdf5")
    convert(rates_cfg(fps=7), tmp_path / "raw", tmp_path / "d")
    columns = pq.read_table(tmp_path / "d/data/chunk-000/file-000.parquet").to_pydict()
    at = int((0.70 - 0.05) * 7)
    assert np.flatnonzero(columns["next.reward"]).tolist() == [at]
    assert np.flatnonzero(columns["next.success"]).tolist() == [at]


def test_rates_that_nothing_is_said_about_are_refused_by_name(tmp_path):
    (tmp_path / "raw").mkdir()
    write_rates(tmp_path / "raw/a.hdf5")
    cfg = rates_cfg()
    assert cfg.resample is not None
    bare = cfg.replace(resample=cfg.resample.replace(times_of={"obs/cam": "time/cam"}))
    with pytest.raises(ValueError, match=r"obs/force has 240 frames, others 120; name its time"):
        convert(bare, tmp_path / "raw", tmp_path / "d")
    with pytest.raises(ValueError, match=r"resample.times_of: .* d4rl have the same rows"):
        cfg.replace(source=SourceCfg(format="d4rl", path="x")).reader(tmp_path)
    with pytest.raises(ValueError, match=r"resample.nearest: no 'gripp'; did you mean 'grip'"):
        rates_cfg(resample=ResampleCfg(nearest=["gripp"]))
    with pytest.raises(ValueError, match="after_action and resample exclude each other"):
        rates_cfg(after_action=["state"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: np.where(np.arange(len(t)) >= 50, t + 600, t), r"time/q of row 50 is 0\.61 s"),
        (lambda t: np.r_[t[:50], t[49], t[51:]], r"time/q of row 50 is 0\.49 s, after 0\.49 s"),
    ],
)
def test_gaps_and_steps_back_are_refused(tmp_path, change, message):
    (tmp_path / "raw").mkdir()
    write_rates(tmp_path / "raw/a.hdf5")
    with h5py.File(tmp_path / "raw/a.hdf5", "a") as file:
        times = file["data/demo_0/time/q"]
        assert isinstance(times, h5py.Dataset)
        times[:] = change(times[:])
    with pytest.raises(ValueError, match=message):
        convert(rates_cfg(), tmp_path / "raw", tmp_path / "d")


def test_an_unknown_rate_is_not_guessed(tmp_path):
    (tmp_path / "raw").mkdir()
    write_rates(tmp_path / "raw/a.hdf5")
    one = dict(cameras={}, image_size=None, state=VectorCfg(keys=["obs/q"], names=["q"], unit="1"))
    with pytest.raises(ValueError, match=r"demo_0 does not say how fast .*source: \{fps: …\}"):
        convert(rates_cfg(resample=ResampleCfg(), **one), tmp_path / "raw", tmp_path / "d")


def test_a_lerobot_recording_is_resampled_by_its_time_stamps(tmp_path):
    root = write_v2(tmp_path / "v2", {0: 30}, "v2.1", "image")
    times = polled(30, 50, 30)
    change_columns(data_path(root, 0), timestamp=times.astype(np.float32))
    cfg = make_cfg(
        source=SourceCfg(format="lerobot", path="x"),
        fps=18.35,
        resample=ResampleCfg(times="timestamp"),
        cameras={"front": CAMERA},
        state=VectorCfg(keys=["observation.state"], names=["a", "b", "c", "d"], unit="m"),
        action=VectorCfg(keys=["action"], names=["dx", "dy"], unit="m"),
        reward=None,
        success=None,
    )
    done = convert(cfg, root, tmp_path / "d")
    assert done.frames == int(times[-1] * 18.35) + 1
    even = cfg.replace(resample=ResampleCfg(), source=SourceCfg(format="lerobot", path="x", fps=30))
    assert convert(even, root, tmp_path / "e").frames == int(29 / 30 * 18.35) + 1
