"""The recordings of the supervised loop's tests."""

from tests.runners.supervised.conftest import dataset  # noqa: F401
