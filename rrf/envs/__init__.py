"""Simulators behind one vector-environment contract (`rrf.envs.vec_env`), renderers, workers and
demonstrations.
"""

from rrf.registry import Registry

ENVS = Registry("environment", {"metaworld": "rrf.envs.metaworld.configs:MetaWorldCfg"})
"""Environment name -> its config class."""
