"""The simulated SO-101, its leader, and lerobot's own way to build them."""

import numpy as np
import pytest
from lerobot.robots import make_robot_from_config
from lerobot.teleoperators import make_teleoperator_from_config
from lerobot.utils.errors import DeviceNotConnectedError

from rrf.envs.robots.so101_scene import JOINTS, reaching
from rrf.envs.robots.so101_sim import (
    SO101Sim,
    SO101SimConfig,
    SO101SimLeader,
    SO101SimLeaderConfig,
)


def test_lerobot_builds_both_from_their_configs():
    assert isinstance(make_robot_from_config(SO101SimConfig()), SO101Sim)
    assert isinstance(make_teleoperator_from_config(SO101SimLeaderConfig()), SO101SimLeader)


def test_what_is_observed_is_what_the_features_say():
    robot = SO101Sim(SO101SimConfig(views=["front", "side"], image_size=32))
    with pytest.raises(DeviceNotConnectedError):
        robot.get_observation()
    with robot:
        seen = robot.get_observation()
        assert list(seen) == list(robot.observation_features)
        for name, kind in robot.observation_features.items():
            if kind is float:
                assert isinstance(seen[name], float)
            else:
                assert seen[name].shape == kind
                assert seen[name].dtype == np.uint8
        assert seen["front"].std() > 10
    assert not robot.is_connected


def test_an_arm_goes_where_it_is_told_in_lerobots_units(robot):
    goal = {f"{name}.pos": value for name, value in reaching(0.2, 0.05, 0.08, 30.0).items()}
    for _ in range(15):
        assert robot.send_action(goal) == goal
    seen = robot.get_observation()
    for name, value in goal.items():
        assert seen[name] == pytest.approx(value, abs=3)  # its own weight bends it
    np.testing.assert_allclose(robot.scene.data.site("tip").xpos, [0.2, 0.05, 0.08], atol=0.006)


def test_an_episode_is_a_function_of_its_number(robot):
    robot.begin_episode(7)
    first, cube = robot.get_observation(), robot.scene.cube
    robot.begin_episode(8)
    assert np.abs(robot.scene.cube - cube).max() > 0.005
    robot.begin_episode(7)
    assert robot.get_observation() == first
    np.testing.assert_array_equal(robot.scene.cube, cube)


def test_the_leader_lifts_the_cube_in_nearly_every_episode(robot):
    leader = SO101SimLeader(SO101SimLeaderConfig())
    leader.connect()
    solved, shown = 0, []
    for index in range(20):
        robot.begin_episode(index)
        leader.begin_episode(index)
        for _ in range(60):
            robot.send_action(leader.get_action())
            if robot.is_solved:
                break
        solved += robot.is_solved
        shown.append(tuple(leader.get_action().values()))
    assert solved >= 18
    assert len(set(shown)) == 20  # no two alike


def test_a_leader_without_a_robot_says_which_it_looks_for():
    leader = SO101SimLeader(SO101SimLeaderConfig(watches="other"))
    leader.connect()
    with pytest.raises(ConnectionError, match="no simulated robot with the id 'other'"):
        leader.get_action()


def test_out_of_reach_is_said():
    with pytest.raises(ValueError, match=r"\(0.500, 0.000, 0.100\) m is out of reach"):
        reaching(0.5, 0.0, 0.1, 0.0)
    assert set(reaching(0.2, 0.0, 0.1, 0.0)) == set(JOINTS)


@pytest.mark.slow
def test_lerobots_own_recording_loop_drives_it(robot):
    """As `lerobot-record --robot.type=so101_sim --teleop.type=so101_sim_leader` does."""
    from lerobot.processor import make_default_processors
    from lerobot.scripts.lerobot_record import record_loop

    leader = SO101SimLeader(SO101SimLeaderConfig())
    leader.connect()
    of_teleop, of_robot, of_observation = make_default_processors()
    record_loop(
        robot=robot,
        events={"exit_early": False},
        fps=20,
        teleop_action_processor=of_teleop,
        robot_action_processor=of_robot,
        robot_observation_processor=of_observation,
        teleop=leader,
        control_time_s=2,
    )
    assert robot.num_commands > 20
    assert robot.is_solved
