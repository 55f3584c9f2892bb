"""Algorithms that learn a model of the dynamics, and a policy from what the model imagines."""
