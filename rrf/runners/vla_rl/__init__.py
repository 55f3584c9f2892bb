"""The reinforcement-learning loop of policies that see images."""
