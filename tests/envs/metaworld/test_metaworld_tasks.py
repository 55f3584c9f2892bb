import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rrf.envs import ENVS
from rrf.envs.foreign.configs import ForeignVecEnvCfg
from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.envs.metaworld.tasks import DIFFICULTY, INSTRUCTIONS, TASKS
from rrf.envs.vec_env import InitialState

CHEAP_TASKS = ("bin-picking-v3", "lever-pull-v3", "reach-v3")


def test_instructions_and_difficulties_are_those_of_lerobot():
    spec = importlib.util.find_spec("lerobot")
    assert spec is not None
    [package] = spec.submodule_search_locations or []
    published = json.loads((Path(package) / "envs" / "metaworld_config.json").read_text())
    assert published["TASK_DESCRIPTIONS"] == INSTRUCTIONS
    assert {name: sorted(tasks) for name, tasks in published["DIFFICULTY_TO_TASKS"].items()} == {
        name: sorted(tasks) for name, tasks in DIFFICULTY.items()
    }


def test_every_task_has_one_instruction_and_one_difficulty():
    assert len(TASKS) == 50
    assert sorted(task for tasks in DIFFICULTY.values() for task in tasks) == sorted(TASKS)
    assert {name: len(tasks) for name, tasks in DIFFICULTY.items()} == {
        "easy": 28,
        "medium": 11,
        "hard": 6,
        "very_hard": 5,
    }


def test_every_registered_environment_builds_and_obeys_the_contract():
    ours = [cfg for cfg in map(ENVS.get, ENVS) if cfg.__module__.startswith("rrf.")]
    # Those in interpreters of their own have tests of their own, which need them set up.
    # Those that a part of a policy runs in, too: tests/envs/humanoid/test_table.py.
    ours = [c for c in ours if not (issubclass(c, ForeignVecEnvCfg) or c.in_checkpoint)]
    assert MetaWorldCfg in ours
    for cfg in ours:
        check_contract(cfg(num_envs=2, cameras=[]), CHEAP_TASKS)


@pytest.mark.slow
def test_all_fifty_tasks_obey_the_contract():
    check_contract(MetaWorldCfg(num_envs=2, cameras=[]), TASKS)


@pytest.mark.slow
def test_all_fifty_tasks_can_be_rendered():
    env = MetaWorldCfg(num_envs=1, image_size=32, max_engines=1).build()
    for task in TASKS:
        images = env.reset([InitialState(task, 42, 7)]).images["corner2"]
        assert images.std() > 10, task
    env.close()


def check_contract(cfg, tasks):
    env = cfg.build()
    for task in tasks:
        starts = [InitialState(task, 42, 0), InitialState(task, 42, 49)]
        observation = env.reset(starts)
        assert observation.instruction == [INSTRUCTIONS[task]] * 2
        assert observation.state.shape == (2, env.state_dim)
        step = env.step(np.full((2, env.chunk_length, env.action_dim), 0.3, np.float32))
        assert step.observation.state.dtype == np.float32
        assert np.isfinite(step.observation.state).all()
        assert np.isfinite(step.reward).all()
        assert step.steps.tolist() == [env.chunk_length] * 2 or step.success.any()
        assert not np.array_equal(step.observation.state, observation.state), task
    env.close()


@pytest.mark.parametrize(
    "module",
    [
        "rrf.envs",
        "rrf.envs.vec_env",
        "rrf.envs.metaworld.env",
        "rrf.envs.process.workers",
        "rrf.envs.demonstrations.collect",
        "rrf.envs.rendering.renderers",
    ],
)
def test_importing_a_light_module_loads_no_simulator(module):
    heavy = ["torch", "mujoco", "warp", "mujoco_warp", "metaworld", "h5py", "av"]
    code = (
        f"import sys, {module}\n"
        f"loaded = [name for name in {heavy} if name in sys.modules]\n"
        "sys.exit(f'loaded {loaded}' if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
