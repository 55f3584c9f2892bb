import math

import numpy as np
import pytest

from rrf.envs.motions import clip as clips
from rrf.envs.motions.clip import quat_of_rotation_vector, read, read_all
from rrf.envs.motions.rig import frames
from tests.envs.motions import quadruped

CLOSE = {"rtol": 0, "atol": 1e-6}


def turning(num_frames, rad_s, fps):
    """Quaternions of a turn to the left."""
    angle = np.arange(num_frames) / fps * rad_s
    return quat_of_rotation_vector(np.stack([0 * angle, 0 * angle, angle], 1))


def test_a_file_holds_all_of_a_clip(tmp_path):
    clip = quadruped.clip(root_quat=turning(5, 1.0, 50.0))
    clip.write(tmp_path / "a.npz")
    again = read(tmp_path / "a.npz")
    assert (again.fps, again.joint_names) == (50.0, quadruped.JOINTS)
    assert (again.source, again.licence) == ("these tests", "BSD-3-Clause")
    for name in ("root_pos", "root_quat", "joint_pos"):
        np.testing.assert_allclose(getattr(again, name), getattr(clip, name), **CLOSE)
    assert [one.name for one in read_all([str(tmp_path)])] == [str(tmp_path / "a.npz")]


def test_velocities_are_those_of_the_motion():
    clip = quadruped.clip(
        root_pos=np.stack([np.arange(5) * 0.01, np.zeros(5), np.full(5, 0.3)], 1),
        root_quat=turning(5, 0.5, 50.0),
        joint_pos=np.arange(5)[:, None] * np.full(12, 0.02),
    )
    np.testing.assert_allclose(clip.root_lin_vel(), np.tile([0.5, 0, 0], (5, 1)), **CLOSE)
    np.testing.assert_allclose(clip.root_ang_vel(), np.tile([0, 0, 0.5], (5, 1)), **CLOSE)
    np.testing.assert_allclose(clip.joint_vel(), np.full((5, 12), 1.0), **CLOSE)


def test_resampling_keeps_the_motion():
    clip = quadruped.clip(
        num_frames=7,
        fps=30.0,
        root_pos=np.arange(7)[:, None] * np.array([0.1, 0.0, 0.0]),
        root_quat=-turning(7, 3.0, 30.0),  # the same orientations with the other sign
    )
    faster = clip.resampled(50.0)  # 0.2 s
    assert (len(faster.root_pos), faster.fps) == (11, 50.0)
    np.testing.assert_allclose(faster.root_pos[:, 0], np.arange(11) * 0.06, **CLOSE)
    np.testing.assert_allclose(-faster.root_quat, turning(11, 3.0, 50.0), **CLOSE)
    assert clip.resampled(30.0) is clip


def test_half_a_turn_is_measured_the_shorter_way():
    quat = np.array([[1.0, 0, 0, 0], [-math.cos(0.1), 0, 0, -math.sin(0.1)]])
    np.testing.assert_allclose(clips.rotation_vectors(quat), [[0, 0, 0.2]], **CLOSE)


def test_joints_are_put_in_the_order_of_the_robot():
    joint_pos = np.tile(np.arange(12.0), (3, 1))
    names = quadruped.JOINTS[::-1]
    clip = quadruped.clip(3, joint_names=names, joint_pos=joint_pos)
    assert clip.with_joints(quadruped.JOINTS).joint_pos[0].tolist() == list(range(11, -1, -1))


def test_frames_of_a_standing_robot_by_hand():
    # Its nose points left in the world; it moves 1 m/s along the world's x, that is to its right.
    quat = np.tile(quat_of_rotation_vector(np.array([[0.0, 0.0, math.pi / 2]])), (3, 1))
    pos = np.stack([np.arange(3) * 0.02, np.zeros(3), np.full(3, 0.3)], 1)
    clip = quadruped.clip(3, root_quat=quat, root_pos=pos)
    found = frames(clip, quadruped.rig())[1]
    assert found.shape == (2 * 12 + 10 + 3 * 4,)
    np.testing.assert_allclose(found[12:24], 0, **CLOSE)
    np.testing.assert_allclose(found[24:34], [0.3, 0, -1, 0, 0, 0, 0, 0, 0, -1], **CLOSE)
    # Thigh and calf are mirror images of each other at 0.9 rad, so the foot is below the hip.
    below = -2 * 0.213 * math.cos(0.9)
    np.testing.assert_allclose(found[34:37], [0.2, -0.13, below], **CLOSE)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fps": 0.0}, r"the clip has fps=0\.0"),
        ({"licence": " "}, "the clip does not say its licence"),
        ({"root_pos": np.zeros((4, 3))}, r"root_quat of shape \[5, 4\], expected \[4, 4\]"),
        ({"joint_pos": np.zeros((5, 11))}, r"joint_pos of shape \[5, 11\].*12 joint names"),
        ({"joint_pos": np.full((5, 12), np.nan)}, "nan in joint_pos, frame 0, column 0"),
        ({"root_quat": np.zeros((5, 4))}, "root_quat whose lengths are not 1"),
    ],
)
def test_a_wrong_clip_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        quadruped.clip(**changes)


def test_a_short_clip_is_refused():
    with pytest.raises(ValueError, match=r"has 2 frames, allowed: 3 or more"):
        quadruped.clip(2)
    with pytest.raises(ValueError, match=r"lasts 0\.020 s, which gives 2 frames at 50 Hz"):
        quadruped.clip(3, fps=100.0).resampled(50.0)


def test_a_clip_of_another_robot_is_refused():
    clip = quadruped.clip()
    with pytest.raises(ValueError, match=r"another robot: this robot has a joint 'left_knee'"):
        clip.with_joints([*quadruped.JOINTS, "left_knee"])
    with pytest.raises(ValueError, match=r"the clip has a joint 'RL_calf_joint' that this robot"):
        clip.with_joints(quadruped.JOINTS[:-1])


def test_files_that_are_no_clips_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.npz is not a motion clip"):
        read(tmp_path / "nowhere.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ValueError, match=r"text\.npz is not a motion clip"):
        read(tmp_path / "text.npz")
    np.savez(tmp_path / "half.npz", fps=50.0)
    with pytest.raises(ValueError, match="it has no 'joint_names'; a clip has fps"):
        read(tmp_path / "half.npz")
    np.savez(tmp_path / "pickle.npz", fps=np.array([object()]))
    with pytest.raises(ValueError, match=r"pickle\.npz is not a motion clip"):
        read(tmp_path / "pickle.npz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no motion clips"):
        read_all([str(tmp_path / "empty")])
    with pytest.raises(ValueError, match=r"env\.clips=\[PATH\]"):
        read_all([])
