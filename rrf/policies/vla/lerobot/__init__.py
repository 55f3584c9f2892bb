"""lerobot's own policies (ACT, Diffusion, SmolVLA, X-VLA and others) behind our contract."""
