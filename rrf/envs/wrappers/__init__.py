"""Environments around environments, each a `rrf.envs.control_env.ControlEnv` again.

The order is DynamicEnv (reward terms and command), GroupVecWrapper (training and evaluation slots),
MultiModal (images and instruction).
"""
