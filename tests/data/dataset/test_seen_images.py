"""What cameras show in a training, and pictures of another kind."""

import numpy as np
import pytest

from rrf.data.dataset.seen_images import NUM_COLORS, SeenImages, colors, fitted
from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.envs.vec_env import InitialState
from rrf.serving.drift import Drift

CAMERA = "observation.images.corner2"
RANDOM = np.random.default_rng(0)


def test_nine_parts_have_their_mean_colours():
    image = np.zeros((6, 9, 3), np.uint8)
    image[:2, :3] = (10, 20, 30)  # first strip, first part
    image[4:, 6:, 1] = 90  # last strip, last part
    expected = np.zeros(27)
    expected[:3], expected[25] = (10, 20, 30), 90
    np.testing.assert_array_equal(colors(image), expected)
    half = np.zeros((6, 6, 3), np.uint8)
    half[0, :2] = 100  # one of two rows of the first part
    assert colors(half)[0] == 50
    assert colors(np.full((480, 640, 3), 7, np.uint8)).tolist() == [7] * NUM_COLORS


def episodes(num: int, level: float = 100.0) -> list[np.ndarray]:
    """Of ten frames each. Brightness differs between episodes, and colours between frames."""
    return [level + RANDOM.normal(0, 2) + RANDOM.normal(0, 1, (10, NUM_COLORS)) for _ in range(num)]


def test_what_varies_together_is_no_surprise_and_what_does_not_is_one():
    seen = fitted(episodes(40))
    alike, darker, other = np.full((3, NUM_COLORS), 100.0)
    alike += 4.0  # every part: as episodes differ
    darker -= 60.0
    other[4] -= 30.0  # one part by itself
    assert (seen.distance(np.stack([alike, darker, other])) > seen.limit).tolist() == [0, 1, 1]
    beyond = np.mean([seen.distance(e) > seen.limit for e in episodes(200)])
    assert beyond <= 0.02


def test_a_camera_that_shows_always_the_same_may_flicker_by_less_than_a_level():
    seen = fitted([np.full((10, NUM_COLORS), 50.0)] * 12)
    assert seen.limit == 0.0
    assert seen.distance(np.full((1, NUM_COLORS), 50.0))[0] <= seen.limit


def test_it_survives_json_and_anything_else_is_nothing():
    seen = fitted(episodes(12))
    again = SeenImages.from_dict(seen.to_dict())
    assert again is not None
    np.testing.assert_array_equal(again.whitening, seen.whitening)
    assert (again.limit, again.mean.tolist()) == (seen.limit, seen.mean.tolist())
    broken = seen.to_dict()
    for data in (
        None, {}, [], broken | {"limit": [float("nan")]}, broken | {"mean": [1.0]},
        broken | {"whitening": "x"}, broken | {"limit": None}, {"mean": [0.0], "std": [1.0]},
    ):  # fmt: skip
        assert SeenImages.from_dict(data) is None


@pytest.fixture(scope="module")
def shown():
    """Pictures at the beginning of drawer-open-v3 and a few random actions later, by kind of scene:
    (episodes, 3 frames, height, width, 3)."""
    cfg = MetaWorldCfg(num_envs=8, chunk_length=4, max_episode_steps=40, image_size=32)
    env, pictures = cfg.build(), {}
    for task, num in (("drawer-open-v3", 48), ("drawer-open-v3@light", 8)):
        pictures[task] = []
        for first in range(0, num, 8):
            # of @light, one picture
            states = [
                InitialState(task, 5, 10 * (k % 5) if "@" in task else first + k) for k in range(8)
            ]
            frames = [env.reset(states).images["corner2"]]
            for _ in range(2):
                action = RANDOM.uniform(-1, 1, (8, 4, 4)).astype(np.float32)
                frames.append(env.step(action).observation.images["corner2"])
            pictures[task] += list(np.stack(frames, axis=1))
    env.close()
    return pictures


def alarm(seen: SeenImages, episodes) -> int | None:
    """The episode at which the alarm comes; None without one."""
    drift = Drift(np.zeros(0), np.zeros(0), {CAMERA: seen})
    for number, episode in enumerate(episodes, start=1):
        outside = [drift.outside({CAMERA: image}) for image in episode]
        if drift.add(np.mean(outside, axis=0)):
            assert drift.names == ["images of corner2"]
            return number
    return None


def of_training(episodes) -> SeenImages:
    return fitted([np.stack([colors(image) for image in episode]) for episode in episodes])


def test_a_picture_that_stays_raises_no_alarm_and_a_dark_one_does():
    scene = RANDOM.integers(40, 200, (9, 12, 3))
    made = [
        np.clip(scene + RANDOM.normal(0, 4) + RANDOM.normal(0, 3, (5, *scene.shape)), 0, 255)
        for _ in range(60)
    ]
    pictures = [episode.astype(np.uint8) for episode in made]
    seen, others = of_training(pictures[:30]), pictures[30:]
    assert alarm(seen, others * 10) is None  # 300 episodes
    dark = [episode // 2 for episode in others]
    assert alarm(seen, dark) <= 4
    assert alarm(seen, others + dark) <= 30 + 8  # it became dark while the robot worked


@pytest.mark.slow
def test_an_unchanged_scene_raises_no_alarm_and_other_light_does(shown):
    plain = shown["drawer-open-v3"]
    seen, others = of_training(plain[:24]), plain[24:]
    assert alarm(seen, others * 10) is None  # 240 episodes
    assert alarm(seen, shown["drawer-open-v3@light"]) <= 4
    assert alarm(seen, [episode // 2 for episode in others]) <= 4
