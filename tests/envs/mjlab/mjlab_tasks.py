"""mjlab's tasks as environments of ours, small enough for a test."""

from rrf.envs.mjlab.configs import MjlabEnvCfg

GO1 = "Mjlab-Velocity-Flat-Unitree-Go1"
ROUGH = "Mjlab-Velocity-Rough-Unitree-Go1"
CARTPOLE = "Mjlab-Cartpole-Balance"


def build(task: str = GO1, num_envs: int = 4, seed: int = 0, **fields):
    return MjlabEnvCfg(task=task, num_envs=num_envs, **fields).build(seed=seed)
