"""Small networks, the building blocks of policies. Configs do not import torch; networks do."""

from rrf.networks.configs import (
    ImageEncoderCfg,
    InstructionEncoderCfg,
    MLPCfg,
    normed_mlp,
    plain_mlp,
)
from rrf.registry import lazy_attributes

__all__ = ["ImageEncoderCfg", "InstructionEncoderCfg", "MLPCfg", "normed_mlp", "plain_mlp"]

__getattr__ = lazy_attributes(
    __name__,
    {name: f"rrf.networks.configs:{name}" for name in __all__}
    | {
        "MLP": "rrf.networks.mlp:MLP",
        "ImageEncoder": "rrf.networks.image_encoder:ImageEncoder",
        "InstructionEncoder": "rrf.networks.instruction_encoder:InstructionEncoder",
    },
)
