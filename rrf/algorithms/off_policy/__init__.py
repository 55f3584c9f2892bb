"""Learning from a replay of all that was seen: SAC, its sequence variants, DSAC."""
