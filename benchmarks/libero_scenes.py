"""Writes scenes of LIBERO with states of their episodes, for `benchmarks.libero_rendering`.

LIBERO's packages do not fit beside this project's, so another interpreter runs this file. It
imports nothing of rrf:

`PYTHON -m benchmarks.libero_scenes FOLDER NUM_SCENES NUM_STATES SEED` writes
`FOLDER/<number>/scene.xml` (with the absolute paths of the package's meshes and textures),
`qpos.npy` float64 [NUM_STATES, nq], and `task.txt`, the suite and the name of the task. The tasks
are drawn by `SEED`, the suites take turns. The states are those of an episode with random actions
that starts in the first of the task's own initial states.
"""

# pyright: reportMissingImports=false

import json
import sys
from pathlib import Path

import numpy as np

SUITES = ("libero_90", "libero_10", "libero_spatial", "libero_object", "libero_goal")
_STEPS_BETWEEN = 4
_SETTLE_STEPS = 5  # LIBERO's own evaluation lets objects fall before it begins, too


def main() -> None:
    """Write the scenes that the command line asks for."""
    folder, (num_scenes, num_states, seed) = Path(sys.argv[1]), map(int, sys.argv[2:])
    from libero.libero.benchmark import get_benchmark

    rng = np.random.default_rng(seed)
    for number in range(num_scenes):
        suite = get_benchmark(SUITES[number % len(SUITES)])()
        task = int(rng.integers(suite.get_num_tasks()))
        _write(folder / str(number), suite, task, num_states, rng)
    print(json.dumps(num_scenes))


def _write(folder: Path, suite, task: int, num_states: int, rng: np.random.Generator) -> None:
    from libero.libero.envs.env_wrapper import ControlEnv

    env = ControlEnv(
        suite.get_task_bddl_file_path(task), use_camera_obs=False, has_offscreen_renderer=False
    )
    env.reset()
    env.set_state(suite.get_task_init_states(task)[0])
    env.sim.forward()
    for _ in range(_SETTLE_STEPS):
        env.step(np.array([0, 0, 0, 0, 0, 0, -1.0]))
    states = []
    for _ in range(num_states):
        states.append(env.sim.data.qpos.copy())
        action = rng.uniform(-1, 1, 7)
        for _ in range(_STEPS_BETWEEN):
            env.step(action)
    folder.mkdir(parents=True)
    (folder / "scene.xml").write_text(env.sim.model.get_xml())
    (folder / "task.txt").write_text(f"{suite.name} {suite.get_task(task).name}")
    np.save(folder / "qpos.npy", np.stack(states))
    env.close()


if __name__ == "__main__":
    main()
