"""A simulator in a folder of its own: a dot goes to the square whose colour the instruction names.

It is what `docs/tutorials/own-simulator.md` builds. `rrf ... --import toy_simulator` runs the two
registrations below; within rrf, each would be a line in `rrf/envs/__init__.py` or
`rrf/presets/__init__.py`.
"""

from rrf.envs import ENVS
from rrf.presets import PRESETS

ENVS.register("toy", f"{__name__}.configs:ToyCfg")
PRESETS.register("toy-sft", f"{__name__}.presets:sft")
PRESETS.register("toy-dagger", f"{__name__}.presets:dagger")
PRESETS.register("toy-grpo", f"{__name__}.presets:grpo")
