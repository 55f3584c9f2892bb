"""The one OpenGL backend that a process is bound to. PyOpenGL keeps it in an environment variable.

Nothing here imports OpenGL or MuJoCo, so code that starts another process can use it, too.
"""

import os

GL_PLATFORM = "PYOPENGL_PLATFORM"
"""The environment variable that binds a process to one backend once the process has used it."""
_CHOICES = (GL_PLATFORM, "MUJOCO_GL")  # mjlab sets the latter when imported, MuJoCo obeys it

_DEVICE = "MUJOCO_EGL_DEVICE_ID"


def check_unbound(backend: str) -> None:
    """Raise ValueError if this process already uses another backend than `backend`."""
    platform = os.environ.get(GL_PLATFORM)
    if platform not in (None, "", backend):
        raise ValueError(
            f"this process already uses OpenGL through {platform}; {backend} needs its own process"
        )


def unbound_environment() -> dict[str, str]:
    """The environment variables for a child process that may choose its own backend."""
    return {key: value for key, value in os.environ.items() if key not in _CHOICES}


def variables_of_robosuite(backend: str) -> dict[str, str]:
    """The environment variables with which robosuite draws through `backend` in a child process.

    It takes an empty `CUDA_VISIBLE_DEVICES`, with which people hide all GPUs, for the number of a
    device. So it is told to take the first one, as without the variable.
    """
    chosen: dict[str, str] = {name: backend for name in _CHOICES}
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "" and not os.environ.get(_DEVICE):
        chosen[_DEVICE] = "0"
    return chosen
