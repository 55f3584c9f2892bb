"""The example of the guide: an episode of Meta-World whose policy runs on a server."""

import importlib.util
from pathlib import Path

import pytest

from rrf.client import PolicyClient
from rrf.serving.model import ServedPolicy


@pytest.fixture(scope="module")
def loop():
    path = Path(__file__).parents[2] / "docs/how-to/serving/robot_loop.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_robot_loop_of_the_guide_plays_an_episode_with_every_schedule(
    loop, serving, flow_checkpoint
):
    running = serving(ServedPolicy(flow_checkpoint, "flow"))
    with PolicyClient(running.url) as client:
        for schedule, asked in (("receding", 2), ("ensemble", 4), ("real-time", None)):
            before = running.server.metrics.requests._value.get()
            assert loop.play(client, schedule, steps=4) == (False, 4)
            num_asked = running.server.metrics.requests._value.get() - before
            assert num_asked == asked or (asked is None and 2 <= num_asked <= 4)
