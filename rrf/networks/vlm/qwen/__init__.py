"""Qwen2-VL (arXiv:2409.12191) and Qwen3-VL as backbones, with transformers' classes."""
