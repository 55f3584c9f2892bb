"""The constants of a model that `rrf.envs.rendering.gl_shading` draws, on the device.

How MuJoCo's OpenGL maps textures: a mesh with texture coordinates by those; else a square texture
along the geom's z axis, `texrepeat` times over its size, or over 2 m if it is uniform; and a cube
texture by the direction from the geom's centre.

Legend: G geoms, F mesh faces.
"""

# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportArgumentType=false, reportInvalidTypeForm=false, reportGeneralTypeIssues=false
# mujoco's compiled modules come without stubs; Warp's structs are Python only in their syntax.

import mujoco
import numpy as np
import warp as wp

from rrf.envs.rendering.render_model import (
    BACKGROUND_GROUP,
    MOVING_GROUP,
    SEE_THROUGH_BELOW,
    shown_colors,
)

NO_TEXTURE, BY_COORDINATES, BY_PLANE, BY_CUBE = range(4)
"""How a texture lies on a geom."""
SPOT = int(mujoco.mjtLightType.mjLIGHT_SPOT)
DIRECTIONAL = int(mujoco.mjtLightType.mjLIGHT_DIRECTIONAL)
HEADLIGHT = -1
"""Kinds of lights. OpenGL draws no others."""
_DEFAULT_SPECULAR = _DEFAULT_SHININESS = 0.5  # of geoms without a material
_NO_LIGHT_AMBIENT = 0.3
_COLOR_TEXTURE = int(mujoco.mjtTextureRole.mjTEXROLE_RGB)
_FACE_NORMAL_BELOW = 0.8  # cosine; sharper edges of meshes without texture coordinates stay sharp
_Geom = mujoco.mjtGeom


@wp.struct
class Look:
    """How a geom is coloured."""

    color: wp.vec4
    emission: float
    specular: float
    shininess: float
    mapping: int
    texture: int  # first of its images; a cube has six
    scale: wp.vec3  # from the geom's own coordinates to the texture's


@wp.struct
class Light:
    """A light's constants. The headlight is the last one."""

    kind: int
    row: int  # in light_xpos and light_xdir
    ambient: wp.vec3
    diffuse: wp.vec3
    specular: wp.vec3
    attenuation: wp.vec3
    cos_cutoff: float
    exponent: float


@wp.struct
class Scene:
    """The constants of a model."""

    geom_type: wp.array(dtype=int)
    geom_size: wp.array(dtype=wp.vec3)
    geom_mesh: wp.array(dtype=int)
    looks: wp.array(dtype=Look)
    lights: wp.array(dtype=Light)
    ambient: float
    near: float
    first_face: wp.array(dtype=int)
    corner_normals: wp.array2d(dtype=wp.vec3)  # [F, 3]
    corner_coordinates: wp.array2d(dtype=wp.vec2)  # [F, 3]
    density: wp.array(dtype=float)  # [F], texture coordinates per m
    images: wp.array(dtype=wp.Texture2D)
    image_size: wp.array(dtype=float)  # px
    sky: int  # first of its six images, or -1
    mirror: int  # a geom, or -1
    reflectance: float  # of the mirror


def scene_of(drawn: mujoco.MjModel, textures: mujoco.MjModel) -> tuple[Scene, list[wp.Texture2D]]:
    """The constants on the current Warp device, and the images, which the caller must keep.

    Args:
        drawn: The model to draw.
        textures: A model with the same textures, of which `drawn` need not have the pixels.
    """
    images = _Images(textures)
    scene = Scene()
    scene.geom_type = wp.array(drawn.geom_type, dtype=int)
    scene.geom_size = wp.array(drawn.geom_size, dtype=wp.vec3)
    scene.geom_mesh = wp.array(drawn.geom_dataid, dtype=int)
    scene.looks = wp.array(_looks(drawn, textures, images), dtype=Look)
    lights = _lights(drawn)
    scene.lights = wp.array(lights, dtype=Light)
    scene.ambient = 0.0 if len(lights) else _NO_LIGHT_AMBIENT
    scene.near = float(drawn.vis.map.znear * drawn.stat.extent)
    scene.first_face = wp.array(drawn.mesh_faceadr, dtype=int)
    normals, coordinates, density = _faces(drawn)
    scene.corner_normals = wp.array(normals, dtype=wp.vec3)
    scene.corner_coordinates = wp.array(coordinates, dtype=wp.vec2)
    scene.density = wp.array(density, dtype=float)
    scene.images = wp.array(images.textures, dtype=wp.Texture2D)
    scene.image_size = wp.array(images.sizes, dtype=float)
    skies = np.flatnonzero(textures.tex_type == mujoco.mjtTexture.mjTEXTURE_SKYBOX)
    scene.sky = images.first[skies[0]] if len(skies) else -1
    scene.mirror, scene.reflectance = _mirror(drawn)
    return scene, images.textures


class _Images:
    """The images of all textures on the device: one of a 2D texture, six of a cube."""

    def __init__(self, model: mujoco.MjModel):
        self.first: list[int] = []  # by texture
        self.sizes: list[float] = []
        self.textures: list[wp.Texture2D] = []
        for texture in range(model.ntex):
            self.first.append(len(self.textures))
            pixels = _pixels(model, texture)
            if model.tex_type[texture] == mujoco.mjtTexture.mjTEXTURE_2D:
                self._add(pixels, wp.TextureAddressMode.WRAP)
                continue
            width = int(model.tex_width[texture])
            faces = pixels.reshape(-1, width, width, 4)
            for face in range(6):  # a square image is on every side
                self._add(faces[face % len(faces)], wp.TextureAddressMode.CLAMP)

    def _add(self, pixels: np.ndarray, address: wp.TextureAddressMode) -> None:
        self.sizes.append(float(max(pixels.shape[:2])))
        self.textures.append(
            wp.Texture2D(
                np.ascontiguousarray(pixels),
                filter_mode=wp.TextureFilterMode.LINEAR,
                mip_filter_mode=wp.TextureFilterMode.LINEAR,
                address_mode=address,
                num_mip_levels=0,
            )
        )


def _pixels(model: mujoco.MjModel, texture: int) -> np.ndarray:
    """uint8 [H, W, 4]."""
    start, channels = model.tex_adr[texture], model.tex_nchannel[texture]
    height, width = model.tex_height[texture], model.tex_width[texture]
    stored = model.tex_data[start : start + height * width * channels]
    pixels = np.full((height, width, 4), 255, np.uint8)
    pixels[..., :3] = stored.reshape(height, width, channels)[..., :3]
    if model.tex_colorspace[texture] == mujoco.mjtColorSpace.mjCOLORSPACE_SRGB:
        pixels[..., :3] = _LINEAR[pixels[..., :3]]
    return pixels


def _linear_table() -> np.ndarray:
    """uint8 [256]: the linear value of each sRGB value."""
    value = np.arange(256) / 255
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    return np.round(255 * linear).astype(np.uint8)


_LINEAR = _linear_table()


def _looks(drawn: mujoco.MjModel, textures: mujoco.MjModel, images: _Images) -> np.ndarray:
    looks = np.zeros(drawn.ngeom, Look.numpy_dtype())
    looks["color"] = shown_colors(drawn)
    for geom in range(drawn.ngeom):
        material, look = drawn.geom_matid[geom], looks[geom]
        look["specular"], look["shininess"] = _DEFAULT_SPECULAR, 128 * _DEFAULT_SHININESS
        if material < 0:
            continue
        look["emission"] = drawn.mat_emission[material]
        look["specular"] = drawn.mat_specular[material]
        look["shininess"] = 128 * drawn.mat_shininess[material]
        texture = drawn.mat_texid[material, _COLOR_TEXTURE]
        if texture < 0:
            continue
        look["texture"] = images.first[texture]
        is_mesh = drawn.geom_type[geom] == _Geom.mjGEOM_MESH
        size = np.where(drawn.geom_size[geom] > 0, drawn.geom_size[geom], 1.0)
        if drawn.geom_type[geom] in (
            _Geom.mjGEOM_SPHERE,
            _Geom.mjGEOM_CAPSULE,
            _Geom.mjGEOM_CYLINDER,
        ):
            size[:] = size[0]
        is_uniform = drawn.mat_texuniform[material]
        if is_mesh and drawn.mesh_texcoordadr[drawn.geom_dataid[geom]] >= 0:
            look["mapping"] = BY_COORDINATES
        elif textures.tex_type[texture] == mujoco.mjtTexture.mjTEXTURE_2D:
            look["mapping"] = BY_PLANE
            look["scale"][:2] = (
                0.5 * drawn.mat_texrepeat[material] / (1.0 if is_uniform else size[:2])
            )
        else:
            look["mapping"] = BY_CUBE
            if drawn.geom_type[geom] == _Geom.mjGEOM_CYLINDER:
                size[2] = drawn.geom_size[geom, 1]
            if is_mesh:  # its own coordinates are not scaled to its size
                look["scale"] = size if is_uniform else 1.0
            else:
                look["scale"] = 1.0 if is_uniform else 1.0 / size
    return looks


def _mirror(model: mujoco.MjModel) -> tuple[int, float]:
    """The geom that reflects and how much; OpenGL has one at most, the first."""
    is_flat = np.isin(model.geom_type, (_Geom.mjGEOM_PLANE, _Geom.mjGEOM_BOX))
    is_seen = np.isin(model.geom_group, (BACKGROUND_GROUP, MOVING_GROUP))
    is_solid = shown_colors(model)[:, 3] >= SEE_THROUGH_BELOW
    for geom in np.flatnonzero(is_flat & is_seen & is_solid & (model.geom_matid >= 0)):
        reflectance = float(model.mat_reflectance[model.geom_matid[geom]])
        if reflectance > 0:
            return int(geom), reflectance
    return -1, 0.0


def _lights(model: mujoco.MjModel) -> np.ndarray:
    is_drawn = np.isin(model.light_type, (SPOT, DIRECTIONAL)) & model.light_active.astype(bool)
    rows = np.flatnonzero(is_drawn)
    has_headlight = bool(model.vis.headlight.active)
    lights = np.zeros(len(rows) + has_headlight, Light.numpy_dtype())
    model_lights = lights[: len(rows)]
    model_lights["kind"], model_lights["row"] = model.light_type[rows], rows
    model_lights["ambient"], model_lights["diffuse"] = (
        model.light_ambient[rows],
        model.light_diffuse[rows],
    )
    model_lights["specular"], model_lights["attenuation"] = (
        model.light_specular[rows],
        model.light_attenuation[rows],
    )
    model_lights["cos_cutoff"] = np.cos(np.deg2rad(model.light_cutoff[rows]))
    model_lights["exponent"] = model.light_exponent[rows]
    if has_headlight:
        headlight = model.vis.headlight
        lights[-1]["kind"] = HEADLIGHT
        lights[-1]["ambient"], lights[-1]["diffuse"] = headlight.ambient, headlight.diffuse
        lights[-1]["specular"] = headlight.specular
    return lights


def _faces(model: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of all meshes' faces: normals [F, 3, 3], texture coordinates [F, 3, 2], and how many texture
    coordinates go into a metre [F].
    """
    num_faces = model.nmeshface
    normals = np.zeros((num_faces, 3, 3), np.float32)
    coordinates = np.zeros((num_faces, 3, 2), np.float32)
    density = np.zeros(num_faces, np.float32)
    for mesh in range(model.nmesh):
        start = model.mesh_faceadr[mesh]
        faces = slice(start, start + model.mesh_facenum[mesh])
        corners = model.mesh_vert[model.mesh_vertadr[mesh] + model.mesh_face[faces]]
        edges = corners[:, 1:] - corners[:, :1]
        flat = np.cross(edges[:, 0], edges[:, 1])
        area = np.linalg.norm(flat, axis=-1)
        flat /= np.maximum(area, 1e-15)[:, None]
        smooth = model.mesh_normal[model.mesh_normaladr[mesh] + model.mesh_facenormal[faces]]
        if model.mesh_texcoordadr[mesh] >= 0:
            rows = model.mesh_texcoordadr[mesh] + model.mesh_facetexcoord[faces]
            coordinates[faces] = model.mesh_texcoord[rows]
            sides = coordinates[faces][:, 1:] - coordinates[faces][:, :1]
            covered = np.abs(np.linalg.det(sides.astype(np.float64)))
            density[faces] = np.sqrt(covered / np.maximum(area, 1e-15))
        else:
            is_sharp = (smooth * flat[:, None]).sum(-1) < _FACE_NORMAL_BELOW
            smooth = np.where(is_sharp[..., None], flat[:, None], smooth)
        normals[faces] = smooth
    return normals, coordinates, density
