import json

import h5py
import numpy as np
import pytest

from rrf.data.formats.libero import LiberoSource
from tests.data.conftest import draw
from tests.data.fixtures_hdf5 import write_libero


def read_all(path, *keys, **options):
    source = LiberoSource(path, options)
    return [e for recording in source.recordings() for e in source.episodes(recording, keys)]


def edit(path, change):
    with h5py.File(path, "r+") as file:
        change(file)


def test_suites_are_read_with_instruction_and_frame_rate(tmp_path):
    write_libero(tmp_path / "libero_goal/put_the_bowl_demo.hdf5")
    write_libero(tmp_path / "libero_10/turn_on_demo.hdf5", lengths=(2,))
    source = LiberoSource(tmp_path, {})
    assert [(r.name, r.num_episodes) for r in source.recordings()] == [
        ("libero_10/turn_on_demo", 1),
        ("libero_goal/put_the_bowl_demo", 2),
    ]
    assert source.keys()["obs/ee_states"] == "float64[6]"
    episode = read_all(tmp_path, "actions", "rewards")[2]
    assert (episode.instruction, episode.fps) == ("put the bowl on the stove", 20.0)
    assert episode.arrays["actions"].tolist() == [[0.1] * 7] * 3
    assert episode.arrays["rewards"].tolist() == [0, 0, 1]


def replayed(path, observed):
    """A file as LIBERO's script writes it, which observes after the action, or before it."""
    write_libero(path, lengths=(4,))
    simulated = np.arange(5 * 12, dtype=float).reshape(5, 12)  # time, 7 joints, the rest

    def change(file):
        demo = file["data/demo_0"]
        del demo["states"]
        demo["states"] = simulated[:4]
        seen = simulated[1:] if observed == "after" else simulated[:4]
        demo["obs/joint_states"] = seen[:, 1:8] + 0.1  # playing back is not exact
        demo["robot_states"][...] = seen[:, :9]
        demo["actions"][...] = np.arange(4)[:, None]

    edit(path, change)
    return path


KEYS = ("obs/joint_states", "robot_states", "states", "actions", "rewards", "obs/agentview_rgb")


def test_an_action_is_paired_with_what_was_seen_before_it(tmp_path):
    path = replayed(tmp_path / "a_demo.hdf5", "after")
    (episode,) = read_all(path, *KEYS)
    arrays = episode.arrays
    assert arrays["actions"][:, 0].tolist() == [1, 2, 3]
    assert arrays["states"][:, 0].tolist() == [12, 24, 36]
    assert arrays["robot_states"][:, 0].tolist() == [12, 24, 36]
    assert arrays["obs/joint_states"][:, 0].tolist() == pytest.approx([13.1, 25.1, 37.1])
    assert arrays["rewards"].tolist() == [0, 0, 1]
    np.testing.assert_array_equal(episode.images["obs/agentview_rgb"], draw(0, 4)[:3])


@pytest.mark.parametrize(
    ("observed", "options"), [("before", {}), ("after", {"observations": "recorded"})]
)
def test_rows_stay_where_the_observation_comes_first_and_on_request(tmp_path, observed, options):
    path = replayed(tmp_path / "a_demo.hdf5", observed)
    (episode,) = read_all(path, *KEYS, **options)
    assert episode.arrays["actions"][:, 0].tolist() == [0, 1, 2, 3]
    first = {"before": 0, "after": 12}[observed]
    assert episode.arrays["robot_states"][0, 0] == first
    np.testing.assert_array_equal(episode.images["obs/agentview_rgb"], draw(0, 4))


@pytest.mark.parametrize("convention", ["opengl", "opencv"])
def test_row_0_is_on_top_whatever_the_image_convention(tmp_path, convention):
    path = write_libero(tmp_path / "a_demo.hdf5", convention=convention)
    episode = read_all(path, "obs/agentview_rgb")[1]
    np.testing.assert_array_equal(episode.images["obs/agentview_rgb"], draw(1, 3))


def test_images_without_a_convention_are_taken_as_upside_down_and_not_mirrored(tmp_path):
    path = write_libero(tmp_path / "a_demo.hdf5", convention=None)
    images = read_all(path, "obs/agentview_rgb")[1].images["obs/agentview_rgb"]
    np.testing.assert_array_equal(images[0, 0], draw(1, 3)[0, 15])


def test_depth_is_turned_like_the_image_and_states_are_not(tmp_path):
    path = write_libero(tmp_path / "a_demo.hdf5", lengths=(2,))
    depth = np.arange(2 * 4 * 5, dtype=np.float32).reshape(2, 4, 5, 1)
    edit(path, lambda f: f["data/demo_0/obs"].create_dataset("agentview_depth", data=depth))
    (episode,) = read_all(path, "obs/agentview_depth", "obs/ee_states")
    assert episode.arrays["obs/agentview_depth"][0, :, 0, 0].tolist() == [15.0, 10.0, 5.0, 0.0]
    assert episode.arrays["obs/ee_states"][0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_an_unknown_convention_is_refused(tmp_path):
    path = write_libero(tmp_path / "a_demo.hdf5", convention="vulkan")
    with pytest.raises(ValueError, match=r"demo_0: macros_image_convention is 'vulkan', known: op"):
        read_all(path, "obs/agentview_rgb")


@pytest.mark.parametrize("said", ['"turn on the stove"', ["turn", "on", "the", "stove"]])
def test_quoted_and_split_instructions_are_put_together(tmp_path, said):
    path = write_libero(tmp_path / "a_demo.hdf5")
    problem = json.dumps({"language_instruction": said})
    edit(path, lambda f: f["data"].attrs.update(problem_info=problem))
    assert read_all(path, "actions")[0].instruction == "turn on the stove"


def test_an_instruction_that_is_no_text_is_refused(tmp_path):
    path = write_libero(tmp_path / "a_demo.hdf5")
    edit(path, lambda f: f["data"].attrs.update(problem_info='{"language_instruction": 3}'))
    with pytest.raises(
        ValueError, match=r"language_instruction in problem_info is int 3, expected"
    ):
        read_all(path, "actions")
