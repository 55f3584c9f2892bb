"""What policies see of the past: worked by hand, and the same when a robot acts as in training."""

import numpy as np
import pytest

from rrf.client import RobotHistory
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.dataset.history import HistoryBuffer, Past, camera_of, history_options, past_of
from rrf.data.dataset.opening import open_dataset
from rrf.data.schema import Observation
from tests.data.conversion.test_lerobot_writer import make_episode, make_schema

LENGTHS = (7, 2)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("history") / "d"
    episodes = [make_episode(number, length) for number, length in enumerate(LENGTHS)]
    write_dataset(root, make_schema(), episodes)
    return root


def seen(number):
    image = np.full((1, 2, 2, 3), number, np.uint8)
    return Observation({"front": image}, np.full((1, 1), number, np.float32), ["go"])


def shown(observation):
    images = {name: int(pixels[0, 0, 0, 0]) for name, pixels in observation.images.items()}
    return images, observation.state[0].tolist()


def test_views_are_named_by_camera_and_age():
    views = Past(images=2, states=1).views(["front", "wrist"])
    assert views == ["front", "wrist", "front@1", "wrist@1", "front@2", "wrist@2"]
    assert [camera_of(view) for view in views[:3]] == ["front", "wrist", "front"]


def test_an_episode_begins_with_its_first_frame_repeated():
    buffer = HistoryBuffer(Past(images=1, states=2))
    found = [shown(buffer.seen(seen(number))) for number in (5, 6, 7, 8)]
    assert found == [
        ({"front": 5, "front@1": 5}, [5, 5, 5]),
        ({"front": 6, "front@1": 5}, [6, 5, 5]),
        ({"front": 7, "front@1": 6}, [7, 6, 5]),
        ({"front": 8, "front@1": 7}, [8, 7, 6]),
    ]


def test_frames_are_a_stride_apart_however_often_an_observation_comes():
    every_step, every_other = (HistoryBuffer(Past(states=1, stride=4), steps) for steps in (1, 2))
    by_step = [shown(every_step.seen(seen(number)))[1] for number in range(9)]
    assert by_step[3:] == [[3, 0], [4, 0], [5, 1], [6, 2], [7, 3], [8, 4]]
    by_chunk = [shown(every_other.seen(seen(number)))[1] for number in range(0, 9, 2)]
    assert by_chunk == by_step[::2]


@pytest.mark.parametrize("past", [Past(2, 1, 1), Past(1, 3, 2), Past(0, 1, 3), Past(1, 0, 2)])
def test_an_episode_that_is_played_shows_what_its_recording_shows(root, past):
    alone = open_dataset(root, 1)
    reader = open_dataset(root, 1, **history_options(past))
    for first, length in ((0, LENGTHS[0]), (LENGTHS[0], LENGTHS[1])):
        for steps in {1, past.stride}:
            buffer, robot = HistoryBuffer(past, steps), RobotHistory(vars(past))
            for frame in range(first, first + length, steps):
                recorded = reader.batch(np.array([frame])).observation
                now = alone.batch(np.array([frame])).observation
                acted = buffer.seen(now)
                assert set(acted.images) == set(past.views(["front"]))
                assert acted.images.keys() == recorded.images.keys()
                for view, pixels in recorded.images.items():
                    np.testing.assert_array_equal(acted.images[view], pixels)
                np.testing.assert_array_equal(acted.state, recorded.state)
                if steps == 1:
                    plain = {f"observation.images.{n}": v[0] for n, v in now.images.items()}
                    sent = robot.seen({**plain, "observation.state": now.state[0]})
                    np.testing.assert_array_equal(sent["observation.state"], recorded.state[0])
                    for view, pixels in recorded.images.items():
                        np.testing.assert_array_equal(sent[f"observation.images.{view}"], pixels[0])


def test_a_robot_without_a_past_sends_what_it_sees_and_forgets_at_a_reset():
    assert RobotHistory().seen({"state": 1}) == {"state": 1}
    assert RobotHistory({"images": 0, "states": 0, "stride": 1}).seen({"prompt": "go"})
    history = RobotHistory({"images": 0, "states": 1, "stride": 1})
    for value in (1.0, 2.0):
        sent = history.seen({"observation.state": [value]})
    assert sent["observation.state"].tolist() == [2.0, 1.0]
    history.reset()
    assert history.seen({"observation.state": [7.0]})["observation.state"].tolist() == [7.0, 7.0]
    with pytest.raises(ValueError, match=r"needs 'observation.state' .* it has: state"):
        history.seen({"state": [1.0]})


def test_a_past_that_cannot_be_had_is_refused():
    with pytest.raises(ValueError, match=r"3 steps apart .* comes every 2 steps"):
        HistoryBuffer(Past(images=1, stride=3), 2)
    HistoryBuffer(Past(stride=3), 2)  # nothing of the past is seen
    for wrong, message in (({"images": -1}, "past_images is -1"), ({"stride": 0}, "past_stride")):
        with pytest.raises(ValueError, match=message):
            Past(**wrong)
    assert not past_of(object())
