"""Inverse kinematics, gaits and retargeting on a quadruped whose legs can have any length."""

import dataclasses

import mujoco
import numpy as np
import pytest

from rrf.envs.motions.clip import read, rotate
from rrf.envs.motions.gaits import Trot, trot, velocities
from rrf.envs.motions.rig import Rig, frames, retargeted
from tests.envs.motions import quadruped

FPS = 50.0
GAIT = Trot(frequency_hz=2.0, duty=0.5, lift_m=0.08, height_m=0.28, foot_radius_m=0.02)


def feet_in_world(clip, rig):
    feet = rig.foot_positions(clip.joint_pos)
    return clip.root_pos[:, None] + rotate(clip.root_quat[:, None], feet)


def walk(velocity, seconds=2.0, rig=None):
    targets = np.tile(velocity, (round(seconds * FPS), 1))
    return trot(rig or quadruped.rig(), targets, FPS, GAIT)


def test_joints_put_the_feet_where_they_are_asked_to_be():
    rig = quadruped.rig()
    random = np.random.default_rng(0)
    joints = rig.default_joints + random.uniform(-0.3, 0.3, (10, 12))
    feet = rig.foot_positions(joints)
    np.testing.assert_allclose(rig.foot_positions(rig.joints_for(feet)), feet, atol=2e-4, rtol=0)


def test_a_place_out_of_reach_is_named():
    rig = quadruped.rig()
    feet = rig.foot_positions(rig.default_joints[None])
    feet[0, 2, 2] -= 0.5
    with pytest.raises(ValueError, match=r"the trick: foot 'RR' misses its place in frame 0 by"):
        rig.joints_for(feet, "the trick")


def test_lengths_and_hips_are_those_of_the_model():
    rig = quadruped.rig(0.25, prefix="robot/")
    assert rig.joint_names == quadruped.JOINTS
    np.testing.assert_allclose(rig.leg_lengths(), 0.58, atol=1e-9)
    np.testing.assert_allclose(rig.hips()[1], [0.2, 0.05, 0.0], atol=1e-9)


def test_unknown_feet_are_refused():
    with pytest.raises(ValueError, match="no site 'paw'; it has FR, FL, RR, RL"):
        quadruped.rig(feet=["paw"])


@pytest.mark.parametrize("velocity", [(0.6, 0.0, 0.0), (-0.3, 0.2, 0.0), (0.2, 0.0, 0.6)])
def test_feet_stand_still_while_they_stand_and_two_swing_at_a_time(velocity):
    rig = quadruped.rig()
    clip = walk(velocity, rig=rig)
    feet = feet_in_world(clip, rig)
    stands = feet[..., 2] < GAIT.foot_radius_m + 5e-4
    both = stands[1:] & stands[:-1]
    slips = np.linalg.norm(np.diff(feet[..., :2], axis=0), axis=-1)[both] * FPS
    assert slips.max() < 0.03  # m/s
    assert stands.mean() == pytest.approx(0.5, abs=0.06)
    assert feet[..., 2].max() == pytest.approx(GAIT.foot_radius_m + GAIT.lift_m, abs=2e-3)
    swings = feet[..., 2] > GAIT.foot_radius_m + 0.03
    assert (swings[:, 0] == swings[:, 3]).all()
    assert not (swings[:, 0] & swings[:, 1]).any()


def test_the_base_moves_as_asked():
    clip = walk((0.5, -0.1, 0.4))
    seen = frames(clip, quadruped.rig())[5:-5]
    np.testing.assert_allclose(seen[:, 24], 0.28, atol=1e-6)
    np.testing.assert_allclose(seen[:, 25:28], np.tile([0.5, -0.1, 0.0], (len(seen), 1)), atol=5e-3)
    np.testing.assert_allclose(seen[:, 30], 0.4, atol=1e-6)


def test_a_standing_robot_lifts_no_foot():
    clip = walk((0.0, 0.0, 0.0), 1.0)
    np.testing.assert_allclose(np.ptp(clip.joint_pos, axis=0), 0, atol=1e-3)


def test_velocities_are_held_and_change_smoothly():
    targets = np.array([[0.0, 0, 0], [1.0, 0, 0]])
    got = velocities(targets, hold_s=0.4, ramp_s=0.2, fps=10.0)[:, 0]
    np.testing.assert_allclose(got, [0, 0, 0, 0, 0, 0.5, 1, 1, 1, 1, 1, 1], atol=1e-9)


def test_longer_legs_make_longer_steps_that_do_not_slip():
    short, long = quadruped.rig(0.213), quadruped.rig(0.3)
    clip = walk((0.5, 0.0, 0.3), rig=short)
    made = retargeted(clip, short, long, GAIT.foot_radius_m)
    scale = (0.08 + 2 * 0.3) / (0.08 + 2 * 0.213)
    np.testing.assert_allclose(made.root_pos[:, :2], scale * clip.root_pos[:, :2], atol=1e-9)
    feet, before = feet_in_world(made, long), feet_in_world(clip, short)
    lift = np.ptp(feet[..., 2], axis=0) / np.ptp(before[..., 2], axis=0)
    np.testing.assert_allclose(lift, scale, atol=0.02)
    assert feet[..., 2].min() == pytest.approx(GAIT.foot_radius_m, abs=1e-3)
    stands = feet[..., 2] < GAIT.foot_radius_m + 5e-4
    both = stands[1:] & stands[:-1]
    slips = np.linalg.norm(np.diff(feet[..., :2], axis=0), axis=-1)[both] * FPS
    assert slips.max() < 0.1 * scale
    assert made.source.endswith("retargeted to legs of 1.344 times the length")
    back = retargeted(made, long, short, GAIT.foot_radius_m)
    np.testing.assert_allclose(back.joint_pos, clip.joint_pos, atol=5e-3)


def test_robots_with_other_feet_are_refused():
    rig = quadruped.rig()
    with pytest.raises(ValueError, match="the source has 4 feet and the target 2"):
        retargeted(quadruped.clip(), rig, quadruped.rig(feet=["FR", "FL"]))
    other = dataclasses.replace(quadruped.clip(), joint_names=[f"j{i}" for i in range(12)])
    with pytest.raises(ValueError, match="of another robot"):
        retargeted(other, rig, rig)


def test_the_committed_clip_says_whose_it_is():
    clip = read("configs/motions/go1-trot.npz")
    assert (clip.licence, clip.fps, clip.joint_names) == ("BSD-3-Clause", 50.0, quadruped.JOINTS)
    assert "rrf.envs.motions.gaits" in clip.source
    assert clip.seconds > 30


def test_soles_stay_level():
    """Feet with an ankle: the knee bends, and the sole stays parallel to the base."""
    model = mujoco.MjModel.from_xml_string("""
    <mujoco><compiler angle="radian"/><worldbody><body pos="0 0 1"><freejoint/><geom size=".1"/>
      <body><joint name="hip" axis="0 1 0"/><geom size=".02"/>
        <body pos="0 0 -.4"><joint name="knee" axis="0 1 0"/><geom size=".02"/>
          <body pos="0 0 -.4"><joint name="ankle" axis="0 1 0"/><geom size=".02"/>
            <site name="sole" pos=".05 0 -.05"/>
    </body></body></body></body></worldbody>
    <keyframe><key qpos="0 0 1 1 0 0 0 -.3 .6 -.3"/></keyframe></mujoco>""")
    rig = Rig(model, ["sole"])
    feet = rig.foot_positions(rig.default_joints[None])
    lower = feet + np.array([0.05, 0.0, 0.1])
    joints = rig.joints_for(lower, level=True)
    assert joints.sum() == pytest.approx(0.0, abs=2e-3)
    np.testing.assert_allclose(rig.foot_positions(joints), lower, atol=2e-4)
