"""Batched RGB rendering without OpenGL: native MuJoCo states drawn by mujoco_warp's ray tracer, on
a CPU or a GPU.

Physics stays in native MuJoCo; only poses are copied over (`rrf.envs.render_model` maps them). All
launches of one call are recorded once as a graph and replayed, which takes about 25 ms of Python
off every call. The tracer draws neither tendons, reflections, transparency nor anti-aliasing;
shadows are an option.

Warp compiles its kernels once per machine (about half a minute, into `~/.cache/warp` or
`WARP_CACHE_PATH`).

Legend: C cameras, N states asked for, W worlds in one launch, G geoms.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

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

from rrf.envs.render_model import VISIBLE_GROUPS, build_render_model

_LOG_ERRORS_ONLY = 40
_UNUSED_WORLD_HEIGHT_M = 1000.0
_LOOKING_UP = np.diag([1.0, -1.0, -1.0])  # a camera looks along its own -z
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
    ):
        """
        Args:
            spec: What `model` was compiled from.
            model: The physics model.
            cameras: Camera names; images come in this order.
            image_size: (height, width) in pixels.
            max_batch: Worlds drawn in one launch. More states than this are drawn in several
                launches.
            device: A Warp device, "cpu" or "cuda:0".
            use_shadows: Whether lights cast shadows (about 15 % slower).

        Raises:
            ValueError: For an unknown camera or device.
        """
        self._mjw = _import_mujoco_warp(device)
        self._drawn = build_render_model(spec, model)
        self._camera_ids = [model.camera(name).id for name in cameras]
        self._image_size = image_size
        self._max_batch = max_batch
        self._device = device
        self._graphs: dict[int, typing.Any] = {}  # by number of worlds, powers of two
        with wp.ScopedDevice(device):
            self._build(use_shadows)
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
            self._copy_poses(batch)
            self._launch(len(batch))
            self._read(images[:, start : start + len(batch)])
        return images

    def close(self) -> None:
        """Release the device memory. Calling it twice is allowed."""
        self._graphs.clear()
        self._context = self._data = self._model = None

    def _build(self, use_shadows: bool) -> None:
        drawn = self._drawn.model
        height, width = self._image_size
        self._model: typing.Any = self._mjw.put_model(drawn)
        self._data: typing.Any = self._mjw.make_data(drawn, nworld=self._max_batch)
        self._context: typing.Any = self._mjw.create_render_context(
            drawn,
            self._max_batch,
            cam_res=(width, height),
            render_rgb=True,
            render_depth=False,
            render_seg=False,
            cam_active=[camera in self._camera_ids for camera in range(drawn.ncam)],
            use_shadows=use_shadows,
            enabled_geom_groups=list(VISIBLE_GROUPS),
            render_skybox=True,
        )
        types = {int(kind) for kind in _COMMON_GEOM_TYPES} | set(self._context.geom_ray_types)
        self._context.geom_ray_types = tuple(sorted(types))
        # Compiled in although precomputed rays leave it unused: each model's own would recompile.
        self._context.znear = 1.0

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

    def _launch(self, num_worlds: int) -> None:
        """Draw the first worlds, at least `num_worlds`."""
        size = min(1 << (num_worlds - 1).bit_length(), self._max_batch)
        with wp.ScopedDevice(self._device):
            if size not in self._graphs:
                self._graphs[size] = self._capture(size)
            wp.capture_launch(self._graphs[size])

    def _read(self, images: np.ndarray) -> None:
        """Copy what was drawn into uint8 [C, W, H, W, 3]."""
        num_cameras, num_worlds, height, width, _ = images.shape
        packed = self._context.rgb_data.numpy()  # uint32 0xAARRGGBB, cameras by ascending id
        bgra = packed.view(np.uint8).reshape(-1, num_cameras, height, width, 4)[:num_worlds]
        for row, column in enumerate(np.argsort(np.argsort(self._camera_ids))):
            for channel in range(3):  # three plain copies are much faster than one reversed one
                images[row, ..., channel] = bgra[:, column, ..., 2 - channel]

    def _capture(self, size: int) -> typing.Any:
        """The launches for the first `size` worlds as a graph."""
        self._data.nworld = size
        if not self._graphs:
            self._trace()  # loads the kernels, which cannot happen within a capture
        with wp.ScopedCapture() as capture:
            self._trace()
        self._data.nworld = self._max_batch
        return capture.graph

    def _trace(self) -> None:
        self._mjw.refit_bvh(self._model, self._data, self._context)
        self._mjw.render(self._model, self._data, self._context)


def _import_mujoco_warp(device: str):
    """mujoco_warp, imported now, which takes seconds, with Warp started quietly."""
    wp.config.log_level = _LOG_ERRORS_ONLY  # else every kernel load is a line of output
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
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
