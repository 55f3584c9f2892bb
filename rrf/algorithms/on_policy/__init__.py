"""Learning from what was just played: PPO, its extensions (RND, symmetry), SAPG, EPO."""
