"""Imitation by discriminators: a policy earns rewards for what looks like a demonstration."""
