"""Checkpoints: written, read, deployed; ONNX and rsl_rl."""
