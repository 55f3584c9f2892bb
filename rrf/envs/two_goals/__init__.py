"""A small task with two solutions, for testing populations of policies."""
