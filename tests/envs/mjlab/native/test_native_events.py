"""What events set on the native backend: sizes, masses, looks; and events that fail."""

import mujoco
import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

import mjlab.tasks  # noqa: F401, registers them
from mjlab.envs.mdp import dr
from mjlab.managers.event_manager import EventTermCfg, requires_model_fields
from mjlab.managers.scene_entity_config import SceneEntityCfg
from mjlab.tasks.registry import load_env_cfg

from rrf.envs.mjlab.configs import MjlabEnvCfg
from tests.envs.mjlab.mjlab_tasks import CARTPOLE, build


def build_with_event(task: str, func, *, mode: str = "startup", **params):
    cfg = load_env_cfg(task)
    cfg.events["added"] = EventTermCfg(mode=mode, func=func, params=params)
    return MjlabEnvCfg(task=task, num_envs=3).build(env_cfg=cfg)


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
