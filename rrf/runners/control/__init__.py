"""The training loops of state-based policies."""
