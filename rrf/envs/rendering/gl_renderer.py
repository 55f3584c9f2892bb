"""RGB rendering of native MuJoCo states through OpenGL, without a window: EGL or OSMesa.

On software GL (llvmpipe), shadows, reflections and multi-sampling cost a factor of ten, so they are
off by default. The context is made directly and not through `mujoco.Renderer`, because that class
fixes the backend when mujoco is first imported. PyOpenGL allows one backend per process.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import contextlib
import copy
import importlib
from collections.abc import Iterator, Sequence

import mujoco
import numpy as np

from rrf.envs.rendering import VISIBLE_GROUPS
from rrf.envs.rendering.gl_platform import check_unbound

_MAX_GEOMS = 10_000


class GLRenderer:
    """Draws MjData of one model, one after the other."""

    def __init__(
        self,
        model: mujoco.MjModel,
        cameras: Sequence[str],
        image_size: tuple[int, int],
        backend: str = "egl",
        geom_groups: Sequence[int] = VISIBLE_GROUPS,
        is_fast: bool = True,
    ):
        """Make the OpenGL context.

        Args:
            model: The physics model. It is copied, so that the cheap visual settings do not change
                it.
            cameras: Camera names; images come in this order.
            image_size: (height, width) in pixels.
            backend: "egl" or "osmesa".
            geom_groups: The groups of geoms to draw.
            is_fast: Whether to leave out shadows, reflections and multi-sampling.

        Raises:
            ValueError: If the backend does not work on this machine, or the process already uses
                the other one.
        """
        self._height, self._width = image_size
        self._model = copy.copy(model)
        if is_fast:
            _leave_out_effects(self._model)
        visual = self._model.vis.global_
        visual.offheight = max(self._height, visual.offheight)
        visual.offwidth = max(self._width, visual.offwidth)
        self._camera_ids = [model.camera(name).id for name in cameras]
        self._gl = _make_context(backend, self._width, self._height)
        with self._current():
            self._context = mujoco.MjrContext(self._model, mujoco.mjtFontScale.mjFONTSCALE_100)
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._scene = mujoco.MjvScene(self._model, _MAX_GEOMS)
        self._option = mujoco.MjvOption()
        self._option.geomgroup[:] = np.isin(np.arange(mujoco.mjNGROUP), geom_groups)
        self._viewport = mujoco.MjrRect(0, 0, self._width, self._height)

    def render(self, datas: Sequence[mujoco.MjData]) -> np.ndarray:
        """uint8 [C, N, H, W, 3], RGB, row 0 on top in each camera's own frame."""
        images = np.empty(
            (len(self._camera_ids), len(datas), self._height, self._width, 3), np.uint8
        )
        camera = mujoco.MjvCamera()
        camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        with self._current():
            for row, camera.fixedcamid in enumerate(self._camera_ids):
                for column, data in enumerate(datas):
                    mujoco.mjv_updateScene(
                        self._model, data, self._option, None, camera, everything, self._scene
                    )
                    mujoco.mjr_render(self._viewport, self._scene, self._context)
                    bottom_up = np.empty((self._height, self._width, 3), np.uint8)
                    mujoco.mjr_readPixels(bottom_up, None, self._viewport, self._context)
                    images[row, column] = bottom_up[::-1]
        return images

    def close(self) -> None:
        """Free the OpenGL context. Calling it twice is allowed."""
        if self._gl is not None:
            with self._current():
                self._context.free()
            self._gl.free()
            self._gl = None

    @contextlib.contextmanager
    def _current(self) -> Iterator[None]:
        assert self._gl is not None, "the renderer is closed"
        self._gl.make_current()
        yield


def _leave_out_effects(model: mujoco.MjModel) -> None:
    model.light_castshadow[:] = 0
    model.mat_reflectance[:] = 0
    model.vis.quality.offsamples = 0
    model.vis.quality.shadowsize = 0


def _make_context(backend: str, width: int, height: int):
    check_unbound(backend)
    try:
        return importlib.import_module(f"mujoco.{backend}").GLContext(width, height)
    except (
        ImportError,
        AttributeError,
        RuntimeError,
    ) as error:  # PyOpenGL without its library: AttributeError
        raise ValueError(
            f"OpenGL through '{backend}' does not work here ({error}); use renderer=warp, "
            "which needs no OpenGL, or see: rrf doctor"
        ) from error
