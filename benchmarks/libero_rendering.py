"""LIBERO's scenes drawn by the ray tracer and by MuJoCo's own OpenGL renderer, with two cameras.

`python -m benchmarks.libero_rendering --peers PYTHON` measures `libero_images_ratio_vs_gl` and
`libero_image_difference` on scenes drawn by a seed, and draws some side by side in
`docs/images/libero-tracer.png`. PYTHON is an interpreter with LIBERO and its assets; `python -m
benchmarks.peers` has the command that makes one.

Both renderers draw the same states of the same models in this process, taking turns. A rate is
images per CPU-second, all threads of the process counted. OpenGL draws once as MuJoCo does by
default, which the pictures are compared with, and once without multi-sampling and reflections, as
`rrf.envs.rendering.gl_renderer` does for speed; the ratio is to the faster one. Compilation of
models and kernels is not counted. The lights of LIBERO's scenes cast no shadows.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import mujoco
import numpy as np
from PIL import Image

from benchmarks import harness, record
from benchmarks.clock import cpu_s_of, in_turns
from benchmarks.harness import Bench, Measure
from benchmarks.peers import PEERS, NotMeasuredError
from rrf.envs.rendering.gl_platform import unbound_environment
from rrf.envs.rendering.gl_renderer import GLRenderer
from rrf.envs.rendering.renderers import make_renderer, probe_renderer
from rrf.envs.rendering.video import caption, tile

CAMERAS = ("agentview", "robot0_eye_in_hand")
GEOM_GROUPS = (1, 2)  # LIBERO hides group 0, its collision geoms
SIZE = 128
SEED = 0
NUM_SCENES = 5
NUM_STATES = 8
NUM_ROUNDS = 3
PICTURE = record.ROOT / "docs" / "images" / "libero-tracer.png"
_TRACER, _DEFAULT, _FAST = "tracer", "by default", "without effects"


def measure(bench: Bench) -> list[dict]:
    """Draw the scenes with both renderers."""
    backend = next((name for name in ("egl", "osmesa") if probe_renderer(name) == "ok"), None)
    if backend is None:
        raise NotMeasuredError(
            f"OpenGL works neither through EGL ({probe_renderer('egl')}) nor OSMesa"
        )
    with tempfile.TemporaryDirectory() as scratch:
        folder = bench.options.scenes or Path(scratch, "scenes")
        if not bench.options.scenes:
            sizes = (bench.size(NUM_SCENES, 1), NUM_STATES, SEED)
            bench.peer("libero", folder, *sizes, env=unbound_environment())
        scenes = []
        for path in sorted(folder.iterdir()):
            scenes.append(_Scene(path, backend))
            print(scenes[-1].line(), flush=True)
    if bench.saves:
        Image.fromarray(_picture(scenes)).save(PICTURE, optimize=True)
    return _numbers(bench, scenes, backend)


class _Scene:
    """One scene: images of its states from each renderer, their rates and differences."""

    def __init__(self, folder: Path, backend: str):
        self.task = (folder / "task.txt").read_text()
        spec = mujoco.MjSpec.from_file(str(folder / "scene.xml"))
        model = spec.compile()
        datas = [_posed(model, qpos) for qpos in np.load(folder / "qpos.npy")]
        drawing = (spec, model, CAMERAS, (SIZE, SIZE))
        tracer = make_renderer(
            "warp", *drawing, max_batch=len(datas), geom_groups=GEOM_GROUPS, use_gl_shading=True
        )
        fast, default = (
            GLRenderer(*drawing[1:], backend, GEOM_GROUPS, is_fast) for is_fast in (True, False)
        )
        renderers = {_TRACER: tracer, _FAST: fast, _DEFAULT: default}
        self.images = {name: made.render(datas) for name, made in renderers.items()}
        rounds = in_turns(
            *(lambda made=made: cpu_s_of(made.render, datas) for made in renderers.values()),
            repeats=NUM_ROUNDS,
        )
        self.seconds = dict(zip(renderers, map(sum, rounds), strict=True))
        for made in renderers.values():
            made.close()
        off = np.abs(self.images[_TRACER].astype(float) - self.images[_DEFAULT])
        self.differences = off.mean((1, 2, 3, 4)).round(2).tolist()  # by camera

    def line(self) -> str:
        """Its numbers in a line."""
        drawn = NUM_ROUNDS * len(CAMERAS) * NUM_STATES
        rates = {name: round(drawn / spent, 1) for name, spent in self.seconds.items()}
        return f"{self.task}: {rates} images/CPU-s, differences {self.differences} of 255"


def _posed(model: mujoco.MjModel, qpos: np.ndarray) -> mujoco.MjData:
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_forward(model, data)
    return data


def _numbers(bench: Bench, scenes: Sequence[_Scene], backend: str) -> list[dict]:
    spent = {name: sum(scene.seconds[name] for scene in scenes) for name in scenes[0].seconds}
    drawn = len(scenes) * NUM_ROUNDS * len(CAMERAS) * NUM_STATES
    faster = min((_FAST, _DEFAULT), key=lambda name: spent[name])
    ratio = spent[faster] / spent[_TRACER]
    seeds, peer = [SEED], f"{PEERS['mujoco'].name} {faster} ({backend})"
    differences = np.array([scene.differences for scene in scenes])
    rows = [
        bench.compare(
            "libero_images_per_cpu_s",
            drawn / spent[_TRACER],
            "images/CPU-s",
            peer,
            drawn / spent[faster],
            seeds=seeds,
        ),
        bench.number("libero_images_ratio_vs_gl", ratio, f"times {peer}", seeds=seeds),
        bench.number("libero_image_difference", differences.mean(), "of 255", seeds=seeds),
    ]
    for camera, difference in zip(CAMERAS, differences.mean(0), strict=True):
        id = f"libero_image_difference_{camera}"
        rows.append(bench.number(id, difference, "of 255", seeds=seeds))
    return rows


def _picture(scenes: Sequence[_Scene]) -> np.ndarray:
    """A row per scene: the tracer and OpenGL from the first camera, then from the second."""
    cells = []
    for scene in scenes:
        for camera in range(len(CAMERAS)):
            for name, label in ((_TRACER, "tracer"), (_DEFAULT, "GL")):
                text = f"{label}, {CAMERAS[camera].removeprefix('robot0_')}"
                cells.append(caption(scene.images[name][camera, 0], text))
    return tile(cells, columns=2 * len(CAMERAS))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scenes", type=Path, help="a folder that libero_scenes wrote before")


IDS: dict[str, Measure] = {
    "libero_images_per_cpu_s": measure,
    "libero_images_ratio_vs_gl": measure,
    "libero_image_difference": measure,
}


if __name__ == "__main__":
    harness.main("libero_rendering", __doc__, IDS, add_options=add_options)
