"""Learning of policies that see images: cloning, GRPO, PPO."""
