"""Simulators behind two environment contracts (`rrf.envs.vec_env` for images and action chunks,
`rrf.envs.control_env` for states), with renderers, worker processes and demonstrations.
"""

from rrf.registry import Registry

ENVS = Registry("environment", {"metaworld": "rrf.envs.metaworld.configs:MetaWorldCfg"})
"""Environment name -> its config class."""
