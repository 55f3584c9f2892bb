"""lerobot's policies of the smallest size, and observations for them."""

from pathlib import Path

import numpy as np
import torch

from rrf.data.schema import ACTION, STATE, Batch, Observation
from rrf.policies.vla.lerobot.configs import LerobotPolicyCfg
from rrf.policies.vla.lerobot.kinds import KINDS
from tests.policies.vla.lerobot import tiny_backbones as tiny
from tests.policies.vla.lerobot.tiny_smolvlm import write_tiny_smolvlm

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
    "multi_task_dit": {
        "hidden_dim": 16,
        "num_layers": 1,
        "num_heads": 2,
        "timestep_embed_dim": 16,
        "num_train_timesteps": 10,
        "image_resize_shape": [32, 32],
        "image_crop_shape": None,
        "tokenizer_max_length": 8,
    },
    "xvla": {
        "florence_config": {
            "text_config": {
                "vocab_size": 32,
                "d_model": 16,
                "encoder_layers": 1,
                "decoder_layers": 1,
                "encoder_attention_heads": 2,
                "decoder_attention_heads": 2,
                "encoder_ffn_dim": 32,
                "decoder_ffn_dim": 32,
                "max_position_embeddings": 64,
                "pad_token_id": 0,
                "dropout": 0.0,
            },
            "vision_config": {
                "depths": [1, 1],
                "embed_dim": [8, 16],
                "num_heads": [2, 2],
                "num_groups": [2, 2],
                "patch_size": [7, 3],
                "patch_stride": [4, 2],
                "patch_padding": [3, 1],
                "patch_prenorm": [False, True],
                "window_size": 4,
                "projection_dim": 16,
                "drop_path_rate": 0.0,
            },
        },
        "resize_imgs_with_padding": [32, 32],
        "tokenizer_max_length": 8,
        "hidden_size": 16,
        "depth": 1,
        "num_heads": 2,
        "num_domains": 2,
        "len_soft_prompts": 2,
        "dim_time": 8,
        "max_len_seq": 64,
        "max_state_dim": 8,
        "max_action_dim": 8,
        "num_denoising_steps": 3,
    },
    "eo1": {"max_state_dim": 8, "max_action_dim": 8, "num_denoise_steps": 3},
    "evo1": {
        "max_state_dim": 8,
        "max_action_dim": 8,
        "max_views": 2,
        "image_resolution": [32, 32],
        "vlm_num_layers": 2,
        "vlm_dtype": "float32",
        "use_flash_attn": False,
        "embed_dim": 32,
        "hidden_dim": 16,
        "state_hidden_dim": 16,
        "num_heads": 2,
        "num_layers": 1,
        "num_inference_timesteps": 3,
    },
    "wall_x": {"max_state_dim": 8, "max_action_dim": 8},
    "vla_jepa": {
        "action_model_type": "DiT-test",
        "action_hidden_size": 16,
        "action_num_layers": 2,
        "action_dropout": 0.0,
        "num_action_tokens_per_timestep": 1,
        "num_embodied_action_tokens_per_instruction": 2,
        "num_inference_timesteps": 3,
        "repeated_diffusion_steps": 2,
        "torch_dtype": "float32",
    },
    "molmoact2": {"model_dtype": "float32", "num_state_tokens": 8},
}
_MODELS = {
    "smolvla": {"vlm_model_name": write_tiny_smolvlm},
    "multi_task_dit": {
        "vision_encoder_name": tiny.write_tiny_clip,
        "text_encoder_name": tiny.write_tiny_clip,
    },
    "xvla": {"tokenizer_name": tiny.write_tiny_tokenizer},
    "eo1": {"vlm_base": tiny.write_tiny_qwen2_5_vl},
    "evo1": {"vlm_model_name": tiny.write_tiny_internvl},
    "wall_x": {"pretrained_name_or_path": tiny.write_tiny_wall_x},
    "vla_jepa": {"qwen_model_name": tiny.write_tiny_qwen3_vl},
    "molmoact2": {"checkpoint_path": tiny.write_tiny_molmoact2},
}


def directories(kind: str, folder: Path) -> dict[str, str]:
    """Tiny models for a kind: option -> directory."""
    torch.manual_seed(0)
    return {
        option: write(folder / f"clip-{option}") for option, write in _MODELS.get(kind, {}).items()
    }


def policy_cfg(kind: str, models: dict[str, str] | None = None, **changes) -> LerobotPolicyCfg:
    """A config for two cameras (VQ-BeT: one) of 24 by 32 pixels, 4 states and 3 actions."""
    options = {**OPTIONS[kind], **(models or {}), **changes.pop("options", {})}
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


def comparable(kind: str) -> Observation:
    """As many rows as lerobot and we predict in the same way: we take some kinds row by row."""
    return observation(1 if KINDS[kind].is_alone else 3)


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


class Zoo:
    """Policies of all kinds, each built once, with the directories of the models in them."""

    def __init__(self, root: Path):
        self._root = root
        self._models: dict[str, dict[str, str]] = {}
        self._policies: dict = {}

    def models(self, kind: str) -> dict[str, str]:
        if kind not in self._models:
            self._models[kind] = directories(kind, self._root / kind)
        return self._models[kind]

    def cfg(self, kind: str, **changes) -> LerobotPolicyCfg:
        return policy_cfg(kind, self.models(kind), **changes)

    def policy(self, kind: str):
        """A policy that no test changes, in evaluation mode, without layers that begin as zeros."""
        if kind not in self._policies:
            policy = self._policies[kind] = build(self.cfg(kind)).eval()
            with torch.no_grad():
                for weight in policy.parameters():
                    weight += 0.02 * torch.randn_like(weight)
        return self._policies[kind]
