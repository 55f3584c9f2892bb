import mujoco
import numpy as np
import pytest

from rrf.envs.humanoid import body, command
from rrf.envs.humanoid.robots import G1

pytest.importorskip("mjlab", reason="the robot's model is in mjlab's wheel")


def test_the_command_is_psi0s_36_numbers_in_its_order():
    assert len(command.COMMAND) == 36
    assert command.NAMES[command.HANDS][:2] == (
        "left_hand_thumb_0_joint",
        "left_hand_thumb_1_joint",
    )
    assert command.NAMES[command.ARMS][0] == "left_shoulder_pitch_joint"
    assert command.NAMES[command.BODY] == (
        *("torso_roll", "torso_pitch", "torso_yaw", "height", "vx", "vy", "vyaw", "target_yaw"),
    )
    assert (command.LOW < command.HIGH).all()


def test_a_signal_that_the_command_does_not_have_is_named():
    assert command.indices(["vx", "height"]).tolist() == [32, 31]
    with pytest.raises(ValueError, match="no signal 'vz'"):
        command.indices(["vz"])
    with pytest.raises(ValueError, match="one twice"):
        command.indices(["vx", "vx"])


def test_the_arms_ranges_are_those_of_the_model():
    model = body.spec().compile()
    for index in range(*command.ARMS.indices(36)):
        limits = model.joint(command.NAMES[index]).range
        np.testing.assert_allclose([command.LOW[index], command.HIGH[index]], limits, atol=1e-4)


def test_a_joint_that_the_robot_lacks_is_named():
    model = body.light_spec().compile()
    with pytest.raises(ValueError, match="no joint 'left_hand_thumb_0_joint'; it has no hands"):
        body.qpos_addresses(model, command.HAND_JOINTS)


@pytest.mark.parametrize("height", [0.5, 0.6, 0.7, 0.76])
@pytest.mark.parametrize("pitch", [-0.2, 0.0, 0.4, 0.8])
def test_standing_the_soles_are_flat_and_the_centre_of_mass_is_above_them(height, pitch):
    model = body.light_spec().compile()
    data = mujoco.MjData(model)
    pose = G1.standing.pose(np.array([height]), np.array([[0.0, pitch, 0.0]]))[0]
    lean = pitch - pose[-1]
    data.qpos[2], data.qpos[3:7] = height, [np.cos(lean / 2), 0, np.sin(lean / 2), 0]
    data.qpos[body.qpos_addresses(model, body.OBSERVED)] = [
        *pose,
        *body.default_pose(body.PROXIMAL),
    ]
    mujoco.mj_forward(model, data)
    soles = data.geom_xpos[[g for g in range(model.ngeom) if "_sole" in model.geom(g).name]]
    np.testing.assert_allclose(soles[:, 2] - 0.01, 0.0, atol=0.012)  # the table's interpolation
    ahead = data.subtree_com[0][0]
    assert soles[:, 0].min() + 0.02 < ahead < soles[:, 0].max() - 0.02
    torso = data.body("torso_link").xmat.reshape(3, 3)
    assert np.arctan2(-torso[2, 0], torso[2, 2]) == pytest.approx(pitch, abs=0.01)
