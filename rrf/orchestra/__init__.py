"""The roles of distributed reinforcement learning (environments, rollout, actor), and a backend."""
