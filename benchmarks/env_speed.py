"""Rendering and recording speed: `images_per_cpu_s_64` and `demo_frames_per_s`.

The rendered scene is Meta-World's pick-place (67 thousand mesh faces, 3 lights) in running
episodes, with camera corner2 and 64 x 64 pixels. The peer is Meta-World's own rendering,
`env.render()` through OpenGL with its defaults. It runs in a child process with the first backend
that works; if none works, there is no peer. CPU-seconds count all threads of the process.
"""

import sys
import tempfile
from pathlib import Path

from benchmarks.clock import Stopwatch, median_cpu_s
from benchmarks.harness import Bench, apart
from rrf.envs.demonstrations.collect import CollectCfg, collect
from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.envs.metaworld.tasks import DEMO_TASKS
from rrf.envs.rendering.gl_platform import unbound_environment
from rrf.envs.rendering.renderers import probe_renderer
from rrf.envs.vec_env import InitialState

TASK = "pick-place-v3"
SEED = 42
SIZE = 64
NUM_EPISODES = 32
BATCH = 8
NUM_ROUNDS = 15
RECORD_EPISODES = 25
_PEER = """
import sys, warnings
warnings.filterwarnings("ignore")
import metaworld
from benchmarks.clock import median_cpu_s
task, seed, size, rounds = sys.argv[1], *map(int, sys.argv[2:])
benchmark = metaworld.MT1(task, seed=seed)
env = benchmark.train_classes[task](
    render_mode="rgb_array", camera_name="corner2", width=size, height=size
)
env.set_task(benchmark.train_tasks[0])
env.reset()
assert env.render().shape == (size, size, 3)
print(1 / median_cpu_s(env.render, repeats=rounds, times=4)[0])
"""


def images_per_cpu_s_64(bench: Bench) -> dict:
    """Images per CPU-second of the ray tracer; median over rounds of 32 images in batches of 8."""
    from rrf.envs.metaworld.engine import TaskEngine

    engine = TaskEngine(TASK, action_repeat=5, cameras=["corner2"])
    episodes = [engine.begin(InitialState(TASK, SEED, index)) for index in range(NUM_EPISODES)]

    def draw() -> None:
        images = engine.images(episodes, "warp", SIZE, BATCH, "cpu")["corner2"]
        assert images.shape == (NUM_EPISODES, SIZE, SIZE, 3)

    # The first round, which does not count, also records Warp's kernel launches.
    [batch_s] = median_cpu_s(draw, repeats=bench.size(NUM_ROUNDS, 1))
    engine.close()
    value = NUM_EPISODES / batch_s
    peer, peer_value = _metaworld_rendering()
    return bench.compare(
        "images_per_cpu_s_64", value, "images/CPU-s", peer, peer_value, seeds=[SEED]
    )


def demo_frames_per_s(bench: Bench) -> dict:
    """Frames that `rrf data collect` records per wall second in two processes.

    The ten demonstration tasks are recorded with 25 episodes each. The time includes the start of
    the processes, but not the compilation of Warp's kernels, which happens once per machine: a
    short recording beforehand takes care of that.
    """
    with tempfile.TemporaryDirectory() as scratch:
        cfg = CollectCfg(
            env=MetaWorldCfg(max_episode_steps=50),
            tasks=list(DEMO_TASKS),
            episodes=bench.size(RECORD_EPISODES, 1),
            num_workers=2,
            out=str(Path(scratch, "demos")),
        )
        collect(cfg.replace(tasks=[TASK], episodes=1, out=str(Path(scratch, "warm_up"))))
        with Stopwatch() as watch:
            recorded = collect(cfg)
    return bench.number(
        "demo_frames_per_s",
        sum(task.frames for task in recorded) / watch.wall_s,
        "frames/s",
        seeds=[cfg.seed],
    )


def _metaworld_rendering() -> tuple[str, float] | tuple[None, None]:
    backend = next((name for name in ("egl", "osmesa") if probe_renderer(name) == "ok"), None)
    if backend is None:
        return None, None
    peer = f"metaworld env.render() ({backend})"
    command = [sys.executable, "-c", _PEER, TASK, str(SEED), str(SIZE), "5"]
    return peer, apart(peer, command, unbound_environment() | {"MUJOCO_GL": backend})
