import numpy as np
import pytest

from rrf.envs.motions import clip as clips
from rrf.envs.motions import kine2go
from rrf.envs.motions.clip import quat_of_rotation_vector, rotate
from rrf.envs.motions.gaits import go1_rig
from rrf.envs.motions.rig import frames

NUM_FRAMES = 40
FEET = ("FL", "RL", "FR", "RR")
PARTS = ("hip", "thigh", "calf")
KIND_BY_KIND = [f"{leg}_{part}_joint" for part in PARTS for leg in ("FL", "FR", "RL", "RR")]
LEG_BY_LEG = [f"{leg}_{part}_joint" for leg in ("FR", "FL", "RR", "RL") for part in PARTS]


def trotting():
    """Joints by name [T], positions [T, 3] and orientations [T, 4] of a base that walks a curve."""
    times = np.arange(NUM_FRAMES) / 60
    joints = {}
    for leg in FEET:
        phase = 4 * np.pi * times + np.pi * (leg in ("FR", "RL"))
        joints[f"{leg}_hip_joint"] = 0.1 * (1 if leg[1] == "L" else -1) + 0.02 * np.sin(phase)
        joints[f"{leg}_thigh_joint"] = 0.8 + 0.25 * np.sin(phase)
        joints[f"{leg}_calf_joint"] = -1.6 + 0.2 * np.cos(phase)
    base = np.stack([0.5 * times, 0.1 * times, 0.3 + 0.01 * np.sin(9 * times)], 1)
    return joints, base, quat_of_rotation_vector(np.outer(times, [0.0, 0.1, 0.7]))


def motion(path, order=KIND_BY_KIND):
    """Write the file that holds it."""
    joints, base, turn = trotting()
    rig = kine2go.go2_rig()
    places = rig.foot_positions(np.stack([joints[name] for name in rig.joint_names], 1))
    data = np.zeros((NUM_FRAMES, 61), np.float32)
    data[:, 0:3] = data[:, 48:51] = base
    data[:, 6:18] = np.stack([joints[name] for name in order], 1)
    data[:, 36:48] = (rotate(turn[:, None], places) + base[:, None]).reshape(NUM_FRAMES, 12)
    data[:, 51:55] = turn
    path.parent.mkdir(exist_ok=True)
    np.save(path, data)
    return path


def change(path, rows, columns, by):
    data = np.load(path)
    data[rows, columns] += by
    np.save(path, data)


def test_the_feet_of_go2_are_where_its_description_has_them():
    straight = kine2go.go2_rig().foot_positions(np.zeros((1, 12)))[0]
    wanted = {foot: (0.1934 if foot[0] == "F" else -0.1934, 0.142, -0.426) for foot in FEET}
    wanted = [(x, y if foot[1] == "L" else -y, z) for foot, (x, y, z) in wanted.items()]
    np.testing.assert_allclose(straight, wanted, atol=1e-9)


@pytest.mark.parametrize("order", [KIND_BY_KIND, LEG_BY_LEG])
def test_the_feet_tell_the_order_of_the_joints(tmp_path, order):
    found = kine2go.read(motion(tmp_path / "solo8_walk" / "motion.npy", order))
    joints, base, turn = trotting()
    for name, values in joints.items():
        column = found.joint_pos[:, found.joint_names.index(name)]
        np.testing.assert_allclose(column, values, atol=1e-6)
    np.testing.assert_allclose(found.root_pos, base, atol=1e-6)
    np.testing.assert_allclose(found.root_quat, turn, atol=1e-6)
    assert (found.fps, found.licence) == (60.0, "BSD-3-Clause")
    assert "solo8_walk" in found.source


def test_the_licence_is_that_of_the_part_of_the_dataset(tmp_path):
    for name, licence in (
        ("vhdc_horse1_s1_trot_01", "CC-BY-SA-4.0"),
        ("ai4_dog_pace", "CC-BY-NC-4.0"),
    ):
        assert kine2go.read(motion(tmp_path / f"{name}.npy")).licence == licence
    mine = motion(tmp_path / "mine.npy")
    with pytest.raises(ValueError, match="licence of 'mine' is not known"):
        kine2go.read(mine)
    assert kine2go.read(mine, "CC0-1.0").licence == "CC0-1.0"


def test_a_clip_for_go1_steps_as_go2_does(tmp_path, capsys):
    path = motion(tmp_path / "solo8_walk" / "motion.npy")
    kine2go.main([str(path), "--out", str(tmp_path / "clips")])
    assert "0.7 s, BSD-3-Clause" in capsys.readouterr().out
    (found,) = clips.read_all([str(tmp_path / "clips")])
    source, rig = kine2go.go2_rig(), go1_rig(FEET)
    scale = rig.leg_lengths().mean() / source.leg_lengths().mean()
    steps = rig.foot_positions(found.joint_pos) - rig.hips()
    theirs = source.foot_positions(kine2go.read(path).joint_pos) - source.hips()
    np.testing.assert_allclose(steps, scale * theirs, atol=2e-4)
    assert frames(found.resampled(50.0), rig).shape[0] == 33


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: change(path, 7, 36, 0.1), "10.0 cm if read kind by kind.*is it of a Go2"),
        (lambda path: change(path, 3, 50, np.nan), "nan in frame 3, column 50"),
        (lambda path: np.save(path, np.zeros((9, 49))), r"shape \[9, 49\].*\[frames, 61\]"),
        (lambda path: np.save(path, np.load(path)[:2]), "2 frames, allowed: 3 or more"),
        (lambda path: np.save(path, np.array([{}]), allow_pickle=True), "is not a motion"),
        (lambda path: path.write_bytes(b"\x93NUMPY"), "is not a motion"),
        (lambda path: path.unlink(), "No such file"),
    ],
)
def test_what_is_no_motion_of_go2_is_refused(tmp_path, spoil, message):
    path = motion(tmp_path / "solo8_walk.npy")
    spoil(path)
    with pytest.raises(ValueError, match=message):
        kine2go.read(path)
    with pytest.raises(SystemExit, match=r"error: .*solo8_walk"):
        kine2go.main([str(path), "--out", str(tmp_path / "clips")])
    assert not (tmp_path / "clips").exists()
