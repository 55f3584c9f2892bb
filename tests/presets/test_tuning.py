"""What docs/models.md says about adapters can be typed."""

import re
import shlex
from pathlib import Path

from rrf.networks.vlm.configs import LoRACfg
from rrf.presets import resolve

PAGE = Path(__file__).parents[2] / "docs/models.md"


def test_the_commands_of_the_page_switch_adapters_on_and_freeze_the_backbone():
    lines = re.findall(r"^rrf train .*policy\.backbone\.tuning=.*$", PAGE.read_text(), re.M)
    tuned = []
    for line in lines:
        _, _, preset, *overrides = shlex.split(line)
        tuned.append(resolve(preset, overrides).policy.backbone.tuning)
    assert tuned == [LoRACfg(rank=16, alpha=16), "frozen"]
    assert resolve("pi05-sft", []).policy.backbone.tuning == "full"
