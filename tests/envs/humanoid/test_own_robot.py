"""Another robot than the G1 in the whole-body task: the humanoid of the tutorial."""

import dataclasses
import shutil

import mujoco
import numpy as np
import pytest
import torch
import yaml

from rrf.algorithms.mirrors import whole_body as mirrors_of
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.envs.humanoid import balancer, body
from rrf.envs.humanoid.robot_configs import RobotCfg
from rrf.envs.humanoid.robots import G1, robot_of
from rrf.envs.humanoid.whole_body_configs import WholeBodyEnvCfg
from tests.repository.structure import ROOT

FOLDER = ROOT / "docs/tutorials/own_humanoid"
GIVEN = yaml.safe_load((FOLDER / "balance.yaml").read_text())["overrides"]["env.robot"]


def cfg_of(**changes) -> RobotCfg:
    """The tutorial's config, as a training file would give it."""
    return RobotCfg.from_dict(GIVEN | {"model": str(FOLDER / "humanoid.xml")} | changes)


@pytest.fixture(scope="module")
def robot():
    return robot_of(cfg_of())


@pytest.fixture
def changed(tmp_path):
    """Writes the tutorial's model with other words, and says where it is."""

    def write(old: str, new: str) -> str:
        text = (FOLDER / "humanoid.xml").read_text()
        assert old in text
        (tmp_path / "changed.xml").write_text(text.replace(old, new))
        return str(tmp_path / "changed.xml")

    return write


def test_what_can_be_computed_from_the_model_is(robot):
    assert robot.name == "humanoid"
    # hip at -0.05, thigh and shin 0.25, the sole 0.05 below the ankle; knees bent by 0.3
    height = 0.05 + 0.25 * np.cos(0.1) + 0.25 * np.cos(0.2) + 0.05
    assert robot.tall == pytest.approx(height, abs=1e-6)
    assert robot.num_proprio == 7 + 3 * 21 + 2 + 15
    assert robot.command_names[:2] == ("left_shoulder_pitch", "left_shoulder_roll")
    assert robot.signal("height").high == pytest.approx(0.78 * height / 0.74)
    assert robot.motor("right_knee") == (120, 3, 80)
    model = robot.spec().compile()
    assert model.njnt == 1 + 15 + 6  # the neck is stiff
    assert model.body_subtreemass[1] == pytest.approx(16.8)  # geoms that do not collide weigh, too
    assert G1.scale == 1.0


@pytest.mark.parametrize("height", [0.42, 0.5, 0.58])
@pytest.mark.parametrize("pitch", [0.0, 0.4])
def test_it_stands_with_flat_soles_and_its_weight_above_them(robot, height, pitch):
    model = robot.spec().compile()
    data = mujoco.MjData(model)
    pose = robot.standing.pose(np.array([height]), np.array([[0.0, pitch, 0.0]]))[0]
    lean = pitch - pose[-1]
    data.qpos[2], data.qpos[3:7] = height, [np.cos(lean / 2), 0, np.sin(lean / 2), 0]
    angles = [*pose, *robot.default_pose(robot.arms)]
    data.qpos[body.qpos_addresses(model, robot.observed)] = angles
    mujoco.mj_forward(model, data)
    soles = data.geom_xpos[[g for g in range(model.ngeom) if "_sole" in model.geom(g).name]]
    np.testing.assert_allclose(soles[:, 2] - 0.01, 0.0, atol=0.012)
    assert soles[:, 0].min() < data.subtree_com[0][0] < soles[:, 0].max()


def test_it_is_trained_as_a_g1_is_with_as_many_numbers_as_it_has_joints():
    cfg = WholeBodyEnvCfg(num_envs=3, physics="fast", num_threads=0, robot=cfg_of())
    env = cfg.build(seed=1)
    for _ in range(30):
        observed, rewards, _, extras = env.step(torch.zeros(3, 15))
    assert {name: group.shape[1] for name, group in observed.items()} == {
        "actor": 87 + 13,
        "history": 870,
        "long_history": 25 * 87,
        "critic": 100 + 18,
    }
    assert rewards.isfinite().all()
    assert extras["measured"]["height_error"].max() < 0.2
    data = env.mj_datas([1])[0]
    np.testing.assert_allclose(data.qpos[:7], env._physics.qpos[1, :7])
    mirrors = mirrors_of(env.interface)
    for name, group in observed.items():
        assert len(mirrors[name]) == group.shape[1]
        assert torch.equal(mirrors[name](mirrors[name](group)), group)
    env.close()


def test_a_policy_of_another_robot_or_of_another_model_is_refused(robot, changed):
    env = WholeBodyEnvCfg(num_envs=1, num_threads=0, robot=cfg_of()).build(seed=1)
    env.close()
    balancer.check_interface(env.interface, robot)
    with pytest.raises(ValueError, match="does not take the command of the whole body"):
        balancer.check_interface(env.interface)
    heavier = robot_of(cfg_of(model=changed('mass="5"', 'mass="6"')))
    with pytest.raises(ValueError, match="was trained on another model of the robot"):
        balancer.check_interface(env.interface, heavier)


def test_a_balancer_holds_what_it_is_told(robot):
    model = robot.spec().compile()
    kept = balancer.PolicyBalancer(lambda observed: np.zeros((1, 15)), ("actor",), model, 1, robot)
    row, qpos, qvel = np.zeros(1, np.int64), np.zeros((1, model.nq)), np.zeros((1, model.nv))
    qpos[:, 2:4] = robot.tall, 1.0
    kept.reset(row, qpos, qvel)
    wanted = balancer.standing_command(1, robot)
    for _ in range(100):
        targets = kept.targets(row, qpos, qvel, wanted)
    expected = robot.standing.pose(np.array([robot.tall]), np.zeros((1, 3)))[0]
    np.testing.assert_allclose(targets[0, :15], expected)
    np.testing.assert_allclose(targets[0, 15:], robot.default_pose(robot.arms))


def test_gains_that_are_not_said_are_those_of_the_models_position_actuators(changed):
    actuator = '<position joint="left_knee" kp="90" kv="2.5" forcerange="-70 70"/>'
    model = changed("</mujoco>", f"<actuator>{actuator}</actuator></mujoco>")
    motors = GIVEN["motors"] | {"right_knee": [120, 3, 80]}
    del motors["knee"]
    robot = robot_of(cfg_of(model=model, motors=motors))
    assert robot.motor("left_knee") == (90.0, 2.5, 70.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"legs": GIVEN["legs"][:10]}, "robot.legs has 10 names, expected 12: hip_pitch"),
        ({"feet": ["left_foot"]}, "robot.feet has 1 names, expected 2"),
        ({"arms": GIVEN["arms"][:5]}, "robot.arms has 5 joints, expected as many on each side"),
        ({"waist": ["waist_yaw", "waist_yaw", "waist_pitch"]}, "'waist_yaw' is named twice"),
        ({"motors": {"knee": [80.0, 2.0]}}, r"robot.motors\[knee\] is .*expected stiffness"),
        ({"feet": ["left_fot", "right_foot"]}, "no body 'left_fot'; did you mean 'left_foot'"),
        ({"torso": "trunk"}, "robot.torso: .* has no body 'trunk'"),
        ({"feet": ["left_foot", "world"]}, "the body 'world' has no geoms to stand on"),
        ({"model": "no.xml"}, "robot.model: no file .*no.xml"),
        ({"motors": {"hip": [80.0, 2.0, 60.0]}}, "the gains of 'left_knee' are unknown"),
        (
            {"waist": ["waist_yaw", "waist_rol", "waist_pitch"]},
            "robot.waist: .* has no joint 'waist_rol'; did you mean 'waist_roll'",
        ),
        (
            {"waist": ["waist_yaw", "waist_pitch", "waist_roll"]},
            r"'waist_pitch' turns about \(0, 1, 0\) .* a waist_roll must turn about \(1, 0, 0\)",
        ),
    ],
)
def test_what_is_wrong_with_a_robot_is_said(change, message):
    with pytest.raises(ValueError, match=message):
        robot_of(cfg_of(**change))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<freejoint/>", "", "the root body has no free joint"),
        ('<compiler angle="radian"/>', "", 'degrees unless it says <compiler angle="radian"/>'),
        (
            '"left_knee" axis="0 1 0"',
            '"left_knee" axis="0 -1 0"',
            r"'left_knee' turns about \(0, -1",
        ),
        ("</mujoco>", "", "robot.model: MuJoCo cannot read"),
    ],
)
def test_what_is_wrong_with_a_model_is_said(changed, old, new, message):
    with pytest.raises(ValueError, match=message):
        robot_of(cfg_of(model=changed(old, new)))


def test_a_joint_whose_side_its_name_does_not_show_is_not_mirrored(robot):
    env = WholeBodyEnvCfg(num_envs=1, num_threads=0, robot=cfg_of()).build(seed=1)
    env.close()
    names = [name.replace("left_", "l_") for name in robot.driven]
    facts = env.interface.robot | {"joint_names": names}
    other = dataclasses.replace(env.interface, robot=facts)
    with pytest.raises(ValueError, match="'l_hip_pitch' does not show its side"):
        mirrors_of(other)


def test_a_model_is_found_in_the_workspace(tmp_path, monkeypatch):
    shutil.copy(FOLDER / "humanoid.xml", tmp_path / "mine.xml")
    monkeypatch.setattr("rrf.workspace.home", lambda: tmp_path)
    assert robot_of(cfg_of(model="mine.xml")).name == "mine"


def test_the_robot_of_a_checkpoint_is_found_in_its_config(tmp_path):
    def written(env) -> str:
        (tmp_path / "config.yaml").write_text(yaml.safe_dump({"env": env.to_dict()}))
        return str(tmp_path)

    assert balancer.load_robot(written(WholeBodyEnvCfg())) is G1
    assert balancer.load_robot(written(WholeBodyEnvCfg(robot=cfg_of()))).name == "humanoid"
    with pytest.raises(ValueError, match="is no System 0: it was trained in GymnasiumEnvCfg"):
        balancer.load_robot(written(GymnasiumEnvCfg(task="Pendulum-v1")))
