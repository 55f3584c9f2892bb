"""An environment that the tests of a module share."""

import pytest

from tests.envs.mjlab.mjlab_tasks import build


@pytest.fixture(scope="module")
def go1():
    env = build(num_envs=6)
    yield env
    env.close()
