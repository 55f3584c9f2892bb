"""Storage of experience: rollouts, replay buffers, sequences, episodes."""
