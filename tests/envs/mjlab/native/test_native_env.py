"""mjlab's tasks on the native backend: contract, episodes, commands, what others read of them."""

import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

from tests.envs.contract import assert_equal, check_contract, trajectory
from tests.envs.mjlab.mjlab_tasks import GO1, build
from tests.envs.mjlab.native.standing_motion import write_standing_motion

SLOW = pytest.mark.slow
TASKS = [
    GO1,
    "Mjlab-Cartpole-Balance",
    pytest.param("Mjlab-Cartpole-Swingup", marks=SLOW),
    pytest.param("Mjlab-Lift-Cube-Yam", marks=SLOW),
    pytest.param("Mjlab-Velocity-Rough-Unitree-Go1", marks=SLOW),
    pytest.param("Mjlab-Velocity-Flat-Unitree-G1", marks=SLOW),
    pytest.param("Mjlab-Velocity-Rough-Unitree-G1", marks=SLOW),
]


@pytest.mark.parametrize("task", TASKS)
def test_environments_keep_the_contract(task):
    check_contract(lambda: build(task, num_threads=1), num_steps=15)


def test_trajectories_do_not_depend_on_the_number_of_threads():
    runs = []
    for num_threads in (0, 1, 3):
        env = build(num_envs=9, num_threads=num_threads)
        runs.append(trajectory(env, torch.Generator().manual_seed(0), 30))
        env.close()
    assert_equal(runs[1], runs[0])
    assert_equal(runs[2], runs[0])


def test_another_seed_gives_other_robots(go1):
    other = build(num_envs=6, seed=1)
    for field in ("geom_friction", "body_ipos"):
        ours, theirs = (e.env.sim.model.expanded[field] for e in (go1, other))
        assert not torch.equal(ours, theirs)
    other.close()


def test_the_learners_randomness_and_the_environments_do_not_mix():
    torch.manual_seed(0)
    expected = torch.randn(3)
    torch.manual_seed(0)
    env = build(num_envs=2)
    env.step(torch.zeros(2, 12))
    assert torch.equal(torch.randn(3), expected)
    env.close()


def test_an_environment_whose_physics_diverges_is_terminated_and_reset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo logs warnings here
    env = build(num_envs=3)
    env.env.sim.data.qvel[1, 2] = 1e9
    observations, rewards, dones, extras = env.step(torch.zeros(3, 12))
    assert dones.tolist() == [False, True, False]
    assert extras["time_outs"].tolist() == [False, False, False]
    assert float(extras["log"]["env/diverged"]) == 1.0
    for value in (observations["actor"], observations["critic"], rewards):
        assert torch.isfinite(value).all()
    assert torch.isfinite(extras["final_obs"]["critic"]).all()
    _, _, dones, extras = env.step(torch.zeros(3, 12))
    assert not dones.any()
    assert float(extras["log"]["env/diverged"]) == 0.0
    env.close()


def test_final_observations_show_the_end_and_the_others_the_beginning(go1):
    go1.reset()
    lengths = torch.zeros(6, dtype=torch.long)
    lengths[[1, 4]] = go1.max_episode_length - 1
    go1.episode_length_buf = lengths
    actions = torch.full((6, 12), 0.5)
    seen = []
    go1.before_reset = seen.append
    observations, _, dones, extras = go1.step(actions)
    go1.before_reset = None
    assert seen == [[1, 4]]
    assert dones.nonzero().flatten().tolist() == [1, 4]
    last_action = slice(33, 45)  # of the 48 numbers of the actor
    assert (extras["final_obs"]["actor"][:, last_action] == 0.5).all()
    assert (observations["actor"][[1, 4], last_action] == 0).all()
    assert (observations["actor"][[0, 2, 3, 5], last_action] == 0.5).all()


def test_reward_terms_add_up_to_the_reward(go1):
    _, rewards, _, _ = go1.step(torch.zeros(6, 12))
    terms = go1.reward_terms()
    assert list(terms) == go1.reward_names
    assert {"track_linear_velocity", "upright", "foot_slip"} <= set(terms)
    torch.testing.assert_close(torch.stack(list(terms.values())).sum(0), rewards)


def test_a_held_command_is_seen_at_once_and_survives_resets(go1):
    command = torch.tensor([[0.5, -0.25, 0.125]]).repeat(6, 1)
    go1.set_command(command)
    assert torch.equal(go1.get_observations()["critic"][:, 45:48], command)
    go1.reset()
    go1.episode_length_buf = torch.full((6,), go1.max_episode_length - 1)
    for _ in range(3):
        observations, *_ = go1.step(torch.zeros(6, 12))
        assert torch.equal(go1.command, command)
        assert torch.equal(observations["critic"][:, 45:48], command)
    go1.set_command(None)
    go1.step(torch.zeros(6, 12))
    assert (go1.command != command).any(dim=1).all(), "drawn again, and not only after a reset"
    with pytest.raises(ValueError, match=r"expected \[N, 3\] = \[6, 3\]"):
        go1.set_command(command[:2])


def test_a_metric_of_a_command_is_measured_once_a_step_where_another_environment_ends():
    """mjlab adds |error| / (steps between two commands) per step, of every environment."""
    env = build(num_envs=2, overrides={"events.push_robot": None})
    term = env.env.command_manager.get_term("twist")
    steps = term.cfg.resampling_time_range[1] / env.env.step_dt
    for is_ending in (False, True):
        env.episode_length_buf = torch.tensor(
            [env.max_episode_length - 1 if is_ending else 0, 0], dtype=torch.long
        )
        before = term.metrics["error_vel_xy"].clone()
        _, _, dones, extras = env.step(torch.zeros(2, 12))
        assert dones.tolist() == [is_ending, False]
        error = (env.command - env.body_velocity())[:, :2].norm(dim=1)
        added = term.metrics["error_vel_xy"] - before
        assert float(added[1]) == pytest.approx(float(error[1]) / steps, rel=1e-4)
    assert extras["log"]["Metrics/twist/error_vel_xy"] > 0
    env.close()


def test_what_evaluation_reads_of_a_standing_robot():
    env = build(num_envs=2, overrides={"events.push_robot": None})
    env.set_command(torch.zeros(2, 3))
    for _ in range(60):
        env.step(torch.zeros(2, 12))
    assert env.body_velocity().shape == (2, 3)
    assert env.body_velocity().abs().max() < 0.1
    assert env.base_height == pytest.approx(torch.full((2,), 0.27), abs=0.04)
    assert env.power().shape == (2,)
    assert (env.power() < 20).all()
    (data,) = env.mj_datas([1])
    np.testing.assert_allclose(data.qpos, env.env.sim.data.qpos[1].numpy())
    assert data.ncon == 4, "kinematics and contacts are up to date"
    env.close()


def test_interface_tells_what_a_policy_needs(go1):
    interface = go1.interface
    assert interface.observation_dims == {"actor": 48, "critic": 72}
    assert interface.step_dt == pytest.approx(0.02)
    robot = interface.robot
    assert robot["joint_names"][:3] == ["FR_hip_joint", "FR_thigh_joint", "FR_calf_joint"]
    assert robot["default_joint_pos"][:3] == pytest.approx([0.1, 0.9, -1.8])
    assert robot["joint_stiffness"][2] == pytest.approx(35.764, abs=1e-3)
    assert robot["command_names"] == ["twist"]


def test_interface_says_what_mjlabs_own_export_writes(go1):
    exporter_utils = pytest.importorskip("mjlab.rl.exporter_utils")
    expected = exporter_utils.get_base_metadata(go1.env, run_path="")
    expected.pop("run_path")
    assert go1.interface.robot == expected


def test_what_cannot_restore_its_state_goes_on_later_in_its_curricula():
    env = build(num_envs=2)
    first = env.reset()[0]["actor"]
    env.set_progress(1200, seed=1)
    again = env.reset()[0]["actor"]
    assert env.env.common_step_counter == 1200
    assert not torch.equal(first, again)  # other random numbers
    env.step(torch.zeros(2, env.num_actions))
    assert env.env.common_step_counter == 1201
    assert env.env._sim_step_counter == 1201 * env.env.cfg.decimation
    env.close()


def test_a_motion_is_tracked_from_the_file_that_is_given(tmp_path):
    file = tmp_path / "motion.npz"
    write_standing_motion(file, num_frames=40)
    env = build(
        "Mjlab-Tracking-Flat-Unitree-G1",
        overrides={
            "commands.motion.motion_file": str(file),
            "commands.motion.sampling_mode": "start",
            "commands.motion.pose_range": {},
            "commands.motion.velocity_range": {},
            "commands.motion.joint_position_range": [0.0, 0.0],
            "events.push_robot": None,
        },
    )
    assert env.interface.observation_dims == {"actor": 160, "critic": 286}
    terms = []
    for _ in range(15):
        observations, _, dones, _ = env.step(torch.zeros(4, 29))
        terms.append(env.reward_terms())
        assert torch.isfinite(observations["critic"]).all()
        assert not dones.any(), "a standing robot is where the motion has it"
    assert (terms[-1]["motion_global_root_pos"] > 0.9 * 0.5 * env.interface.step_dt).all()
    env.close()
