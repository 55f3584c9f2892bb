"""Limits of commands: ranges, speeds, and a box for a point of the arm."""

import math
from pathlib import Path

import numpy as np
import pytest

from rrf.envs.robots.configs import JointCfg, WorkspaceCfg
from rrf.envs.robots.limits import Reach, misfit, too_fast

JOINTS = {
    "a.pos": JointCfg(unit="deg", min=-90, max=90, max_speed=30),
    "b.pos": JointCfg(unit="0..100", min=0, max=100, max_speed=100),
}
BEFORE = {"a.pos": 0.0, "b.pos": 50.0}
ARM = """
<mujoco>
  <worldbody>
    <body name="arm" pos="0 0 0.1">
      <joint name="a" axis="0 0 1"/>
      <geom size="0.01" pos="0.3 0 0"/>
      <body name="hand" pos="0.3 0 0">
        <joint name="slide" type="slide" axis="0 0 1" range="0 0.2"/>
        <geom size="0.01"/>
        <site name="tip" pos="0.1 0 0"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
URDF = """
<robot name="r">
  <link name="base"/>
  <link name="hand">
    <visual><geometry><mesh filename="package://nowhere/hand.stl"/></geometry></visual>
  </link>
  <joint name="a" type="revolute">
    <parent link="base"/><child link="hand"/><origin xyz="0.2 0 0"/><axis xyz="0 0 1"/>
    <limit lower="-1.6" upper="1.6" effort="1" velocity="1"/>
  </joint>
  <link name="tip"><visual><geometry><box size="0.01 0.01 0.01"/></geometry></visual></link>
  <joint name="j" type="revolute">
    <parent link="hand"/><child link="tip"/><origin xyz="0.1 0 0"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/>
  </joint>
</robot>
"""


def workspace_cfg(tmp_path: Path, **changes) -> WorkspaceCfg:
    (tmp_path / "arm.xml").write_text(ARM)
    usual = {
        "model": str(tmp_path / "arm.xml"),
        "point": "tip",
        "low": [0.0, -0.5, 0.0],
        "high": [1.0, 0.5, 0.25],
        "joints": {"b.pos": "slide"},
    }
    return WorkspaceCfg.from_dict(usual | changes)


def test_a_command_within_its_range_is_executed():
    assert misfit({"a.pos": 90.0, "b.pos": 0.0}, BEFORE, JOINTS) is None


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ({"a.pos": 91.0, "b.pos": 0.0}, "a.pos is 91.0 deg, allowed: -90 to 90"),
        ({"a.pos": 0.0, "b.pos": -1.0}, "b.pos is -1.0 0..100, allowed: 0 to 100"),
        ({"a.pos": math.nan, "b.pos": 0.0}, "a.pos is nan; an action has a finite number"),
        ({"b.pos": 0.0}, "a.pos is missing"),
        ({"a.pos": 0.0, "b.pos": 0.0, "c.pos": 0.0}, "the robot has no 'c.pos'"),
    ],
)
def test_any_other_is_not(command, reason):
    assert reason in str(misfit(command, BEFORE, JOINTS))


def test_who_begins_outside_may_come_back_but_not_go_further_out():
    outside = {"a.pos": 100.0, "b.pos": 50.0}
    assert misfit({"a.pos": 98.0, "b.pos": 50.0}, outside, JOINTS) is None
    assert misfit({"a.pos": 100.5, "b.pos": 50.0}, outside, JOINTS)


def test_speed_is_the_change_of_the_command_in_a_period():
    assert too_fast({"a.pos": 3.0, "b.pos": 40.0}, BEFORE, JOINTS, 0.1) is None
    reason = too_fast({"a.pos": 3.1, "b.pos": 40.0}, BEFORE, JOINTS, 0.1)
    assert reason == "a.pos would move by 31 deg/s, from 0.0 to 3.1; allowed: 30"


def test_a_point_is_where_forward_kinematics_has_it(tmp_path):
    reach = Reach(workspace_cfg(tmp_path), JOINTS)
    # half of the slide's 0.2 m above 0.1 m; the tip is 0.3 + 0.1 m out
    np.testing.assert_allclose(reach.point({"a.pos": 0.0, "b.pos": 50.0}), [0.4, 0, 0.2])
    np.testing.assert_allclose(
        reach.point({"a.pos": 90.0, "b.pos": 0.0}), [0, 0.4, 0.1], atol=1e-12
    )


def test_a_point_stays_in_its_box_and_may_come_back_into_it(tmp_path):
    reach, low, high = Reach(workspace_cfg(tmp_path), JOINTS), BEFORE, BEFORE | {"b.pos": 100.0}
    assert reach.misfit(low, high) is None
    reason = reach.misfit(high, low)
    assert reason is not None
    assert "tip would be at (0.400, 0.000, 0.300) m, allowed: (0.000, -0.500, 0.000)" in reason
    assert reach.misfit(BEFORE | {"b.pos": 90.0}, high) is None  # 0.28 m: out, but on its way back


def test_urdf_needs_no_meshes(tmp_path):
    (tmp_path / "arm.urdf").write_text(URDF)
    cfg = workspace_cfg(tmp_path, model=str(tmp_path / "arm.urdf"), joints={})
    joints = {"a.pos": JointCfg(unit="rad", min=-1.5, max=1.5, max_speed=1)}
    point = Reach(cfg, joints).point({"a.pos": math.pi / 2})
    np.testing.assert_allclose(point, [0.2, 0.1, 0.0], atol=1e-9)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"point": "tp"}, "no site or body 'tp'; did you mean 'tip'"),
        ({"joints": {"b.pos": "slid"}}, "no joint 'slid'; did you mean 'slide'"),
        ({"joints": {}}, "no joint 'b'"),
        ({"model": "nowhere.xml"}, "no file"),
    ],
)
def test_what_the_model_lacks_is_said(tmp_path, changes, reason):
    with pytest.raises(ValueError, match=reason):
        Reach(workspace_cfg(tmp_path, **changes), JOINTS)


def test_a_unit_that_says_nothing_about_a_model_is_refused(tmp_path):
    joints = JOINTS | {"a.pos": JointCfg(unit="ticks", min=0, max=4095, max_speed=100)}
    with pytest.raises(ValueError, match=r"a.pos is in 'ticks', but a model needs one of deg, rad"):
        Reach(workspace_cfg(tmp_path), joints)


def test_a_joint_without_a_range_has_no_hundredths(tmp_path):
    joints = {"a.pos": JointCfg(unit="-100..100", min=-100, max=100, max_speed=100)}
    with pytest.raises(ValueError, match="'a' has no range"):
        Reach(workspace_cfg(tmp_path, joints={}), joints)
