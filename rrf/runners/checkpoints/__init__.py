"""Checkpoints: writing, reading, deployment; ONNX export and rsl_rl's checkpoint format."""
