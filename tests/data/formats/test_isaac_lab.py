import h5py
import numpy as np
import pytest

from rrf.data.formats.isaac_lab import IsaacLabSource
from tests.data.conftest import draw
from tests.data.fixtures_hdf5 import (
    JOINTS,
    POSITION,
    WXYZ,
    XYZW,
    drive,
    record_isaac_lab,
    write_isaac_lab,
)

ROOT_POSE = "states/articulation/robot/root_pose"
CUBE_POSE = "states/rigid_object/cube_1/root_pose"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "dataset.hdf5"


def read_all(path, *keys, **options):
    source = IsaacLabSource(path, options)
    return [e for recording in source.recordings() for e in source.episodes(recording, keys)]


def edit(path, change):
    with h5py.File(path, "r+") as file:
        change(file)


def test_nested_datasets_are_keys_and_the_initial_state_is_not(path):
    source = IsaacLabSource(write_isaac_lab(path), {})
    assert source.keys() == {
        "actions": "float32[7]",
        "processed_actions": "float32[9]",
        "obs/cube_orientations": "float32[12]",
        "obs/eef_pos": "float32[3]",
        "obs/eef_quat": "float32[4]",
        "obs/object": "float32[7]",
        "obs/table_cam": "image[16, 16]",
        "states/articulation/robot/joint_position": "float32[9]",
        ROOT_POSE: "float32[7]",
        CUBE_POSE: "float32[7]",
        "success": "bool[]",
    }
    with pytest.raises(ValueError, match=r"demo_0 has no key 'initial_state/articulation/robot/r"):
        read_all(path, "initial_state/articulation/robot/root_pose")


def test_episodes_come_as_recorded(path):
    first, second = read_all(write_isaac_lab(path), "actions", "obs/table_cam")
    assert (len(first), len(second)) == (4, 3)
    assert second.source == f"{path}:demo_1"
    assert second.arrays["actions"].tolist() == [[1.0] * 7] * 3
    assert (second.instruction, second.fps) == (None, None)
    np.testing.assert_array_equal(second.images["obs/table_cam"], draw(1, 3))


def test_states_are_those_before_the_action(path):
    demos = [drive(4), drive(3, seed=1)]
    record_isaac_lab(path, demos)
    with h5py.File(path) as file:
        demo = file["data/demo_0"]
        assert demo[JOINTS][:-1].tolist() == demo["obs/joint_pos"][1:].tolist()
    for (joints, actions), episode in zip(
        demos, read_all(path, JOINTS, "actions", "obs/joint_pos"), strict=True
    ):
        assert episode.arrays[JOINTS].tolist() == joints[:-1].tolist()
        assert episode.arrays["obs/joint_pos"].tolist() == joints[:-1].tolist()
        assert episode.arrays["actions"].tolist() == actions.tolist()


def test_a_pose_before_the_action_is_turned_like_the_others(path):
    write_isaac_lab(path, quaternion=XYZW, file_attrs={"format_version": 1})

    def start_elsewhere(file):
        file["data/demo_0/initial_state/articulation/robot/root_pose"][0, :3] = [1, 2, 3]

    edit(path, start_elsewhere)
    pose = read_all(path, ROOT_POSE)[0].arrays[ROOT_POSE]
    assert pose[0].tolist() == pytest.approx([1, 2, 3, *WXYZ])
    assert pose[1].tolist() == pytest.approx([*POSITION, *WXYZ])


def warnings_of(path, *keys, **options):
    source = IsaacLabSource(path, options)
    episodes = [e for r in source.recordings() for e in source.episodes(r, keys)]
    return source.warnings, [e.arrays for e in episodes]


def test_states_of_tools_that_record_them_before_the_action_stay(path):
    joints, _ = drive(4)
    record_isaac_lab(path, [drive(4)], states="before")
    warnings, (arrays,) = warnings_of(path, JOINTS)
    assert arrays[JOINTS].tolist() == joints[:-1].tolist()
    assert warnings == [
        f"{path}: states/ are taken as recorded before the actions, because the states begin with "
        "initial_state. If they were recorded after them, as by Isaac Lab's recorder, write "
        "options: {states: after}"
    ]
    _, (arrays,) = warnings_of(path, JOINTS, states="after")
    assert arrays[JOINTS][1:].tolist() == joints[:-2].tolist()


def test_a_demonstration_that_begins_at_rest_does_not_pass_for_another_recorder(path):
    joints, actions = drive(4)
    joints[1] = joints[0]
    record_isaac_lab(path, [(joints, actions), drive(3, seed=1)])
    warnings, (arrays, _) = warnings_of(path, JOINTS)
    assert warnings == []
    assert arrays[JOINTS].tolist() == joints[:-1].tolist()


def test_without_initial_state_the_first_frame_can_be_left_out(path):
    joints, actions = drive(4)
    record_isaac_lab(path, [(joints, actions)], has_initial_state=False)
    warnings, (arrays,) = warnings_of(path, JOINTS, "actions", "success")
    assert "because there is no initial_state" in warnings[0]
    assert arrays[JOINTS].tolist() == joints[1:].tolist()
    warnings, (arrays,) = warnings_of(path, JOINTS, "actions", "success", states="after")
    assert warnings == []
    assert arrays[JOINTS].tolist() == joints[1:-1].tolist()
    assert arrays["actions"].tolist() == actions[1:].tolist()
    assert arrays["success"].tolist() == [False, False, True]


def test_a_demonstration_without_frames_is_left_out(path):
    record_isaac_lab(path, [drive(0), drive(4), drive(0, seed=2)])
    assert IsaacLabSource(path, {}).recordings()[0].num_episodes == 1
    assert [e.source for e in read_all(path, "actions", JOINTS)] == [f"{path}:demo_1"]


@pytest.mark.parametrize(
    ("attrs", "order"),
    [({}, WXYZ), ({"format_version": 0}, WXYZ), ({"format_version": 1}, XYZW)],
)
def test_quaternions_come_as_wxyz_whatever_the_format_version(path, attrs, order):
    write_isaac_lab(path, quaternion=order, file_attrs=attrs)
    keys = (ROOT_POSE, CUBE_POSE, "obs/eef_quat", "obs/cube_orientations", "obs/eef_pos")
    episode = read_all(path, *keys)[0]
    pose = pytest.approx([5.0, 6.0, 7.0, 0.1, 0.2, 0.3, 0.4])
    for key in (ROOT_POSE, CUBE_POSE):
        assert episode.arrays[key].dtype == np.float32
        assert [pose] * 4 == episode.arrays[key].tolist()
    quaternion = [0.1, 0.2, 0.3, 0.4]
    assert episode.arrays["obs/eef_quat"][3].tolist() == pytest.approx(quaternion)
    assert episode.arrays["obs/cube_orientations"][3].tolist() == pytest.approx(quaternion * 3)
    assert episode.arrays["obs/eef_pos"][0].tolist() == [5.0, 6.0, 7.0]


def test_quaternions_of_several_bodies_and_of_a_named_frame_are_turned_too(path):
    write_isaac_lab(path, quaternion=XYZW, file_attrs={"format_version": 1})
    pose = np.tile(np.array([*POSITION, *XYZW], np.float32), (4, 2, 1))

    def add(file):
        file["data/demo_0/obs/body_quat_w"] = pose[..., 3:]
        file["data/demo_0/states/rigid_object/both/root_pose"] = pose

    edit(path, add)
    source = IsaacLabSource(path, {})
    keys = ("obs/body_quat_w", "states/rigid_object/both/root_pose")
    episode = next(source.episodes(source.recordings()[0], keys))
    assert episode.arrays[keys[0]].shape == (4, 2, 4)
    assert episode.arrays[keys[0]][3, 1].tolist() == pytest.approx(WXYZ)
    assert episode.arrays[keys[1]][0, 1].tolist() == pytest.approx([*POSITION, *WXYZ])


def test_observations_of_a_file_whose_poses_alone_were_turned_keep_their_order(path):
    write_isaac_lab(path, quaternion=XYZW, file_attrs={"format_version": 1})

    def restore(file):
        for demo in file["data"].values():
            demo["obs/eef_quat"][...] = WXYZ

    edit(path, restore)
    episode = read_all(path, ROOT_POSE, "obs/eef_quat", observation_quaternions="wxyz")[0]
    assert episode.arrays["obs/eef_quat"][0].tolist() == pytest.approx(WXYZ)
    assert episode.arrays[ROOT_POSE][0, 3:].tolist() == pytest.approx(WXYZ)


def test_a_concatenated_observation_stays_as_it_was_recorded(path):
    write_isaac_lab(path, quaternion=XYZW, file_attrs={"format_version": 1})
    values = read_all(path, "obs/object")[0].arrays["obs/object"]
    assert values[0].tolist() == pytest.approx([*POSITION, *XYZW])


def test_format_version_may_stand_on_data(path):
    write_isaac_lab(path, quaternion=XYZW)
    edit(path, lambda file: file["data"].attrs.update(format_version=1))
    quaternion = read_all(path, "obs/eef_quat")[0].arrays["obs/eef_quat"]
    assert quaternion[0].tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_an_unknown_format_version_is_refused_where_it_matters(path):
    write_isaac_lab(path, file_attrs={"format_version": 2})
    assert len(read_all(path, "actions")) == 2
    with pytest.raises(ValueError, match=r"demo_0: format_version is 2; known are 0 .WXYZ. and 1"):
        read_all(path, "obs/eef_quat")


@pytest.mark.parametrize("said", ["xyz_xyzw", "x,y,z,qx,qy,qz,qw", "XYZW"])
def test_pose_order_of_the_standard_schema_decides(path, said):
    attrs = {"schema_version": "1.0", "fps": 30, "pose_order": "xyz_wxyz"}
    write_isaac_lab(path, quaternion=XYZW, file_attrs=attrs)
    edit(path, lambda f: f["data/demo_0/states/articulation"].attrs.update(pose_order=said))
    episode = read_all(path, ROOT_POSE, CUBE_POSE)[0]
    assert episode.fps == 30.0
    assert episode.arrays[ROOT_POSE][0, 3:].tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert episode.arrays[CUBE_POSE][0, 3:].tolist() == pytest.approx([0.2, 0.3, 0.4, 0.1])


def test_a_pose_of_another_name_is_reordered_if_it_says_its_order(path):
    write_isaac_lab(path, quaternion=XYZW)
    edit(path, lambda f: f["data/demo_0/obs/object"].attrs.update(pose_order="xyz_xyzw"))
    values = read_all(path, "obs/object")[0].arrays["obs/object"]
    assert values[0].tolist() == pytest.approx([*POSITION, 0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"schema_version": "1.0"}, "no pose_order, which schema_version 1.0 requires"),
        ({"schema_version": "2.0"}, "schema_version is 2.0, known is 1.0"),
        ({"pose_order": "euler"}, "pose_order of / is 'euler', expected an order of x, y, z, w"),
    ],
)
def test_an_order_that_cannot_be_known_is_refused(path, attrs, message):
    write_isaac_lab(path, file_attrs=attrs)
    with pytest.raises(ValueError, match=message):
        read_all(path, ROOT_POSE)


def test_fps_is_the_step_of_the_simulation_times_the_decimation(path):
    write_isaac_lab(path, sim_args={"dt": 0.01, "decimation": 5, "render_interval": 2})
    assert read_all(path, "actions")[0].fps == 20.0
    write_isaac_lab(path, sim_args={"dt": 0, "decimation": 5})
    with pytest.raises(ValueError, match=r"dt \* decimation in env_args is 0.0 s"):
        read_all(path, "actions")


def test_failed_demonstrations_are_left_out_and_counted_unless_asked_for(path):
    write_isaac_lab(path, lengths=(4, 3, 5), success=(True, False, True))
    source = IsaacLabSource(path, {})
    assert source.recordings()[0].num_episodes == 2
    assert source.warnings == [
        f"{path}: 1 of 3 episodes failed and are left out; to keep them, write options: "
        "{only_successful: false}"
    ]
    episodes = read_all(path, "success")
    assert [e.source.rpartition(":")[2] for e in episodes] == ["demo_0", "demo_2"]
    source = IsaacLabSource(path, {"only_successful": False})
    assert source.recordings()[0].num_episodes == 3
    assert source.warnings == [
        f"{path}: 1 of 3 episodes failed and are kept, as the config says (only_successful: false)"
    ]


def test_success_is_the_last_frames(path):
    write_isaac_lab(path, success=(True, False))
    first, second = read_all(path, "success", "actions", only_successful=False)
    assert first.arrays["success"].tolist() == [False, False, False, True]
    assert second.arrays["success"].tolist() == [False, False, False]
    write_isaac_lab(path, success=None)
    known = IsaacLabSource(path, {}).keys()
    assert "success" not in known


def test_a_file_where_all_failed_is_refused(path):
    write_isaac_lab(path, success=(False, False))
    with pytest.raises(ValueError, match=r"no demonstration in .*is selected.*only_successful"):
        IsaacLabSource(path, {}).recordings()
