"""Traces and shades the geoms of a model the way MuJoCo's OpenGL renderer draws them.

mujoco_warp's own shading differs from OpenGL: it clamps colours after the texture instead of before
it, samples textures on planes and meshes only and without mipmaps, knows no smooth normals and no
transparency, and takes a geom's colour from its material alone. The kernel here follows the fixed
OpenGL pipeline as MuJoCo sets it up: emission, and per light ambient, diffuse and Blinn's specular
term, all attenuated; the sum is clamped to 1 and multiplied by the texture; surfaces seen from
behind are left out; what is nearer than the near plane, too. As in MuJoCo, a see-through geom is
blended twice, and the upper side of the first plane or box that reflects is a mirror. mujoco_warp
gives the scene's bounding volumes, the rays and the buffers.

What OpenGL has and this has not: lighting per vertex (here per pixel), anti-aliasing, shadows and
haze; height fields and flexes are not drawn. Where the background is kept, a mirror in it shows
nothing that moves.

Legend: C cameras.
"""

# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportReturnType=false
# pyright: reportInvalidTypeForm=false, reportGeneralTypeIssues=false, reportAssignmentType=false
# mujoco's compiled modules come without stubs; kernels are Python only in their syntax.
# ruff: noqa: UP018, RUF046, SIM102
# Warp wants float(0.0) for a variable that changes in a loop, and evaluates both sides of an "and".

import mujoco
import numpy as np
import warp as wp

from rrf.envs.rendering.gl_scene import (
    BY_CUBE,
    BY_PLANE,
    DIRECTIONAL,
    NO_TEXTURE,
    SPOT,
    Look,
    Scene,
    scene_of,
)
from rrf.envs.rendering.render_model import SEE_THROUGH_BELOW

try:  # mujoco_warp's functions for single shapes, which kernels can call, are not public
    from mujoco_warp._src import ray as rays
except ImportError as error:
    raise ImportError(
        "the installed mujoco_warp keeps its functions for rays elsewhere, so nothing is drawn by "
        "the ray tracer's OpenGL shading; use the version of requirements.lock, or renderer=egl"
    ) from error

wp.set_module_options({"enable_backward": False, "fast_math": True})

_Geom = mujoco.mjtGeom
_PLANE, _SPHERE, _CAPSULE = (
    int(kind) for kind in (_Geom.mjGEOM_PLANE, _Geom.mjGEOM_SPHERE, _Geom.mjGEOM_CAPSULE)
)
_ELLIPSOID, _CYLINDER = int(_Geom.mjGEOM_ELLIPSOID), int(_Geom.mjGEOM_CYLINDER)
_BOX, _MESH = int(_Geom.mjGEOM_BOX), int(_Geom.mjGEOM_MESH)
_MAX_SEE_THROUGH = 8  # geoms along one ray
_MAX_BACK_FACES = 8  # of one mesh along one ray
_STEP_M = 1.0e-5  # beyond a face that is passed through
_MIN_COSINE = 0.05
_UPPER_SIDE = 0.99  # cosine


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
    mesh_hit = wp.mesh_query_ray(mesh, origin, direction, limit)
    for _ in range(_MAX_BACK_FACES):
        if not mesh_hit.result or wp.dot(direction, mesh_hit.normal) < 0.0:
            break
        passed = passed + mesh_hit.t + _STEP_M
        mesh_hit = wp.mesh_query_ray(mesh, origin + passed * direction, direction, limit - passed)
    if mesh_hit.result and wp.dot(direction, mesh_hit.normal) < 0.0:
        mesh_hit.t = mesh_hit.t + passed
    else:
        mesh_hit.t = -1.0
    return mesh_hit


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
            mesh_hit = _cast_mesh(
                mesh, inverse @ (origin - position), inverse @ direction, hit.distance
            )
            if mesh_hit.t >= 0.0 and mesh_hit.t < hit.distance:
                hit.geom = geom
                hit.distance = mesh_hit.t
                hit.face = scene.first_face[scene.geom_mesh[geom]] + mesh_hit.face
                hit.u = mesh_hit.u
                hit.v = mesh_hit.v
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
def _sample(
    images: wp.array(dtype=wp.Texture2D), image: int, at: wp.vec2, texels: float
) -> wp.vec3:
    """The texture at coordinates in [0, 1], of which a pixel covers a square of `texels`."""
    level = wp.log2(wp.max(texels, 1.0))
    color = wp.texture_sample(images[image], at, dtype=wp.vec4, lod=level)
    return wp.vec3(color[0], color[1], color[2])


@wp.func
def _sample_cube(
    images: wp.array(dtype=wp.Texture2D),
    image: int,
    size: float,
    toward: wp.vec3,
    scale: wp.vec3,
    width_m: float,
) -> wp.vec3:
    """The cube map in a direction, `scale` of which goes into a metre; a pixel covers `width_m`.

    Images are in OpenGL's order: +x, -x, +y, -y, +z, -z.
    """
    x, y, z = toward[0], toward[1], toward[2]
    face = int(0)
    depth = wp.abs(x)
    widest = wp.max(scale[1], scale[2])
    s = -z
    t = -y
    if x < 0.0:
        face = 1
        s = z
    if wp.abs(y) > depth and wp.abs(y) >= wp.abs(z):
        face = 2
        depth = wp.abs(y)
        widest = wp.max(scale[0], scale[2])
        s = x
        t = z
        if y < 0.0:
            face = 3
            t = -z
    elif wp.abs(z) > depth:
        face = 4
        depth = wp.abs(z)
        widest = wp.max(scale[0], scale[1])
        s = x
        t = -y
        if z < 0.0:
            face = 5
            s = -x
    depth = wp.max(depth, 1.0e-9)
    at = wp.vec2(0.5 * (s / depth + 1.0), 0.5 * (t / depth + 1.0))
    texels = 0.5 * width_m * widest / depth * size
    return _sample(images, image + face, at, texels)


@wp.func
def _texture(scene: Scene, look: Look, hit: Hit, local: wp.vec3, width_m: float) -> wp.vec3:
    scaled = wp.cw_mul(look.scale, local)
    size = scene.image_size[look.texture]
    if look.mapping == BY_CUBE:
        return _sample_cube(scene.images, look.texture, size, scaled, look.scale, width_m)
    if look.mapping == BY_PLANE:
        at = wp.vec2(scaled[0] - 0.5, -scaled[1] - 0.5)
        texels = width_m * wp.max(look.scale[0], look.scale[1]) * size
        return _sample(scene.images, look.texture, at, texels)
    at = (
        hit.u * scene.corner_coordinates[hit.face, 0]
        + hit.v * scene.corner_coordinates[hit.face, 1]
        + (1.0 - hit.u - hit.v) * scene.corner_coordinates[hit.face, 2]
    )
    return _sample(scene.images, look.texture, at, width_m * scene.density[hit.face] * size)


@wp.func
def _lit(
    scene: Scene,
    view: View,
    world: int,
    look: Look,
    dimmed: float,
    point: wp.vec3,
    normal: wp.vec3,
    toward_eye: wp.vec3,
    backward: wp.vec3,
) -> wp.vec3:
    """The colour of a surface without its texture, clamped to [0, 1]; its own is `dimmed`."""
    base = dimmed * wp.vec3(look.color[0], look.color[1], look.color[2])
    lit = (look.emission + scene.ambient) * base
    for index in range(scene.lights.shape[0]):
        light = scene.lights[index]
        toward = backward
        strength = float(1.0)
        if light.kind == DIRECTIONAL:
            toward = -view.light_xdir[world, light.row]
        elif light.kind == SPOT:
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
    backward = wp.vec3(axes[0, 2], axes[1, 2], axes[2, 2])
    direction = axes @ directions[pixel]
    cosine = -directions[pixel][2]
    travelled = scene.near / cosine
    origin = cam_xpos[world, camera] + travelled * direction
    color = wp.vec3()
    remaining = float(1.0)
    dimmed = float(1.0)  # what a mirror leaves of the colours of geoms
    depth = float(0.0)
    for _ in range(_MAX_SEE_THROUGH + 2):
        hit = _cast(scene, view, world, origin, direction)
        if hit.geom < 0:
            break
        travelled = travelled + hit.distance
        point = origin + hit.distance * direction
        if depth == 0.0:
            depth = travelled * cosine
        look = scene.looks[hit.geom]
        shade = _lit(scene, view, world, look, dimmed, point, hit.normal, -direction, backward)
        frame = view.geom_xmat[world, hit.geom]
        if look.mapping != NO_TEXTURE:
            local = wp.transpose(frame) @ (point - view.geom_xpos[world, hit.geom])
            slant = wp.max(wp.abs(wp.dot(hit.normal, direction)), _MIN_COSINE)
            width_m = pixel_size * travelled * cosine / slant
            shade = wp.cw_mul(shade, _texture(scene, look, hit, local, width_m))
        up = wp.vec3(frame[0, 2], frame[1, 2], frame[2, 2])
        if look.color[3] < SEE_THROUGH_BELOW:
            through = (1.0 - look.color[3]) * (1.0 - look.color[3])  # blended twice
            color = color + remaining * (1.0 - through) * shade
            remaining = remaining * through
            origin = point + _STEP_M * direction
        elif hit.geom == scene.mirror and dimmed == 1.0 and wp.dot(hit.normal, up) > _UPPER_SIDE:
            color = color + remaining * shade
            dimmed = scene.reflectance
            direction = direction - 2.0 * wp.dot(direction, up) * up
            origin = point + _STEP_M * up
        else:
            color = color + remaining * shade
            remaining = 0.0
            break
    if remaining > 0.0 and dimmed == 1.0 and has_sky and scene.sky >= 0:
        toward = wp.vec3(direction[0], direction[2], -direction[1])
        size = scene.image_size[scene.sky]
        white = wp.vec3(1.0, 1.0, 1.0)
        sky = _sample_cube(scene.images, scene.sky, size, toward, white, pixel_size)
        color = color + remaining * sky
    color = wp.min(color, wp.vec3(1.0, 1.0, 1.0))
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
        self._scene, self._images = scene_of(drawn, textures)
        self._pixel_sizes: dict[int, wp.array] = {}
        self._meshes: tuple | None = None

    def __call__(self, model, data, context) -> None:
        """Launch the kernel for the cameras and geoms of `context` at the poses of `data`."""
        if id(context) not in self._pixel_sizes:
            self._pixel_sizes[id(context)] = _pixel_sizes(context)
            self._meshes = self._meshes or (context.mesh_registry, context.mesh_bvh_id)
            context.mesh_registry, context.mesh_bvh_id = self._meshes  # one copy for all contexts
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


def _pixel_sizes(context) -> wp.array:
    """float [C]: the width of a pixel at a distance of 1 along the camera's axis."""
    pixels = context.ray.numpy().reshape(context.nrender, -1, 3)
    on_plane = pixels[..., :2] / -pixels[..., 2:]
    return wp.array(np.abs(on_plane[:, 1, 0] - on_plane[:, 0, 0]), dtype=float)
