"""A simulator with the physics of MuJoCo: a hand pushes the cube that the instruction names.

It is what `docs/tutorials/mujoco-simulator.md` builds; `rrf ... --import mujoco_simulator` runs the
registrations below.
"""

from rrf.envs import ENVS
from rrf.presets import PRESETS

ENVS.register("pusher", f"{__name__}.configs:PusherCfg")
PRESETS.register("pusher-sft", f"{__name__}.presets:sft")
PRESETS.register("pusher-grpo", f"{__name__}.presets:grpo")
