"""mjlab's tasks on the native backend: contract, physics, rays, state, overrides, bad input."""

import dataclasses
import sys
import types

import mujoco
import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

import mjlab.tasks  # noqa: F401, registers them
from mjlab.envs.mdp import dr
from mjlab.managers.event_manager import EventTermCfg, requires_model_fields
from mjlab.managers.observation_manager import ObservationTermCfg
from mjlab.managers.recorder_manager import RecorderTerm, RecorderTermCfg
from mjlab.managers.reward_manager import RewardTermCfg
from mjlab.managers.scene_entity_config import SceneEntityCfg
from mjlab.sensor import (
    BuiltinSensorCfg,
    GridPatternCfg,
    ObjRef,
    RayCastSensor,
    RayCastSensorCfg,
)
from mjlab.tasks.registry import load_env_cfg

from rrf.envs.control_env import NotFiniteError, check_final
from rrf.envs.mjlab.configs import MjlabEnvCfg
from rrf.envs.mjlab.native.raycast import TerrainRays
from rrf.envs.mjlab.task import task_config
from tests.envs.contract import assert_equal, check_contract, trajectory
from tests.envs.mjlab.native.standing_motion import write_standing_motion

GO1 = "Mjlab-Velocity-Flat-Unitree-Go1"
ROUGH = "Mjlab-Velocity-Rough-Unitree-Go1"
CARTPOLE = "Mjlab-Cartpole-Balance"
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


def build(task: str = GO1, num_envs: int = 4, seed: int = 0, **fields):
    return MjlabEnvCfg(task=task, num_envs=num_envs, **fields).build(seed=seed)


def build_with_event(task: str, func, *, mode: str = "startup", **params):
    cfg = load_env_cfg(task)
    cfg.events["added"] = EventTermCfg(mode=mode, func=func, params=params)
    return MjlabEnvCfg(task=task, num_envs=3).build(env_cfg=cfg)


@pytest.fixture(scope="module")
def go1():
    env = build(num_envs=6)
    yield env
    env.close()


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


def test_physics_is_that_of_mujoco_with_the_environments_own_model(go1):
    """Four steps of mj_step from where the environment stood, with its friction and masses."""
    sim = go1.env.sim
    go1.reset()
    go1.env.event_manager._interval_term_time_left[0][:] = 100.0  # no push
    before = sim.data.qpos.clone(), sim.data.qvel.clone()
    go1.step(torch.full((6, 12), 0.3))
    for i in range(6):
        model = sim.stepper.models[i]
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = before[0][i].numpy(), before[1][i].numpy()
        data.ctrl[:] = sim.data.ctrl[i].numpy()
        for _ in range(4):
            mujoco.mj_step(model, data)
        np.testing.assert_allclose(sim.data.qpos[i].numpy(), data.qpos, atol=2e-5)
        np.testing.assert_allclose(sim.data.qvel[i].numpy(), data.qvel, atol=2e-3)
    foot = go1.mj_model.geom("robot/FR_foot_collision").id
    assert len({float(m.geom_friction[foot, 0]) for m in sim.stepper.models}) == 6
    trunk = go1.mj_model.body("robot/trunk").id
    assert len({float(m.body_ipos[trunk, 0]) for m in sim.stepper.models}) == 6


def test_the_stepped_model_is_the_tasks_without_its_looks(go1):
    slim, full = go1.env.sim.physics.model, go1.mj_model
    assert mujoco.mj_sizeModel(slim) < 0.1e6 < 30e6 < mujoco.mj_sizeModel(full)
    for field in ("body_mass", "body_inertia", "dof_armature", "geom_contype", "actuator_gainprm"):
        np.testing.assert_array_equal(getattr(slim, field), getattr(full, field))
    touching = full.geom_contype + full.geom_conaffinity > 0
    for field in ("geom_size", "geom_pos", "geom_type", "geom_friction", "geom_solref"):
        np.testing.assert_array_equal(
            getattr(slim, field)[touching], getattr(full, field)[touching]
        )


def test_derived_fields_are_mujocos(go1):
    go1.step(torch.randn(6, 12, generator=torch.Generator().manual_seed(2)))
    data, model = go1.env.sim.data, go1.env.sim.stepper.models[3]
    expected = mujoco.MjData(model)
    expected.qpos[:], expected.qvel[:] = data.qpos[3].numpy(), data.qvel[3].numpy()
    expected.ctrl[:] = data.ctrl[3].numpy()
    mujoco.mj_forward(model, expected)
    for field in (
        "xpos", "xquat", "xmat", "xipos", "cvel", "subtree_com", "site_xpos", "site_xmat",
        "geom_xpos", "geom_xmat", "actuator_force", "qfrc_actuator",
    ):  # fmt: skip
        found = getattr(data, field)[3].numpy().reshape(getattr(expected, field).shape)
        rows = slice(None)
        if field.startswith("geom"):  # looks stand elsewhere in the stepped model
            rows = model.geom_contype + model.geom_conaffinity > 0
        np.testing.assert_allclose(
            found[rows], getattr(expected, field)[rows], atol=5e-5, err_msg=field
        )


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


@pytest.mark.parametrize("kind", ["jointlimitpos", "jointlimitvel"])
def test_observed_limits_of_joints_are_mujocos(kind):
    cfg = load_env_cfg(CARTPOLE)
    slider = ObjRef(type="joint", name="slider", entity="cartpole")
    cfg.scene.sensors = (BuiltinSensorCfg(name="limit", sensor_type=kind, obj=slider),)
    cfg.observations["actor"].terms["limit"] = ObservationTermCfg(
        func=lambda env: env.scene["cartpole/limit"].data
    )
    env = MjlabEnvCfg(num_envs=2).build(env_cfg=cfg)
    sim = env.env.sim
    sim.data.qpos[:, 0] = 1.85  # 5 cm beyond its end
    observed = env.step(torch.ones(2, 1))[0]["actor"][0, -1]
    expected = mujoco.MjData(sim.mj_model)
    expected.qpos[:], expected.qvel[:] = sim.data.qpos[0].numpy(), sim.data.qvel[0].numpy()
    mujoco.mj_forward(sim.mj_model, expected)
    assert abs(float(observed)) > 0.01
    assert float(observed) == pytest.approx(expected.sensordata[0], abs=1e-5)
    env.close()


# What events set


def test_sizes_of_geoms_that_events_set_are_stepped():
    pole = SceneEntityCfg("cartpole", geom_names=("pole.*",))
    env = build_with_event(
        CARTPOLE, dr.geom_size, ranges=(1.2, 1.4), operation="scale", asset_cfg=pole
    )
    geom = env.mj_model.geom("cartpole/pole_1").id
    default = env.mj_model.geom_size[geom, :2]
    for model in env.env.sim.stepper.models:
        radius, half = model.geom_size[geom, :2]
        assert (model.geom_size[geom, :2] > 1.19 * default).all()
        np.testing.assert_allclose(
            model.geom_aabb[geom], [0, 0, 0, radius, radius, half + radius], rtol=1e-6
        )
        # The tree of boxes around a body's geoms is the compiler's, and of their old sizes.
        assert model.opt.disableflags & int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)
    assert len({float(m.geom_size[geom, 0]) for m in env.env.sim.stepper.models}) == 3
    env.step(torch.zeros(3, 1))
    env.close()


@pytest.mark.parametrize(
    ("func", "params"),
    [
        (dr.body_com_offset, {"ranges": (0.005, 0.01), "operation": "add"}),
        (dr.pseudo_inertia, {"t_range": (0.005, 0.01)}),
    ],
)
def test_the_centre_of_mass_of_a_free_body_can_be_moved(func, params):
    cube = SceneEntityCfg("cube", body_names=(".*",))
    env = build_with_event("Mjlab-Lift-Cube-Yam", func, asset_cfg=cube, **params)
    body = env.mj_model.body("cube/cube").id
    for model in env.env.sim.stepper.models:
        assert (np.abs(model.body_ipos[body]) > 0.004).all()
    env.step(torch.zeros(3, env.num_actions))
    env.close()


@pytest.mark.parametrize(
    ("func", "params"), [(dr.mat_rgba, {"ranges": (0.2, 0.4)}), (dr.geom_matid, {})]
)
def test_looks_that_events_set_do_not_touch_the_physics(func, params):
    looks = SceneEntityCfg("cartpole", geom_names=("pole.*",), material_names=("pole", "cart"))
    runs = []
    for env in (
        build_with_event(CARTPOLE, func, mode="reset", asset_cfg=looks, **params),
        build(CARTPOLE, num_envs=3),
    ):
        env.env.sim.data.qpos[:] = 0.1
        runs.append(env.step(torch.ones(3, 1))[0]["actor"][:, :2])
        env.close()
    assert torch.equal(*runs)


def fails(env, env_ids=None):
    raise RuntimeError("no luck")


def sets_gravity(env, env_ids):
    env.sim.model.opt.gravity[:] = 0.0


@pytest.mark.parametrize(
    ("func", "message"),
    [
        (fails, "event term 'added' failed: RuntimeError: no luck"),
        (sets_gravity, r"cannot compute: event term 'added' \(model.opt\)"),
    ],
)
@pytest.mark.parametrize("mode", ["startup", "reset"])
def test_an_event_that_fails_is_named(func, message, mode):
    with pytest.raises(ValueError, match=message) as error:
        build_with_event(CARTPOLE, func, mode=mode)
    assert error.value.__cause__ is not None


def test_an_event_after_which_constants_cannot_be_recomputed_is_named(monkeypatch):
    def refuse(model, data):
        raise mujoco.FatalError("no constants")

    @requires_model_fields("body_mass", recompute=3)
    def heavier(env, env_ids):
        env.sim.model.body_mass[:] *= 2

    monkeypatch.setattr(mujoco, "mj_setConst", refuse)
    with pytest.raises(ValueError, match="event term 'added' failed: FatalError: no constants"):
        build_with_event(CARTPOLE, heavier)


def test_other_terms_that_fail_are_named():
    cfg = load_env_cfg(CARTPOLE)
    cfg.rewards["unlucky"] = RewardTermCfg(func=fails, weight=1.0)
    with pytest.raises(ValueError, match="reward term 'unlucky' failed: RuntimeError: no luck"):
        MjlabEnvCfg(num_envs=2).build(env_cfg=cfg)
    cfg = load_env_cfg(CARTPOLE)
    calls = iter(range(100))
    cfg.rewards["unlucky"] = RewardTermCfg(
        func=lambda env: fails(env) if next(calls) == 2 else torch.zeros(2), weight=1.0
    )
    env = MjlabEnvCfg(num_envs=2).build(env_cfg=cfg)
    env.step(torch.zeros(2, 1))
    with pytest.raises(ValueError, match="reward term 'unlucky' failed: RuntimeError: no luck"):
        env.step(torch.zeros(2, 1))
    env.close()


def counts(env):
    """A reward that grows with each call; the count lies on the environment itself."""
    env._my_count = getattr(env, "_my_count", 0) + 1
    return torch.full((env.num_envs,), float(env._my_count))


def test_what_terms_keep_on_the_environment_is_saved_too():
    cfg = load_env_cfg(CARTPOLE)
    cfg.rewards = {"counts": RewardTermCfg(func=counts, weight=1.0)}
    env, again = (MjlabEnvCfg(num_envs=2).build(env_cfg=cfg) for _ in range(2))
    zeros = torch.zeros(2, 1)
    first = env.step(zeros)[1]
    torch.testing.assert_close(first, torch.full((2,), env.env.step_dt))  # it was called once
    env.step(zeros)
    again.load_state(env.state())
    assert torch.equal(again.step(zeros)[1], env.step(zeros)[1])
    assert again.env._my_count == 3
    env.close()
    again.close()


def test_a_term_of_other_rows_or_another_precision():
    cfg = load_env_cfg(CARTPOLE)
    group = cfg.observations["actor"]
    func = ObservationTermCfg(func=lambda env: torch.zeros(env.num_envs, 1, dtype=torch.float64))
    group.terms["double"] = func
    env = MjlabEnvCfg(num_envs=2).build(env_cfg=cfg)
    assert env.get_observations()["actor"].dtype == torch.float32
    env.close()
    cfg.rewards["long"] = RewardTermCfg(func=lambda env: torch.zeros(3), weight=1.0)
    with pytest.raises(ValueError, match=r"reward term 'long' gives .* \[3\], expected 2 rows"):
        MjlabEnvCfg(num_envs=2).build(env_cfg=cfg)


def test_a_last_observation_that_is_not_finite_is_told():
    cfg = load_env_cfg(CARTPOLE)
    is_last = []

    def bad(env):
        value = torch.inf if is_last else 0.0
        return torch.full((env.num_envs, 1), value)

    cfg.observations["actor"].terms["bad"] = ObservationTermCfg(func=bad)
    env = MjlabEnvCfg(num_envs=2).build(env_cfg=cfg)
    env.episode_length_buf = torch.full((2,), env.max_episode_length - 1)
    is_last.append(True)
    env.before_reset = lambda _: is_last.clear()
    observations, _, dones, extras = env.step(torch.zeros(2, 1))
    assert torch.isfinite(observations["actor"]).all()
    with pytest.raises(NotFiniteError, match="inf in the last 'actor' of environment 0"):
        check_final(extras["final_obs"], dones, CARTPOLE)
    env.close()


# Fast physics and overrides


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


def test_fast_physics_takes_half_the_steps_of_twice_the_length():
    env = build(num_envs=2, physics="fast")
    options = env.env.sim.physics.model.opt
    assert (options.timestep, env.env.cfg.decimation) == (pytest.approx(0.01), 2)
    assert options.cone == mujoco.mjtCone.mjCONE_PYRAMIDAL
    assert options.impratio == 1
    assert env.env.sim.physics.model.geom_condim.max() == 3  # of Go1's feet otherwise 6
    assert env.interface.step_dt == pytest.approx(0.02)
    env.step(torch.zeros(2, 12))
    env.close()
    with pytest.raises(ValueError, match=r"5 substeps .* odd"):
        build("Mjlab-Cartpole-Balance", physics="fast")


def test_fast_physics_punishes_collisions_as_much():
    weights = {
        physics: {
            name: term.weight
            for name, term in task_config(
                MjlabEnvCfg(task=ROUGH, physics=physics), seed=0
            ).rewards.items()
        }
        for physics in ("exact", "fast")
    }
    counted = ("self_collisions", "shank_collision", "trunk_head_collision")
    for name, weight in weights["exact"].items():
        assert weights["fast"][name] == weight * (2 if name in counted else 1), name
    assert all(weights["exact"][name] < 0 for name in counted)


def test_fast_physics_is_made_of_what_overrides_left():
    overrides = {
        "rewards.self_collisions.weight": -1.0,
        "sim.mujoco.timestep": 0.004,
        "sim.mujoco.impratio": 1.0,
    }
    cfg = MjlabEnvCfg(task=ROUGH, physics="fast", overrides=overrides)
    task = task_config(cfg, seed=0)
    assert task.rewards["self_collisions"].weight == -2.0
    assert task.sim.mujoco.timestep * task.decimation == pytest.approx(4 * 0.004)
    assert task.sim.mujoco.cone == "pyramidal"
    message = r"sets 'sim.mujoco.cone' to 'pyramidal', but an override sets it to 'elliptic'"
    with pytest.raises(ValueError, match=message):
        task_config(cfg.replace(overrides={"sim.mujoco.cone": "elliptic"}), seed=0)
    feet = "scene.entities.robot.collisions.0.condim"
    with pytest.raises(ValueError, match=rf"3 dimensions at most, but an override sets '{feet}'"):
        task_config(cfg.replace(overrides={feet: {".*": 4}}), seed=0)
    task_config(cfg.replace(overrides={feet: {".*": 3}}), seed=0)
    delay = "scene.entities.robot.articulation.actuators.0.delay_max_lag"
    with pytest.raises(ValueError, match="delays counted in substeps"):
        task_config(cfg.replace(overrides={delay: 2}), seed=0)


def test_overrides_reach_every_part_of_mjlabs_config():
    env = build(
        num_envs=2,
        overrides={
            "rewards.air_time.weight": 1.5,
            "rewards.foot_slip": None,
            "observations.actor.terms.base_lin_vel": None,
            "scene.sensors.feet_ground_contact.history_length": 4,
            "scene.sensors.foot_height_scan": None,
            "observations.critic.terms.foot_height": None,
            "rewards.foot_clearance": None,
            "rewards.foot_swing_height": None,
            "commands.twist.ranges.lin_vel_y": [0.2, 0.3],
            "commands.twist.rel_forward_envs": 0,
            "commands.twist.rel_standing_envs": 0,
            "episode_length_s": 4,
        },
    )
    assert env.interface.observation_dims == {"actor": 45, "critic": 68}
    assert "foot_height_scan" not in env.env.scene.sensors
    assert "foot_slip" not in env.reward_names
    assert env.env.reward_manager.get_term_cfg("air_time").weight == 1.5
    assert env.max_episode_length == 200
    assert env.env.scene["feet_ground_contact"].cfg.history_length == 4
    assert ((env.command[:, 1] >= 0.2) & (env.command[:, 1] <= 0.3)).all()
    env.close()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"rewards.air_tme.weight": 1.0}, "'rewards.air_tme'; did you mean 'air_time'"),
        ({"sim.mujoco.timestp": 0.01}, "did you mean 'timestep'"),
        ({"episode_length_s": "long"}, r"20.0 \(float\); 'long' cannot replace it"),
        ({"decimation.x": 1}, "goes into a plain value"),
        ({"scene.num_envs": 7}, "set 'num_envs' of the environment instead"),
        ({"scene.sensors.foot_height_scan": "none"}, "entry of a tuple"),
        ({"scene": None}, "'scene' is SceneCfg.* cannot be null; give it a value"),
        ({"sim.mujoco.timestep": None}, "'sim.mujoco.timestep' is 0.005 and cannot be null"),
        ({"episode_length_s": -1.0}, "episode_length_s is -1.0, allowed: above 0"),
    ],
)
def test_bad_overrides_are_named(overrides, message):
    with pytest.raises(ValueError, match=message):
        build(overrides=overrides)


_READ_CONTACTS = ("air_time", "foot_swing_height", "foot_slip", "soft_landing")


def test_without_fresh_contacts_only_contacts_are_older():
    # No reward reads the feet's contacts, so nothing caches those of the last substep.
    overrides = {f"rewards.{name}": None for name in _READ_CONTACTS}
    fresh, older = (
        build(num_envs=6, overrides=overrides, fresh_contacts=is_fresh)
        for is_fresh in (True, False)
    )
    generator = torch.Generator().manual_seed(0)
    differs = torch.zeros(72, dtype=torch.bool)
    for _ in range(15):
        actions = torch.rand(6, 12, generator=generator) - 0.5
        (one, _, dones, _), (other, _, _, _) = fresh.step(actions), older.step(actions)
        assert_equal(one["actor"], other["actor"])
        differs |= (one["critic"] != other["critic"])[~dones].any(0)
    # The last terms of the critic's: foot_contact [4], foot_contact_forces [12].
    assert differs[-12:].any()
    assert not differs[:-16].any()
    fresh.close()
    older.close()


# What cannot be


@pytest.mark.parametrize(
    ("task", "overrides", "message"),
    [
        ("Mjlab-Velocity-Flat-Unitree-Go2", {}, "did you mean 'Mjlab-Velocity-Flat-Unitree-G"),
        ("Mjlab-Lift-Cube-Yam-Rgb", {}, "camera sensor 'camera_d405'"),
        ("Mjlab-Tracking-Flat-Unitree-G1", {}, "'commands.motion.motion_file'"),
    ],
)
def test_tasks_that_cannot_be_built_say_why(task, overrides, message):
    with pytest.raises(ValueError, match=message):
        build(task, overrides=overrides)


def test_what_would_do_nothing_here_is_refused():
    cfg = load_env_cfg(CARTPOLE)
    cfg.recorders["csv"] = RecorderTermCfg(func=RecorderTerm)
    with pytest.raises(ValueError, match=r"recorder 'csv' .* \{'recorders.csv': null\}"):
        MjlabEnvCfg(num_envs=2).build(env_cfg=cfg)
    with pytest.raises(ValueError, match=r"sim.nan_guard.enabled is true"):
        build(CARTPOLE, overrides={"sim.nan_guard.enabled": True})


def test_all_terms_that_cannot_be_computed_are_named():
    from mjlab.envs import mdp
    from mjlab.managers.termination_manager import TerminationTermCfg

    cfg = load_env_cfg(GO1)
    cfg.rewards["smooth"] = RewardTermCfg(func=mdp.joint_acc_l2, weight=-1.0)
    cfg.rewards["off"] = RewardTermCfg(func=mdp.joint_acc_l2, weight=0.0)
    cfg.terminations["broken"] = TerminationTermCfg(func=mdp.nan_detection)
    with pytest.raises(ValueError, match=r"reward term 'smooth' \(data.qacc\)") as error:
        MjlabEnvCfg(num_envs=2).build(env_cfg=cfg)
    assert "termination term 'broken' (data.qacc)" in str(error.value)
    assert "'off'" not in str(error.value)


def test_a_missing_mjlab_is_named_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mjlab", None)
    with pytest.raises(ImportError, match=r"uv pip install -e '.\[locomotion\]'"):
        build()


# A delay, a torque law: what happens between substeps


def test_controls_that_change_between_substeps_are_stepped_one_by_one():
    cfg = load_env_cfg(GO1)
    for actuator in cfg.scene.entities["robot"].articulation.actuators:
        actuator.delay_min_lag, actuator.delay_max_lag = 2, 2
    env = MjlabEnvCfg(num_envs=2).build(env_cfg=cfg)
    sim = env.env.sim
    assert not sim.controls_are_held
    seen, one = [], sim.stepper.step

    def step(controls, spec):
        seen.append(controls[0, 0].copy())
        return one(controls, spec)

    sim.stepper.step = step
    env.step(torch.zeros(2, 12))
    seen.clear()
    env.step(torch.full((2, 12), 0.5))
    assert len(seen) == 4
    np.testing.assert_array_equal(seen[0], seen[1])
    assert not np.array_equal(seen[1], seen[2]), "two substeps late"
    np.testing.assert_array_equal(seen[2], seen[3])
    env.close()


def test_an_actuator_of_ones_own_is_asked_in_every_substep():
    """A subclass of mjlab's may read the state, which changes between substeps."""
    from mjlab.actuator.xml_actuator import XmlActuator, XmlActuatorCfg

    asked = []

    class Counting(XmlActuator):
        def compute(self, cmd):
            asked.append(None)
            return super().compute(cmd)

    @dataclasses.dataclass(kw_only=True)
    class CountingCfg(XmlActuatorCfg):
        def build(self, entity, target_ids, target_names):
            return Counting(self, entity, target_ids, target_names)

    cfg = load_env_cfg(CARTPOLE)
    [entity] = cfg.scene.entities.values()
    [plain] = entity.articulation.actuators
    assert type(plain) is XmlActuatorCfg
    for kind, num_asked in ((XmlActuatorCfg, 0), (CountingCfg, cfg.decimation)):
        fields = {f.name: getattr(plain, f.name) for f in dataclasses.fields(plain)}
        entity.articulation.actuators = (kind(**fields),)
        env = MjlabEnvCfg(num_envs=2).build(env_cfg=cfg)
        assert env.env.sim.controls_are_held == (kind is XmlActuatorCfg)
        asked.clear()
        env.step(torch.zeros(2, env.num_actions))
        assert len(asked) == num_asked
        env.close()


# Motion tracking


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


# Rays


SCENE = """
<mujoco>
  <asset>
    <hfield name="field" nrow="3" ncol="3" size="1 1 0.5 0.1" elevation="0 0 0 0 1 0 0 0 0"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1"/>
    <geom name="step" type="box" size="0.5 0.25 0.1" pos="3 0 0.3" euler="0 0 90"/>
    <geom name="field" type="hfield" hfield="field" pos="0 5 0.2"/>
  </worldbody>
</mujoco>
"""


def downward_sensor():
    """As much of mjlab's ray sensor as decides what is hit."""
    directions = GridPatternCfg(size=(0.1, 0.1), resolution=0.1).generate_rays(None, "cpu")[1]
    cfg = types.SimpleNamespace(
        name="scan", ray_alignment="yaw", include_geom_groups=(0,), exclude_parent_body=False
    )
    return types.SimpleNamespace(cfg=cfg, _local_directions=directions)


def test_rays_hit_planes_boxes_and_height_fields_where_they_are():
    model = mujoco.MjModel.from_xml_string(SCENE)
    rays = TerrainRays(model, downward_sensor())
    points = torch.tensor(
        [
            [0.0, 0.0, 2.0],  # floor
            [3.2, 0.4, 2.0],  # turned box: 0.25 m wide in x, 0.5 m in y
            [3.3, 0.0, 2.0],  # beside it
            [3.0, 0.0, 0.35],  # inside the box: out through its bottom
            [0.0, 5.0, 2.0],  # top of the field: 0.2 + 0.5
            [0.5, 5.25, 2.0],  # a quarter up: 0.2 + 0.5 * 0.5 on the upper triangle
            [0.0, 0.0, -1.0],  # below everything
        ]
    )
    distance, normal = rays.below(points)
    expected = [2.0, 1.6, 2.0, 0.15, 1.3, 1.55, -1.0]
    torch.testing.assert_close(distance, torch.tensor(expected))
    assert normal[[0, 1, 3, 6]].tolist() == [[0, 0, 1], [0, 0, 1], [0, 0, -1], [0, 0, 0]]


def test_rays_agree_with_mujocos_own():
    model = mujoco.MjModel.from_xml_string(SCENE)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    rays = TerrainRays(model, downward_sensor())
    points = torch.rand(2000, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor(
        [6.0, 8.0, 2.0]
    ) + torch.tensor([-2.0, -1.0, 1.0])
    found, _ = rays.below(points)
    hit = np.zeros(1, dtype=np.int32)
    for point, distance in zip(points.double().numpy(), found.tolist(), strict=True):
        expected = mujoco.mj_ray(model, data, point, np.array([0, 0, -1.0]), None, 1, -1, hit)
        assert distance == pytest.approx(expected, abs=2e-5)


def test_rays_that_a_sensor_casts_itself_are_refused():
    class Own(RayCastSensor):
        def raycast_kernel(self, rays):
            raise AssertionError("never called here")

    class OwnCfg(RayCastSensorCfg):
        def build(self):
            return Own(self)

    cfg = load_env_cfg(ROUGH)
    for sensor in cfg.scene.sensors:
        if type(sensor) is RayCastSensorCfg:
            sensor.__class__ = OwnCfg
    with pytest.raises(ValueError, match=r"cannot compute: rays that sensor '\w+' casts itself"):
        MjlabEnvCfg(num_envs=2).build(env_cfg=cfg)


def test_rays_onto_what_moves_are_refused():
    xml = SCENE.replace("</worldbody>", "<body><freejoint/><geom size='.1'/></body></worldbody>")
    with pytest.raises(AttributeError, match="which moves, leans"):
        TerrainRays(mujoco.MjModel.from_xml_string(xml), downward_sensor())
