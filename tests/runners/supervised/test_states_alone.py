"""Imitation of recordings without images, by the path that docs/how-to/imitate-states.md shows."""

import re
import typing
import warnings

import numpy as np
import pytest

from rrf import presets
from rrf.data.conversion.convert import convert
from rrf.data.schema import Observation
from rrf.data.transport.publish import publish
from rrf.data.validation.validate import validate
from rrf.runners.checkpoints import checkpoint
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.supervised.frames import split_of, warn_of_lost_words
from rrf.runners.supervised.runner import build_runner
from tests.data.conftest import make_cfg, write_raw


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Ten episodes of states, published."""
    return make_dataset(tmp_path_factory.mktemp("states"), {"pull": [8] * 10})


@pytest.fixture(scope="module")
def two_instructions(tmp_path_factory):
    return make_dataset(tmp_path_factory.mktemp("two"), {"pull": [8] * 5, "push": [8] * 5})


def make_dataset(folder, tasks):
    raw = write_raw(folder / "raw", tasks)
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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "cannot tell 'pull it' from 'push it', .*vocabulary='.it, pull, push.'"),
        (["pull"], None),
        (["pull", "push"], None),
    ],
)
def test_words_that_the_policy_lacks_are_told_if_they_matter(words, told, recwarn):
    warn_of_lost_words(words, ["pull it", "it pull", "push it"])
    assert len(recwarn) == (told is not None)
    assert told is None or re.search(told, str(recwarn[0].message))


def test_a_training_says_that_the_policy_lacks_words(two_instructions):
    few = {"dataset": str(two_instructions), "trackers": []}
    with pytest.warns(UserWarning, match="cannot tell 'do the pull' from 'do the push'"):
        split_of(presets.resolve("compact-state", few))
    few["policy.instruction_encoder.vocabulary"] = ["pull", "push"]
    with warnings.catch_warnings(action="error"):
        split_of(presets.resolve("compact-state", few))


SIZES = {
    "compact-state": {},
    "compact-vla-pretrain": {"policy.state_dim": 4, "policy.action_dim": 3},
}
