"""MuJoCo's own window, which shows one environment while it is stepped."""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import math
import os
import sys
import time
import typing

import mujoco

from rrf.envs.control_env import ControlEnv
from rrf.envs.rendering import tracking_camera
from rrf.envs.wrappers.wrapper import ControlEnvWrapper

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


def require_display() -> None:
    """Raise ValueError if no window can be opened."""
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in _DISPLAYS):
        raise ValueError(
            "--viewer opens a window, but there is no display here (neither DISPLAY nor "
            "WAYLAND_DISPLAY is set); write a video instead: --video out.mp4"
        )


def copy_pose(model: mujoco.MjModel, data: mujoco.MjData, shown: mujoco.MjData) -> None:
    """Bring `shown` to the state of `data`, including kinematics and contacts."""
    shown.qpos[:], shown.qvel[:] = data.qpos, data.qvel
    shown.mocap_pos[:], shown.mocap_quat[:] = data.mocap_pos, data.mocap_quat
    shown.time = data.time
    mujoco.mj_forward(model, shown)


class PassiveViewer:
    """Shows environment 0 at the speed of its own time."""

    def __init__(self, env: ControlEnv):
        """Open the window.

        Raises:
            ValueError: Without a display, or for an environment that is not stepped by MuJoCo's C
                library.
        """
        self._env: typing.Any = env.unwrapped if isinstance(env, ControlEnvWrapper) else env
        model = getattr(self._env, "mj_model", None)
        if model is None:
            raise ValueError(
                f"{env.interface.task} is not stepped by MuJoCo's C library, which the viewer "
                "shows; write a video instead: --video out.mp4"
            )
        require_display()
        import mujoco.viewer

        self._shown = mujoco.MjData(model)
        self._model, self._step_dt = model, env.interface.step_dt
        self._copy_pose()
        # The panels would fill a small window. Tab and Shift-Tab show them.
        self._viewer = mujoco.viewer.launch_passive(
            model, self._shown, show_left_ui=False, show_right_ui=False
        )
        self._look_at_robot()
        self._next = time.perf_counter()

    def _look_at_robot(self) -> None:
        """Start with the view that videos have. From there on the mouse moves the camera."""
        view, camera = tracking_camera.view_of(self._model), self._viewer.cam
        if view.is_followed:
            camera.type, camera.trackbodyid = mujoco.mjtCamera.mjCAMERA_TRACKING, view.root
        x, y, z = -view.offset
        camera.lookat[:], camera.distance = view.center, math.hypot(x, y, z)
        camera.azimuth = math.degrees(math.atan2(y, x))
        camera.elevation = math.degrees(math.atan2(z, math.hypot(x, y)))

    @property
    def is_open(self) -> bool:
        """Whether the window is still open."""
        return self._viewer.is_running()

    def show(self) -> None:
        """Show the current state, then wait until the next step is due."""
        with self._viewer.lock():
            self._copy_pose()
        self._viewer.sync()
        self._next += self._step_dt
        time.sleep(max(0.0, self._next - time.perf_counter()))

    def _copy_pose(self) -> None:
        (data,) = self._env.mj_datas([0])
        copy_pose(self._model, data, self._shown)

    def close(self) -> None:
        """Close the window."""
        self._viewer.close()
