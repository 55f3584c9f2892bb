"""The copy of a MuJoCo model that the ray tracer draws. It looks like the picture of GL, without
anything that the tracer cannot handle.

mujoco_warp's ray tracer draws geoms only. It reads past the end of the texture coordinates of a
textured mesh that has none (a segmentation fault on the CPU), draws transparent geoms as opaque,
and refuses non-zero contact margins and some solvers. The physics keeps the original model. On this
copy, sites become geoms, textures that the tracer cannot sample become their mean colour,
see-through geoms move to a hidden group, and nothing collides.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import dataclasses

import mujoco
import numpy as np

BACKGROUND_GROUP = 0
"""Group in the copy: visible geoms that are fixed to the world."""
MOVING_GROUP = 1
"""Group in the copy: visible geoms that joints or mocap bodies move."""
_HIDDEN_GROUP = 5
_VISIBLE_GROUPS = (0, 1, 2)  # MuJoCo's default: geoms and sites of groups 3 to 5 are hidden
_OPAQUE_FROM_ALPHA = (
    0.5  # the tracer has no transparency: a geom below this alpha is left out, any other is solid
)
_DEFAULT_RGBA = (0.5, 0.5, 0.5, 1.0)
_SITE_PREFIX = "rrf_site_"
_COLOR_TEXTURE = int(mujoco.mjtTextureRole.mjTEXROLE_RGB)


@dataclasses.dataclass(frozen=True)
class RenderModel:
    """A compiled model to draw, and where to find the poses of its geoms in an MjData of the
    physics model.
    """

    model: mujoco.MjModel
    geom_rows: np.ndarray  # int [G], rows of `model` that are geoms of the physics model
    geom_sources: np.ndarray  # int [G], their geom ids in the physics model
    site_rows: np.ndarray  # int [S], rows of `model` that stand for sites
    site_sources: np.ndarray  # int [S], their site ids in the physics model
    background_rows: np.ndarray  # int [F], rows of `model` in BACKGROUND_GROUP


def build_render_model(spec: mujoco.MjSpec, model: mujoco.MjModel) -> RenderModel:
    """The model to draw for `model`, which `spec` compiles to. `spec` itself is not changed."""
    spec = spec.copy()
    bodies = spec.bodies
    assert len(bodies) == model.nbody, "the spec does not describe this model"
    sites = [site for site in range(model.nsite) if _is_visible(model, site)]
    for site in sites:
        _add_site_geom(bodies[model.site_bodyid[site]], model, site)
    drawn = spec.compile()
    rows_of_sites = {drawn.geom(f"{_SITE_PREFIX}{site}").id: site for site in sites}
    geom_rows = [row for row in range(drawn.ngeom) if row not in rows_of_sites]
    assert len(geom_rows) == model.ngeom, "compiling the spec again gave another number of geoms"
    _disable_contacts(drawn)
    _choose_known_solver(drawn)
    _flatten_colors(drawn)
    _sort_into_groups(drawn)
    return RenderModel(
        model=drawn,
        geom_rows=np.array(geom_rows, dtype=np.int64),
        geom_sources=np.arange(model.ngeom, dtype=np.int64),
        site_rows=np.array(list(rows_of_sites), dtype=np.int64),
        site_sources=np.array(list(rows_of_sites.values()), dtype=np.int64),
        background_rows=np.flatnonzero(drawn.geom_group == BACKGROUND_GROUP),
    )


def _is_visible(model: mujoco.MjModel, site: int) -> bool:
    return (
        model.site_group[site] in _VISIBLE_GROUPS and model.site_rgba[site, 3] >= _OPAQUE_FROM_ALPHA
    )


def _add_site_geom(body: mujoco.MjsBody, model: mujoco.MjModel, site: int) -> None:
    """Add a geom that looks like a site, at the origin of its body.

    The position of the site is copied at every drawing. In `model`, it may be the position in
    whichever episode is drawn first. That position must not influence the tracer's tree, because
    the tree decides which of two surfaces at the same depth is seen.
    """
    material = model.site_matid[site]
    body.add_geom(
        name=f"{_SITE_PREFIX}{site}",
        type=mujoco.mjtGeom(int(model.site_type[site])),
        size=model.site_size[site],
        quat=model.site_quat[site],
        rgba=model.site_rgba[site],
        material=model.material(material).name if material >= 0 else "",
        group=int(model.site_group[site]),
        contype=0,
        conaffinity=0,
        mass=0,
        density=0,
    )


def _disable_contacts(model: mujoco.MjModel) -> None:
    flags = mujoco.mjtDisableBit
    model.opt.disableflags |= int(flags.mjDSBL_CONTACT) | int(flags.mjDSBL_MULTICCD)
    model.geom_contype[:] = 0
    model.geom_conaffinity[:] = 0
    model.geom_margin[:] = 0
    model.geom_gap[:] = 0
    model.pair_margin[:] = 0
    model.pair_gap[:] = 0


def _choose_known_solver(model: mujoco.MjModel) -> None:
    """mujoco_warp refuses some solvers and integrators, even of models that it only draws."""
    model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER


def _flatten_colors(model: mujoco.MjModel) -> None:
    """Give geoms the colour that MuJoCo shows where the tracer would show the material's, and hide
    see-through geoms.

    In MuJoCo, a geom's own colour wins over the colour of its material if it is not the default. In
    the tracer it does not.
    """
    for geom in range(model.ngeom):
        material = model.geom_matid[geom]
        has_own_color = not np.allclose(model.geom_rgba[geom], _DEFAULT_RGBA)
        if material >= 0:
            texture = model.mat_texid[material, _COLOR_TEXTURE]
            color = model.geom_rgba[geom] if has_own_color else model.mat_rgba[material]
            if has_own_color or (texture >= 0 and not _can_sample(model, geom)):
                mean = _mean_color(model, texture) if texture >= 0 else np.ones(3)
                model.geom_rgba[geom] = [*(color[:3] * mean), color[3]]
                model.geom_matid[geom] = -1
        else:
            color = model.geom_rgba[geom]
        if color[3] < _OPAQUE_FROM_ALPHA:
            model.geom_group[geom] = _HIDDEN_GROUP


def _sort_into_groups(model: mujoco.MjModel) -> None:
    is_fixed = model.body_weldid[model.geom_bodyid] == 0
    is_fixed &= model.body_mocapid[model.geom_bodyid] < 0
    visible_group = np.where(is_fixed, BACKGROUND_GROUP, MOVING_GROUP)
    is_visible = np.isin(model.geom_group, _VISIBLE_GROUPS)
    model.geom_group[:] = np.where(is_visible, visible_group, _HIDDEN_GROUP)


def _can_sample(model: mujoco.MjModel, geom: int) -> bool:
    kind = model.geom_type[geom]
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        return model.mesh_texcoordnum[model.geom_dataid[geom]] > 0
    return kind == mujoco.mjtGeom.mjGEOM_PLANE


def _mean_color(model: mujoco.MjModel, texture: int) -> np.ndarray:
    start = model.tex_adr[texture]
    num_channels = model.tex_nchannel[texture]
    size = model.tex_width[texture] * model.tex_height[texture] * num_channels
    pixels = model.tex_data[start : start + size].reshape(-1, num_channels)
    return pixels[:, :3].mean(axis=0) / 255.0
