"""Rays straight down onto terrain, for all environments at once.

mjlab's velocity tasks only look down (height scans with yaw-aligned frames), onto terrain that does
not move: planes, boxes and upright height fields. A grid of cells tells which boxes and height
fields may lie below a point; the intersection is then exact. As with mujoco_warp's rays, a ray that
starts inside a box leaves it through the bottom face (the normal points down), and planes and
height fields are hit from above only.

Legend: M rays, G geoms.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import mujoco
import numpy as np
import torch
import warp
from mjlab.sensor import RayCastSensor

from rrf.envs.mjlab.native.views import UnsupportedFieldError

_GEOM = mujoco.mjtGeom
_CELL_M = 0.25
_UP = 1e-9  # how far from vertical an axis may be


class TerrainRays:
    """The terrain that a ray sensor sees.

    Raises:
        UnsupportedFieldError: For rays that do not point down, and for geoms that move, lean, or
            are of another type.
    """

    def __init__(self, model: mujoco.MjModel, sensor: RayCastSensor):
        self._check_rays(sensor)
        geoms = _visible_geoms(model, sensor)
        data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, data)
        _check_geoms(model, data, geoms, sensor.cfg.name)
        kind = model.geom_type[geoms]
        self._planes = [
            (float(data.geom_xpos[g, 2]), model.geom_size[g, :2], data.geom_xpos[g, :2])
            for g in geoms[kind == _GEOM.mjGEOM_PLANE]
        ]
        self._boxes = _Boxes(model, data, geoms[kind == _GEOM.mjGEOM_BOX])
        self._fields = _HeightFields(model, data, geoms[kind == _GEOM.mjGEOM_HFIELD])

    @staticmethod
    def _check_rays(sensor: RayCastSensor) -> None:
        assert sensor._local_directions is not None
        down = torch.tensor([0.0, 0.0, -1.0])
        turns = sensor.cfg.ray_alignment == "base"
        if turns or not torch.allclose(sensor._local_directions, down, atol=1e-6):
            raise UnsupportedFieldError(
                f"rays of sensor '{sensor.cfg.name}' that do not point straight down"
            )

    def cast(self, sensor: RayCastSensor, rows: torch.Tensor) -> None:
        """Write distances [N, rays] and normals of the environments `rows` into the sensor."""
        origins = sensor._cached_world_origins
        assert origins is not None
        everyone = len(rows) == len(origins)
        points = (origins if everyone else origins[rows]).reshape(-1, 3)
        distance, normal = self.below(points)
        at = slice(None) if everyone else rows
        out = warp.to_torch(sensor._ray_dist)  # type: ignore[arg-type]
        out[at] = distance.view(-1, sensor.num_rays)
        normals = warp.to_torch(sensor._ray_normal).view(-1, sensor.num_rays, 3)  # type: ignore[arg-type]
        normals[at] = normal.view(-1, sensor.num_rays, 3)

    def below(self, points_m3: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The distance [M] down to the terrain (-1 if there is none) and the normal [M, 3] at that
        point.
        """
        x, y, z = (points_m3[:, i].contiguous() for i in range(3))
        best = torch.full_like(z, torch.inf)
        normal = torch.zeros_like(points_m3)
        for height, half_size, centre in self._planes:
            distance = z - height
            hit = distance >= 0
            for axis, half, middle in zip((x, y), half_size, centre, strict=True):
                if half > 0:
                    hit &= (axis - middle).abs() <= half
            _keep_nearer(best, normal, hit, distance, torch.tensor([0.0, 0.0, 1.0]))
        for terrain in (self._boxes, self._fields):
            for rays, geoms in terrain.cells.candidates(x, y):
                hit, distance, facing = terrain.below(geoms, x[rays], y[rays], z[rays])
                nearer = hit & (distance < best[rays])
                rays = rays[nearer]
                best[rays] = distance[nearer]
                normal[rays] = facing[nearer]
        best[torch.isinf(best)] = -1.0
        return best, normal


class _Cells:
    """Which geoms lie over each cell of a horizontal grid."""

    def __init__(self, low_g2: np.ndarray, high_g2: np.ndarray):
        self.is_empty = len(low_g2) == 0
        if self.is_empty:
            return
        corner = low_g2.min(axis=0)
        first = np.floor((low_g2 - corner) / _CELL_M - 1e-3).astype(int).clip(0)
        last = np.floor((high_g2 - corner) / _CELL_M + 1e-3).astype(int)
        self._shape = last.max(axis=0) + 1
        lists: dict[int, list[int]] = {}
        for geom, (a, b) in enumerate(zip(first, last, strict=True)):
            ii, jj = np.meshgrid(np.arange(a[0], b[0] + 1), np.arange(a[1], b[1] + 1))
            for cell in (ii * self._shape[1] + jj).ravel():
                lists.setdefault(int(cell), []).append(geom)
        count = np.zeros(int(np.prod(self._shape)), dtype=np.int64)
        for cell, members in lists.items():
            count[cell] = len(members)
        self._count = torch.from_numpy(count)
        self._start = torch.from_numpy(np.cumsum(count) - count)
        self._members = torch.from_numpy(
            np.concatenate([lists[cell] for cell in sorted(lists)]).astype(np.int64)
        )
        self._corner = corner.astype(np.float32)

    def candidates(self, x: torch.Tensor, y: torch.Tensor):
        """Yield (rays, geoms): pairs to test. Each ray comes once with each geom over its cell."""
        if self.is_empty:
            return
        i = ((x - float(self._corner[0])) / _CELL_M).floor_().long()
        j = ((y - float(self._corner[1])) / _CELL_M).floor_().long()
        inside = (i >= 0) & (i < int(self._shape[0])) & (j >= 0) & (j < int(self._shape[1]))
        cell = torch.where(inside, i * int(self._shape[1]) + j, 0)
        count = torch.where(inside, self._count[cell], 0)
        start = self._start[cell]
        for k in range(int(count.max()) if len(count) else 0):
            rays = (count > k).nonzero().squeeze(-1)
            yield rays, self._members[start[rays] + k]


class _Boxes:
    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, geoms: np.ndarray):
        centre, size = data.geom_xpos[geoms], model.geom_size[geoms]
        turn = data.geom_xmat[geoms].reshape(-1, 3, 3)
        reach = np.einsum("gij,gj->gi", np.abs(turn), size)
        self.cells = _Cells((centre - reach)[:, :2], (centre + reach)[:, :2])
        self._table = torch.from_numpy(
            np.stack(
                [
                    *centre[:, :2].T, turn[:, 0, 0], turn[:, 1, 0], *size[:, :2].T,
                    centre[:, 2] + size[:, 2], centre[:, 2] - size[:, 2],
                ],
                axis=1,
            ).astype(np.float32)
        )  # fmt: skip

    def below(self, geoms: torch.Tensor, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor):
        row = self._table[geoms]
        dx, dy = x - row[:, 0], y - row[:, 1]
        cos, sin = row[:, 2], row[:, 3]
        along, across = cos * dx + sin * dy, cos * dy - sin * dx
        over = (along.abs() <= row[:, 4]) & (across.abs() <= row[:, 5])
        to_top = z - row[:, 6]
        is_above = to_top >= 0
        distance = torch.where(is_above, to_top, z - row[:, 7])
        facing = torch.zeros(len(x), 3)
        facing[:, 2] = torch.where(is_above, 1.0, -1.0)
        return over & (distance >= 0), distance, facing


class _HeightFields:
    """Triangles (r, c), (r, c+1), (r+1, c+1) and (r, c), (r+1, c+1), (r+1, c) of each cell."""

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, geoms: np.ndarray):
        fields = model.geom_dataid[geoms]
        centre, size = data.geom_xpos[geoms], model.hfield_size[fields]
        self.cells = _Cells((centre - size[:, :3])[:, :2], (centre + size[:, :3])[:, :2])
        self._heights = torch.from_numpy(model.hfield_data.astype(np.float32))
        self._table = torch.from_numpy(
            np.concatenate([centre, size[:, :3]], axis=1).astype(np.float32)
        )
        self._layout = torch.from_numpy(
            np.stack(
                [model.hfield_adr[fields], model.hfield_nrow[fields], model.hfield_ncol[fields]],
                axis=1,
            ).astype(np.int64)
        )

    def below(self, geoms: torch.Tensor, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor):
        row, layout = self._table[geoms], self._layout[geoms]
        address, num_rows, num_columns = layout.unbind(1)
        step_x = 2 * row[:, 3] / (num_columns - 1)
        step_y = 2 * row[:, 4] / (num_rows - 1)
        across, along = (x - row[:, 0] + row[:, 3]) / step_x, (y - row[:, 1] + row[:, 4]) / step_y
        over = (across >= 0) & (across <= num_columns - 1) & (along >= 0) & (along <= num_rows - 1)
        c = torch.minimum(across.floor().clamp_(min=0).long(), num_columns - 2)
        r = torch.minimum(along.floor().clamp_(min=0).long(), num_rows - 2)
        u, v = across - c, along - r
        at = address + r * num_columns + c
        h00, h01 = self._heights[at], self._heights[at + 1]
        h10, h11 = self._heights[at + num_columns], self._heights[at + num_columns + 1]
        lower = u >= v
        slope_u = torch.where(lower, h01 - h00, h11 - h10)
        slope_v = torch.where(lower, h11 - h01, h10 - h00)
        height = row[:, 2] + row[:, 5] * (h00 + u * slope_u + v * slope_v)
        facing = torch.stack(
            [-row[:, 5] * slope_u / step_x, -row[:, 5] * slope_v / step_y, torch.ones_like(z)], 1
        )
        distance = z - height
        return over & (distance >= 0), distance, torch.nn.functional.normalize(facing, dim=1)


def _keep_nearer(
    best: torch.Tensor,
    normal: torch.Tensor,
    hit: torch.Tensor,
    distance: torch.Tensor,
    facing: torch.Tensor,
) -> None:
    nearer = hit & (distance < best)
    torch.where(nearer, distance, best, out=best)
    normal[nearer] = facing


def _visible_geoms(model: mujoco.MjModel, sensor: RayCastSensor) -> np.ndarray:
    groups = sensor.cfg.include_geom_groups
    seen = np.ones(model.ngeom, dtype=bool) if groups is None else np.isin(model.geom_group, groups)
    has_material = model.geom_matid >= 0
    alpha = model.geom_rgba[:, 3].copy()
    if has_material.any():
        alpha[has_material] = model.mat_rgba[model.geom_matid[has_material], 3]
    seen &= alpha > 0
    if sensor.cfg.exclude_parent_body:
        bodies = {body for _, _, body in sensor._frame_infos}
        if len(bodies) == 1:
            seen &= model.geom_bodyid != bodies.pop()
    return np.flatnonzero(seen)


def _check_geoms(
    model: mujoco.MjModel, data: mujoco.MjData, geoms: np.ndarray, sensor: str
) -> None:
    upright = np.abs(data.geom_xmat[geoms, 8] - 1) < _UP
    static = model.body_weldid[model.geom_bodyid[geoms]] == 0
    kinds = (_GEOM.mjGEOM_PLANE, _GEOM.mjGEOM_BOX, _GEOM.mjGEOM_HFIELD)
    known = np.isin(model.geom_type[geoms], [int(kind) for kind in kinds])
    is_field = model.geom_type[geoms] == _GEOM.mjGEOM_HFIELD
    straight = ~is_field | (np.abs(data.geom_xmat[geoms, 0] - 1) < _UP)
    for geom in geoms[~(upright & static & known & straight)][:1]:
        raise UnsupportedFieldError(
            f"rays of sensor '{sensor}' onto geom '{model.geom(geom).name}', which moves, leans or "
            "is not a plane, box or height field"
        )
