"""Stable-Baselines3 trains a Go1: uv pip install stable-baselines3, then run this file."""

from stable_baselines3 import PPO

import rrf.envs
from rrf.presets import resolve

env = rrf.envs.as_sb3(resolve("go1-flat-ppo").env, num_envs=256)
model = PPO("MlpPolicy", env, n_steps=24, batch_size=1536, n_epochs=5, ent_coef=0.005, verbose=1)
model.learn(1_000_000)
env.close()
