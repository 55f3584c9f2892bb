"""Small networks, the building blocks of policies. Configs do not import torch; networks do."""

from rrf.lookup import lazy_attributes
from rrf.networks.block_configs import FFTFilterCfg, MixtureOfExpertsCfg, VAEBackboneCfg
from rrf.networks.configs import (
    ImageEncoderCfg,
    InstructionEncoderCfg,
    MLPCfg,
    normed_mlp,
    plain_mlp,
)

__all__ = [
    "FFTFilterCfg",
    "ImageEncoderCfg",
    "InstructionEncoderCfg",
    "MLPCfg",
    "MixtureOfExpertsCfg",
    "VAEBackboneCfg",
    "normed_mlp",
    "plain_mlp",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "FFTFilter": "rrf.networks.blocks:FFTFilter",
        "ImageEncoder": "rrf.networks.encoders:ImageEncoder",
        "InstructionEncoder": "rrf.networks.encoders:InstructionEncoder",
        "MLP": "rrf.networks.mlp:MLP",
        "MixtureOfExperts": "rrf.networks.blocks:MixtureOfExperts",
        "VAEBackbone": "rrf.networks.blocks:VAEBackbone",
    },
    __all__,
)
