"""Simulators behind two environment contracts (`rrf.envs.vec_env` for images and action chunks,
`rrf.envs.control_env` for states), with renderers, worker processes and demonstrations.
"""

from rrf.lookup import PLUGIN_GROUP, Lookup, lazy_attributes

ENVS = Lookup(
    "environment",
    {
        "aloha": "rrf.envs.aloha.configs:AlohaCfg",
        "calvin": "rrf.envs.calvin.configs:CalvinCfg",
        "g1-table": "rrf.envs.humanoid.configs:HumanoidCfg",
        "humanoid-psi0": "rrf.envs.humanoid.configs:HumanoidPsi0Cfg",
        "isaaclab": "rrf.envs.isaaclab.configs:IsaacLabCfg",
        "libero": "rrf.envs.libero.configs:LiberoCfg",
        "libero-plus": "rrf.envs.libero.configs:LiberoPlusCfg",
        "maniskill": "rrf.envs.maniskill.configs:ManiskillCfg",
        "maniskill-gpu": "rrf.envs.maniskill.configs:ManiskillGpuCfg",
        "metaworld": "rrf.envs.metaworld.configs:MetaWorldCfg",
        "pusht": "rrf.envs.pusht.configs:PushtCfg",
        "put-on-plate": "rrf.envs.maniskill.bridge_configs:PutOnPlateCfg",
        "robosuite": "rrf.envs.robosuite.configs:RobosuiteCfg",
        "robotwin": "rrf.envs.robotwin.configs:RobotwinCfg",
        "simpler": "rrf.envs.maniskill.bridge_configs:BridgeCfg",
    },
    own=f"one of your own: --import MODULE, in flows a plugin (an entry point '{PLUGIN_GROUP}')",
)
"""Environment name -> its config class."""

__getattr__ = lazy_attributes(
    __name__,
    {
        "as_gymnasium": "rrf.envs.gymnasium.vector:as_gymnasium",
        "as_gymnasium_env": "rrf.envs.gymnasium.single:as_gymnasium_env",
        "as_sb3": "rrf.envs.gymnasium.stable_baselines3:as_sb3",
    },
    ["ENVS"],
)
