import pytest

from tests.envs.foreign.real import workspace_of


@pytest.fixture(scope="module")
def isaaclab():
    """A workspace in which Isaac Lab is set up."""
    with workspace_of("isaaclab"):
        yield
