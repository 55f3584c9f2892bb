"""Isaac Lab's own rsl_rl run, with a row of a learning curve after every iteration.

Runs in Isaac Lab's interpreter, without rrf: OURS TASK NUM_ENVS ITERATIONS SEED OVERRIDES OUT.
OURS is the folder of rrf/envs/isaaclab, OVERRIDES is JSON, and OUT gets curve.csv and model.pt. The
settings are those that Isaac Lab has for the task, except the number of environments.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import collections
import csv
import importlib.metadata
import json
import sys
import time
from pathlib import Path

FIELDS = ("steps", "return", "length", "cpu_s")
_EPISODES = 100  # the last ones, of which the mean is taken


def main(
    ours: str, task: str, num_envs: int, iterations: int, seed: int, overrides: dict, out: Path
):
    """Train, and write a row after each iteration."""
    sys.path[0] = ours  # instead of this folder, whose isaaclab.py has the name of the package
    import torch
    import world
    from isaaclab_rl.rsl_rl import RslRlVecEnvWrapper, handle_deprecated_rsl_rl_cfg
    from isaaclab_tasks.utils.parse_cfg import load_cfg_from_registry
    from rsl_rl.runners import OnPolicyRunner

    env, stack = world.make(task, "newton_mjwarp", overrides, False, num_envs, seed, "cpu")
    agent = load_cfg_from_registry(task, "rsl_rl_cfg_entry_point")
    agent.device, agent.seed = "cpu", seed
    settings = handle_deprecated_rsl_rl_cfg(agent, importlib.metadata.version("rsl-rl-lib"))
    torch.manual_seed(seed)
    wrapped = RslRlVecEnvWrapper(env, clip_actions=agent.clip_actions)
    ended = _count_episodes(wrapped, num_envs, torch)
    runner = OnPolicyRunner(wrapped, settings.to_dict(), log_dir=None, device="cpu")
    update, steps = runner.alg.update, 0
    with (out / "curve.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(FIELDS)

        def counted(*words, **named):
            nonlocal steps
            losses = update(*words, **named)
            steps += num_envs * agent.num_steps_per_env
            means = [sum(column) / len(ended) for column in zip(*ended, strict=True)]
            table.writerow([steps, *(means or [0.0, 0.0]), time.process_time()])
            file.flush()
            return losses

        runner.alg.update = counted
        runner.learn(iterations, init_at_random_ep_len=True)
    runner.save(str(out / "model.pt"))
    stack.close()


def _count_episodes(env, num_envs: int, torch) -> collections.deque:
    """Return and length of the last episodes that ended, kept while `env` steps."""
    ended = collections.deque(maxlen=_EPISODES)
    returns, lengths = torch.zeros(num_envs), torch.zeros(num_envs)
    step = env.step

    def counted(actions):
        observations, rewards, dones, extras = step(actions)
        returns.add_(rewards)
        lengths.add_(1)
        over = dones.nonzero().squeeze(-1)
        ended.extend(zip(returns[over].tolist(), lengths[over].tolist(), strict=True))
        returns[over] = 0.0
        lengths[over] = 0.0
        return observations, rewards, dones, extras

    env.step = counted
    return ended


if __name__ == "__main__":
    _ours, _task, _envs, _iterations, _seed, _overrides, _out = sys.argv[1:]
    main(
        *(_ours, _task, int(_envs), int(_iterations), int(_seed)),
        *(json.loads(_overrides), Path(_out)),
    )
