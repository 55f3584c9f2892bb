"""The System 0 that comes with rrf keeps a G1 on its feet."""

import numpy as np
import pytest

from rrf import workspace
from rrf.envs.humanoid import body, command
from rrf.envs.humanoid.balancer import load_balancer, standing_command
from rrf.envs.humanoid.configs import HumanoidCfg
from rrf.envs.humanoid.simulated_robot import SimulatedRobot, standing_data
from rrf.envs.humanoid.whole_body_configs import WholeBodyEnvCfg
from rrf.envs.vec_env import InitialState
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.control import load_control_policy
from tests.envs.humanoid.test_table import ONE_OF_EACH, played

pytest.importorskip("mjlab", reason="the robot's model is in mjlab's wheel")


@pytest.fixture(scope="module")
def system0():
    return workspace.shipped() / HumanoidCfg.system0


def test_it_is_found_by_its_name_from_any_folder(system0, tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert checkpoint.find(HumanoidCfg.system0) == system0 == HumanoidCfg().system0_folder()


def test_it_walks_as_fast_as_it_is_told_to_and_stands(system0):
    model = body.shown_spec().compile()
    robot = SimulatedRobot(model, standing_data(model))
    balancer, one, speeds = load_balancer(system0, body.spec().compile()), np.zeros(1, int), []
    balancer.reset(one, *(part[None] for part in robot.read()))
    for vx in (0.0, 0.4):
        wanted, begun = standing_command(1), robot.read()[0][:2]
        wanted[:, command.NAMES.index("vx")] = vx
        for _ in range(200):
            state = (part[None] for part in robot.read())
            robot.drive(balancer.targets(one, *state, wanted)[0], np.zeros(14))
        speeds.append(np.hypot(*(robot.read()[0][:2] - begun)) / 4)
    assert not robot.has_fallen
    assert speeds[0] < 0.03
    assert 0.25 < speeds[1] < 0.5


@pytest.mark.slow
def test_experts_at_the_table_work_through_it():
    env = HumanoidCfg(num_envs=1, chunk_length=1, cameras=[]).build()
    for name in ONE_OF_EACH:
        assert sum(played(env, InitialState(name, 7, i))[1] for i in range(3)) >= 2, name
    env.close()


@pytest.mark.slow
def test_few_of_many_robots_fall_over_the_whole_range(system0):
    policy, _ = load_control_policy(system0)
    cfg = WholeBodyEnvCfg(num_envs=64, first_level=1.0, histories="none", episode_s=10.0)
    env = cfg.build(seed=5)
    observed, fell = env.get_observations(), 0
    for _ in range(env.max_episode_length):
        observed, _, dones, extras = env.step(policy.act(observed))
        fell += int((dones & ~extras["time_outs"]).sum())
    env.close()
    assert fell <= 6
