"""Wrappers around environments. Each wrapper is a `rrf.envs.control_env.ControlEnv`, too.

From the inside out, the order is DynamicEnv (reward terms and command), GroupVecWrapper (training
and evaluation slots), MultiModal (images and instruction).
"""
