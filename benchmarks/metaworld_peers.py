"""Peers without this package: simple loops that play a policy in Meta-World, one episode after
another, with OpenGL images.

`python -m benchmarks.metaworld_peers naive|lerobot CHECKPOINT EPISODES` prints episodes per second.
`naive` calls Meta-World's own `env.step` and renders 64 px images only when the policy needs one.
`lerobot` uses that library's `MetaworldEnv`, which renders 480 px images at every control step.
"""

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.clock import Stopwatch
from benchmarks.harness import apart
from rrf.data.schema import Observation
from rrf.envs.metaworld.tasks import INSTRUCTIONS
from rrf.envs.rendering.gl_platform import GL_PLATFORM

TASK = "drawer-open-v3"
_DECISIONS, _ACTION_REPEAT, _SIZE = 15, 5, 64


def episodes_per_s(peer: str, checkpoint: Path, episodes: int) -> float | None:
    """Measure a peer in a separate process; None if OpenGL with EGL does not work here."""
    from rrf.envs.rendering.renderers import probe_renderer

    if probe_renderer("egl") != "ok":
        return None
    environment = {name: value for name, value in os.environ.items() if name != GL_PLATFORM}
    command = [sys.executable, "-m", __name__, peer, str(checkpoint), str(episodes)]
    return apart(peer, command, environment | {"MUJOCO_GL": "egl"})


def _naive() -> tuple[Callable, Callable, Callable]:
    """reset() -> state, look() -> image, step(action) -> (state, success)."""
    import metaworld

    benchmark = metaworld.MT1(TASK, seed=42)
    env = benchmark.train_classes[TASK](
        render_mode="rgb_array", camera_name="corner2", width=_SIZE, height=_SIZE
    )
    tasks = iter(benchmark.train_tasks)

    def reset():
        env.set_task(next(tasks))
        return env.reset()[0][:4]

    def look():
        return np.asarray(env.render())[::-1, ::-1]

    def step(action):
        state, _, _, _, info = env.step(action)
        return state[:4], bool(info["success"])

    return reset, look, step


def _lerobot() -> tuple[Callable, Callable, Callable]:
    """The same three functions for lerobot's environment."""
    import torch
    from lerobot.envs.metaworld import MetaworldEnv

    env = MetaworldEnv(TASK, obs_type="pixels_agent_pos")
    seen = {}

    def reset():
        seen.update(env.reset()[0])
        return seen["agent_pos"]

    def look():
        image = torch.from_numpy(seen["pixels"]).permute(2, 0, 1).float()
        small = torch.nn.functional.interpolate(image[None], (_SIZE, _SIZE), mode="area")[0]
        return small.permute(1, 2, 0).byte().numpy()

    def step(action):
        observation, _, _, _, info = env.step(action)
        seen.update(observation)
        return seen["agent_pos"], info["is_success"]

    return reset, look, step


def main() -> None:
    """Play the episodes and print their rate; the first one is not counted."""
    warnings.filterwarnings("ignore")
    from rrf.runners.checkpoints.checkpoint import load_policy

    peer, checkpoint, episodes = sys.argv[1], sys.argv[2], int(sys.argv[3])
    policy = load_policy(checkpoint)
    reset, look, step = {"naive": _naive, "lerobot": _lerobot}[peer]()
    reset()
    look()  # the first image sets up OpenGL
    with Stopwatch() as watch:
        for _ in range(episodes):
            _play(policy, reset(), look, step)
    print(episodes / watch.wall_s)


def _play(policy, state: np.ndarray, look: Callable, step: Callable) -> None:
    for _ in range(_DECISIONS):
        image = np.ascontiguousarray(look())[None]
        seen = Observation({"corner2": image}, state[None].astype(np.float32), [INSTRUCTIONS[TASK]])
        for action in policy.sample(seen).actions[0]:
            is_success = False
            for _ in range(_ACTION_REPEAT):
                state, is_success = step(np.clip(action, -1, 1))
            if is_success:
                return


if __name__ == "__main__":
    main()
