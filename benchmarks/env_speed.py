"""Rendering and recording speed: `images_per_cpu_s_64` and `demo_frames_per_s`.

The rendered scene is Meta-World's pick-place (67 thousand mesh faces, 3 lights) in running
episodes, with camera corner2 and 64 x 64 pixels. The peer is Meta-World's own rendering,
`env.render()` through OpenGL with its defaults. It runs in a child process with the first backend
that works; if none works, there is no peer. CPU-seconds count all threads of the process.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import record
from rrf.envs.demonstrations.collect import CollectCfg, collect
from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.envs.metaworld.tasks import DEMO_TASKS
from rrf.envs.rendering.gl_platform import unbound_environment
from rrf.envs.rendering.renderers import probe_renderer
from rrf.envs.vec_env import InitialState

COMMAND = "python -m benchmarks.skeleton"
TASK = "pick-place-v3"
SEED = 42
SIZE = 64
NUM_EPISODES = 32
BATCH = 8
NUM_ROUNDS = 15
RECORD_EPISODES = 25
_PEER = """
import statistics, sys, time, warnings
warnings.filterwarnings("ignore")
import metaworld
task, seed, size, rounds = sys.argv[1], *map(int, sys.argv[2:])
benchmark = metaworld.MT1(task, seed=seed)
env = benchmark.train_classes[task](
    render_mode="rgb_array", camera_name="corner2", width=size, height=size
)
env.set_task(benchmark.train_tasks[0])
env.reset()
env.render()
rates = []
for _ in range(rounds):
    begin = time.process_time()
    for _ in range(4):
        assert env.render().shape == (size, size, 3)
    rates.append(4 / (time.process_time() - begin))
print(statistics.median(rates))
"""


def images_per_cpu_s_64() -> dict:
    """Images per CPU-second of the ray tracer; median over rounds of 32 images in batches of 8."""
    from rrf.envs.metaworld.engine import TaskEngine

    engine = TaskEngine(TASK, action_repeat=5, cameras=["corner2"])
    episodes = [engine.begin(InitialState(TASK, SEED, index)) for index in range(NUM_EPISODES)]
    rates = []
    for _ in range(NUM_ROUNDS + 1):
        begin = time.process_time()
        images = engine.images(episodes, "warp", SIZE, BATCH, "cpu")["corner2"]
        rates.append(NUM_EPISODES / (time.process_time() - begin))
        assert images.shape == (NUM_EPISODES, SIZE, SIZE, 3)
    engine.close()
    value = statistics.median(rates[1:])  # the first round also records Warp's kernel launches
    peer, peer_value = _metaworld_rendering()
    return record.number(
        "images_per_cpu_s_64",
        value,
        "images/CPU-s",
        command=f"{COMMAND} images_per_cpu_s_64",
        peer=peer,
        peer_value=peer_value,
        ratio=None if peer_value is None else value / peer_value,
        seeds=[SEED],
    )


def demo_frames_per_s() -> dict:
    """Frames that `rrf data collect` records per wall second in two processes.

    The ten demonstration tasks are recorded with 25 episodes each. The time includes the start of
    the processes, but not the compilation of Warp's kernels, which happens once per machine: a
    short recording beforehand takes care of that.
    """
    with tempfile.TemporaryDirectory() as scratch:
        cfg = CollectCfg(
            env=MetaWorldCfg(max_episode_steps=50),
            tasks=list(DEMO_TASKS),
            episodes=RECORD_EPISODES,
            num_workers=2,
            out=str(Path(scratch, "demos")),
        )
        collect(cfg.replace(tasks=[TASK], episodes=1, out=str(Path(scratch, "warm_up"))))
        begin = time.perf_counter()
        recorded = collect(cfg)
        seconds = time.perf_counter() - begin
    return record.number(
        "demo_frames_per_s",
        sum(task.frames for task in recorded) / seconds,
        "frames/s",
        command=f"{COMMAND} demo_frames_per_s",
        seeds=[cfg.seed],
    )


def _metaworld_rendering() -> tuple[str, float] | tuple[None, None]:
    backend = next((name for name in ("egl", "osmesa") if probe_renderer(name) == "ok"), None)
    if backend is None:
        return None, None
    done = subprocess.run(
        [sys.executable, "-c", _PEER, TASK, str(SEED), str(SIZE), "5"],
        env=unbound_environment() | {"MUJOCO_GL": backend},
        check=True,
        capture_output=True,
        text=True,
    )
    return f"metaworld env.render() ({backend})", float(done.stdout)
