"""The one OpenGL backend a process is bound to, as PyOpenGL keeps it: in an environment variable.

Nothing here imports OpenGL or MuJoCo, so whoever starts another process can ask too.
"""

import os

GL_PLATFORM = "PYOPENGL_PLATFORM"
"""Environment variable by which a process is bound to one backend once it has used it."""
_CHOICES = (GL_PLATFORM, "MUJOCO_GL")  # mjlab sets the latter when imported, MuJoCo obeys it


def check_unbound(backend: str) -> None:
    """Raise ValueError if this process already uses another backend than `backend`."""
    platform = os.environ.get(GL_PLATFORM)
    if platform not in (None, "", backend):
        raise ValueError(
            f"this process already uses OpenGL through {platform}; {backend} needs its own process"
        )


def unbound_environment() -> dict[str, str]:
    """The environment for a child process that may choose its own backend."""
    return {key: value for key, value in os.environ.items() if key not in _CHOICES}
