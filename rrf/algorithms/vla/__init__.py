"""Algorithms for policies that see images: behaviour cloning, GRPO, PPO, SAC of residuals."""
