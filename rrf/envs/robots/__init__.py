"""Robots of lerobot (`Robot`): limits, teleoperation, recordings, and a simulated SO-101."""

from rrf.lookup import lazy_attributes

__getattr__ = lazy_attributes(  # lerobot looks for a device beside the module of its config
    __name__,
    {
        "SO101Sim": "rrf.envs.robots.so101_sim:SO101Sim",
        "SO101SimLeader": "rrf.envs.robots.so101_sim:SO101SimLeader",
    },
)
