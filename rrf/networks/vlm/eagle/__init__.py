"""Eagle 2.5 (arXiv:2504.15271), the backbone of GR00T N1.5, with transformers' SigLIP and Qwen3."""
