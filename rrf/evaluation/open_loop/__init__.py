"""Evaluation on recorded episodes: how far predicted actions are from the demonstrated ones."""
