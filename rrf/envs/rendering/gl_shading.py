"""Traces and shades the geoms of a model the way MuJoCo's OpenGL renderer draws them.

mujoco_warp's own shading differs from OpenGL: it clamps colours after the texture instead of before
it, samples textures on planes and meshes only and without mipmaps, knows no smooth normals and no
transparency, and takes a geom's colour from its material alone. The kernel here follows the fixed
OpenGL pipeline as MuJoCo sets it up: emission, and per light ambient, diffuse and Blinn's specular
term, all attenuated; the sum is clamped to 1 and multiplied by the texture; surfaces seen from
behind are left out; what is nearer than the near plane, too. A see-through geom is blended twice,
as MuJoCo does. mujoco_warp gives the scene's bounding volumes, the rays and the buffers.

What OpenGL has and this has not: lighting per vertex (here per pixel), anti-aliasing, reflections,
shadows, haze; height fields and flexes are not drawn.

Legend: G geoms, F mesh faces, W worlds, C cameras.
"""

# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportReturnType=false
# pyright: reportInvalidTypeForm=false, reportGeneralTypeIssues=false
# mujoco's compiled modules come without stubs; kernels are Python only in their syntax.
# ruff: noqa: UP018, RUF046, SIM102
# Warp wants float(0.0) for a variable that changes in a loop, and evaluates both sides of an "and".

import mujoco
import numpy as np
import warp as wp
from mujoco_warp._src import ray as rays

from rrf.envs.rendering.render_model import SEE_THROUGH_BELOW, shown_colors

wp.set_module_options({"enable_backward": False, "fast_math": True})

_DEFAULT_SPECULAR = _DEFAULT_SHININESS = 0.5  # of geoms without a material
_NO_LIGHT_AMBIENT = 0.3
_COLOR_TEXTURE = int(mujoco.mjtTextureRole.mjTEXROLE_RGB)
_FACE_NORMAL_BELOW = 0.8  # cosine; sharper edges of meshes without texture coordinates stay sharp
_Geom = mujoco.mjtGeom
_PLANE, _SPHERE, _CAPSULE = (
    int(kind) for kind in (_Geom.mjGEOM_PLANE, _Geom.mjGEOM_SPHERE, _Geom.mjGEOM_CAPSULE)
)
_ELLIPSOID, _CYLINDER = int(_Geom.mjGEOM_ELLIPSOID), int(_Geom.mjGEOM_CYLINDER)
_BOX, _MESH = int(_Geom.mjGEOM_BOX), int(_Geom.mjGEOM_MESH)
_NO_TEXTURE, _BY_COORDINATES, _BY_PLANE, _BY_CUBE = range(4)
_SPOT, _DIRECTIONAL, _HEADLIGHT = (
    int(mujoco.mjtLightType.mjLIGHT_SPOT),
    int(mujoco.mjtLightType.mjLIGHT_DIRECTIONAL),
    -1,
)
_MAX_SEE_THROUGH = 8  # geoms along one ray
_MAX_BACK_FACES = 8  # of one mesh along one ray
_STEP_M = 1.0e-5  # beyond a face that is passed through
_MIN_COSINE = 0.05


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


@wp.struct
class Hit:
    """Where a ray meets a surface."""

    geom: int
    distance: float
    normal: wp.vec3
    face: int
    u: float
    v: float


@wp.struct
class View:
    """Where the geoms are, and which of them are seen."""

    geom_xpos: wp.array2d(dtype=wp.vec3)
    geom_xmat: wp.array2d(dtype=wp.mat33)
    light_xpos: wp.array2d(dtype=wp.vec3)
    light_xdir: wp.array2d(dtype=wp.vec3)
    tree: wp.uint64
    roots: wp.array(dtype=int)
    geoms: wp.array(dtype=int)
    meshes: wp.array(dtype=wp.uint64)


@wp.func
def _cast_mesh(
    mesh: wp.uint64, origin: wp.vec3, direction: wp.vec3, limit: float
) -> wp.MeshQueryRay:
    """The first front face; `t` is negative without one."""
    passed = float(0.0)
    found = wp.mesh_query_ray(mesh, origin, direction, limit)
    for _ in range(_MAX_BACK_FACES):
        if not found.result or wp.dot(direction, found.normal) < 0.0:
            break
        passed = passed + found.t + _STEP_M
        found = wp.mesh_query_ray(mesh, origin + passed * direction, direction, limit - passed)
    if found.result and wp.dot(direction, found.normal) < 0.0:
        found.t = found.t + passed
    else:
        found.t = -1.0
    return found


@wp.func
def _cast(scene: Scene, view: View, world: int, origin: wp.vec3, direction: wp.vec3) -> Hit:
    hit = Hit()
    hit.geom = -1
    hit.distance = float(1.0e10)
    query = wp.bvh_query_ray(view.tree, origin, direction, view.roots[world])
    item = int(0)
    while wp.bvh_query_next(query, item, hit.distance):
        geom = view.geoms[item - world * view.geoms.shape[0]]
        kind = scene.geom_type[geom]
        position = view.geom_xpos[world, geom]
        axes = view.geom_xmat[world, geom]
        size = scene.geom_size[geom]
        distance = float(-1.0)
        normal = wp.vec3()
        if kind == _MESH:
            inverse = wp.transpose(axes)
            mesh = view.meshes[scene.geom_mesh[geom]]
            found = _cast_mesh(
                mesh, inverse @ (origin - position), inverse @ direction, hit.distance
            )
            if found.t >= 0.0 and found.t < hit.distance:
                hit.geom = geom
                hit.distance = found.t
                hit.face = scene.first_face[scene.geom_mesh[geom]] + found.face
                hit.u = found.u
                hit.v = found.v
        else:
            if kind == _BOX:
                distance, _, normal = rays.ray_box(position, axes, size, origin, direction)
            elif kind == _CYLINDER:
                distance, normal = rays.ray_cylinder(position, axes, size, origin, direction)
            elif kind == _CAPSULE:
                distance, normal = rays.ray_capsule(position, axes, size, origin, direction)
            elif kind == _SPHERE:
                distance, normal = rays.ray_sphere(position, size[0] * size[0], origin, direction)
            elif kind == _PLANE:
                distance, normal = rays.ray_plane(position, axes, size, origin, direction)
            elif kind == _ELLIPSOID:
                distance, normal = rays.ray_ellipsoid(position, axes, size, origin, direction)
            if distance >= 0.0 and distance < hit.distance and wp.dot(direction, normal) < 0.0:
                hit.geom = geom
                hit.distance = distance
                hit.normal = normal
    if hit.geom >= 0:
        if scene.geom_type[hit.geom] == _MESH:
            local = (
                hit.u * scene.corner_normals[hit.face, 0]
                + hit.v * scene.corner_normals[hit.face, 1]
                + (1.0 - hit.u - hit.v) * scene.corner_normals[hit.face, 2]
            )
            hit.normal = wp.normalize(view.geom_xmat[world, hit.geom] @ local)
    return hit


@wp.func
def _sample(scene: Scene, image: int, at: wp.vec2, texels: float) -> wp.vec3:
    """The texture at coordinates in [0, 1], of which a pixel covers a square of `texels`."""
    level = wp.log2(wp.max(texels, 1.0))
    color = wp.texture_sample(scene.images[image], at, dtype=wp.vec4, lod=level)
    return wp.vec3(color[0], color[1], color[2])


@wp.func
def _sample_cube(scene: Scene, image: int, toward: wp.vec3, width: float) -> wp.vec3:
    """The cube map in a direction; a pixel covers `width` in units of `toward`.

    Images are in OpenGL's order: +x, -x, +y, -y, +z, -z.
    """
    x, y, z = toward[0], toward[1], toward[2]
    face = int(0)
    depth = wp.abs(x)
    s = -z
    t = -y
    if x < 0.0:
        face = 1
        s = z
    if wp.abs(y) > depth and wp.abs(y) >= wp.abs(z):
        face = 2
        depth = wp.abs(y)
        s = x
        t = z
        if y < 0.0:
            face = 3
            t = -z
    elif wp.abs(z) > depth:
        face = 4
        depth = wp.abs(z)
        s = x
        t = -y
        if z < 0.0:
            face = 5
            s = -x
    depth = wp.max(depth, 1.0e-9)
    at = wp.vec2(0.5 * (s / depth + 1.0), 0.5 * (t / depth + 1.0))
    texels = 0.5 * width / depth * scene.image_size[image]
    return _sample(scene, image + face, at, texels)


@wp.func
def _texture(scene: Scene, look: Look, hit: Hit, local: wp.vec3, width_m: float) -> wp.vec3:
    scaled = wp.cw_mul(look.scale, local)
    if look.mapping == _BY_CUBE:
        width = width_m * wp.max(look.scale)
        return _sample_cube(scene, look.texture, scaled, width)
    size = scene.image_size[look.texture]
    if look.mapping == _BY_PLANE:
        at = wp.vec2(scaled[0] - 0.5, -scaled[1] - 0.5)
        texels = width_m * wp.max(look.scale[0], look.scale[1]) * size
        return _sample(scene, look.texture, at, texels)
    at = (
        hit.u * scene.corner_coordinates[hit.face, 0]
        + hit.v * scene.corner_coordinates[hit.face, 1]
        + (1.0 - hit.u - hit.v) * scene.corner_coordinates[hit.face, 2]
    )
    return _sample(scene, look.texture, at, width_m * scene.density[hit.face] * size)


@wp.func
def _lit(
    scene: Scene,
    view: View,
    world: int,
    look: Look,
    point: wp.vec3,
    normal: wp.vec3,
    toward_eye: wp.vec3,
    backward: wp.vec3,
) -> wp.vec3:
    """The colour of a surface without its texture, clamped to [0, 1]."""
    base = wp.vec3(look.color[0], look.color[1], look.color[2])
    lit = (look.emission + scene.ambient) * base
    for index in range(scene.lights.shape[0]):
        light = scene.lights[index]
        toward = backward
        strength = float(1.0)
        if light.kind == _DIRECTIONAL:
            toward = -view.light_xdir[world, light.row]
        elif light.kind == _SPOT:
            offset = view.light_xpos[world, light.row] - point
            distance = wp.length(offset)
            toward = offset / wp.max(distance, 1.0e-9)
            falloff = wp.dot(light.attenuation, wp.vec3(1.0, distance, distance * distance))
            cosine = -wp.dot(toward, view.light_xdir[world, light.row])
            strength = 1.0 / wp.max(falloff, 1.0e-9)
            if cosine < light.cos_cutoff:
                strength = 0.0
            elif light.exponent != 0.0:
                strength = strength * wp.pow(wp.max(cosine, 0.0), light.exponent)
        facing = wp.dot(normal, toward)
        shade = light.ambient + wp.max(facing, 0.0) * light.diffuse
        lit = lit + strength * wp.cw_mul(base, shade)
        if facing > 0.0 and look.specular > 0.0:
            half = wp.max(wp.dot(normal, wp.normalize(toward + toward_eye)), 0.0)
            shine = look.specular * wp.pow(half, look.shininess)
            lit = lit + strength * shine * light.specular
    return wp.vec3(
        wp.clamp(lit[0], 0.0, 1.0), wp.clamp(lit[1], 0.0, 1.0), wp.clamp(lit[2], 0.0, 1.0)
    )


@wp.kernel
def _draw(
    scene: Scene,
    view: View,
    cam_xpos: wp.array2d(dtype=wp.vec3),
    cam_xmat: wp.array2d(dtype=wp.mat33),
    camera_ids: wp.array(dtype=int),
    pixel_sizes: wp.array(dtype=float),
    pixels_per_camera: int,
    directions: wp.array(dtype=wp.vec3),
    has_sky: bool,
    rgb_out: wp.array2d(dtype=wp.uint32),
    depth_out: wp.array2d(dtype=float),
):
    world, pixel = wp.tid()
    camera = camera_ids[pixel // pixels_per_camera]
    pixel_size = pixel_sizes[pixel // pixels_per_camera]
    axes = cam_xmat[world, camera]
    eye = cam_xpos[world, camera]
    backward = wp.vec3(axes[0, 2], axes[1, 2], axes[2, 2])
    direction = axes @ directions[pixel]
    cosine = -directions[pixel][2]
    passed = scene.near / cosine
    color = wp.vec3()
    remaining = float(1.0)
    depth = float(0.0)
    for _ in range(_MAX_SEE_THROUGH + 1):
        hit = _cast(scene, view, world, eye + passed * direction, direction)
        if hit.geom < 0:
            break
        distance = passed + hit.distance
        point = eye + distance * direction
        look = scene.looks[hit.geom]
        shade = _lit(scene, view, world, look, point, hit.normal, -direction, backward)
        if look.mapping != _NO_TEXTURE:
            local = wp.transpose(view.geom_xmat[world, hit.geom]) @ (
                point - view.geom_xpos[world, hit.geom]
            )
            slant = wp.max(wp.abs(wp.dot(hit.normal, direction)), _MIN_COSINE)
            width_m = pixel_size * distance * cosine / slant
            shade = wp.cw_mul(shade, _texture(scene, look, hit, local, width_m))
        if depth == 0.0:
            depth = distance * cosine
        if look.color[3] >= SEE_THROUGH_BELOW:
            color = color + remaining * shade
            remaining = 0.0
            break
        through = (1.0 - look.color[3]) * (1.0 - look.color[3])  # blended twice
        color = color + remaining * (1.0 - through) * shade
        remaining = remaining * through
        passed = distance + _STEP_M
    if remaining > 0.0 and has_sky and scene.sky >= 0:
        toward = wp.vec3(direction[0], direction[2], -direction[1])
        color = color + remaining * _sample_cube(scene, scene.sky, toward, pixel_size)
    red, green, blue = (
        int(255.0 * color[0] + 0.5),
        int(255.0 * color[1] + 0.5),
        int(255.0 * color[2] + 0.5),
    )
    rgb_out[world, pixel] = wp.uint32((255 << 24) | (red << 16) | (green << 8) | blue)
    depth_out[world, pixel] = depth


class GLShading:
    """Draws a render model into mujoco_warp's buffers, like `mujoco_warp.render`."""

    def __init__(self, drawn: mujoco.MjModel, textures: mujoco.MjModel):
        """Copy the constants to the current Warp device.

        Args:
            drawn: The model to draw.
            textures: A model with the same textures, of which `drawn` need not have the pixels.
        """
        self._images = _Images(textures)
        self._scene = _scene(drawn, textures, self._images)
        self._pixel_sizes: dict[int, wp.array] = {}

    def __call__(self, model, data, context) -> None:
        """Launch the kernel for the cameras and geoms of `context` at the poses of `data`."""
        if id(context) not in self._pixel_sizes:
            self._pixel_sizes[id(context)] = _pixel_sizes(context)
        view = View()
        view.geom_xpos, view.geom_xmat = data.geom_xpos, data.geom_xmat
        view.light_xpos, view.light_xdir = data.light_xpos, data.light_xdir
        view.tree, view.roots = context.bvh_id, context.group_root
        view.geoms, view.meshes = context.enabled_geom_ids, context.mesh_bvh_id
        wp.launch(
            _draw,
            dim=(data.nworld, context.total_rays),
            inputs=[
                *(self._scene, view, data.cam_xpos, data.cam_xmat, context.cam_id_map),
                self._pixel_sizes[id(context)],
                context.total_rays // context.nrender,
                *(context.ray, context.render_skybox),
            ],
            outputs=[context.rgb_data, context.depth_data],
        )


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


def _scene(drawn: mujoco.MjModel, textures: mujoco.MjModel, images: _Images) -> Scene:
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
    return scene


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
            look["mapping"] = _BY_COORDINATES
        elif textures.tex_type[texture] == mujoco.mjtTexture.mjTEXTURE_2D:
            look["mapping"] = _BY_PLANE
            look["scale"][:2] = (
                0.5 * drawn.mat_texrepeat[material] / (1.0 if is_uniform else size[:2])
            )
        else:
            look["mapping"] = _BY_CUBE
            if drawn.geom_type[geom] == _Geom.mjGEOM_CYLINDER:
                size[2] = drawn.geom_size[geom, 1]
            if is_mesh:  # its own coordinates are not scaled to its size
                look["scale"] = size if is_uniform else 1.0
            else:
                look["scale"] = 1.0 if is_uniform else 1.0 / size
    return looks


def _lights(model: mujoco.MjModel) -> np.ndarray:
    kinds = (mujoco.mjtLightType.mjLIGHT_SPOT, mujoco.mjtLightType.mjLIGHT_DIRECTIONAL)
    rows = np.flatnonzero(model.light_active.astype(bool) & np.isin(model.light_type, kinds))
    has_headlight = bool(model.vis.headlight.active)
    lights = np.zeros(len(rows) + has_headlight, Light.numpy_dtype())
    own = lights[: len(rows)]
    own["kind"], own["row"] = model.light_type[rows], rows
    own["ambient"], own["diffuse"] = model.light_ambient[rows], model.light_diffuse[rows]
    own["specular"], own["attenuation"] = model.light_specular[rows], model.light_attenuation[rows]
    own["cos_cutoff"] = np.cos(np.deg2rad(model.light_cutoff[rows]))
    own["exponent"] = model.light_exponent[rows]
    if has_headlight:
        headlight = model.vis.headlight
        lights[-1]["kind"] = _HEADLIGHT
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


def _pixel_sizes(context) -> wp.array:
    """float [C]: the width of a pixel at a distance of 1 along the camera's axis."""
    pixels = context.ray.numpy().reshape(context.nrender, -1, 3)
    on_plane = pixels[..., :2] / -pixels[..., 2:]
    return wp.array(np.abs(on_plane[:, 1, 0] - on_plane[:, 0, 0]), dtype=float)
