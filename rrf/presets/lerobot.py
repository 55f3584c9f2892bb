"""lerobot's own policies: ACT (arXiv:2304.13705), Diffusion Policy (arXiv:2303.04137) and SmolVLA
(arXiv:2506.01844), at their real sizes with lerobot's recipes, and two for a laptop.

ACT and Diffusion Policy do not read the instruction. On several tasks they must see in the image
which it is, so the laptop presets learn the six target tasks alone, each with an object of its own:
beside window-open, window-close would show the same images and ask for the opposite.

The smallest image encoder that lerobot has for both is ResNet-18 with 11.2 million parameters, so
that the laptop presets have 11.9 (ACT) and 12.3 million (Diffusion). They start from random
weights; ACT's encoder, whose batch normalisation never learns, suffers more from that than
Diffusion's. Give options.pretrained_backbone_weights=ResNet18_Weights.IMAGENET1K_V1 to let
torchvision download ImageNet's.
"""

import typing

from rrf.algorithms.vla.configs import AugmentationCfg, BehaviorCloningCfg
from rrf.envs.metaworld.tasks import INSTRUCTIONS
from rrf.policies.vla.lerobot.configs import LerobotPolicyCfg
from rrf.presets.compact_vla import TARGET_TASKS
from rrf.runners.configs import AdamWCfg, EMACfg, ScheduleCfg
from rrf.runners.supervised.configs import SupervisedRunnerCfg


def lerobot_act() -> SupervisedRunnerCfg:
    """ACT as lerobot configures it: 52 million parameters, chunks of 100 actions."""
    return _real_size(
        "lerobot-act",
        "act",
        {},
        chunk_length=100,
        optimizer=AdamWCfg(lr=1e-5, weight_decay=1e-4),
        schedule=ScheduleCfg(kind="constant"),
        max_grad_norm=10.0,
        batch_size=8,
    )


def lerobot_diffusion() -> SupervisedRunnerCfg:
    """Diffusion Policy as lerobot configures it, with one observation instead of two: 261 million
    parameters, chunks of 64 actions."""
    return _real_size(
        "lerobot-diffusion",
        "diffusion",
        {},
        chunk_length=64,
        optimizer=AdamWCfg(lr=1e-4, betas=(0.95, 0.999), weight_decay=1e-6),
        schedule=ScheduleCfg(kind="cosine", warmup_fraction=0.005),
        max_grad_norm=10.0,
        batch_size=64,
    )


def lerobot_smolvla() -> SupervisedRunnerCfg:
    """SmolVLA as lerobot configures it: 450 million parameters, of which the action expert learns.

    Set `policy.options.vlm_model_name` to a local directory of SmolVLM2-500M-Video-Instruct.
    """
    return _real_size(
        "lerobot-smolvla",
        "smolvla",
        {"load_vlm_weights": True},
        chunk_length=50,
        optimizer=AdamWCfg(lr=1e-4, betas=(0.9, 0.95), weight_decay=1e-10),
        schedule=ScheduleCfg(kind="cosine", warmup_fraction=0.033, final_factor=0.025),
        max_grad_norm=10.0,
        batch_size=64,
        precision="bf16",
        max_steps=30_000,
    )


def lerobot_act_laptop() -> SupervisedRunnerCfg:
    """ACT with 11.9 million parameters, on the six target tasks of Meta-World."""
    options = {
        "dim_model": 128,
        "n_heads": 4,
        "dim_feedforward": 512,
        "n_encoder_layers": 2,
        "use_vae": False,
        "dropout": 0.0,
    }
    return _laptop("lerobot-act-laptop", "act", options, AdamWCfg(lr=3e-4, weight_decay=1e-4))


def lerobot_diffusion_laptop() -> SupervisedRunnerCfg:
    """Diffusion Policy with 12.3 million parameters, on the six target tasks of Meta-World."""
    options = {
        "down_dims": [64, 128],
        "diffusion_step_embed_dim": 64,
        "num_train_timesteps": 50,
        "num_inference_steps": 10,
        "noise_scheduler_type": "DDIM",
        "prediction_type": "sample",  # learns in far fewer steps than the noise does
    }
    return _laptop(
        "lerobot-diffusion-laptop", "diffusion", options, AdamWCfg(lr=6e-4, weight_decay=1e-4)
    )


def _real_size(
    name: str, kind: str, options: dict[str, typing.Any], chunk_length: int, **run: typing.Any
) -> SupervisedRunnerCfg:
    return SupervisedRunnerCfg(
        experiment_name=name,
        policy=LerobotPolicyCfg(kind=kind, options=options, chunk_length=chunk_length),
        algorithm=BehaviorCloningCfg(augmentation=None),
        ema=None,
        device="cuda",
        save_interval=2500,
        validation_interval=2500,
        **{"max_steps": 100_000, **run},
    )


def _laptop(
    name: str, kind: str, options: dict[str, typing.Any], optimizer: AdamWCfg
) -> SupervisedRunnerCfg:
    return SupervisedRunnerCfg(
        experiment_name=name,
        instructions=[INSTRUCTIONS[task] for task in TARGET_TASKS],
        policy=LerobotPolicyCfg(
            kind=kind,
            options=options,
            cameras=["corner2"],
            image_size=(64, 64),
            state_dim=4,
            action_dim=4,
            chunk_length=4,
        ),
        algorithm=BehaviorCloningCfg(augmentation=AugmentationCfg(shift_px=2, state_noise=0.02)),
        optimizer=optimizer,
        schedule=ScheduleCfg(kind="one_cycle"),
        ema=EMACfg(decay=0.99),
        max_steps=1200,
        batch_size=32,
    )
