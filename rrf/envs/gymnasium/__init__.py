"""Gymnasium's tasks, EnvPool's, and those that users register."""
