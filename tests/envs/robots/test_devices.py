"""lerobot's robots and teleoperators: what rrf needs of each class, and what it refuses."""

import functools
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Iterator

import pytest
from lerobot.robots import Robot
from lerobot.teleoperators import Teleoperator

from rrf.config import trust
from rrf.envs.robots.configs import JointCfg, RobotCfg
from rrf.envs.robots.devices import (
    features_of,
    known_types,
    make_robot,
    make_teleop,
    teleop_act,
)
from tests.envs.robots.conftest import AT_REST

ROBOTS = (
    *("bi_openarm_follower", "bi_rebot_b601_follower", "bi_so_follower", "earthrover_mini_plus"),
    *("hope_jr_arm", "hope_jr_hand", "koch_follower", "lekiwi", "lekiwi_client", "omx_follower"),
    *("openarm_follower", "reachy2", "rebot_b601_follower", "so100_follower", "so101_follower"),
    *("so101_sim", "unitree_g1"),
)
TELEOPS = (
    *("bi_so_leader", "gamepad", "keyboard", "koch_leader", "omx_leader", "openarm_leader"),
    *("so100_leader", "so101_leader", "so101_sim_leader"),
)
ARM = {"port": "/dev/null"}
SETTINGS: dict[str, dict[str, typing.Any]] = {
    "bi_openarm_follower": {"left_arm_config": ARM, "right_arm_config": ARM},
    "bi_rebot_b601_follower": {"left_arm_config": ARM, "right_arm_config": ARM},
    "bi_so_follower": {"left_arm_config": ARM, "right_arm_config": ARM},
    "earthrover_mini_plus": {},
    "hope_jr_hand": ARM | {"side": "left"},
    "lekiwi_client": {"remote_ip": "127.0.0.1"},
    "reachy2": {},
    "so101_sim": {},
    "unitree_g1": {"is_simulation": False},
}


@functools.cache
def classes(base: type) -> tuple[type, ...]:
    """All devices that lerobot has, as far as they can be imported without their SDKs."""
    return tuple(_classes(base))


def _classes(base: type) -> Iterator[type]:
    package = importlib.import_module(base.__module__.rpartition(".")[0])
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if found.name.endswith("processor"):  # no device, and imports half of lerobot
            continue
        try:
            module = importlib.import_module(found.name)
        except ModuleNotFoundError:  # programs that run on the robot, which need its SDK
            continue
        for member in vars(module).values():
            if (
                inspect.isclass(member)
                and issubclass(member, base)
                and member.__module__ == module.__name__
                and hasattr(member, "config_class")
            ):
                yield member


def is_property(owner: type, name: str) -> bool:
    return isinstance(inspect.getattr_static(owner, name), property | functools.cached_property)


def cfg_of(robot: dict, teleop: dict | None = None, **changes) -> RobotCfg:
    joint = JointCfg(unit="deg", min=-90, max=90, max_speed=100)
    joints = dict.fromkeys(AT_REST, joint)
    return RobotCfg(
        name="mine",
        robot=robot,
        teleop=teleop,
        instruction="wave",
        fps=30,
        **{"joints": joints, **changes},
    )


def test_lerobots_types_are_known_by_their_names():
    assert set(ROBOTS) == set(known_types("robot"))
    assert set(TELEOPS) <= set(known_types("teleop"))


@pytest.mark.parametrize("name", ROBOTS)
def test_every_robot_class_has_what_the_guard_calls(name):
    config = known_types("robot")[name]
    owners = [owner for owner in classes(Robot) if owner.config_class is config]
    if name == "so101_sim":
        from rrf.envs.robots.so101_sim import SO101Sim

        owners = [SO101Sim]
    assert owners, f"no class for {name}"
    for owner in owners:
        assert not inspect.isabstract(owner)
        for attribute in ("observation_features", "action_features", "is_connected"):
            assert is_property(owner, attribute), attribute
        assert list(inspect.signature(owner.send_action).parameters)[:2] == ["self", "action"]
        for method in (owner.connect, owner.get_observation, owner.disconnect):
            needed = [
                parameter
                for parameter in list(inspect.signature(method).parameters.values())[1:]
                if parameter.default is parameter.empty
                and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            ]
            assert needed == []


@pytest.mark.parametrize("name", TELEOPS)
def test_every_teleoperator_class_has_what_a_session_calls(name):
    config = known_types("teleop")[name]
    owners = [owner for owner in classes(Teleoperator) if owner.config_class is config]
    if name == "so101_sim_leader":
        from rrf.envs.robots.so101_sim import SO101SimLeader

        owners = [SO101SimLeader]
    assert owners, f"no class for {name}"
    for owner in owners:
        assert not inspect.isabstract(owner)
        assert is_property(owner, "action_features")
        assert is_property(owner, "is_connected")
        assert list(inspect.signature(owner.get_action).parameters) == ["self"]


@pytest.mark.parametrize("name", ROBOTS)
def test_every_robot_whose_sdk_is_here_is_built_from_a_config(name, tmp_path, monkeypatch):
    """Without its hardware a robot can still say what it observes and takes."""
    monkeypatch.setattr("lerobot.robots.robot.HF_LEROBOT_CALIBRATION", tmp_path)
    settings = {"type": name, "id": "mine", **SETTINGS.get(name, ARM)}
    try:
        make_robot(cfg_of(settings, joints={"no such joint": AT_REST_JOINT}))
    except ImportError as error:
        pytest.skip(f"its SDK is not installed: {error}")
    except ValueError as error:
        names = str(error).partition("known: ")[2].split(", ")
    robot = make_robot(cfg_of(settings, joints=dict.fromkeys(names, AT_REST_JOINT)))
    features = features_of(robot)
    assert set(features.actions) == set(names)
    assert len(features.states) + len(features.cameras) + len(features.left_out) == len(
        robot.observation_features
    )


AT_REST_JOINT = JointCfg(unit="deg", min=-90, max=90, max_speed=100)


def test_the_simulated_arm_has_the_features_of_lerobots():
    robot = make_robot(cfg_of({"type": "so101_sim", "views": ["front", "side"]}))
    names = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
    # the literals of lerobot 0.6.1's SOFollower
    assert list(robot.action_features) == [f"{name}.pos" for name in names]
    assert features_of(robot).states == tuple(f"{name}.pos" for name in names)
    assert features_of(robot).cameras == {"front": (64, 64), "side": (64, 64)}


@pytest.mark.parametrize(
    ("robot", "reason"),
    [
        ({"type": "so101_folower"}, "no type 'so101_folower'; did you mean 'so101_follower'"),
        ({"type": "os.system"}, "no type 'os.system'.*--import lerobot_robot_NAME"),
        ({"type": "so101_sim", "vews": []}, "so101_sim has no field 'vews'; did you mean 'views'"),
        ({"type": "so101_sim", "fps": "fast"}, "mine: robot: .*fps"),
        ({"type": "so101_sim", "id": "../../x"}, "id is '../../x', which is not a plain name"),
        ({"type": "so101_sim", "calibration_dir": "/etc"}, "calibration_dir is not taken"),
        (
            {"type": "bi_so_follower", "left_arm_config": {"port": "a", "id": "../x"}},
            "id is '../x'",
        ),
        ({"type": "unitree_g1"}, "running code that it downloads"),
        (
            {"type": "so101_follower", "port": "a", "cameras": {"front": {"type": "cam"}}},
            "cameras.front.*'cam'",
        ),
    ],
)
def test_a_wrong_or_dangerous_config_is_refused_in_one_sentence(robot, reason):
    with pytest.raises(ValueError, match=reason):
        make_robot(cfg_of(robot))


def test_joints_must_be_those_of_the_actions():
    joint = AT_REST_JOINT
    with pytest.raises(ValueError, match=r"no 'shoulder_pan'; did you mean 'shoulder_pan.pos'"):
        make_robot(cfg_of({"type": "so101_sim"}, joints={"shoulder_pan": joint}))
    with pytest.raises(ValueError, match=r"no unit and limits for shoulder_lift.pos, elbow"):
        make_robot(cfg_of({"type": "so101_sim"}, joints={"shoulder_pan.pos": joint}))


def test_a_teleoperator_must_give_the_robots_actions_or_a_function_that_makes_them(monkeypatch):
    robot = {"type": "so101_sim"}
    with pytest.raises(ValueError, match="mine has no teleoperator"):
        make_teleop(cfg_of(robot))
    with pytest.raises(ValueError, match="the actions of gamepad are dtype, names, shape"):
        make_teleop(cfg_of(robot, {"type": "gamepad"}))
    cfg = cfg_of(robot, {"type": "gamepad"}, teleop_action="my_teleop:turned")
    with pytest.raises(ValueError, match="add --import my_teleop"):
        teleop_act(cfg, make_teleop(cfg))


def test_a_function_of_a_module_that_the_user_named_turns_the_actions(tmp_path, monkeypatch):
    (tmp_path / "my_teleop.py").write_text(
        "def turned(action, observation):\n"
        "    return {name: observation[name] + step for name, step in action.items()}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("rrf.config._trusted", {"rrf"})
    trust("my_teleop")
    cfg = cfg_of({"type": "so101_sim"}, {"type": "gamepad"}, teleop_action="my_teleop:turned")

    class Device:
        def get_action(self):
            return {"a": 1.0}

    assert teleop_act(cfg, typing.cast(Teleoperator, Device()))({"a": 2.0}) == {"a": 3.0}


def test_a_missing_sdk_is_named_with_the_command_that_installs_it():
    pytest.importorskip("lerobot")
    try:
        import scservo_sdk  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match=r"feetech-servo-sdk.*pip install 'lerobot\[feetech"):
            make_robot(cfg_of({"type": "so101_follower", "port": "/dev/null"}))
    else:
        pytest.skip("the SDK of SO-101 is installed")
