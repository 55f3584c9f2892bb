"""Imitation of recordings without images, by the path that docs/how-to/imitate-states.md shows."""

import typing

import numpy as np
import pytest

from rrf import presets
from rrf.data.conversion.convert import convert
from rrf.data.schema import Observation
from rrf.data.transport.publish import publish
from rrf.data.validation.validate import validate
from rrf.runners.checkpoints import checkpoint
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.supervised.runner import build_runner
from tests.data.conftest import make_cfg, write_raw


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Ten episodes of states, published."""
    folder = tmp_path_factory.mktemp("states")
    raw = write_raw(folder / "raw", {"pull": [8] * 10})
    cfg = make_cfg(cameras={}, image_size=None)
    convert(cfg, raw, folder / "converted")
    validate("toy", folder / "converted", cfg.checks, folder / "reports")
    publish(folder / "converted", folder / "reports", folder / "toy")
    return folder / "toy"


@pytest.mark.parametrize(
    ("preset", "more"),
    [
        ("compact-state", {}),
        ("compact-vla-pretrain", {"instructions": None, "policy.cameras": []}),
    ],
)
def test_states_are_imitated_without_a_word_about_images(dataset, tmp_path, preset, more):
    few = {"max_steps": 4, "batch_size": 8, "validation_interval": 2, "trackers": []}
    cfg = presets.resolve(preset, few | more | {"dataset": str(dataset)} | SIZES[preset])
    assert isinstance(cfg, SupervisedRunnerCfg)
    runner = build_runner(cfg, tmp_path)
    runner.run()
    assert runner.split.validation is not None
    assert runner.split.validation.num_frames == 8  # the last of ten episodes
    assert (runner.cfg.policy.cameras, tuple(runner.cfg.policy.image_size)) == ([], (0, 0))
    assert (tmp_path / "global_step_4").is_dir()
    policy: typing.Any = checkpoint.load_policy(checkpoint.find(tmp_path))
    seen = Observation(images={}, state=np.zeros((1, 4), np.float32), instruction=["pull"])
    assert policy.sample(seen, greedy=True).actions.shape == (1, 2, 3)


SIZES = {
    "compact-state": {},
    "compact-vla-pretrain": {"policy.state_dim": 4, "policy.action_dim": 3},
}
