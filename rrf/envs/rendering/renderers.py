"""Which renderers there are, which of them work on this machine, and how to make one.

| name   | needs                   | when                                                        |
|--------|-------------------------|-------------------------------------------------------------|
| warp   | nothing beside wheels   | the default: fastest up to 128 px; the same call runs on CUDA |
| egl    | libEGL with Mesa or GPU | larger images on a CPU, smooth textures                     |
| osmesa | libOSMesa               | the same, software only                                     |

An OpenGL import that fails cannot be tried again in the same process, so backends are probed in a
child process.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import functools
import subprocess
import sys
import typing
from collections.abc import Sequence

import numpy as np

from rrf.config import did_you_mean
from rrf.envs.rendering import VISIBLE_GROUPS
from rrf.envs.rendering.gl_platform import unbound_environment

if typing.TYPE_CHECKING:
    import mujoco

RENDERERS = ("warp", "egl", "osmesa")
AUTO = "auto"
_WARP_UP_TO_PX = 128
_NUM_GROUPS = 6
_PROBE_TIMEOUT_S = 300.0  # the first Warp probe of a machine compiles kernels
_PROBE = """
import sys
import mujoco
from rrf.envs.rendering.renderers import make_renderer
spec = mujoco.MjSpec.from_string(
    '<mujoco><visual><headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/></visual>'
    '<worldbody><geom type="sphere" size=".5" rgba="1 0 0 1"/><camera name="c" pos="0 0 3"/>'
    '</worldbody></mujoco>'
)
model = spec.compile()
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = make_renderer(sys.argv[1], spec, model, ["c"], (32, 32), device=sys.argv[2])
red, green, _ = renderer.render([data])[0, 0, 16, 16].tolist()
renderer.close()
sys.exit(0 if red > 100 > green else f"drew {red}, {green} where red was expected")
"""


class Renderer(typing.Protocol):
    """Draws native MuJoCo states of one model."""

    def render(self, datas: Sequence["mujoco.MjData"]) -> np.ndarray:
        """uint8 [cameras, states, H, W, 3], RGB, row 0 on top in each camera's own frame."""
        ...

    def close(self) -> None:
        """Free memory and contexts. Calling it twice is allowed."""
        ...


def make_renderer(
    name: str,
    spec: "mujoco.MjSpec",
    model: "mujoco.MjModel",
    cameras: Sequence[str],
    image_size: tuple[int, int],
    max_batch: int = 8,
    device: str = "cpu",
    geom_groups: Sequence[int] = VISIBLE_GROUPS,
    use_gl_shading: bool = False,
) -> Renderer:
    """The renderer called `name` (one of RENDERERS) for `model`, which `spec` compiles to.

    Args:
        image_size: (height, width) in pixels.
        max_batch: States that are drawn in one launch (warp only).
        device: Warp device, "cpu" or "cuda:0" (warp only).
        geom_groups: The groups of geoms to draw, some of 0 to 5. Simulators differ in what a group
            means: robosuite and LIBERO have collision geoms in group 0 and what should be seen in
            group 1.
        use_gl_shading: Whether the ray tracer shades and samples textures like MuJoCo's OpenGL
            (warp only; OpenGL always does).

    Raises:
        ValueError: For an unknown name, camera, group or device, or a GL backend that does not work
            here.
    """
    check_name(name)
    if not geom_groups or not set(geom_groups) <= set(range(_NUM_GROUPS)):
        raise ValueError(f"geom_groups is {list(geom_groups)}, allowed: one or more of 0 to 5")
    known = [model.camera(camera).name for camera in range(model.ncam)]
    for camera in cameras:
        if camera not in known:
            raise ValueError(f"no camera '{camera}'{did_you_mean(camera, known)}")
    if name == "warp":
        from rrf.envs.rendering.warp_renderer import WarpRenderer

        return WarpRenderer(
            spec,
            model,
            cameras,
            image_size,
            max_batch=max_batch,
            device=device,
            geom_groups=geom_groups,
            use_gl_shading=use_gl_shading,
        )
    from rrf.envs.rendering.gl_renderer import GLRenderer

    return GLRenderer(model, cameras, image_size, backend=name, geom_groups=geom_groups)


def check_name(name: str) -> None:
    """Raise ValueError unless `name` is one of RENDERERS."""
    if name not in RENDERERS:
        raise ValueError(f"no renderer '{name}'{did_you_mean(name, (*RENDERERS, AUTO))}")


def choose_renderer(name: str, image_size: int = 64, device: str = "cpu") -> str:
    """`name` itself, or for "auto" the fastest renderer that works on this machine.

    Up to 128 px and on CUDA this is the ray tracer. For larger images on a CPU it is OpenGL, if it
    works.
    """
    if name != AUTO:
        check_name(name)
        return name
    gl_first = image_size > _WARP_UP_TO_PX and device == "cpu"
    for candidate in ("egl", "osmesa", "warp") if gl_first else ("warp", "egl", "osmesa"):
        if probe_renderer(candidate, device) == "ok":
            return candidate
    raise ValueError(
        f"no renderer works on this machine: {probe_renderers(device)}; run: rrf doctor"
    )


def probe_renderers(device: str = "cpu") -> dict[str, str]:
    """Renderer name -> "ok", or why it does not work here."""
    return {name: probe_renderer(name, device) for name in RENDERERS}


@functools.cache
def probe_renderer(name: str, device: str = "cpu") -> str:
    """Let a child process draw a red ball: "ok" if it does, else the last line of its error."""
    check_name(name)
    command = [sys.executable, "-c", _PROBE, name, device]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
            env=unbound_environment(),
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_PROBE_TIMEOUT_S:.0f} s"
    if done.returncode == 0:
        return "ok"
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"ended with exit code {done.returncode}"
