"""Isaac Lab on a CPU through our adapter: environment steps per CPU-second of all processes.

`python -m benchmarks.platforms ID` needs `rrf envs setup isaaclab`.
"""

import torch

from benchmarks.harness import Bench, Measure
from benchmarks.peers import NotMeasuredError
from rrf.evaluation.cpu_time import cpu_seconds
from rrf.presets import resolve
from rrf.runners.control.configs import ControlRunnerCfg

_WARM_UP = 10


def cartpole(bench: Bench) -> dict:
    """Steps of the cart-pole with random actions, 64 environments as Isaac Lab has them."""
    return _steps(bench, "isaaclab_cartpole_env_steps_per_cpu_s", "isaaclab-cartpole-ppo", 64, 300)


def go2(bench: Bench) -> dict:
    """Steps of Go2 with random actions, 256 environments as the preset has them."""
    return _steps(bench, "isaaclab_go2_env_steps_per_cpu_s", "isaaclab-go2-flat-ppo", 256, 100)


def _steps(bench: Bench, id: str, preset: str, num_envs: int, num_steps: int) -> dict:
    cfg = resolve(preset)
    assert isinstance(cfg, ControlRunnerCfg)
    try:
        env = cfg.env.replace(num_envs=num_envs).build(seed=0)
    except ValueError as error:
        raise NotMeasuredError(str(error)) from error
    generator = torch.Generator().manual_seed(0)
    actions = torch.randn(_WARM_UP, num_envs, env.num_actions, generator=generator)
    try:
        for each in actions:
            env.step(each)
        begun, count = cpu_seconds(), bench.size(num_steps, _WARM_UP)
        for step in range(count):
            env.step(actions[step % _WARM_UP])
        cpu_s = cpu_seconds() - begun
    finally:
        env.close()
    return bench.number(id, count * num_envs / cpu_s, "env-steps/CPU-s", seeds=[0])


IDS: dict[str, Measure] = {
    "isaaclab_cartpole_env_steps_per_cpu_s": cartpole,
    "isaaclab_go2_env_steps_per_cpu_s": go2,
}
