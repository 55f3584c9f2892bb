"""Off-policy algorithms, which learn from a replay buffer: SAC, its sequence variants, DSAC."""
