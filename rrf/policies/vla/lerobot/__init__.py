"""lerobot's own policies (ACT, Diffusion, VQ-BeT, SmolVLA) behind our contract of policies."""
