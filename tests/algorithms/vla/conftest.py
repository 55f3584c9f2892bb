"""The recordings of the supervised loop's tests, in one thread."""

from tests.runners.conftest import _one_thread  # noqa: F401
from tests.runners.supervised.conftest import dataset  # noqa: F401
