"""The native backend steps as MuJoCo does, and what happens between substeps."""

import dataclasses

import mujoco
import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

import mjlab.tasks  # noqa: F401, registers them
from mjlab.managers.observation_manager import ObservationTermCfg
from mjlab.sensor import BuiltinSensorCfg, ObjRef
from mjlab.tasks.registry import load_env_cfg

from rrf.envs.mjlab.configs import MjlabEnvCfg
from tests.envs.contract import assert_equal
from tests.envs.mjlab.mjlab_tasks import CARTPOLE, GO1, build


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
