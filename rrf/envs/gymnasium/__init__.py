"""Tasks of Gymnasium and EnvPool, and tasks that users register."""
