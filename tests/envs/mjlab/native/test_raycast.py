"""Rays of mjlab's sensors onto terrain, against MuJoCo's own."""

import types

import mujoco
import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

import mjlab.tasks  # noqa: F401, registers them
from mjlab.sensor import GridPatternCfg, RayCastSensor, RayCastSensorCfg
from mjlab.tasks.registry import load_env_cfg

from rrf.envs.mjlab.configs import MjlabEnvCfg
from rrf.envs.mjlab.native.raycast import TerrainRays
from tests.envs.mjlab.mjlab_tasks import ROUGH

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
