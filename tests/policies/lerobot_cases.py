"""lerobot's policies of the smallest size, and observations for them."""

import numpy as np
import torch

from rrf.data.schema import ACTION, STATE, Batch, Observation
from rrf.policies.vla.lerobot.configs import LerobotPolicyCfg

CHUNK = 4
OPTIONS = {
    "act": {
        "dim_model": 32,
        "n_heads": 2,
        "dim_feedforward": 64,
        "n_encoder_layers": 1,
        "n_vae_encoder_layers": 1,
        "latent_dim": 4,
    },
    "diffusion": {
        "down_dims": [16, 32],
        "num_train_timesteps": 10,
        "spatial_softmax_num_keypoints": 4,
        "diffusion_step_embed_dim": 16,
    },
    "vqbet": {
        "crop_shape": None,
        "gpt_input_dim": 32,
        "gpt_output_dim": 32,
        "gpt_hidden_dim": 32,
        "gpt_n_layer": 1,
        "gpt_n_head": 2,
        "vqvae_embedding_dim": 8,
        "vqvae_enc_hidden_dim": 16,
        "n_vqvae_training_steps": 3,
        "spatial_softmax_num_keypoints": 4,
    },
    "smolvla": {
        "num_vlm_layers": 2,
        "resize_imgs_with_padding": [32, 32],
        "num_steps": 3,
        "max_state_dim": 8,
        "max_action_dim": 8,
        "expert_width_multiplier": 0.5,
    },
}


def policy_cfg(kind: str, vlm: str = "", **changes) -> LerobotPolicyCfg:
    """A config for two cameras (VQ-BeT: one) of 24 by 32 pixels, 4 states and 3 actions."""
    options = {**OPTIONS[kind], **({"vlm_model_name": vlm} if kind == "smolvla" else {})}
    options |= changes.pop("options", {})
    given = {
        "cameras": ["front"] if kind == "vqbet" else ["front", "wrist"],
        "image_size": (24, 32),
        "state_dim": 4,
        "action_dim": 3,
        "chunk_length": CHUNK,
        **changes,
    }
    return LerobotPolicyCfg(kind=kind, options=options, **given)


def _stats(first: float, dims: int) -> dict[str, list[float]]:
    """Statistics that differ between dimensions: minimum -2, -3, ..."""
    low = [first - i for i in range(dims)]
    high = [2.0 + i for i in range(dims)]
    std = [0.5 + 0.25 * i for i in range(dims)]
    mean = [0.125 * i for i in range(dims)]
    return {"mean": mean, "std": std, "min": low, "max": high, "q01": low, "q99": high}


NORM_STATS = {STATE: _stats(-2.0, 4), ACTION: _stats(-1.0, 3)}


def observation(rows: int = 3, seed: int = 0) -> Observation:
    rng = np.random.default_rng(seed)
    images = {
        name: rng.integers(0, 256, (rows, 24, 32, 3), dtype=np.uint8) for name in ("front", "wrist")
    }
    state = rng.uniform(-1, 1, (rows, 4)).astype(np.float32)
    words = ["open a door", "close drawer", "go to the red square"]
    return Observation(images, state, [words[row % 3] for row in range(rows)])


def batch(rows: int = 4, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    action = rng.uniform(-1, 1, (rows, CHUNK, 3)).astype(np.float32)
    is_pad = np.zeros((rows, CHUNK), bool)
    is_pad[0, 2:] = True
    return Batch(observation(rows, seed), action, is_pad)


def build(cfg: LerobotPolicyCfg, seed: int = 0):
    torch.manual_seed(seed)
    return cfg.build(NORM_STATS)


def as_lerobot(seen: Observation, cameras: list[str]) -> dict:
    """An observation as lerobot's dataset and loader give it."""
    found = {"task": seen.instruction, STATE: torch.from_numpy(seen.state)}
    for name in cameras:
        images = torch.from_numpy(seen.images[name]).float() / 255
        found[f"observation.images.{name}"] = images.movedim(-1, 1).contiguous()
    return found
