"""Roles of distributed reinforcement learning: environments, rollout, actor; and what runs them."""
