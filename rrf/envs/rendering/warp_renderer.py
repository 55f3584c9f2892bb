"""Batched RGB rendering without OpenGL: mujoco_warp's ray tracer draws native MuJoCo states, on a
CPU or a GPU.

The physics stays in native MuJoCo; only poses are copied to the tracer
(`rrf.envs.rendering.render_model` maps them). All launches of one call are recorded once as a graph
and then replayed, which takes about 25 ms of Python off every call. Geoms that are fixed to the
world are traced once per pose and kept. An image then costs only the rays to moving geoms, which
are laid over that background by depth; this about doubles the speed. The tracer draws neither
tendons, reflections, transparency nor anti-aliasing. Shadows are an option.

Warp compiles its kernels once per machine (about half a minute, into `~/.cache/warp` or
`WARP_CACHE_PATH`).

Legend: C cameras, N states asked for, W worlds in one launch, G geoms.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import collections
import contextlib
import importlib
import os
import sys
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path

import mujoco
import numpy as np
import warp as wp

from rrf.envs.rendering import VISIBLE_GROUPS
from rrf.envs.rendering.render_model import (
    BACKGROUND_GROUP,
    MOVING_GROUP,
    build_render_model,
)

_LOG_ERRORS_ONLY = 40
_NO_NANS = "-menable-no-nans"  # a tenth faster, the same pixels: min and max in one instruction
_UNUSED_WORLD_HEIGHT_M = 1000.0
_LOOKING_UP = np.diag([1.0, -1.0, -1.0])  # a camera looks along its own -z
_BACKGROUND_CACHE_BYTES = 8 << 20
_RECORD_AFTER = 50  # a graph takes about 0.2 s to record, and an unused world 0.4 ms to draw
_PIXEL = np.dtype([("color", np.uint32), ("depth", np.float32)])  # depth 0: nothing there
_Geom = mujoco.mjtGeom
# Kernels are specialised to a scene's geom types; naming these for every scene compiles them once.
_COMMON_GEOM_TYPES = (
    _Geom.mjGEOM_PLANE,
    _Geom.mjGEOM_SPHERE,
    _Geom.mjGEOM_CAPSULE,
    _Geom.mjGEOM_CYLINDER,
    _Geom.mjGEOM_BOX,
    _Geom.mjGEOM_MESH,
)


class WarpRenderer:
    """Draws MjData of one model."""

    def __init__(
        self,
        spec: mujoco.MjSpec,
        model: mujoco.MjModel,
        cameras: Sequence[str],
        image_size: tuple[int, int],
        max_batch: int = 8,
        device: str = "cpu",
        use_shadows: bool = False,
        geom_groups: Sequence[int] = VISIBLE_GROUPS,
        use_gl_shading: bool = False,
    ):
        """Load the model onto the device.

        Args:
            spec: The spec that `model` was compiled from.
            model: The physics model.
            cameras: Camera names; images come in this order.
            image_size: (height, width) in pixels.
            max_batch: Worlds drawn in one launch. More states than this are drawn in several
                launches.
            device: A Warp device, "cpu" or "cuda:0".
            use_shadows: Whether lights cast shadows (slower, and no background is kept).
            geom_groups: The groups of geoms to draw.
            use_gl_shading: Whether to shade like MuJoCo's OpenGL (`rrf.envs.rendering.gl_shading`)
                instead of with mujoco_warp's own shading. There are no shadows then.

        Raises:
            ValueError: For an unknown camera or device, or for shadows with OpenGL's shading.
        """
        if use_shadows and use_gl_shading:
            raise ValueError("use_gl_shading=True draws no shadows; set use_shadows=False")
        self._mjw = _import_mujoco_warp(device)
        self._drawn = build_render_model(spec, model, geom_groups, use_gl_shading)
        self._camera_ids = [model.camera(name).id for name in cameras]
        self._image_size = image_size
        self._max_batch = max_batch
        self._device = device
        self._backgrounds: dict[bytes, np.ndarray] = {}  # least recently used first
        is_whole = use_shadows or self._drawn.is_blended
        fixed = [] if is_whole else _with_layers(self._drawn.model, self._camera_ids)
        moving = [camera for camera in self._camera_ids if camera not in fixed]
        self._background = self._foreground = self._whole = None
        with wp.ScopedDevice(device):
            self._model: typing.Any = self._mjw.put_model(self._drawn.model)
            self._data: typing.Any = self._mjw.make_data(self._drawn.model, nworld=max_batch)
            self._draw: typing.Any = self._mjw.render
            if use_gl_shading:
                from rrf.envs.rendering.gl_shading import GLShading  # needs Warp to have started

                self._draw = GLShading(self._drawn.model, model)
            if fixed:
                self._background = self._make_layer(fixed, [BACKGROUND_GROUP])
                self._foreground = self._make_layer(fixed, [MOVING_GROUP], has_sky=False)
            if moving:
                groups = [BACKGROUND_GROUP, MOVING_GROUP]
                self._whole = self._make_layer(moving, groups, use_shadows=use_shadows)
        num_geoms = self._drawn.model.ngeom
        self._xpos_WG = np.zeros((max_batch, num_geoms, 3), np.float32)
        self._xmat_WG = np.zeros((max_batch, num_geoms, 3, 3), np.float32)
        self._cam_xpos_W = np.zeros((max_batch, model.ncam, 3), np.float32)
        self._cam_xmat_W = np.zeros((max_batch, model.ncam, 3, 3), np.float32)
        self._light_xpos_W = np.zeros((max_batch, model.nlight, 3), np.float32)
        self._light_xdir_W = np.zeros((max_batch, model.nlight, 3), np.float32)

    def render(self, datas: Sequence[mujoco.MjData]) -> np.ndarray:
        """uint8 [C, N, H, W, 3], RGB, row 0 on top in each camera's own frame.

        Each MjData must have been forwarded (positions of geoms, sites, cameras and lights up to
        date).
        """
        height, width = self._image_size
        images = np.empty((len(self._camera_ids), len(datas), height, width, 3), np.uint8)
        for start in range(0, len(datas), self._max_batch):
            batch = datas[start : start + self._max_batch]
            of_batch = images[:, start : start + len(batch)]
            self._copy_poses(batch)
            if self._background and self._foreground:
                pixels = self._trace_layers(self._background, self._foreground, batch)
                self._unpack(pixels, self._background.camera_ids, of_batch)
            if self._whole:
                pixels = self._trace(self._whole, len(batch))
                self._unpack(pixels, self._whole.camera_ids, of_batch)
        return images

    def close(self) -> None:
        """Release the device memory. Calling it twice is allowed."""
        for layer in filter(None, (self._foreground, self._background, self._whole)):
            layer.close()
        self._data = self._model = self._draw = None
        self._backgrounds.clear()

    def _make_layer(
        self,
        cameras: list[int],
        groups: list[int],
        has_sky: bool = True,
        use_shadows: bool = False,
    ) -> "_Layer":
        drawn = self._drawn.model
        height, width = self._image_size
        context: typing.Any = self._mjw.create_render_context(
            drawn,
            self._max_batch,
            cam_res=(width, height),
            render_rgb=True,
            render_depth=True,
            render_seg=False,
            cam_active=[camera in cameras for camera in range(drawn.ncam)],
            use_shadows=use_shadows,
            enabled_geom_groups=groups,
            render_skybox=has_sky,
        )
        types = {int(kind) for kind in _COMMON_GEOM_TYPES} | set(context.geom_ray_types)
        context.geom_ray_types = tuple(sorted(types))
        # Precomputed rays do not use it, but kernels have it compiled in. With each model's own
        # value they would be compiled again.
        context.znear = 1.0
        return _Layer(
            self._mjw.refit_bvh,
            self._draw,
            self._model,
            self._data,
            context,
            cameras,
            (height, width),
        )

    def _trace_layers(
        self, background: "_Layer", foreground: "_Layer", batch: Sequence[mujoco.MjData]
    ) -> np.ndarray:
        """Pixels of `batch`, whose poses are copied. The fixed part of the scene is traced only for
        poses that are not kept yet.
        """
        cameras = background.camera_ids
        keys = [self._background_key(world, cameras) for world in range(len(batch))]
        unknown = {
            key: data for key, data in zip(keys, batch, strict=True) if key not in self._backgrounds
        }
        if unknown:
            self._copy_poses(list(unknown.values()))
            behind = self._trace(background, len(unknown))
            self._backgrounds |= zip(unknown, behind, strict=True)
            self._copy_poses(batch)
        pixels = self._trace(foreground, len(batch))
        for row, key in enumerate(keys):
            behind = self._backgrounds[key] = self._backgrounds.pop(key)
            is_nothing = pixels["depth"][row] == 0
            is_behind = (pixels["depth"][row] > behind["depth"]) & (behind["depth"] > 0)
            np.copyto(pixels[row], behind, where=is_nothing | is_behind)
        self._forget_backgrounds()
        return pixels

    def _background_key(self, world: int, cameras: list[int]) -> bytes:
        rows = self._drawn.background_rows
        poses = (
            *(self._xpos_WG[world, rows], self._xmat_WG[world, rows]),
            *(self._cam_xpos_W[world, cameras], self._cam_xmat_W[world, cameras]),
            *(self._light_xpos_W[world], self._light_xdir_W[world]),
        )
        return b"".join(pose.tobytes() for pose in poses)

    def _forget_backgrounds(self) -> None:
        """Drop the least recently used backgrounds beyond the cache's size.

        At least the backgrounds of one whole batch are kept.
        """
        size = next(iter(self._backgrounds.values())).nbytes
        kept = max(self._max_batch, _BACKGROUND_CACHE_BYTES // size)
        for key in list(self._backgrounds)[: max(0, len(self._backgrounds) - kept)]:
            del self._backgrounds[key]

    def _trace(self, layer: "_Layer", num_worlds: int) -> np.ndarray:
        """Pixels [N, C, H, W] of `_PIXEL` at the copied poses, cameras by ascending id."""
        with wp.ScopedDevice(self._device):
            return layer.trace(num_worlds)

    def _copy_poses(self, datas: Sequence[mujoco.MjData]) -> None:
        drawn = self._drawn
        for world, data in enumerate(datas):
            self._xpos_WG[world, drawn.geom_rows] = data.geom_xpos[drawn.geom_sources]
            self._xmat_WG[world, drawn.geom_rows] = data.geom_xmat[drawn.geom_sources].reshape(
                -1, 3, 3
            )
            self._xpos_WG[world, drawn.site_rows] = data.site_xpos[drawn.site_sources]
            self._xmat_WG[world, drawn.site_rows] = data.site_xmat[drawn.site_sources].reshape(
                -1, 3, 3
            )
            self._cam_xpos_W[world] = data.cam_xpos
            self._cam_xmat_W[world] = data.cam_xmat.reshape(-1, 3, 3)
            self._light_xpos_W[world] = data.light_xpos
            self._light_xdir_W[world] = data.light_xdir
        self._cam_xpos_W[len(datas) :] = [0.0, 0.0, _UNUSED_WORLD_HEIGHT_M]
        self._cam_xmat_W[len(datas) :] = _LOOKING_UP
        self._data.geom_xpos.assign(self._xpos_WG)
        self._data.geom_xmat.assign(self._xmat_WG)
        self._data.cam_xpos.assign(self._cam_xpos_W)
        self._data.cam_xmat.assign(self._cam_xmat_W)
        self._data.light_xpos.assign(self._light_xpos_W)
        self._data.light_xdir.assign(self._light_xdir_W)

    def _unpack(self, pixels: np.ndarray, cameras: list[int], images: np.ndarray) -> None:
        """Write the colours of `cameras`, 0xAARRGGBB, into images of all, uint8 [C, N, H, W, 3]."""
        colors = np.ascontiguousarray(pixels["color"])
        bgra = colors.view(np.uint8).reshape(*colors.shape, 4)
        for column, camera in enumerate(cameras):
            for channel in range(3):  # three plain copies are much faster than one reversed one
                images[self._camera_ids.index(camera), ..., channel] = bgra[
                    :, column, ..., 2 - channel
                ]


class _Layer:
    """Traces one selection of the geoms. Its launches are recorded as a graph per batch size."""

    def __init__(
        self, refit, draw, model, data, context, cameras: list[int], image_size: tuple[int, int]
    ):
        """`refit` and `draw` launch kernels for (model, data, context); `image_size` is (height,
        width).
        """
        self._refit: typing.Any = refit
        self._draw: typing.Any = draw
        self._model: typing.Any = model
        self._data: typing.Any = data
        self._context: typing.Any = context
        self.camera_ids = sorted(cameras)
        self._shape = (len(cameras), *image_size)
        self._graphs: dict[int, typing.Any] = {}  # by number of worlds, powers of two
        self._num_calls: collections.Counter[int] = collections.Counter()

    def trace(self, num_worlds: int) -> np.ndarray:
        """Pixels [num_worlds, C, H, W] of `_PIXEL`: the first worlds at their current poses."""
        wp.capture_launch(self._graph(num_worlds))
        pixels = np.empty((num_worlds, *self._shape), _PIXEL)
        pixels["color"] = self._context.rgb_data.numpy()[:num_worlds].reshape(pixels.shape)
        pixels["depth"] = self._context.depth_data.numpy()[:num_worlds].reshape(pixels.shape)
        return pixels

    def close(self) -> None:
        """Forget graphs and buffers."""
        self._graphs.clear()
        self._context = self._data = self._model = self._draw = None

    def _graph(self, num_worlds: int) -> typing.Any:
        """The launches for at least `num_worlds` worlds. A smaller graph is recorded only if used
        often.
        """
        largest = self._data.nworld
        size = min(1 << (num_worlds - 1).bit_length(), largest)
        self._num_calls[size] += 1
        if self._num_calls[size] < _RECORD_AFTER:
            size = largest
        if size not in self._graphs:
            self._graphs[size] = self._capture(size)
        return self._graphs[size]

    def _capture(self, size: int) -> typing.Any:
        """The launches for the first `size` worlds as a graph."""
        largest, self._data.nworld = self._data.nworld, size
        if not self._graphs:
            self._launch()  # loads the kernels, which cannot happen within a capture
        with wp.ScopedCapture() as capture:
            self._launch()
        self._data.nworld = largest
        return capture.graph

    def _launch(self) -> None:
        self._refit(self._model, self._data, self._context)
        self._draw(self._model, self._data, self._context)


def _with_layers(drawn: mujoco.MjModel, camera_ids: Sequence[int]) -> list[int]:
    """The cameras that are fixed, if one part of the scene moves and another does not."""
    fixed = drawn.body_weldid == 0
    is_split = {BACKGROUND_GROUP, MOVING_GROUP} <= set(drawn.geom_group.tolist())
    if not (is_split and fixed[drawn.light_bodyid].all()):
        return []
    return [camera for camera in camera_ids if fixed[drawn.cam_bodyid[camera]]]


def _import_mujoco_warp(device: str):
    """Import mujoco_warp, which takes seconds, and start Warp without output."""
    wp.config.log_level = _LOG_ERRORS_ONLY  # else every kernel load is a line of output
    if _NO_NANS not in (flags := wp.config.cpu_compiler_flags or ""):
        wp.config.cpu_compiler_flags = f"{flags} {_NO_NANS}"
    with _muted_stderr():  # a missing CUDA driver is reported whatever the log level
        wp.init()
    known = [str(known) for known in wp.get_devices()]
    if device not in known:
        raise ValueError(f"no Warp device '{device}'; this machine has: {', '.join(known)}")
    return importlib.import_module("mujoco_warp")


@contextlib.contextmanager
def _muted_stderr() -> Iterator[None]:
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as null_device:
            os.dup2(null_device.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
