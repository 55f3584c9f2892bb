"""Experiment tracking with MLflow, TensorBoard, W&B and SwanLab behind one protocol; lineage; the
model registry.

Nothing here imports torch.
"""
