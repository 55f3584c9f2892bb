"""The copy of a MuJoCo model that the ray tracer draws. It looks like the picture of GL, without
anything that the tracer cannot handle.

mujoco_warp's ray tracer draws geoms only. It reads past the end of the texture coordinates of a
textured mesh that has none (a segmentation fault on the CPU), draws transparent geoms as opaque,
and refuses non-zero contact margins and some solvers. The physics keeps the original model. On this
copy, sites become geoms, textures that the tracer cannot sample become their mean colour,
see-through geoms move to a hidden group, and nothing collides.

`rrf.envs.rendering.gl_shading` handles colours, textures and see-through geoms itself. The copy for
it keeps them all, except for the pixels of the textures.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import dataclasses
from collections.abc import Sequence

import mujoco
import numpy as np

from rrf.envs.rendering import VISIBLE_GROUPS

BACKGROUND_GROUP = 0
"""Group in the copy: visible geoms that are fixed to the world."""
MOVING_GROUP = 1
"""Group in the copy: visible geoms that joints or mocap bodies move."""
_HIDDEN_GROUP = 5
SEE_THROUGH_BELOW = 0.995
"""MuJoCo blends geoms with an alpha below this with what is behind them."""
_INVISIBLE_BELOW = 0.002  # less than half a step of 255
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
    is_blended: bool  # whether a visible geom is see-through and keeps that


def build_render_model(
    spec: mujoco.MjSpec,
    model: mujoco.MjModel,
    geom_groups: Sequence[int] = VISIBLE_GROUPS,
    use_gl_shading: bool = False,
) -> RenderModel:
    """The model to draw for `model`, which `spec` compiles to. `spec` itself is not changed.

    Args:
        geom_groups: The groups of geoms to draw.
        use_gl_shading: Whether `rrf.envs.rendering.gl_shading` draws it.
    """
    spec = spec.copy()
    bodies = spec.bodies
    assert len(bodies) == model.nbody, "the spec does not describe this model"
    is_visible = np.isin(model.site_group, VISIBLE_GROUPS)
    is_visible &= model.site_rgba[:, 3] >= _OPAQUE_FROM_ALPHA
    sites = np.flatnonzero(is_visible).tolist()
    for site in sites:
        _add_site_geom(bodies[model.site_bodyid[site]], model, site, geom_groups[0])
    if use_gl_shading:
        _drop_pixels(spec)
    drawn = spec.compile()
    rows_of_sites = {drawn.geom(f"{_SITE_PREFIX}{site}").id: site for site in sites}
    geom_rows = [row for row in range(drawn.ngeom) if row not in rows_of_sites]
    assert len(geom_rows) == model.ngeom, "compiling the spec again gave another number of geoms"
    _disable_contacts(drawn)
    _choose_known_solver(drawn)
    if use_gl_shading:
        drawn.geom_group[shown_colors(drawn)[:, 3] < _INVISIBLE_BELOW] = _HIDDEN_GROUP
    else:
        _flatten_colors(drawn)
    _sort_into_groups(drawn, geom_groups)
    alpha = shown_colors(drawn)[drawn.geom_group != _HIDDEN_GROUP, 3]
    return RenderModel(
        model=drawn,
        geom_rows=np.array(geom_rows, dtype=np.int64),
        geom_sources=np.arange(model.ngeom, dtype=np.int64),
        site_rows=np.array(list(rows_of_sites), dtype=np.int64),
        site_sources=np.array(list(rows_of_sites.values()), dtype=np.int64),
        background_rows=np.flatnonzero(drawn.geom_group == BACKGROUND_GROUP),
        is_blended=use_gl_shading and bool((alpha < SEE_THROUGH_BELOW).any()),
    )


def shown_colors(model: mujoco.MjModel) -> np.ndarray:
    """The colours of geoms that MuJoCo shows, [G, 4]: a geom's own one unless it is the default."""
    is_default = np.isclose(model.geom_rgba, _DEFAULT_RGBA).all(axis=1)
    of_material = is_default & (model.geom_matid >= 0)
    colors = model.geom_rgba.copy()
    colors[of_material] = model.mat_rgba[model.geom_matid[of_material]]
    return colors


def _add_site_geom(body: mujoco.MjsBody, model: mujoco.MjModel, site: int, group: int) -> None:
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
        group=group,
        contype=0,
        conaffinity=0,
        mass=0,
        density=0,
    )


def _drop_pixels(spec: mujoco.MjSpec) -> None:
    """Make textures tiny: mujoco_warp would copy them as floats, 16 bytes a pixel."""
    for texture in spec.textures:
        texture.file, texture.cubefiles, texture.gridsize = "", [""] * 6, [1, 1]
        texture.data = b""
        texture.builtin = mujoco.mjtBuiltin.mjBUILTIN_FLAT
        texture.width = texture.height = 1


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


def _sort_into_groups(model: mujoco.MjModel, geom_groups: Sequence[int]) -> None:
    is_fixed = model.body_weldid[model.geom_bodyid] == 0
    is_fixed &= model.body_mocapid[model.geom_bodyid] < 0
    visible_group = np.where(is_fixed, BACKGROUND_GROUP, MOVING_GROUP)
    is_visible = np.isin(model.geom_group, geom_groups)
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
