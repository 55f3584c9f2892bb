"""The training loop for imitation of recorded episodes."""
