import json

import numpy as np
import pytest

from rrf.data.formats.calvin import CalvinSource
from tests.data.fixtures_simulators import pictures, write_calvin

ANNOTATED = {"annotations": "annotations.json"}


def read_all(root, keys, **options):
    source = CalvinSource(root, options)
    return [e for recording in source.recordings() for e in source.episodes(recording, keys)]


def resave(path, **changes):
    with np.load(path) as step:
        arrays = dict(step)
    np.savez(path, **{**arrays, **changes})


def test_annotated_segments_are_episodes_with_their_last_step(tmp_path):
    write_calvin(tmp_path, annotations=[(10, 12, "lift the block"), (21, 22, "turn on the light")])
    keys = ["rgb_static", "rgb_gripper", "rel_actions", "robot_obs"]
    first, second = read_all(tmp_path, keys, **ANNOTATED)
    assert first.arrays["robot_obs"][:, 0].tolist() == [10, 11, 12]
    assert second.arrays["rel_actions"][:, 6].tolist() == [0.21, 0.22]
    assert first.arrays["robot_obs"].dtype == np.float64
    np.testing.assert_array_equal(first.images["rgb_static"], pictures(13)[10:])
    assert first.images["rgb_gripper"].shape == (3, 6, 6, 3)
    assert [first.instruction, second.instruction] == ["lift the block", "turn on the light"]
    assert first.fps == 30.0
    assert second.source == f"{tmp_path}:segment_00001_0000021_0000022"


def test_recordings_name_the_step_files(tmp_path):
    write_calvin(tmp_path)
    (recording,) = CalvinSource(tmp_path, ANNOTATED).recordings()
    assert recording.num_episodes == 1
    assert [path.name for path in recording.paths] == [
        "episode_0000010.npz",
        "episode_0000011.npz",
        "episode_0000012.npz",
        "annotations.json",
    ]


def test_a_segment_that_ends_beyond_the_recorded_steps_is_refused_at_once(tmp_path):
    write_calvin(tmp_path, annotations=[(10, 99_999_999_999, "play")])
    with pytest.raises(ValueError, match=r"episode_99999999999\.npz is missing"):
        CalvinSource(tmp_path, ANNOTATED).recordings()


def annotated(root, texts=("lift the block", "turn on the light"), ranges=((10, 12), (20, 21))):
    """CALVIN's own annotations, as its code writes them."""
    (root / "lang_annotations").mkdir()
    data = {
        "language": {"ann": list(texts), "task": ["lift", "turn"], "emb": np.ones((2, 1, 4))},
        "info": {"indx": list(ranges), "episodes": []},
    }
    np.save(root / "lang_annotations/auto_lang_ann.npy", np.array(data), allow_pickle=True)


@pytest.mark.parametrize("options", [{}, {"annotations": "lang_annotations/auto_lang_ann.npy"}])
def test_the_annotations_of_calvin_itself_are_read(tmp_path, options):
    write_calvin(tmp_path, annotations=None)
    annotated(tmp_path, ranges=((np.int64(10), np.int64(12)), np.array([20, 21])))
    episodes = read_all(tmp_path, ["actions"], **options)
    assert [(len(e), e.instruction) for e in episodes] == [
        (3, "lift the block"),
        (2, "turn on the light"),
    ]


def test_annotations_that_do_not_fit_each_other_are_refused(tmp_path):
    write_calvin(tmp_path, annotations=None)
    annotated(tmp_path, texts=["only one"])
    with pytest.raises(ValueError, match=r"auto_lang_ann\.npy is no annotation of CALVIN"):
        CalvinSource(tmp_path, {}).recordings()


def test_segments_may_overlap_and_repeat(tmp_path):
    write_calvin(tmp_path, annotations=[(10, 12, "a"), (10, 12, "b"), (11, 13, "c")])
    source = CalvinSource(tmp_path, ANNOTATED)
    assert len({recording.name for recording in source.recordings()}) == 3
    assert [e.instruction for e in read_all(tmp_path, ["actions"], **ANNOTATED)] == ["a", "b", "c"]


def test_without_annotations_the_recorded_ranges_are_read(tmp_path):
    write_calvin(tmp_path, annotations=None)
    episodes = read_all(tmp_path, ["robot_obs"], instruction="play")
    assert [e.arrays["robot_obs"][:, 0].tolist() for e in episodes] == [
        [10, 11, 12, 13],
        [20, 21, 22, 23, 24],
    ]
    assert [e.instruction for e in episodes] == ["play", "play"]
    cut = read_all(tmp_path, ["robot_obs"], instruction="play", max_steps=3)
    assert [e.arrays["robot_obs"][:, 0].tolist() for e in cut] == [
        [10, 11, 12],
        [13],
        [20, 21, 22],
        [23, 24],
    ]


def test_keys_are_the_arrays_of_a_step(tmp_path):
    write_calvin(tmp_path)
    assert CalvinSource(tmp_path, ANNOTATED).keys() == {
        "rgb_static": "image[8, 12]",
        "rgb_gripper": "image[6, 6]",
        "depth_static": "float32[8, 12]",
        "actions": "float64[7]",
        "rel_actions": "float64[7]",
        "robot_obs": "float64[15]",
        "scene_obs": "float64[24]",
    }


class Bomb:
    """Unpickling it leaves a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (type(self.path).touch, (self.path,))


def test_annotations_that_would_run_code_are_refused_and_never_loaded(tmp_path):
    write_calvin(tmp_path, annotations=None)
    directory = tmp_path / "lang_annotations"
    directory.mkdir()
    pickled = np.empty((), object)
    pickled[()] = Bomb(tmp_path / "it ran")
    np.save(directory / "auto_lang_ann.npy", pickled, allow_pickle=True)
    for options in ({}, {"annotations": "lang_annotations/auto_lang_ann.npy"}):
        with pytest.raises(ValueError, match=r"auto_lang_ann\.npy holds no plain data .* it names"):
            CalvinSource(tmp_path, options).recordings()
    assert len(CalvinSource(tmp_path, {"instruction": "play"}).recordings()) == 2
    np.save(tmp_path / "ep_start_end_ids.npy", pickled, allow_pickle=True)
    with pytest.raises(ValueError, match=r"ep_start_end_ids\.npy cannot be read"):
        CalvinSource(tmp_path, {"instruction": "play"}).recordings()
    assert not (tmp_path / "it ran").exists()


def test_object_arrays_of_a_step_are_refused_and_never_loaded(tmp_path):
    write_calvin(tmp_path)
    resave(tmp_path / "episode_0000011.npz", robot_obs=np.array([Bomb(tmp_path / "ran")], object))
    with pytest.raises(
        ValueError, match=r"episode_0000011\.npz: robot_obs cannot be read.*pickles"
    ):
        read_all(tmp_path, ["robot_obs"], **ANNOTATED)
    assert not (tmp_path / "ran").exists()


def damage_json(content):
    return lambda root, step: (root / "annotations.json").write_bytes(content)


def demand_a_password(path):
    content = bytearray(path.read_bytes())
    at = -1
    while (at := content.find(b"PK\x01\x02", at + 1)) >= 0:
        content[at + 8] |= 1  # the flag of each member in the central directory
    path.write_bytes(bytes(content))


def damage_robot_obs(path):
    content = bytearray(path.read_bytes())
    content[content.index(np.full(15, 11.0).tobytes())] ^= 0xFF
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root, step: step.unlink(), r"episode_0000011\.npz is missing; copy that step"),
        (
            lambda root, step: step.write_bytes(step.read_bytes()[:500]),
            r"episode_0000011\.npz is truncated or damaged",
        ),
        (lambda root, step: step.write_bytes(b""), r"episode_0000011\.npz is truncated or not"),
        (
            lambda root, step: demand_a_password(step),
            r"episode_0000011\.npz is truncated or damaged \(.*encrypted",
        ),
        (
            lambda root, step: damage_robot_obs(step),
            r"episode_0000011\.npz is truncated or damaged",
        ),
        (
            lambda root, step: np.savez(step, rgb_static=pictures(1)[0]),
            r"episode_0000011\.npz has no key 'robot_obs'",
        ),
        (
            lambda root, step: resave(step, robot_obs=np.zeros(14)),
            r"episode_0000011\.npz: robot_obs is float64\[14\], .*first step it was float64\[15\]",
        ),
        (damage_json(b"["), r"annotations\.json is truncated or not JSON"),
        (damage_json(b"[]"), r"annotations\.json holds no segments"),
        (damage_json(b'[{"start": 1, "end": 2}]'), r"segment 0 is .* expected \{start: int"),
        (
            damage_json(b'[{"start": 12, "end": 10, "instruction": "a"}]'),
            r"segment 0: steps 12 to 10 are not a range",
        ),
        (
            damage_json(b'[{"start": 10, "end": 12, "instruction": " "}]'),
            r"segment 0: the instruction is empty",
        ),
        (
            damage_json(b'[{"start": 10, "end": 12, "instruction": "\xff"}]'),
            r"annotations\.json is not UTF-8",
        ),
        (lambda root, step: (root / "annotations.json").unlink(), r"no file .*annotations\.json"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, damage, message):
    write_calvin(tmp_path)
    damage(tmp_path, tmp_path / "episode_0000011.npz")
    with pytest.raises(ValueError, match=message):
        read_all(tmp_path, ["rgb_static", "robot_obs"], **ANNOTATED)


def test_annotations_outside_the_dataset_are_refused(tmp_path):
    write_calvin(tmp_path / "training")
    (tmp_path / "other.json").write_text(json.dumps([]))
    with pytest.raises(ValueError, match=r"'\.\./other\.json' leads out of"):
        CalvinSource(tmp_path / "training", {"annotations": "../other.json"}).recordings()


def test_annotations_may_be_a_symbolic_link(tmp_path):
    write_calvin(tmp_path / "training")
    (tmp_path / "training/annotations.json").rename(tmp_path / "cached")
    (tmp_path / "training/annotations.json").symlink_to(tmp_path / "cached")
    (episode,) = read_all(tmp_path / "training", ["actions"], **ANNOTATED)
    assert episode.instruction == "lift the block"


def test_ranges_must_be_there_and_not_be_empty(tmp_path):
    write_calvin(tmp_path / "training", annotations=None)
    with pytest.raises(ValueError, match=r"no ep_start_end_ids\.npy.*did you mean '.*/training'"):
        CalvinSource(tmp_path, {}).recordings()
    np.save(tmp_path / "training/ep_start_end_ids.npy", np.zeros((0, 2), int))
    with pytest.raises(ValueError, match=r"holds no ranges: the split has no episodes"):
        CalvinSource(tmp_path / "training", {}).recordings()
    np.save(tmp_path / "training/ep_start_end_ids.npy", np.array([[5, 3]]))
    with pytest.raises(ValueError, match=r"expected ranges \[first, last\]"):
        CalvinSource(tmp_path / "training", {}).recordings()


def test_an_unknown_key_or_option_is_answered_with_the_closest(tmp_path):
    write_calvin(tmp_path)
    with pytest.raises(ValueError, match=r"has no key 'robot_ob'; did you mean 'robot_obs'"):
        read_all(tmp_path, ["robot_ob"], **ANNOTATED)
    with pytest.raises(ValueError, match=r"has no field 'annotation'; did you mean 'annotations'"):
        CalvinSource(tmp_path, {"annotation": "a.json"})
    with pytest.raises(ValueError, match="annotations already give instructions"):
        CalvinSource(tmp_path, {"annotations": "a.json", "instruction": "play"})
    with pytest.raises(ValueError, match="no directory"):
        CalvinSource(tmp_path / "nowhere", {})
