"""Records of training runs in MLflow, TensorBoard, W&B and SwanLab behind one protocol.

Nothing here imports torch.
"""
