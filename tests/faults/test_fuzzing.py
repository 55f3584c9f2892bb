"""Readers and what others may have written, changed by chance."""

import importlib.util

import pytest

if importlib.util.find_spec("hypothesis") is None:
    pytest.skip("hypothesis is not installed", allow_module_level=True)

from hypothesis import HealthCheck, Phase, given, settings

from tests.faults import fuzzed_readers
from tests.faults.fuzzing import check, inputs

NUM = 200  # of each reader


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    """The readers, in a workspace of their own."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RRF_HOME", str(home))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield fuzzed_readers.targets(home)


@pytest.mark.slow
def test_what_is_changed_by_chance_is_valid_before(targets):
    assert len(targets) > 20
    for target in targets:
        target.read(target.encode(target.document))


@pytest.mark.slow
def test_whatever_is_read_gives_a_value_or_an_error_that_says_why(targets):
    for target in targets:
        _try(target, NUM)
        target.read(target.encode(target.document))  # which it still does


def _try(target, number):
    @settings(
        max_examples=number,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(inputs(target))
    def reads(content):
        check(target, content)

    reads()
