"""Isaac Lab's own rsl_rl run of two iterations; runs in its interpreter: FOLDER_OF_OURS OUT."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import importlib.metadata
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import numpy as np
import torch
import world
from isaaclab_rl.rsl_rl import RslRlVecEnvWrapper, handle_deprecated_rsl_rl_cfg
from isaaclab_tasks.utils.parse_cfg import load_cfg_from_registry
from rsl_rl.runners import OnPolicyRunner

TASK, OUT = "Isaac-Cartpole", Path(sys.argv[2])
env, stack = world.make(
    TASK, "newton_mjwarp", {}, is_seeded=False, num_envs=8, seed=0, device="cpu"
)
agent = load_cfg_from_registry(TASK, "rsl_rl_cfg_entry_point")
agent.device = "cpu"
settings = handle_deprecated_rsl_rl_cfg(agent, importlib.metadata.version("rsl-rl-lib")).to_dict()
wrapped = RslRlVecEnvWrapper(env)
runner = OnPolicyRunner(wrapped, settings, log_dir=None, device="cpu")
runner.learn(2)
runner.save(str(OUT / "model.pt"))
observations, policy = wrapped.get_observations(), runner.get_inference_policy(device="cpu")
with torch.inference_mode():
    actions = policy(observations)
np.savez(OUT / "actions.npz", observations=observations["policy"].numpy(), actions=actions.numpy())
stack.close()
