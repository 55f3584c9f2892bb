"""On-policy algorithms, which learn from the last rollout: PPO, RND and symmetry, SAPG, EPO."""
