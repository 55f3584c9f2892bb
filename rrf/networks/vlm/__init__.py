"""Backbones of vision-language-action models: images and a prompt in, features of every token out.

One folder or file per family. Configs do not import torch.
"""
